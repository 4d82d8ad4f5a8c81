"""Hard negatives: nothing known is drawn, draws follow their probabilities and the epoch alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from whenabouts.types import UsageError
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.parts.cross_directional import draw, draw_logits, golden_means
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.training import hard_negatives
from whenabouts_systems.training.experiment import NegativeSettings
from whenabouts_systems.training.hard_negatives import (
    HardNegatives,
    load_first_stage,
    refuse_other_reading,
)
from whenabouts_systems.training.tables import converted

QUERIES, VIDEOS = 12, 7
OWN = np.arange(QUERIES) % 5
"""Each query's own video; two videos have no query."""


def known_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Each query's own video and, of every third query, one more that is similar."""
    query = np.concatenate([np.arange(QUERIES), np.arange(0, QUERIES, 3)])
    video = np.concatenate([OWN, (OWN[::3] + 2) % VIDEOS])
    order = np.lexsort((video, query))
    return query[order], video[order]


def made(seed: int = 3, **settings: Any) -> HardNegatives:
    scores = np.random.default_rng(0).uniform(0, 1, (QUERIES, VIDEOS)).astype(np.float16)
    told = {"videos": 3, "queries": 4, **settings}
    return HardNegatives(scores, known_pairs(), (np.arange(QUERIES), OWN), NegativeSettings(**told), seed)


def is_known() -> np.ndarray:
    table = np.zeros((QUERIES, VIDEOS), bool)
    table[known_pairs()] = True
    return table


def test_no_known_pair_is_drawn_and_none_comes_twice() -> None:
    hard, known = made(videos=6, queries=11), is_known()
    for epoch in range(20):
        table = hard.of_epoch(epoch)
        for query, row in enumerate(table.videos.tolist()):
            found = [video for video in row if video >= 0]
            # As many are asked for as there could be: all that are no known pair are drawn, each once.
            assert sorted(found) == np.flatnonzero(~known[query])[: len(found)].tolist()
            assert len(found) == min(6, (~known[query]).sum())
        for video, row in enumerate(table.queries.tolist()):
            found = [query for query in row if query >= 0]
            assert len(found) == len(set(found)) == min(11, (~known[:, video]).sum())
            assert not known[found, video].any()


def test_draws_are_the_same_for_the_same_seed_and_epoch_whatever_was_drawn_before() -> None:
    hard, other = made(), made()
    first = hard.of_epoch(4)
    for epoch in (0, 1, 4):
        again = other.of_epoch(epoch)
    assert np.array_equal(first.videos, again.videos)
    assert np.array_equal(first.queries, again.queries)
    assert not np.array_equal(first.videos, hard.of_epoch(5).videos)
    assert not np.array_equal(first.videos, made(seed=4).of_epoch(4).videos)


def test_the_first_drawn_follows_the_probabilities_of_the_equations() -> None:
    """10,000 draws of one row; the deviation of a share is below 0.005."""
    scores = torch.tensor([[0.9, 0.5, 0.1, 0.7]])
    candidates = torch.tensor([[True, True, True, False]])
    expected = draw_logits(scores, torch.tensor([0.9]), candidates, temperature=0.2).softmax(1)
    logits = (-((scores - 0.9) ** 2) / 0.2).masked_fill(~candidates, -torch.inf).expand(10_000, -1)
    found = draw(logits, 4, torch.Generator().manual_seed(0))
    shares = torch.bincount(found[:, 0], minlength=4) / len(found)
    torch.testing.assert_close(shares, expected[0], atol=0.02, rtol=0)
    assert (found[:, :3].sort(1).values == torch.tensor([0, 1, 2])).all()
    assert (found[:, 3] == -1).all()


def test_what_scores_like_the_truth_is_drawn_more_often_than_what_scores_apart_from_it() -> None:
    hard = made(videos=1, temperature=1e-4)
    known, scores = is_known(), hard.scores.astype(np.float64)
    drawn = np.concatenate([hard.of_epoch(epoch).videos for epoch in range(60)], 1)
    apart = np.abs(scores - scores[np.arange(QUERIES), OWN][:, None])
    for query in range(QUERIES):
        usual = np.bincount(drawn[query], minlength=VIDEOS).argmax()
        assert usual == np.where(known[query], np.inf, apart[query]).argmin()


def test_a_batch_is_given_its_own_videos_first_and_places_of_what_was_drawn() -> None:
    hard = made()
    query, videos = np.array([7, 2, 5]), np.array([2, 0])
    found, table = hard.drawn(query, query, videos, 1), hard.of_epoch(1)
    assert found.videos[:2].tolist() == [2, 0]
    assert len(set(found.videos.tolist())) == len(found.videos)
    assert np.array_equal(found.videos[found.negatives], table.videos[query])
    mine = found.negative_queries
    assert mine.shape == (2, 4)
    assert np.array_equal(np.where(mine < 0, -1, found.queries[mine]), table.queries[videos])


def test_a_batch_that_shares_has_no_more_videos_than_were_asked_for_and_spares_known_pairs() -> None:
    hard, known = made(share="batch", videos=4, queries=5), is_known()
    query, videos = np.array([0, 3, 6, 9, 10]), np.array([0, 3, 1, 4])
    found = hard.drawn(query, query, videos, 2)
    others = found.videos[4:]
    assert len(np.unique(found.negatives[found.negatives >= 0])) <= 4
    assert len(others) <= 4
    seen = 0
    for row, one in enumerate(query.tolist()):
        chosen = found.videos[found.negatives[row][found.negatives[row] >= 0]]
        assert not known[one, chosen].any()
        seen += len(chosen)
    assert seen > 5
    assert len(found.queries) <= 5
    for row, one in enumerate(videos.tolist()):
        chosen = found.queries[found.negative_queries[row][found.negative_queries[row] >= 0]]
        assert not known[chosen, one].any()


def test_queries_that_have_no_example_are_never_drawn() -> None:
    scores = np.full((QUERIES, VIDEOS), 0.5, np.float16)
    asked = np.array([0, 1, 2, 5])
    hard = HardNegatives(
        scores, known_pairs(), (asked, OWN[asked]), NegativeSettings(videos=2, queries=11), seed=0
    )
    drawn = hard.of_epoch(0).queries
    assert set(drawn[drawn >= 0].tolist()) == set(asked.tolist())


def test_blocks_of_another_size_draw_no_known_pair_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hard_negatives, "_BLOCK", 20)
    known = is_known()
    table = made(videos=6, queries=11).of_epoch(0)
    for query, row in enumerate(table.videos):
        assert sorted(row[row >= 0].tolist()) == np.flatnonzero(~known[query]).tolist()[:6]
    for video, row in enumerate(table.queries):
        assert not known[row[row >= 0], video].any()


def test_none_are_drawn_where_none_are_asked_for() -> None:
    rows = np.array([1, 2])
    found = made(videos=0, queries=0).drawn(rows, rows, rows, 0)
    assert found.videos.tolist() == [1, 2]
    assert found.negatives.shape == (2, 0)
    assert found.negative_queries.shape == (2, 0)
    assert len(found.queries) == 0


def test_scores_that_are_too_many_lie_in_a_file_that_is_gone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hard_negatives, "_IN_MEMORY", 10)
    room = hard_negatives._zeros(QUERIES, VIDEOS)
    assert isinstance(room, np.memmap)
    room[3, 4] = 0.5
    assert room.sum() == 0.5


def test_the_mean_of_true_pairs_is_a_rows_own_or_that_of_all() -> None:
    values, rows = torch.tensor([0.2, 0.4, 0.9]), torch.tensor([0, 0, 2])
    own = golden_means(values, rows, 3)
    torch.testing.assert_close(own, torch.tensor([0.3, 0.5, 0.9]))
    torch.testing.assert_close(golden_means(values, rows, 3, "global"), torch.full((3,), 0.5))


WRONG: Mapping[str, tuple[dict[str, Any], str]] = {
    "videos": ({"videos": -1}, r"\[data.negatives\] videos is -1; accepted: a whole number, 0 or more"),
    "temperature": ({"temperature": 0.0}, r"temperature is 0.0; accepted: a finite number, above 0"),
    "highest": ({"highest": 0}, r"highest is 0; accepted: a whole number, 1 or more, or none"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_a_setting_that_cannot_be_is_named(name: str) -> None:
    settings, told = WRONG[name]
    with pytest.raises(UsageError, match=told):
        converted(settings, NegativeSettings, "[data.negatives]")


@dataclasses.dataclass
class _Stage:
    model: torch.nn.Module
    system: str = "first"


def test_weights_of_a_first_stage_are_taken_over() -> None:
    first, second = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    load_first_stage(second, _Stage(first), "run")  # type: ignore[arg-type]
    assert torch.equal(first.weight, second.weight)


def test_a_first_stage_with_streams_in_another_order_is_refused() -> None:
    """Its weights would have the right shapes."""
    streams = {"a": StreamInput(4), "b": StreamInput(4)}
    first, second = (
        Inputs(StreamInput(4), order) for order in (streams, dict(reversed(list(streams.items()))))
    )
    refuse_other_reading(first, first)
    with pytest.raises(UsageError, match="streams in the order a, b, this training b, a; use"):
        refuse_other_reading(first, second)


def test_a_first_stage_of_another_shape_is_refused() -> None:
    with pytest.raises(UsageError, match=r"run: weight 'weight' is of shape \(2, 4\).*\(2, 3\)"):
        load_first_stage(torch.nn.Linear(3, 2), _Stage(torch.nn.Linear(4, 2)), "run")  # type: ignore[arg-type]


def test_a_first_stage_without_a_weight_is_refused() -> None:
    with pytest.raises(UsageError, match="weight 'bias' is missing in the first stage"):
        load_first_stage(torch.nn.Linear(3, 2), _Stage(torch.nn.Linear(3, 2, bias=False)), "run")  # type: ignore[arg-type]


def test_a_first_stage_that_finds_no_moments_is_refused() -> None:
    with pytest.raises(UsageError, match="finds no moments"):
        hard_negatives.matching_scores(_Stage(torch.nn.Linear(3, 2)), None)  # type: ignore[arg-type]


# --- scores of a first system


class _Split:
    """As much of `Examples` as scoring asks for: five queries, of which one has no example, three videos."""

    query = np.array([0, 1, 3, 4])
    video = np.array([0, 1, 1, 2])
    queries = tuple(range(5))
    videos = tuple(range(3))
    positive_pairs = (np.array([0, 1, 3, 4]), np.array([0, 1, 1, 2]))
    inputs = Inputs(StreamInput(5), {"video": StreamInput(6)})

    def query_batch(self, rows: Any) -> QueryBatch:
        tokens = torch.randn(5, 4, 5, generator=torch.Generator().manual_seed(0))[torch.as_tensor(rows)]
        return QueryBatch(tokens, torch.ones(tokens.shape[:2], dtype=torch.bool))

    def video_batch(self, rows: Any) -> ClipBatch:
        clips = torch.randn(3, 8, 6, generator=torch.Generator().manual_seed(1))[torch.as_tensor(rows)]
        mask = torch.arange(8) < torch.tensor([8, 5, 7])[torch.as_tensor(rows)][:, None]
        return ClipBatch({"video": clips * mask[..., None]}, mask)


def small_split() -> Any:
    """In place of `Examples`."""
    return _Split()


def first_stage() -> Trained:
    torch.manual_seed(0)
    settings = {"streams": {"video": 6}, "query_width": 5, "hidden": 8, "pooling_counts": (7,)}
    config = config_of("mmn", {**settings, "map_layers": 2, "map_kernel": 3})
    return Trained("mmn", new_model("mmn", config), _Split.inputs, Decoding())


def test_the_score_of_a_video_is_that_of_its_best_moment() -> None:
    first, split = first_stage(), small_split()
    found = hard_negatives.matching_scores(first, split)
    assert found.shape == (5, 3)
    assert (found[2] == 0).all()
    model = first.model.eval()
    with torch.no_grad():
        queries = model.encode_queries(split.query_batch(split.query))
        videos = model.encode_videos(split.video_batch(range(3)))
        for video in range(3):
            for at, query in enumerate(split.query.tolist()):
                row = torch.tensor([at])
                scores = model.score_spans(queries.take(row), videos.take(torch.tensor([video])))
                best = scores.spans[0].max().exp().item()
                assert found[query, video] == pytest.approx(best, abs=1e-3)
                assert 0 < best < 1


def test_scores_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hard_negatives.matching_scores(first_stage(), small_split())
    for name, size in (("_BLOCK", 150), ("_BATCH_QUERIES", 3), ("_BATCH_VIDEOS", 2)):
        monkeypatch.setattr(hard_negatives, name, size)
    np.testing.assert_allclose(hard_negatives.matching_scores(first_stage(), small_split()), whole, atol=1e-3)


def test_a_first_stage_is_as_it_was_after_it_scored() -> None:
    first = first_stage()
    first.model.train()
    kept = {name: one.clone() for name, one in first.model.state_dict().items()}
    hard_negatives.matching_scores(first, small_split())
    assert first.model.training
    assert all(torch.equal(one, kept[name]) for name, one in first.model.state_dict().items())


def test_negatives_are_opened_with_the_scores_and_the_pairs_of_a_split() -> None:
    split = small_split()
    hard = HardNegatives.open(first_stage(), split, NegativeSettings(videos=2, queries=4), seed=1)
    table = hard.of_epoch(0)
    known = np.zeros((5, 3), bool)
    known[split.positive_pairs] = True
    for query in split.query.tolist():
        assert sorted(table.videos[query].tolist()) == np.flatnonzero(~known[query]).tolist()
    for video, row in enumerate(table.queries):
        assert set(row[row >= 0].tolist()) == set(np.flatnonzero(~known[:, video]).tolist()) - {2}


def test_scores_that_are_no_shares_are_refused() -> None:
    first = first_stage()
    score = first.model.score_spans
    first.model.score_spans = lambda queries, videos: dataclasses.replace(
        scores := score(queries, videos), spans=scores.spans + 5
    )
    with pytest.raises(UsageError, match="logarithms of values from 0 to 1"):
        hard_negatives.matching_scores(first, small_split())


def test_a_first_stage_that_was_trained_on_other_features_is_refused() -> None:
    split = small_split()
    split.inputs = dataclasses.replace(split.inputs, max_clips=64)
    with pytest.raises(UsageError, match="the first stage has max_clips = 100, this training 64"):
        HardNegatives.open(first_stage(), split, NegativeSettings(), seed=0)
