"""Pools, suppressed within each video and merged: held against plain loops over videos and spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.ranking.test_rank import Row, answers, best_videos, by_hand, iou

from whenabouts.types import Moment, ScoredMoment, UsageError
from whenabouts_bench.formats.runs import MemoryRun, Task
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.ranking import Ranker, rank
from whenabouts_systems.ranking.candidates import RankedVideos

HOW = Decoding(top_videos=13, spans_per_query=9, nms=0.3, spans_before_nms=9)
VIDEOS: tuple[Task, ...] = ("VR",)
POOLS = {
    **{f"q{at}": [f"v{(3 * at + step) % 13:02d}" for step in range(2 + at % 4)] for at in range(8)},
    "q8": ["v07"],
}


def survivors(one: Any, query: int, how: Decoding, videos: Sequence[str], weighted: bool = True) -> list[Row]:
    """The oracle: every span, suppressed by a loop, best first."""
    assert how.nms is not None
    rows = [at for at, name in enumerate(one.video_ids) if name in videos]
    kept: list[Row] = []
    for row in by_hand(one, query, replace(how, spans_per_query=10_000), rows, weighted):
        if all(row[1] != other[1] or iou(row, other) <= how.nms + 1e-9 for other in kept):
            kept.append(row)
    return kept[: how.spans_per_query]


@pytest.mark.parametrize("kind", ["borders", "map"])
@pytest.mark.parametrize("spans", [1 << 21, 100])
def test_a_pool_is_answered_as_by_plain_loops(
    toy: Callable[..., Any], kind: str, spans: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where few spans are looked at, at first and together."""
    monkeypatch.setattr(rank, "_SPANS_HELD", spans)
    monkeypatch.setattr(rank, "_MIN_SPANS", spans // 20)
    monkeypatch.setattr(rank, "_SPANS_PER_MOMENT", 1)
    one = toy(kind)
    found = answers(one, one.corpus(batch_videos=3), ("VCMR",), pools=POOLS, decoding=HOW)["VCMR"]
    for query, name in enumerate(one.query_ids):
        assert found[name] == survivors(one, query, HOW, POOLS[name]), name


def test_suppression_looks_past_the_best_spans_until_enough_survive(toy: Callable[..., Any]) -> None:
    one = toy()
    whole = dict.fromkeys(one.query_ids, one.video_ids)
    found = answers(one, one.corpus(), ("VCMR",), pools=whole, decoding=HOW)["VCMR"]
    without = answers(one, one.corpus(), ("VCMR",), decoding=HOW)["VCMR"]
    assert {len(rows) for rows in found.values()} == {HOW.spans_per_query}
    assert min(len(rows) for rows in without.values()) < HOW.spans_per_query


def test_the_given_video_is_a_pool_of_one_without_the_weight_of_videos(toy: Callable[..., Any]) -> None:
    one = toy()
    given = {name: POOLS[name][0] for name in one.query_ids}
    found = answers(one, one.corpus(), ("SVMR",), pools=POOLS, given=given, decoding=HOW)["SVMR"]
    for query, name in enumerate(one.query_ids):
        assert found[name] == survivors(one, query, HOW, [given[name]], weighted=False)


def test_a_localizer_alone_looks_into_all_of_a_pool(toy: Callable[..., Any]) -> None:
    one, few = toy("localizer"), replace(HOW, top_videos=1)
    found = answers(one, one.corpus(), ("VCMR",), pools=POOLS, decoding=few)["VCMR"]
    for query, name in enumerate(one.query_ids):
        assert found[name] == survivors(one, query, HOW, POOLS[name], weighted=False)


def test_a_retriever_first_keeps_the_best_videos_of_the_pool(toy: Callable[..., Any]) -> None:
    one, retriever = toy("borders"), toy("retriever")
    chooser = Ranker(retriever, retriever.corpus())
    few = replace(HOW, top_videos=2)
    found = answers(one, one.corpus(), ("VCMR",), pools=POOLS, decoding=few, retriever=chooser)["VCMR"]
    for query, name in enumerate(one.query_ids):
        order = [one.video_ids[at] for at in best_videos(one, query, 13)]
        kept = [video for video in order if video in POOLS[name]][:2]
        assert found[name] == survivors(one, query, HOW, kept), name


def test_what_videos_score_is_not_asked_where_it_changes_nothing(toy: Callable[..., Any]) -> None:
    one = toy("map")
    expected = {
        name: survivors(one, query, HOW, POOLS[name], weighted=False)
        for query, name in enumerate(one.query_ids)
    }
    one.model.video_weight = 0.0
    one.model.score_videos = lambda queries, videos: pytest.fail("videos were scored")
    assert answers(one, one.corpus(), ("VCMR",), pools=POOLS, decoding=HOW)["VCMR"] == expected


def test_broken_weights_are_named_and_not_ranked(toy: Callable[..., Any]) -> None:
    one = toy("localizer")
    one.model.whole.weight.data.fill_(torch.nan)
    with pytest.raises(UsageError, match="NaN"):
        answers(one, one.corpus(), ("VCMR",), pools=POOLS, decoding=HOW)


# A run file as the retriever ----------------------------------------------------------------------


def run_of(listed: Mapping[str, Sequence[tuple[str, float]]]) -> RankedVideos:
    """Moments of videos: the best one stands for its video."""
    run = {
        name: [ScoredMoment(Moment(video, at, at + 1), score) for at, (video, score) in enumerate(rows)]
        for name, rows in listed.items()
    }
    return RankedVideos.of(MemoryRun.from_run(run, "videos.jsonl"))


def test_a_run_of_videos_chooses_them(toy: Callable[..., Any]) -> None:
    one = toy("localizer")
    listed = {name: [("v03", 2.0), ("v05", 1.0), ("v03", 0.5)] for name in one.query_ids}
    few = replace(HOW, top_videos=1)
    found = answers(one, one.corpus(), ("VCMR", "VR"), retriever=run_of(listed), decoding=few)
    for rows in found["VR"].values():
        assert [(row[1], row[0]) for row in rows] == [("v03", 2.0), ("v05", 1.0)]  # the list as it is
    for rows in found["VCMR"].values():
        assert {row[1] for row in rows} == {"v03"}
    pooled = {name: ["v05", "v06"] for name in one.query_ids}
    found = answers(one, one.corpus(), ("VCMR",), retriever=run_of(listed), decoding=few, pools=pooled)
    for rows in found["VCMR"].values():
        assert {row[1] for row in rows} == {"v05"}


def test_a_run_counts_as_any_retriever_does(toy: Callable[..., Any]) -> None:
    one, retriever = toy("borders"), toy("retriever")
    ranker = Ranker(retriever, retriever.corpus(), decoding=Decoding(top_videos=13))
    blocks = tuple(lists["VR"] for lists in ranker.answers(one.query_ids, retriever.queries, VIDEOS))
    listed = RankedVideos.of(MemoryRun("videos", {"VR": blocks}))
    expected = answers(one, one.corpus(), ("VCMR",), retriever=ranker)
    assert answers(one, one.corpus(), ("VCMR",), retriever=listed) == expected


def test_a_run_without_a_query_or_with_a_foreign_video_is_refused(toy: Callable[..., Any]) -> None:
    one = toy("localizer")
    with pytest.raises(
        UsageError, match=r"videos\.jsonl: has no videos for query 'q1'.*such as 'q0'.*--pools"
    ):
        answers(one, one.corpus(), ("VCMR",), retriever=run_of({"q0": [("v01", 1.0)]}))
    strange = {name: [("v99", 1.0)] for name in one.query_ids}
    with pytest.raises(UsageError, match=r"videos\.jsonl: query 'q0': video 'v99' is not among the 13"):
        answers(one, one.corpus(), ("VCMR",), retriever=run_of(strange))


def test_moments_in_given_videos_choose_no_videos() -> None:
    lists = MemoryRun.from_run({"q": [ScoredMoment(Moment("v", 0, 1), 1.0)]}).lists["VCMR"]
    with pytest.raises(UsageError, match="ranks only moments in given videos"):
        RankedVideos.of(MemoryRun("given", {"SVMR": lists}))
