"""Search by segments: cutting, the nearest, joining to proposals, refining, seconds of the whole video."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.ranking.toy_split import ToySplit, judgements

from whenabouts.overlap import place_in_group
from whenabouts.types import UsageError, Video
from whenabouts_bench.formats.runs import RunBlock
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.protocol import QueryBatch
from whenabouts_systems.ranking import Ranker, rank, ranker
from whenabouts_systems.ranking.candidates import Candidates
from whenabouts_systems.ranking.proposals import Proposals, SegmentSettings, joined_segments
from whenabouts_systems.ranking.rank import Moments, best_first, rank_proposals
from whenabouts_systems.ranking.ranker import SegmentCorpus
from whenabouts_systems.ranking.split import SplitRun
from whenabouts_systems.ranking.units import Units, segment_clips

Indices = NDArray[np.int64]
PLAIN = SegmentSettings(seconds=4.0, depth=9, padding_seconds=3.0)


@dataclass
class Reels:
    """Videos as features, queries, and a system that reads them: a `Footage` and a `System`."""

    model: Any
    features: list[NDArray[np.float32]]
    tokens: NDArray[np.float32]
    clip_seconds: float = 2.0
    max_clips: int = 1000
    decoding: Decoding = field(default_factory=lambda: Decoding(max_clips=3))
    system: str = "toy"
    read: list[int] = field(default_factory=list)
    names: Sequence[str] = ("v9", "v8", "v7", "v6", "v5")
    """In an order that is not that of the ids."""

    @property
    def inputs(self) -> Inputs:
        width = self.features[0].shape[1]
        streams = {"vision": StreamInput(width, normalise=False)}
        return Inputs(StreamInput(width), streams, clip_seconds=self.clip_seconds, max_clips=self.max_clips)

    @property
    def videos(self) -> tuple[Video, ...]:
        return tuple(Video(name, None) for name in self.names[: len(self.features)])

    @property
    def row_counts(self) -> Indices:
        return np.array([len(one) for one in self.features], np.int64)

    @property
    def durations(self) -> NDArray[np.float64]:
        """The last clip is half full."""
        return np.asarray((self.row_counts - 0.5) * self.clip_seconds, np.float64)

    @property
    def query_ids(self) -> list[str]:
        return [f"q{at}" for at in range(len(self.tokens))]

    def rows_of_video(self, row: int) -> Mapping[str, NDArray[np.float32]]:
        self.read.append(row)
        return {"vision": self.features[row]}

    def sentences_of_video(self, row: int) -> tuple[()]:
        return ()

    def query_batch(self, rows: Indices) -> QueryBatch:
        tokens = torch.from_numpy(self.tokens[rows])
        return QueryBatch(tokens, torch.ones(tokens.shape[:2], dtype=torch.bool))


@pytest.fixture
def reels(toy: Callable[..., Any]) -> Callable[..., Reels]:
    """Features are whole numbers, so that every sum is exact."""

    def made(
        kind: str = "borders", seed: int = 0, lengths: Sequence[int] = (7, 1, 12, 4), **more: Any
    ) -> Reels:
        rng = np.random.default_rng(seed)
        features = [rng.integers(-3, 4, (count, 6)).astype(np.float32) for count in lengths]
        tokens = rng.integers(-3, 4, (5, 2, 6)).astype(np.float32)
        return Reels(toy(kind).model.eval(), features, tokens, **more)

    return made


def segments_of(one: Reels, settings: SegmentSettings) -> SegmentCorpus:
    """The videos cut into segments and encoded, for the system that chooses."""
    units = Units.cut(one, settings.seconds)
    return SegmentCorpus(units, units.encoded(one.model), settings)


def refined(one: Reels, proposals: Proposals, padding: float = PLAIN.padding_seconds) -> Moments:
    """The best moment of each proposal, in their order."""
    return rank._best_of_proposals(one.model, one, _asked(one), proposals, one.decoding, padding, None)


def _asked(one: Reels) -> Any:
    return one.model.encode_queries(one.query_batch(np.arange(len(one.tokens))))


# --- cutting


def test_videos_are_cut_into_equal_segments_and_the_last_ones_are_shorter(reels: Any) -> None:
    segments = Units.cut(reels(), 4.0)
    assert segments.video.tolist() == [0] * 4 + [1] + [2] * 6 + [3] * 2
    assert segments.first.tolist()[:5] == [0, 2, 4, 6, 0]
    assert segments.stop.tolist()[:5] == [2, 4, 6, 7, 1]
    assert segments.start.tolist()[:5] == [0.0, 4.0, 8.0, 12.0, 0.0]
    assert segments.end.tolist()[:5] == [4.0, 8.0, 12.0, 13.0, 1.0]


@pytest.mark.parametrize(
    ("seconds", "clips"), [(0.5, 1), (2.9, 1), (3.0, 2), (4.0, 2), (7.0, 4), (999.0, 12)]
)
def test_a_segment_has_whole_clips_and_one_at_least(reels: Any, seconds: float, clips: int) -> None:
    segments = Units.cut(reels(), seconds)
    assert (segments.stop - segments.first).max() == clips
    covered = [list(range(a, b)) for a, b in zip(segments.first, segments.stop, strict=True)]
    for video, length in enumerate((7, 1, 12, 4)):
        mine = [row for at, rows in enumerate(covered) if segments.video[at] == video for row in rows]
        assert mine == list(range(length))


def test_seconds_around_a_moment_are_rounded_outward_and_end_with_the_video(reels: Any) -> None:
    one = reels()
    video = np.array([0, 0, 0, 2, 1])
    windows = Units.around(
        one, video, np.array([2.0, 3.9, -8.0, 21.0, 5.0]), np.array([4.0, 4.1, 99.0, 23.0, 6.0])
    )
    assert list(zip(windows.first.tolist(), windows.stop.tolist(), strict=True)) == [
        *((1, 2), (1, 3), (0, 7), (10, 12), (0, 1))
    ]
    assert windows.end.tolist() == [4.0, 6.0, 13.0, 23.0, 1.0]


def test_a_batch_reads_each_video_once_and_holds_the_rows_of_each_window(reels: Any) -> None:
    one = reels()
    segments = Units.cut(one, 6.0)
    batch = segments.clip_batch(np.array([3, 0, 2, 1]))
    assert one.read == [1, 0]
    assert batch.mask.sum(1).tolist() == [1, 3, 1, 3]
    assert torch.equal(batch.streams["vision"][1], torch.from_numpy(one.features[0][:3]))
    assert torch.equal(batch.streams["vision"][2, :1], torch.from_numpy(one.features[0][6:]))


# --- the nearest


def test_the_nearest_segments_are_those_with_the_best_clips(reels: Any) -> None:
    one = reels(seed=2)
    index = segments_of(one, PLAIN)
    found = index.nearest(one.model, _asked(one))
    sums = one.tokens.sum(1)
    for query in range(5):
        scores = [
            float((one.features[video][first:stop] @ sums[query]).max())
            for video, first, stop in zip(index.units.video, index.units.first, index.units.stop, strict=True)
        ]
        best = sorted(range(len(scores)), key=lambda at: (-scores[at], at))[: PLAIN.depth]
        assert found.rows[query].tolist() == best
        assert found.scores[query].tolist() == [scores[at] for at in best]


def test_segments_of_videos_that_are_not_allowed_are_not_found(reels: Any) -> None:
    one = reels(seed=3)
    index = segments_of(one, replace(PLAIN, depth=100))
    allowed = torch.ones(5, 4, dtype=torch.bool)
    allowed[0] = torch.tensor([False, True, False, True])
    proposals = index.proposals(one.model, _asked(one), allowed)
    assert set(proposals.video[proposals.query == 0].tolist()) == {1, 3}
    assert set(proposals.video[proposals.query == 1].tolist()) == {0, 1, 2, 3}


def test_segments_of_which_nothing_is_read_are_not_found(reels: Any) -> None:
    """What is zero would score 0, and other segments less: video 1 is silent, of video 2 the middle."""
    one = reels(seed=3)
    one.features[1][:] = 0
    one.features[2][4:8] = 0
    one.tokens = -np.abs(one.tokens)
    one.features = [np.abs(rows) for rows in one.features]
    index = segments_of(one, replace(PLAIN, depth=100))
    found = index.nearest(one.model, _asked(one))
    silent = [at for at in range(len(index.units)) if index.units.video[at] == 1]
    silent += [int(np.flatnonzero(index.units.video == 2)[place]) for place in (2, 3)]
    for query in range(5):
        rows = found.rows[query][found.scores[query] > -np.inf].tolist()
        assert sorted(rows) == [at for at in range(len(index.units)) if at not in silent]
    assert index.silent_videos == Ranker.by_segments((one, one), (one, one), PLAIN).unfindable == 1
    assert "v8" not in {
        row[0]
        for rows in _all(Ranker.by_segments((one, one), (one, one), PLAIN), one, "VCMR").values()
        for row in rows
    }


# --- proposals


def _joined_by_hand(
    found: list[int], segments: Units, settings: SegmentSettings
) -> list[tuple[int, int, int, int]]:
    """(rank, video, first, last) of the proposals of one query, whose segments are in order of rank."""
    stretches: list[tuple[int, int, list[int]]] = []
    by_video: dict[int, list[int]] = {}
    for number in found:
        by_video.setdefault(int(segments.video[number]), []).append(number)
    for video, numbers in by_video.items():
        groups: list[list[int]] = []
        for number in sorted(numbers):
            if groups and number - groups[-1][-1] - 1 <= settings.gap:
                groups[-1].append(number)
            else:
                groups.append([number])
        grown = groups[:1]
        for group in groups[1:]:
            left = grown[-1]
            lengths = (left[-1] - left[0] + 1) + (group[-1] - group[0] + 1)
            if settings.reach and group[0] - left[-1] - 1 <= settings.reach * lengths:
                grown[-1] = left + group
            else:
                grown.append(group)
        stretches += [(min(found.index(one) for one in group), video, group) for group in grown]
    best = [(rank, video, group[0], group[-1]) for rank, video, group in sorted(stretches)]
    return best[: settings.proposals]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"gap": 1},
        {"gap": 3},
        {"reach": 0.5},
        {"reach": 0.2, "gap": 1},
        {"proposals": 3},
        {"proposals": 1},
    ],
    ids=str,
)
def test_neighbouring_segments_are_one_proposal_that_ranks_as_its_best(
    reels: Any, more: dict[str, Any]
) -> None:
    segments = Units.cut(reels(lengths=(40, 1, 33, 80, 2)), 4.0)
    settings = SegmentSettings(depth=30, **more)
    rng = np.random.default_rng(5)
    chosen = [rng.permutation(len(segments))[: rng.integers(0, 31)].tolist() for _ in range(40)]
    rows, scores = np.zeros((40, 30), np.int64), np.full((40, 30), -np.inf)
    for query, numbers in enumerate(chosen):
        rows[query, : len(numbers)] = numbers
        scores[query, : len(numbers)] = -np.arange(len(numbers))
    found = joined_segments(Candidates(torch.from_numpy(rows), torch.from_numpy(scores)), segments, settings)
    assert len(found.offsets) == 41
    for query, numbers in enumerate(chosen):
        part = slice(found.offsets[query], found.offsets[query + 1])
        expected = _joined_by_hand(numbers, segments, settings)
        assert found.video[part].tolist() == [video for _, video, _, _ in expected]
        assert found.score[part].tolist() == [-rank for rank, _, _, _ in expected]
        assert found.start[part].tolist() == [segments.start[first] for _, _, first, _ in expected]
        assert found.end[part].tolist() == [segments.end[last] for _, _, _, last in expected]
    assert np.array_equal(found.query, np.repeat(np.arange(40), np.diff(found.offsets)))


def test_the_last_segment_of_a_video_is_no_neighbour_of_the_next_videos_first(reels: Any) -> None:
    segments = Units.cut(reels(lengths=(4, 4)), 4.0)
    every = Candidates(torch.tensor([[1, 2]]), torch.tensor([[2.0, 1.0]]))
    found = joined_segments(every, segments, SegmentSettings(gap=5, reach=2.0))
    assert found.video.tolist() == [0, 1]
    assert (found.start.tolist(), found.end.tolist()) == ([4.0, 0.0], [7.0, 4.0])


def test_places_in_groups_are_counted_from_0() -> None:
    assert place_in_group(np.zeros(0, np.int64)).tolist() == []
    assert place_in_group(np.array([0, 0, 0, 1, 4, 4])).tolist() == [0, 1, 2, 0, 0, 1]


# --- refining


def _refined_by_hand(one: Reels, query: int, proposal: tuple[int, float, float, float]) -> tuple[float, ...]:
    """(start, end, score) of the best span of a padded proposal (video, start, end, score of its segment)."""
    video, begin, end, said = proposal
    rows, clip = one.features[video], one.clip_seconds
    first = max(0, math.floor((begin - PLAIN.padding_seconds) / clip))
    stop = min(len(rows), math.ceil((end + PLAIN.padding_seconds) / clip))
    asked = one.tokens[query].sum(0)
    spans = [
        (
            float(rows[a] @ asked + rows[b] @ asked[::-1]),
            -a,
            -b,
        )
        for a in range(first, stop)
        for b in range(a, min(stop, a + 3))
    ]
    score, a, b = max(spans)
    whole = float((rows[first:stop] @ asked).max()) if hasattr(one.model, "score_videos") else said
    return -a * clip, min((-b + 1) * clip, one.durations[video]), score + 3.0 * whole


@pytest.mark.parametrize("kind", ["borders", "map", "localizer"])
def test_each_padded_proposal_answers_with_its_best_span_in_seconds_of_the_video(
    reels: Any, kind: str
) -> None:
    """The localizer's own score of the window counts; that of the segment where it has none."""
    retriever, one = reels("retriever", seed=4), reels(kind, seed=4)
    proposals = segments_of(retriever, PLAIN).proposals(retriever.model, _asked(retriever))
    found = refined(one, proposals)
    assert np.array_equal(found.query, proposals.query)
    assert np.array_equal(found.video, proposals.video)
    told = zip(proposals.video, proposals.start, proposals.end, proposals.score, strict=True)
    for at, proposal in enumerate(told):
        expected = _refined_by_hand(one, int(proposals.query[at]), proposal)
        assert (found.start[at], found.end[at], found.score[at]) == pytest.approx(expected)


def test_a_window_of_more_clips_than_the_system_has_places_for_is_pooled_in_the_right_seconds(
    reels: Any,
) -> None:
    """8 clips of 2 s become 4 of 4 s, from the second at which the window begins."""
    one = reels(lengths=(30,), max_clips=4, decoding=Decoding(min_clips=1, max_clips=1))
    one.features[0][:] = 0
    one.features[0][14:16] = one.tokens[0].sum(0) * 100
    proposals = Proposals(
        np.array([0, 1, 1, 1, 1, 1]),
        np.array([0]),
        np.array([23.0]),
        np.array([33.0]),
        np.zeros(1, np.float32),
    )
    found = refined(one, proposals, 3.0)
    assert (found.start.tolist(), found.end.tolist()) == ([28.0], [32.0])


def test_a_limit_of_no_moments_is_kept_and_none_means_the_default(reels: Any) -> None:
    one = reels(decoding=Decoding(spans_per_query=2))
    proposals = segments_of(one, PLAIN).proposals(one.model, _asked(one))
    counts = {
        limit: len(rank_proposals(one, one, _asked(one), proposals, one.decoding, 3.0, nms=None, limit=limit))
        for limit in (0, 1, None)
    }
    queries = len(proposals.offsets) - 1
    assert counts == {0: 0, 1: queries, None: 2 * queries}


def test_a_proposal_without_an_allowed_span_answers_nothing(reels: Any) -> None:
    one = reels(decoding=Decoding(min_clips=2))
    proposals = Proposals(
        np.array([0, 2, 2, 2, 2, 2]), np.array([1, 3]), np.zeros(2), np.ones(2), np.zeros(2, np.float32)
    )
    found = refined(one, proposals, 3.0)
    assert found.video.tolist() == [3]
    nothing = Proposals(
        np.zeros(6, np.int64), *(np.zeros(0, kind) for kind in (int, float, float, np.float32))
    )
    assert len(rank_proposals(one, one, _asked(one), nothing, one.decoding, 3.0, nms=None)) == 0


# --- the whole way


def _rows(block: RunBlock) -> dict[str, list[tuple[Any, ...]]]:
    names = [block.video_ids[code] for code in block.video]
    rows = list(zip(names, block.start, block.end, block.score, strict=True))
    return {name: rows[block.offsets[at] : block.offsets[at + 1]] for at, name in enumerate(block.query_ids)}


def _all(ranker: Ranker, one: Reels, task: Any, **more: Any) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = {}
    for lists in ranker.answers(one.query_ids, one.query_batch, (task,), **more):
        found |= _rows(lists[task])
    return found


@pytest.mark.parametrize("together", [2, 32])
def test_moments_come_best_first_whatever_is_asked_together(
    reels: Any, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(ranker, "_QUERIES_BY_SEGMENTS", together)
    monkeypatch.setattr(rank, "_QUERIES_TOGETHER", max(1, together // 2))
    one = reels(seed=6)
    found = _all(Ranker.by_segments((one, one), (one, one), PLAIN), one, "VCMR")
    proposals = segments_of(one, PLAIN).proposals(one.model, _asked(one))
    plain = refined(one, proposals)
    for query, name in enumerate(one.query_ids):
        mine = plain.take(plain.query == query)
        told = zip([one.videos[row].id for row in mine.video], mine.start, mine.end, mine.score, strict=True)
        assert found[name] == sorted(told, key=lambda row: (-row[3], *row[:3]))


def test_the_windows_score_counts_as_often_as_is_told(reels: Any) -> None:
    """Padded by an hour a window is its whole video."""
    one, wide = reels(seed=6), replace(PLAIN, padding_seconds=3600.0)
    counted = {
        weight: _all(Ranker.by_segments((one, one), (one, one), wide, video_weight=weight), one, "VCMR")
        for weight in (None, 3.0, 0.5, 0.0)
    }
    assert counted[None] == counted[3.0] != counted[0.0]
    for query, name in enumerate(one.query_ids):
        spans = {row[:3]: row[3] for row in counted[0.0][name]}
        best = [float((rows @ one.tokens[query].sum(0)).max()) for rows in one.features]
        for video, start, end, score in counted[0.5][name]:
            assert score == spans[video, start, end] + 0.5 * best[one.names.index(video)]


def test_videos_rank_as_their_best_segments(reels: Any) -> None:
    one = reels("retriever", seed=7)
    ranker = Ranker.by_segments((one, one), (one, one), replace(PLAIN, depth=100))
    assert ranker.tasks == ("VR",)
    found = _all(ranker, one, "VR")
    for query, name in enumerate(one.query_ids):
        scores = [float((rows @ one.tokens[query].sum(0)).max()) for rows in one.features]
        best = sorted(range(4), key=lambda at: -scores[at])
        assert [row[3] for row in found[name]] == [scores[at] for at in best]
        assert [scores[[video.id for video in one.videos].index(row[0])] for row in found[name]] == [
            scores[at] for at in best
        ]
        assert all(math.isnan(row[1]) and math.isnan(row[2]) for row in found[name])


def test_a_given_video_or_a_pool_is_all_that_is_looked_into(reels: Any) -> None:
    one = reels(seed=8)
    ranker = Ranker.by_segments((one, one), (one, one), PLAIN)
    given = _all(ranker, one, "SVMR", given={"q1": "v7", "q3": "v8"})
    assert list(given) == ["q1", "q3"]
    assert {row[0] for row in given["q1"]} == {"v7"}
    assert {row[0] for row in given["q3"]} == {"v8"}
    pooled = _all(ranker, one, "VCMR", pools={"q0": ["v8", "v6"]})
    assert {row[0] for row in pooled["q0"]} == {"v8", "v6"}
    with pytest.raises(UsageError, match="query 'q2': video 'v1' is not among the 4 videos"):
        _all(ranker, one, "VCMR", pools={"q2": ["v9", "v1"]})


def test_suppression_drops_what_padded_proposals_found_twice(reels: Any) -> None:
    one = reels(seed=1, lengths=(120, 90))
    settings = SegmentSettings(seconds=2.0, depth=80, padding_seconds=6.0)
    every = _all(Ranker.by_segments((one, one), (one, one), settings), one, "VCMR")
    how = replace(one.decoding, nms=0.4, spans_per_query=3)
    kept = _all(Ranker.by_segments((one, one), (one, one), settings, decoding=how), one, "VCMR")
    twice = 0
    for name, rows in every.items():
        left: list[tuple[Any, ...]] = []
        for row in rows:
            near = [one_ for one_ in left if one_[0] == row[0] and _shared(one_, row) > 0.4]
            twice += bool(near)
            left += [] if near else [row]
        assert kept[name] == left[:3]
    assert twice > 5


def _shared(one: tuple[Any, ...], other: tuple[Any, ...]) -> float:
    inside: float = max(0.0, min(one[2], other[2]) - max(one[1], other[1]))
    return inside / float(one[2] - one[1] + other[2] - other[1] - inside)


def test_retriever_and_localizer_may_have_clips_of_other_lengths_and_videos_in_another_order(
    reels: Any,
) -> None:
    """The localizer reads clips of 1 s of the same videos, the last video first."""
    coarse = reels("retriever", seed=9)
    fine = reels("localizer", clip_seconds=1.0, decoding=Decoding(max_clips=1))
    fine.features = [np.repeat(rows, 2, axis=0)[: 2 * len(rows) - 1] for rows in coarse.features[::-1]]
    fine.tokens, fine.names = coarse.tokens, ("v6", "v7", "v8", "v9")
    settings = replace(PLAIN, padding_seconds=0.0)
    found = _all(Ranker.by_segments((coarse, coarse), (fine, fine), settings), fine, "VCMR")
    proposals = segments_of(coarse, settings).proposals(coarse.model, _asked(coarse))
    for query, name in enumerate(fine.query_ids):
        asked, expected = fine.tokens[query].sum(0), []
        for at in range(proposals.offsets[query], proposals.offsets[query + 1]):
            low, high = int(proposals.start[at]), math.ceil(proposals.end[at])
            rows = fine.features[::-1][proposals.video[at]][low:high]
            scores = rows @ asked + rows @ asked[::-1]
            best = int(scores.argmax())
            video = coarse.names[proposals.video[at]]
            end = min(low + best + 1.0, fine.durations[::-1][proposals.video[at]])
            expected.append((video, low + best, end, scores[best] + 3.0 * proposals.score[at]))
        assert found[name] == sorted(expected, key=lambda row: (-row[3], *row[:3]))


def test_a_run_of_a_split_has_each_list(reels: Any) -> None:
    one = reels(seed=2)
    judged = {"q0": [("v9", 0.0, 2.0)], "q1": [("v7", 2.0, 4.0)]}
    split = ToySplit(one, judgements(judged))
    split.toy = type("Asked", (), {"queries": staticmethod(one.query_batch)})()
    run = SplitRun(Ranker.by_segments((one, one), (one, one), PLAIN), split, ("VCMR", "SVMR"))
    assert run.name == "test"
    (moments,), (given,) = list(run.blocks()), list(run.blocks("SVMR"))
    assert moments.query_ids == given.query_ids == ("q0", "q1")
    assert {given.video_ids[code] for code in given.video[: given.offsets[1]]} == {"v9"}
    whole = run.in_memory()
    assert whole.tasks == run.tasks
    assert [_rows(block) for block in whole.blocks("SVMR")] == [_rows(given)]


def test_a_moment_of_three_seconds_is_found_in_an_hour(reels: Any) -> None:
    """2,400 clips and a system with places for 24: of the whole video a clip of it is 150 seconds."""
    one = reels(lengths=(2400, 20), clip_seconds=1.5, max_clips=24)
    rng = np.random.default_rng(3)
    one.features = [rng.normal(0, 0.1, rows.shape).astype(np.float32) for rows in one.features]
    asked = one.tokens[0].sum(0)
    one.features[0][1777], one.features[0][1778] = asked, asked[::-1]
    assert one.inputs.clip_seconds_of(2400) == 150.0
    found = _all(Ranker.by_segments((one, one), (one, one), SegmentSettings()), one, "VCMR")
    video, start, end, _ = found["q0"][0]
    assert (video, start, end) == ("v9", 1777 * 1.5, 1779 * 1.5)
    assert len(found["q0"]) <= 200


# --- what is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seconds": 0.0}, "seconds is 0.0; accepted: a finite number, above 0"),
        ({"seconds": float("inf")}, "seconds is inf"),
        ({"depth": 0}, "depth is 0; accepted: a whole number, 1 or more"),
        ({"depth": 2.5}, "depth is 2.5"),
        ({"gap": -1}, "gap is -1; accepted: a whole number, 0 or more"),
        ({"reach": -0.1}, "reach is -0.1; accepted: a finite number, 0 or more"),
        ({"proposals": 0}, "proposals is 0"),
        ({"padding_seconds": float("nan")}, "padding_seconds is nan"),
    ],
)
def test_a_setting_that_cuts_nothing_is_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"segments: {message}"):
        SegmentSettings(**settings)


def test_segments_have_whole_clips_between_one_and_as_many_as_there_are_places(reels: Any) -> None:
    told = Inputs(StreamInput(4), {"video": StreamInput(4)}, clip_seconds=1.5, max_clips=10)
    assert [segment_clips(told, seconds, "x") for seconds in (1.5, 2.2, 2.3, 4, 15)] == [1, 1, 2, 3, 10]
    with pytest.raises(UsageError, match="segments of 1 s are shorter than the clips of x"):
        segment_clips(told, 1.0, "x")
    with pytest.raises(UsageError, match=r"segments of 17 s are 11 clips of 1.5 s, .* give 15 or less"):
        segment_clips(told, 17.0, "x")
    one = reels(clip_seconds=1.5)
    of_numpy = SegmentSettings(np.float64(2.3))
    segments = Ranker.by_segments((one, one), (one, one), of_numpy).segments
    assert segments is not None and segments.settings.seconds == 3.0
    with pytest.raises(UsageError, match="segments of 1 s are shorter than the clips of toy"):
        Ranker.by_segments((one, one), (one, one), SegmentSettings(1.0))


def test_a_moment_is_answered_once_also_where_nothing_is_suppressed() -> None:
    """Padded proposals that overlap find the same best moment; one that is a little longer is another."""
    start, end = np.array([2.0, 2.0, 2.0, 2.0]), np.array([5.0, 5.0, 5.5, 5.0])
    video, query = np.array([0, 0, 0, 1]), np.zeros(4, np.int64)
    clips = np.zeros(4, np.int64)
    found = Moments(query, video, start, end, np.array([0.3, 0.9, 0.8, 0.1]), clips, clips)
    best = best_first(found, ["a", "b"], None, 10)
    told = zip(best.video.tolist(), best.end.tolist(), best.score.tolist(), strict=True)
    assert list(told) == [(0, 5.0, 0.9), (0, 5.5, 0.8), (1, 5.0, 0.1)]


def test_systems_that_cannot_do_their_part_are_told(reels: Any) -> None:
    one, chooser, finder = reels(), reels("retriever"), reels("localizer")
    with pytest.raises(UsageError, match="cannot choose videos or segments"):
        Ranker.by_segments((finder, finder), (one, one), PLAIN)
    with pytest.raises(UsageError, match=r"does not find moments in them; .* name a localizer"):
        nothing = Proposals(np.zeros(6, np.int64), *(np.zeros(0, int) for _ in range(4)))
        rank_proposals(chooser, chooser, _asked(chooser), nothing, chooser.decoding, 3.0, nms=None)
    with pytest.raises(UsageError, match="toy finds no moments and cannot answer VCMR"):
        _all(Ranker.by_segments((one, one), (chooser, chooser), PLAIN), one, "VCMR")
    with pytest.raises(UsageError, match="has 4 videos and the localizer 3, and they are not the same"):
        fewer = reels(lengths=(7, 1, 12))
        Ranker.by_segments((one, one), (fewer, fewer), PLAIN)
