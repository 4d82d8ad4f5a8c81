"""CroCs: which pairs are negatives in each stage, and that the loss follows them and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from whenabouts.types import UsageError
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.crocs import negative_cross_entropy
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch

WIDTHS: Mapping[str, int] = {"video": 6}
QUERIES, VIDEOS, OTHERS = 5, 6, 4
VIDEO_OF = [0, 1, 2, 0, 1]
"""Three videos have queries; three more are there to be negatives."""


def model(name: str = "crocs", **settings: Any) -> Any:
    torch.manual_seed(0)
    told = {"streams": WIDTHS, "query_width": 5, "hidden": 8, "pooling_counts": (7,), "map_layers": 2}
    return new_model(name, config_of(name, {**told, "map_kernel": 3, **settings})).eval()


def queries(count: int, seed: int) -> QueryBatch:
    tokens = torch.randn(count, 4, 5, generator=torch.Generator().manual_seed(seed))
    return QueryBatch(tokens, torch.ones(count, 4, dtype=torch.bool))


def batch(**more: Any) -> Batch:
    generator = torch.Generator().manual_seed(1)
    clips = ClipBatch(
        {"video": torch.randn(VIDEOS, 8, 6, generator=generator)}, torch.ones(VIDEOS, 8, dtype=torch.bool)
    )
    own = torch.tensor(VIDEO_OF)
    spans = torch.tensor([[0, 2], [1, 4], [3, 3], [4, 7], [5, 6]])
    told = {"positives": torch.arange(VIDEOS) == own[:, None], **more}
    return Batch(queries(QUERIES, 2), clips, own, spans, **told)


def hard(**more: Any) -> Batch:
    """Each query has two videos, of which one may be none; videos 0 to 2 have up to three other queries."""
    told = {
        "negatives": torch.tensor([[3, 4], [4, 5], [3, -1], [5, 0], [2, 3]]),
        "other_queries": queries(OTHERS, 3),
        "negative_queries": torch.tensor([[0, 1, 2], [3, -1, -1], [1, 3, 0]]),
        **more,
    }
    return batch(**told)


def losses(system: Any, one: Batch) -> dict[str, float]:
    return {name: value.item() for name, value in system.loss(one).items()}


def moved_video(one: Batch, video: int) -> Batch:
    """The same with other features for one video."""
    clips = one.videos.streams["video"].clone()
    clips[video] = torch.randn(8, 6, generator=torch.Generator().manual_seed(9))
    return replace(one, videos=ClipBatch({"video": clips}, one.videos.mask))


def moved_query(one: Batch, row: int) -> Batch:
    """The same with other words for one of the queries that are negatives only."""
    assert one.other_queries is not None
    tokens = one.other_queries.tokens.clone()
    tokens[row] = torch.randn(4, 5, generator=torch.Generator().manual_seed(9))
    return replace(one, other_queries=QueryBatch(tokens, one.other_queries.mask))


def without(positives: Tensor, query: int, video: int) -> Tensor:
    changed = positives.clone()
    changed[query, video] = True
    return changed


# --- the first stage


def test_without_cross_entropy_of_negatives_the_first_stage_is_mmn() -> None:
    mine, theirs = model(negative_bce=0.0, contrast_epochs=7), model("mmn")
    assert mine.state_dict().keys() == theirs.state_dict().keys()
    found, expected = losses(mine, batch()), losses(theirs, batch())
    assert found.pop("negatives") == 0
    assert found == pytest.approx(expected)


def test_a_video_that_is_similar_to_every_query_does_not_count_at_all() -> None:
    """Video 4 has no query of its own: whatever it shows, the loss is the same."""
    positives = batch().positives.clone()
    positives[:, 4] = True
    system, filtered = model(), batch(positives=positives)
    assert losses(system, moved_video(filtered, 4)) == pytest.approx(losses(system, filtered))
    plain = losses(system, moved_video(batch(), 4)), losses(system, batch())
    assert plain[0]["sentences"] != pytest.approx(plain[1]["sentences"])
    assert plain[0]["negatives"] != pytest.approx(plain[1]["negatives"])


def test_a_pair_that_is_filtered_lessens_both_contrasts() -> None:
    """Query 1 is similar to video 0: neither do its words meet the moments of video 0, nor it the cells."""
    system, plain = model(), batch()
    filtered = replace(plain, positives=without(plain.positives, 1, 0))
    before, after = losses(system, plain), losses(system, filtered)
    assert after["sentences"] < before["sentences"]
    assert after["moments"] < before["moments"]
    assert after["iou"] == before["iou"]


def test_the_own_video_need_not_be_told() -> None:
    system = model()
    nothing = torch.zeros_like(batch().positives)
    assert losses(system, batch(positives=nothing)) == pytest.approx(losses(system, batch()))


def test_cells_of_negative_videos_are_taught_to_overlap_nothing() -> None:
    """A step against the gradient of the term alone lowers the IoU that the head tells of them."""
    system, one = model(), batch()
    before = system.encoded(one.videos).iou, system.encode_queries(one.queries).parts["iou"]
    system.loss(one)["negatives"].backward()
    with torch.no_grad():
        for parameter in system.parameters():
            if parameter.grad is not None:
                parameter -= 0.01 * parameter.grad
    after = system.encoded(one.videos).iou, system.encode_queries(one.queries).parts["iou"]
    negative = ~one.positives[..., None]
    told = [torch.einsum("sd,vpd->svp", asked, cells) for cells, asked in (before, after)]
    assert (told[1] * negative).sum() < (told[0] * negative).sum()


def test_in_bfloat16_the_cross_entropy_of_negatives_is_counted_in_full_precision() -> None:
    """8,192 and 8,193 cells are one number in bfloat16, and so are losses that differ by a hundredth."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(1, 1, 8193, generator=generator).bfloat16()
    there = torch.ones(1, 8193, dtype=torch.bool)
    found = negative_cross_entropy(logits, torch.ones(1, 1, dtype=torch.bool), there)
    torch.testing.assert_close(found, nn.functional.softplus(logits.float()).mean())


# --- the second stage


def test_the_second_stage_sees_chosen_videos_alone() -> None:
    """Video 4 is chosen for queries 0 and 1; with none chosen for anybody it does not count."""
    system = model(stage="second")
    assert losses(system, moved_video(hard(), 4))["sentences"] != losses(system, hard())["sentences"]
    spared = hard(negatives=torch.tensor([[3, -1], [-1, 5], [3, -1], [5, 0], [2, 3]]))
    assert losses(system, moved_video(spared, 4)) == pytest.approx(losses(system, spared))


def test_the_second_stage_sees_chosen_queries_alone() -> None:
    system = model(stage="second")
    first, second = losses(system, hard()), losses(system, moved_query(hard(), 2))
    assert first["moments"] != second["moments"]
    assert first["sentences"] == second["sentences"]
    spared = hard(negative_queries=torch.tensor([[0, 1, -1], [3, -1, -1], [1, 3, 0]]))
    assert losses(system, moved_query(spared, 2)) == pytest.approx(losses(system, spared))


def test_a_chosen_video_that_is_known_to_answer_is_no_negative() -> None:
    system, one = model(stage="second"), hard()
    positives = without(without(one.positives, 0, 4), 1, 4)
    known = hard(positives=positives)
    assert losses(system, moved_video(known, 4)) == pytest.approx(losses(system, known))


def test_a_query_of_the_batch_meets_the_moments_of_another_video_only_where_it_was_chosen() -> None:
    """Query 2 is alone in video 2: in the second stage it moves none of the terms of the other queries."""
    system, one = model(stage="second", negative_bce=0.0), hard()
    rows = torch.tensor([0, 1, 3, 4])
    assert one.negatives is not None
    fewer = replace(
        one,
        queries=QueryBatch(one.queries.tokens[rows], one.queries.mask[rows]),
        video_of=one.video_of[rows],
        spans=one.spans[rows],
        positives=one.positives[rows],
        negatives=one.negatives[rows],
    )
    alone = replace(
        one,
        queries=QueryBatch(one.queries.tokens[2:3], one.queries.mask[2:3]),
        video_of=one.video_of[2:3],
        spans=one.spans[2:3],
        positives=one.positives[2:3],
        negatives=one.negatives[2:3],
    )
    whole, parts = losses(system, one), (losses(system, fewer), losses(system, alone))
    for name in ("moments", "sentences"):
        assert whole[name] == pytest.approx((4 * parts[0][name] + parts[1][name]) / 5, rel=1e-5)


def test_places_of_none_change_nothing() -> None:
    system, one = model(stage="second"), hard()
    assert one.negatives is not None
    assert one.negative_queries is not None
    wider = hard(
        negatives=torch.nn.functional.pad(one.negatives, (1, 2), value=-1),
        negative_queries=torch.nn.functional.pad(one.negative_queries, (0, 3), value=-1),
    )
    assert losses(system, wider) == pytest.approx(losses(system, one))


@pytest.mark.parametrize("stage", ["first", "second"])
@pytest.mark.parametrize("as_released", [False, True])
def test_every_parameter_gets_a_finite_gradient_in_either_stage(stage: str, as_released: bool) -> None:
    system = model(stage=stage, as_released=as_released).train()
    torch.stack(list(system.loss(hard()).values())).sum().backward()  # type: ignore[no-untyped-call]
    for name, parameter in system.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("as_released", [False, True])
def test_the_second_stage_may_draw_no_queries_and_none_for_some(as_released: bool) -> None:
    system = model(stage="second", as_released=as_released)
    none = hard(other_queries=None, negative_queries=None)
    assert all(torch.tensor(value).isfinite() for value in losses(system, none).values())
    empty = hard(negatives=torch.full((QUERIES, 2), -1), negative_queries=torch.full((3, 3), -1))
    found = losses(system, empty)
    assert all(torch.tensor(value).isfinite() for value in found.values())
    assert found["negatives"] == 0


def test_the_released_second_stage_is_a_mean_over_rows_of_which_the_first_is_the_papers() -> None:
    """With no drawn query there is one row, and the two are one; with some they are not."""
    paper, released = model(stage="second"), model(stage="second", as_released=True)
    alone = hard(other_queries=None, negative_queries=None)
    single = replace(
        alone,
        queries=QueryBatch(alone.queries.tokens[:1], alone.queries.mask[:1]),
        **{name: getattr(alone, name)[:1] for name in ("video_of", "spans", "positives", "negatives")},
    )
    assert losses(released, single)["moments"] == pytest.approx(losses(paper, single)["moments"], abs=1e-6)
    assert losses(released, hard())["moments"] != pytest.approx(losses(paper, hard())["moments"])


def test_the_second_stage_without_negatives_says_where_they_come_from() -> None:
    with pytest.raises(UsageError, match=r"\[data\] first_stage"):
        model(stage="second").loss(batch())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"stage": "third"}, "stage is 'third'; accepted: 'first', 'second'"),
        ({"negative_bce": -1.0}, "negative_bce is -1.0"),
        ({"hidden": 0}, "crocs: hidden is 0"),
    ],
)
def test_a_setting_that_cannot_be_is_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        config_of("crocs", settings)


def test_a_batch_goes_to_a_device_with_all_its_negatives() -> None:
    moved = hard().to("meta")
    assert moved.other_queries is not None
    parts = (moved.negatives, moved.negative_queries, moved.other_queries.tokens, moved.other_queries.mask)
    assert [one is not None and one.device.type for one in parts] == ["meta"] * 4


def test_the_released_first_stage_keeps_what_it_filters_in_the_sum() -> None:
    """A video that is similar to all still moves no sentence's loss, but it adds 1 for each of its cells."""
    positives = batch().positives.clone()
    positives[:, 4] = True
    released, paper = model(as_released=True), model()
    filtered = batch(positives=positives)
    found = losses(released, filtered)
    assert losses(released, moved_video(filtered, 4))["sentences"] == pytest.approx(found["sentences"])
    rows = torch.tensor([0, 1, 2, 3, 5])
    fewer = replace(
        filtered,
        videos=ClipBatch({"video": filtered.videos.streams["video"][rows]}, filtered.videos.mask[rows]),
        positives=filtered.positives[:, rows],
    )
    assert losses(released, fewer)["sentences"] != pytest.approx(found["sentences"], rel=1e-3)
    assert losses(paper, fewer)["sentences"] == pytest.approx(losses(paper, filtered)["sentences"], rel=1e-5)
    assert "negatives" not in found
