"""What every trained system promises, tested for all files of `models/` that are one: a new file is found.

A system's `Config` has a default for every field, `streams` (stream -> width) and `query_width`. The tests
shrink whatever sizes of `SMALL` it has. A system that promises less for a reason says so in `LEFT_UNUSED`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models import config_of, model_names, new_model
from whenabouts_systems.models.decoding import Decoding, best_spans
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Explainer,
    Localizer,
    QueryBatch,
    Retriever,
    SpanScores,
    joined,
    max_over_keys,
)

SMALL: Mapping[str, Any] = {
    "hidden": 32,
    "heads": 4,
    "max_clips": 24,
    "inner": 48,
    "max_tokens": 12,
    "map_layers": 2,
    "dummies": 6,
}
"""Sizes that a tiny system has, by the name of the setting; a system takes those that it knows."""

_SELF = "decoder.0.attention"
_OF_ANCHORS = frozenset(
    f"decoder.layers.0.attention.{part}.weight" for part in ("content_query", "content_key", "value")
)
_SLOW_TO_LEARN: Mapping[str, float] = {
    "moment_detr": 1e-3,
    "qd_detr": 3e-3,
    "cg_detr": 3e-3,
    "tr_detr": 1e-3,
    "uvcom": 1e-3,
    "eatr": 3e-3,
}
"""Systems that answer windows, with the rate at which they learn a small batch in some more steps."""
LEFT_UNUSED: Mapping[str, frozenset[str]] = {
    # Windows hold nothing yet where the first decoder layer begins, so that what is mixed of them is nothing.
    "moment_detr": frozenset({f"{_SELF}.in_proj_weight", f"{_SELF}.out_proj.weight", f"{_SELF}_norm.weight"}),
    "qd_detr": _OF_ANCHORS,
    "cg_detr": _OF_ANCHORS,
    "tr_detr": _OF_ANCHORS,
}
"""Parameters that no loss reaches, by system, with the reason beside them."""
_ROUNDING: Mapping[str, frozenset[str]] = {
    # A hinge of differences does not see what is added to all scores.
    "moment_detr": frozenset({"salient.bias"}),
    "tr_detr": frozenset({"salient.bias"}),
    "eatr": frozenset({"salient.bias"}),
}
"""Parameters whose gradient is zero, but for rounding."""

STREAMS: Mapping[str, Mapping[str, int]] = {
    "one stream": {"video": 14},
    "two streams": {"video": 14, "sub": 10},
}
QUERY_WIDTH = 10


@dataclass(frozen=True)
class Case:
    """A system with the streams it reads."""

    name: str
    streams: Mapping[str, int]

    def config(self, **settings: Any) -> Any:
        known = {field.name for field in fields(config_of(self.name, {}))}
        sizes = {key: value for key, value in SMALL.items() if key in known}
        return config_of(
            self.name, {**sizes, "streams": dict(self.streams), "query_width": QUERY_WIDTH, **settings}
        )

    def model(self, seed: int = 0, **settings: Any) -> Any:
        """In evaluation mode: dropout is off."""
        torch.manual_seed(seed)
        model = new_model(self.name, self.config(**settings))
        return model.eval()


@pytest.fixture(params=list(STREAMS))
def streams(request: pytest.FixtureRequest) -> Mapping[str, int]:
    return STREAMS[request.param]


@pytest.fixture(params=model_names())
def case(request: pytest.FixtureRequest, streams: Mapping[str, int]) -> Case:
    return Case(request.param, streams)


@pytest.fixture(params=model_names())
def full_case(request: pytest.FixtureRequest) -> Case:
    """With two streams: for what a single stream could only repeat."""
    return Case(request.param, STREAMS["two streams"])


@pytest.fixture()
def localizer(full_case: Case) -> Any:
    model = full_case.model()
    if not localizes(model):
        pytest.skip(f"{full_case.name} finds no spans")
    return model


def _unit(values: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
    return values / (length + 1e-5)


def _mask(lengths: list[int], size: int | None = None) -> Tensor:
    return torch.arange(size or max(lengths)) < torch.tensor(lengths)[:, None]


def make_videos(widths: Mapping[str, int], lengths: list[int], seed: int = 1) -> ClipBatch:
    generator = torch.Generator().manual_seed(seed)
    mask = _mask(lengths)
    made = {
        name: _unit(torch.randn(*mask.shape, width, generator=generator)) * mask[..., None]
        for name, width in widths.items()
    }
    return ClipBatch(made, mask)


def make_queries(lengths: list[int], seed: int = 2) -> QueryBatch:
    mask = _mask(lengths)
    tokens = torch.randn(*mask.shape, QUERY_WIDTH, generator=torch.Generator().manual_seed(seed))
    return QueryBatch(_unit(tokens) * mask[..., None], mask)


def make_batch(
    widths: Mapping[str, int],
    clips: list[int],
    tokens: list[int],
    video_of: list[int],
    spans: list[list[int]],
    **more: Any,
) -> Batch:
    own = torch.tensor(video_of)
    positives = torch.zeros(len(tokens), len(clips), dtype=torch.bool)
    positives[torch.arange(len(tokens)), own] = True
    return Batch(
        make_queries(tokens),
        make_videos(widths, clips),
        own,
        torch.tensor(spans),
        **{"positives": positives, **more},
    )


def usual_batch(widths: Mapping[str, int], **more: Any) -> Batch:
    """Five queries, two of them of one video, and a fifth video that is nobody's."""
    return make_batch(
        widths,
        clips=[9, 4, 7, 6, 8],
        tokens=[6, 3, 5, 1, 4],
        video_of=[0, 1, 2, 0, 3],
        spans=[[2, 4], [0, 1], [6, 6], [5, 8], [0, 5]],
        **more,
    )


def retrieves(model: Any) -> bool:
    return isinstance(model, Retriever)


def localizes(model: Any) -> bool:
    return isinstance(model, Localizer)


def total(losses: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(losses.values())).sum()


def gradients(model: Any, batch: Batch) -> dict[str, Tensor | None]:
    torch.manual_seed(3)
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(total(model.loss(batch)), parameters, allow_unused=True)
    return dict(zip(names, found, strict=True))


def spans_of(model: Any, queries: QueryBatch, videos: ClipBatch) -> SpanScores:
    """Query p with video p."""
    scores: SpanScores = model.score_spans(model.encode_queries(queries), model.encode_videos(videos))
    return scores


def videos_of(model: Any, queries: QueryBatch, videos: ClipBatch) -> Tensor:
    scores: Tensor = model.score_videos(model.encode_queries(queries), model.encode_videos(videos))
    return scores


def span_table(scores: SpanScores) -> Tensor:
    """(P, T, T) the score of every span; -inf for reversed ones and those that touch a masked clip."""
    table = scores.start[:, :, None] + scores.end[:, None, :]
    if scores.spans is not None:
        table = table + scores.spans
    if scores.windows is not None:  # each where it would begin and end on the grid
        first, end, score = scores.windows.unbind(-1)
        last = torch.minimum(end.round().long(), scores.mask.sum(1)[:, None]) - 1
        first = torch.minimum(first.round().long().clamp(min=0), last)
        cells = first.clamp(min=0) * table.shape[1] + last.clamp(min=0)
        table = (table - 1e4).flatten(1).scatter_reduce(1, cells, score, "amax").view(table.shape)
    real = scores.mask[:, :, None] & scores.mask[:, None, :]
    return table.masked_fill(~(real & torch.ones_like(real).triu()), -torch.inf)


def close(left: Tensor, right: Tensor) -> bool:
    """Equal but for the order in which float32 values are added up."""
    return torch.allclose(left, right, rtol=1e-4, atol=2e-5)


# --- settings and capability


def test_systems_are_found_by_looking_into_the_folder() -> None:
    assert "reloclnet" in model_names()
    assert all(name not in model_names() for name in ("fusion", "inputs", "peaks", "protocol", "zero_shot"))


@pytest.mark.parametrize("name", model_names())
def test_every_setting_has_a_default_and_none_can_be_changed_afterwards(name: str) -> None:
    config = config_of(name, {})
    assert is_dataclass(config)
    with pytest.raises(FrozenInstanceError):
        setattr(config, fields(config)[0].name, None)


def test_settings_survive_json(full_case: Case) -> None:
    config = full_case.config()
    again = config_of(full_case.name, json.loads(json.dumps(asdict(config))))
    assert again == config
    assert full_case.model().config == config


@pytest.mark.parametrize("name", model_names())
def test_an_unknown_setting_is_named(name: str) -> None:
    with pytest.raises(UsageError, match="hiden"):
        config_of(name, {"hiden": 3})


def test_a_system_finds_videos_or_spans_and_says_how_much_the_video_counts(case: Case) -> None:
    model = case.model()
    assert retrieves(model) or localizes(model)
    if localizes(model):
        assert math.isfinite(model.video_weight)
        assert model.video_weight >= 0


# --- encodings


def test_encodings_have_a_row_for_each_query_and_video(case: Case) -> None:
    model = case.model()
    batch = usual_batch(case.streams)
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    assert all(len(one) == 5 for one in (*queries.search.values(), *queries.parts.values()))
    assert all(len(one) == 5 for one in (*videos.keys.values(), *videos.parts.values()))
    for name, keys in videos.keys.items():
        assert keys.shape[:2] == videos.key_masks[name].shape
        assert videos.key_masks[name].any(1).all(), f"a video has no key in {name}"
    if videos.keys:
        assert set(queries.search) <= set(videos.keys)
        assert max_over_keys(queries, videos).isfinite().all()


def test_joined_encodings_score_like_one_batch(case: Case) -> None:
    model = case.model()
    queries = make_queries([4, 2])
    long, short = make_videos(case.streams, [7]), make_videos(case.streams, [3], seed=5)
    together = joined([model.encode_videos(long), model.encode_videos(short)])
    encoded = model.encode_queries(queries)
    if localizes(model):
        scores = model.score_spans(encoded, together)
        alone = model.score_spans(encoded.take(torch.tensor([1])), model.encode_videos(short))
        assert close(span_table(scores)[1, :3, :3], span_table(alone)[0])
    if retrieves(model):
        scores = model.score_videos(encoded, together)
        assert close(scores[:, 1:], model.score_videos(encoded, model.encode_videos(short)))


def test_encoding_and_scoring_change_nothing_and_are_the_same_again(full_case: Case) -> None:
    model, batch = full_case.model(), usual_batch(full_case.streams)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    tokens = batch.queries.tokens.clone()
    clips = {name: one.clone() for name, one in batch.videos.streams.items()}
    first = [_everything(model, batch) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*first, strict=True))
    assert torch.equal(batch.queries.tokens, tokens)
    assert all(torch.equal(batch.videos.streams[name], clips[name]) for name in clips)
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())


def _everything(model: Any, batch: Batch) -> list[Tensor]:
    """All scores of the queries with the videos, and of the spans of query p in video p."""
    return _scored(model, batch.queries, batch.videos)


def _scored(model: Any, queries: QueryBatch, videos: ClipBatch) -> list[Tensor]:
    found = []
    if retrieves(model):
        found.append(videos_of(model, queries, videos))
    if localizes(model):
        found.append(span_table(spans_of(model, queries, videos)))
    return found


# --- padding and batch-mates


def test_what_lies_in_the_padding_moves_no_score(case: Case) -> None:
    model, batch = case.model(), usual_batch(case.streams)
    queries = QueryBatch(_littered(batch.queries.tokens, batch.queries.mask), batch.queries.mask)
    clips = {name: _littered(one, batch.videos.mask) for name, one in batch.videos.streams.items()}
    littered = replace(batch, queries=queries, videos=ClipBatch(clips, batch.videos.mask))
    for one, other in zip(_everything(model, batch), _everything(model, littered), strict=True):
        assert close(one, other)
    torch.manual_seed(4)
    loss = total(model.loss(batch))
    torch.manual_seed(4)
    assert close(loss, total(model.loss(littered)))


def _littered(values: Tensor, mask: Tensor) -> Tensor:
    """With large numbers, all different, in the padding."""
    litter = torch.arange(values.numel()).sin().view(values.shape) * 100
    return torch.where(mask[..., None], values, litter)


def test_more_padding_moves_no_score(full_case: Case) -> None:
    model = full_case.model()
    queries, videos = make_queries([5, 3]), make_videos(full_case.streams, [8, 5])
    wide = ClipBatch(
        {name: _widened(one, 6) for name, one in videos.streams.items()}, _widened(videos.mask, 6)
    )
    long = QueryBatch(_widened(queries.tokens, 4), _widened(queries.mask, 4))
    if retrieves(model):
        assert close(videos_of(model, queries, videos), videos_of(model, long, wide))
    if localizes(model):
        table = span_table(spans_of(model, long, wide))
        assert close(span_table(spans_of(model, queries, videos)), table[:, :8, :8])
        assert (table[:, 8:] == -torch.inf).all()


def _widened(values: Tensor, more: int) -> Tensor:
    """With that many rows of nothing behind."""
    return torch.cat([values, values.new_zeros(len(values), more, *values.shape[2:])], dim=1)


def test_batch_mates_move_no_score(case: Case) -> None:
    model, batch = case.model(), usual_batch(case.streams)
    together = _everything(model, batch)
    for row, (clips, tokens) in enumerate(zip([9, 4, 7, 6, 8], [6, 3, 5, 1, 4], strict=True)):
        queries = QueryBatch(
            batch.queries.tokens[row : row + 1, :tokens], batch.queries.mask[row : row + 1, :tokens]
        )
        videos = ClipBatch(
            {name: one[row : row + 1, :clips] for name, one in batch.videos.streams.items()},
            batch.videos.mask[row : row + 1, :clips],
        )
        alone = _scored(model, queries, videos)
        for one, other in zip(together, alone, strict=True):
            mine = one[row, row : row + 1] if one.dim() == 2 else one[row, :clips, :clips]
            assert close(mine, other[0])


def test_the_order_of_videos_and_queries_moves_no_score(full_case: Case) -> None:
    model, batch = full_case.model(), usual_batch(full_case.streams)
    rows = torch.tensor([3, 0, 4, 2, 1])
    shuffled = replace(
        batch,
        queries=QueryBatch(batch.queries.tokens[rows], batch.queries.mask[rows]),
        videos=ClipBatch(
            {name: one[rows] for name, one in batch.videos.streams.items()}, batch.videos.mask[rows]
        ),
    )
    for one, other in zip(_everything(model, batch), _everything(model, shuffled), strict=True):
        assert close(one[rows][:, rows] if one.dim() == 2 else one[rows], other)


# --- spans


def test_real_spans_score_finite_and_masked_ones_are_marked(localizer: Any, full_case: Case) -> None:
    batch = usual_batch(full_case.streams)
    scores = spans_of(localizer, batch.queries, batch.videos)
    assert len(scores) == 5
    assert scores.mask.dtype == torch.bool
    table = span_table(scores)
    possible = torch.ones(table.shape[1:]).triu().bool()
    real = scores.mask[:, :, None] & scores.mask[:, None, :] & possible
    assert table[real].isfinite().all()
    assert not table.isnan().any()


def test_a_query_is_paired_with_its_own_row_of_videos(localizer: Any, full_case: Case) -> None:
    batch = usual_batch(full_case.streams)
    queries = localizer.encode_queries(batch.queries)
    videos = localizer.encode_videos(batch.videos)
    rows = torch.tensor([2, 2, 0])
    pairs = localizer.score_spans(queries.take(torch.tensor([0, 1, 4])), videos.take(rows))
    for pair, (query, video) in enumerate(zip([0, 1, 4], rows, strict=True)):
        alone = localizer.score_spans(queries.take(torch.tensor([query])), videos.take(video[None]))
        assert close(span_table(pairs)[pair], span_table(alone)[0])


@pytest.mark.parametrize("ends", ["inclusive", "exclusive", "as-released"])
def test_impossible_spans_are_never_returned(localizer: Any, full_case: Case, ends: Any) -> None:
    """More are asked for than there are; what is returned lies in the video and has an allowed length."""
    batch = usual_batch(full_case.streams)
    scores = spans_of(localizer, batch.queries, batch.videos)
    decoding = Decoding(min_clips=2, max_clips=4, ends=ends)
    best = best_spans(scores, decoding, 60)
    if best.borders is not None:
        pytest.skip(f"{full_case.name} answers windows, see test_windows.py")
    found = best.score > -torch.inf
    least, greatest = decoding.offsets
    assert greatest is not None
    table = span_table(scores)
    for pair in range(len(scores)):
        first, last = best.first[pair][found[pair]], best.last[pair][found[pair]]
        assert scores.mask[pair][first].all()
        assert scores.mask[pair][last].all()
        assert (last - first >= least).all()
        assert (last - first <= greatest).all()
        assert close(best.score[pair][found[pair]], table[pair, first, last])
        allowed = [
            int((table[pair].diagonal(offset) > -torch.inf).sum()) for offset in range(least, greatest + 1)
        ]
        assert len(first) == sum(allowed)


# --- the loss


def test_every_parameter_gets_a_finite_gradient(case: Case) -> None:
    """With hard negatives chosen, which some systems have parts for."""
    chosen = torch.tensor([[1, 4], [2, -1], [4, 3], [2, 3], [0, 4]])
    model = case.model()
    found = gradients(model, usual_batch(case.streams, epoch=50, progress=0.5, negatives=chosen))
    unused = {name for name, value in found.items() if value is None or not value.any()}
    assert unused - _ROUNDING.get(case.name, frozenset()) == LEFT_UNUSED.get(case.name, frozenset())
    assert all(value is None or value.isfinite().all() for value in found.values())


def test_the_loss_is_named_finite_scalars(full_case: Case) -> None:
    losses = full_case.model().loss(usual_batch(full_case.streams))
    assert losses
    for name, value in losses.items():
        assert value.shape == (), name
        assert value.isfinite(), name
        assert value.requires_grad, name


def test_the_loss_is_nearly_the_same_in_half_precision(full_case: Case) -> None:
    """bfloat16 where PyTorch's autocast allows it, as on a GPU; it has three digits."""
    model, batch = full_case.model(), usual_batch(full_case.streams)
    torch.manual_seed(3)
    exact = total(model.loss(batch))
    names, parameters = zip(*model.named_parameters(), strict=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(3)
        rough = total(model.loss(batch))
    assert rough.item() == pytest.approx(exact.item(), rel=0.05)
    slopes = dict(zip(names, torch.autograd.grad(rough, parameters, allow_unused=True), strict=True))
    assert _not_finite(slopes) == []


def test_the_same_seed_gives_the_same_loss_and_another_does_not(full_case: Case) -> None:
    batch = usual_batch(full_case.streams)
    losses = []
    for seed in (7, 7, 8):
        model = full_case.model(seed).train()
        torch.manual_seed(seed)
        losses.append(total(model.loss(batch)).item())
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def _corner_cases(widths: Mapping[str, int]) -> Iterator[tuple[str, Batch]]:
    yield "one query and its video", make_batch(widths, [5], [3], [0], [[1, 2]])
    yield "videos of one clip", make_batch(widths, [1, 1, 1], [3, 4, 2], [0, 1, 2], [[0, 0]] * 3)
    yield "queries of one token", make_batch(widths, [5, 3], [1, 1], [0, 1], [[1, 2], [0, 0]])
    yield "all queries of one video", make_batch(widths, [6], [3, 4, 2], [0, 0, 0], [[0, 1], [2, 3], [4, 5]])
    yield "a moment as long as its video", make_batch(widths, [4, 4], [3, 2], [0, 1], [[0, 3], [0, 3]])
    yield "no negative at all", usual_batch(widths, positives=torch.ones(5, 5, dtype=torch.bool))
    yield "no weight at all", usual_batch(widths, weight=torch.zeros(5))
    yield "weights", usual_batch(widths, weight=torch.tensor([1.0, 0.5, 0.0, 0.9, 0.1]))
    yield "relevant pairs", usual_batch(widths, confidence=0.5 * (1 - torch.eye(5)))
    yield "late in training", usual_batch(widths, epoch=99, progress=1.0)
    batch = usual_batch(widths)
    empty = ClipBatch(
        {name: torch.zeros_like(one) for name, one in batch.videos.streams.items()}, batch.videos.mask
    )
    yield "nothing in any stream", replace(batch, videos=empty)


def test_loss_and_gradient_stay_finite_in_every_corner(full_case: Case) -> None:
    model = full_case.model()
    names, parameters = zip(*model.named_parameters(), strict=True)
    for corner, batch in _corner_cases(full_case.streams):
        losses = model.loss(batch)
        assert total(losses).isfinite(), (corner, losses)
        slopes = torch.autograd.grad(total(losses), parameters, allow_unused=True)
        assert (corner, _not_finite(dict(zip(names, slopes, strict=True)))) == (corner, [])


def _not_finite(slopes: Mapping[str, Tensor | None]) -> list[str]:
    return [name for name, slope in slopes.items() if slope is not None and not slope.isfinite().all()]


def test_videos_without_a_single_subtitle_are_scored(full_case: Case) -> None:
    model, batch = full_case.model(), usual_batch(full_case.streams)
    streams = dict(batch.videos.streams)
    silent = replace(
        batch,
        videos=ClipBatch({**streams, "sub": torch.zeros_like(streams["sub"])}, batch.videos.mask),
    )
    for scores in _everything(model, silent):
        assert scores[scores != -torch.inf].isfinite().all()
        assert len(set(scores[0].flatten().tolist())) > 1
    assert total(model.loss(silent)).isfinite()


def test_a_batch_can_be_memorised(full_case: Case) -> None:
    """Within 120 steps; the check every tenth step ends most trainings after twenty or thirty."""
    if full_case.name in _SLOW_TO_LEARN:
        pytest.skip(f"{full_case.name} needs more steps, see the slow test below")
    _check_memorised(full_case, 3e-3, 120)


@pytest.mark.slow
@pytest.mark.parametrize("name", _SLOW_TO_LEARN)
def test_a_batch_of_windows_can_be_memorised(name: str) -> None:
    """Within 900 steps: TR-DETR needs 60 to 430, by its first weights and the machine's rounding."""
    _check_memorised(Case(name, STREAMS["two streams"]), _SLOW_TO_LEARN[name], 900, overlap=0.5)


def _check_memorised(case: Case, rate: float, steps: int, overlap: float = 1.0) -> None:
    model, batch = case.model(), _distinct_batch(case.streams)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        total(model.loss(batch)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % 10 == 0 and _memorised(model, batch, overlap):
            return
    pytest.fail(f"{case.name} does not learn four queries and their moments")


@torch.no_grad()
def _memorised(model: Any, batch: Batch, overlap: float) -> bool:
    """Whether the best video of each query is its own, and the best span in it overlaps the moment so far."""
    right = True
    if retrieves(model):
        right = videos_of(model, batch.queries, batch.videos).argmax(1).tolist() == batch.video_of.tolist()
    if localizes(model):
        table = span_table(spans_of(model, batch.queries, batch.videos))
        best = table.flatten(1).argmax(1)
        starts, ends = best // table.shape[1], best % table.shape[1]
        first, last = batch.spans.T
        shared = (torch.minimum(ends, last) - torch.maximum(starts, first) + 1).clamp(min=0)
        joined = ends - starts + 1 + last - first + 1 - shared
        right &= bool((shared >= overlap * joined).all())
    return right


def _distinct_batch(widths: Mapping[str, int]) -> Batch:
    """Query p belongs to video p, so that pairs and rows are the same."""
    return make_batch(
        widths,
        clips=[9, 4, 7, 6],
        tokens=[6, 3, 5, 2],
        video_of=[0, 1, 2, 3],
        spans=[[2, 4], [0, 1], [6, 6], [1, 4]],
    )


# --- a checkpoint


def test_weights_that_are_saved_and_loaded_score_the_same(full_case: Case, tmp_path: Path) -> None:
    model, batch = full_case.model(seed=1), usual_batch(full_case.streams)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = full_case.model(seed=2)
    before = _everything(other, batch)
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    for saved, fresh, again in zip(_everything(model, batch), before, _everything(other, batch), strict=True):
        assert not close(saved, fresh)
        assert torch.equal(saved, again)


def test_word_weights_add_up_to_one_in_each_stream_and_padding_weighs_nothing(full_case: Case) -> None:
    model = full_case.model()
    if not isinstance(model, Explainer):
        pytest.skip(f"{full_case.name} tells no weights of words")
    lengths = [6, 3, 1]
    encoded = full_case.model().encode_queries(make_queries(lengths))
    found = model.word_weights(encoded)
    assert set(found) == set(full_case.streams)
    for weights in found.values():
        assert weights.shape == (3, 6)
        torch.testing.assert_close(weights.sum(1), torch.ones(3))
        assert (weights[~_mask(lengths)] == 0).all()
