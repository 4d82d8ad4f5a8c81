from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from whenabouts.types import UsageError
from whenabouts_bench.formats.runs import RunBlock, Task, best_first
from whenabouts_systems.models.decoding import Decoding, clips_inside, seconds_of, span_mask
from whenabouts_systems.ranking import Ranker, candidates, encoded_corpus, localize, ranker

Row = tuple[float, str, float, float]
ALL: tuple[Task, ...] = ("VCMR", "SVMR", "VR")


def answers(
    one: Any, encoded: Any, tasks: tuple[Task, ...] = ALL, **more: Any
) -> dict[Task, dict[str, list[Row]]]:
    """Task -> query -> (score, video, start, end), best first."""
    settings = {key: more.pop(key) for key in ("decoding", "retriever", "video_weight") if key in more}
    found: dict[Task, dict[str, list[Row]]] = {task: {} for task in tasks}
    for lists in Ranker(one, encoded, **settings).answers(one.query_ids, one.queries, tasks, **more):
        for task, block in lists.items():
            found[task] |= rows_of(block)
    return found


def rows_of(block: RunBlock) -> dict[str, list[Row]]:
    names = [block.video_ids[code] for code in block.video.tolist()]
    times = ([-1.0 if at != at else at for at in one.tolist()] for one in (block.start, block.end))
    rows = list(zip(block.score.tolist(), names, *times, strict=True))
    return {name: rows[block.offsets[at] : block.offsets[at + 1]] for at, name in enumerate(block.query_ids)}


def by_hand(one: Any, query: int, how: Decoding, videos: list[int], weighted: bool) -> list[Row]:
    """Every span of some videos in plain Python: the oracle."""
    vector = one.tokens[query].sum(0)
    found = []
    for video in videos:
        clips, duration = one.videos[video], one.durations[video]
        best = float((clips @ vector).max()) * 3.0 * weighted
        usable = min(len(clips), int(clips_inside(one.clip_seconds, duration, how)))
        allowed = span_mask(len(clips), how)
        for first, last in itertools.product(range(usable), range(usable)):
            if allowed[first, last]:
                score = float(clips[first] @ vector + clips[last] @ vector[::-1]) + best
                start, end = seconds_of(first, last, one.clip_seconds, duration, how)
                found.append((-score, one.video_ids[video], float(start), float(end)))
    return [(-score, *rest) for score, *rest in sorted(found)[: how.spans_per_query]]


def best_videos(one: Any, query: int, count: int) -> list[int]:
    vector = one.tokens[query].sum(0)
    scores = [float((clips @ vector).max()) for clips in one.videos]
    return sorted(range(len(scores)), key=lambda at: (-scores[at], one.video_ids[at]))[:count]


HOWS = [
    Decoding(top_videos=4, spans_per_query=12),
    Decoding(2, 5, "exclusive", top_videos=5, spans_per_query=30),
    Decoding(1, 4, "as-released", top_videos=3, spans_per_query=500),
]


@pytest.mark.parametrize("kind", ["borders", "map"])
@pytest.mark.parametrize("how", HOWS, ids=lambda how: how.ends)
def test_the_answers_of_all_tasks_are_those_of_trying_everything(
    toy: Callable[..., Any], kind: str, how: Decoding
) -> None:
    one = toy(kind)
    given = {f"q{at}": one.video_ids[at] for at in range(0, 9, 2)}
    found = answers(one, one.corpus(batch_videos=3), decoding=how, given=given)
    for query, name in enumerate(one.query_ids):
        videos = best_videos(one, query, how.top_videos)
        assert found["VCMR"][name] == by_hand(one, query, how, videos, weighted=True)
        assert [row[1] for row in found["VR"][name]] == [one.video_ids[video] for video in videos]
        if name in given:
            assert found["SVMR"][name] == by_hand(one, query, how, [query], weighted=False)
    assert set(found["SVMR"]) == set(given)
    assert len({row for rows in found["VCMR"].values() for row in rows}) > 20


def test_with_a_weight_of_zero_videos_are_chosen_and_their_scores_left_out(toy: Callable[..., Any]) -> None:
    one, how = toy("borders"), HOWS[0]
    found = answers(one, one.corpus(), ("VCMR",), decoding=how, video_weight=0.0)["VCMR"]
    for query, name in enumerate(one.query_ids):
        videos = best_videos(one, query, how.top_videos)
        assert found[name] == by_hand(one, query, how, videos, weighted=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["borders", "map"])
def test_batches_blocks_and_copies_do_not_change_an_answer(
    toy: Callable[..., Any], kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    one = toy(kind, queries=40)
    given = dict.fromkeys(one.query_ids, "v05")
    expected = answers(one, one.corpus(), given=given)
    monkeypatch.setattr(encoded_corpus, "_BLOCK_BYTES", 500)
    for module, name, value in (
        (ranker, "_QUERIES", 7),
        (encoded_corpus, "_ENCODED_TOGETHER", 3),
        (candidates, "_QUERIES", 2),
        (candidates, "_VIDEOS", 1),
        (localize, "_PAIRS_TOGETHER", 1),
        (localize, "_COPY_BYTES", {"cpu": 1}),
        (localize, "_POPULAR", 100),
        (localize, "_POPULAR", 1),
    ):
        monkeypatch.setattr(module, name, value)
        encoded = one.corpus(batch_videos=2, folder=tmp_path / "encoded")
        assert len(encoded.blocks) > 3
        assert answers(one, encoded, given=given) == expected, name


def test_one_query_alone_is_answered_as_among_others(toy: Callable[..., Any]) -> None:
    one = toy()
    encoded = one.corpus()
    together = answers(one, encoded, ("VCMR",))["VCMR"]
    for at, name in enumerate(one.query_ids):
        alone = Ranker(one, encoded).rank([name], _only(one, at))
        assert rows_of(next(iter(alone))) == {name: together[name]}


def _only(one: Any, at: int) -> Callable[..., Any]:
    """The query numbered `at` as the only one."""
    return lambda rows: one.queries(rows + at)


def test_rows_are_in_the_order_in_which_a_file_is_read(toy: Callable[..., Any]) -> None:
    one = toy()
    for lists in Ranker(one, one.corpus()).answers(one.query_ids, one.queries, ("VCMR", "VR")):
        for block in lists.values():
            assert best_first(block) is not None
            np.testing.assert_array_equal(best_first(block).video, block.video)
            np.testing.assert_array_equal(best_first(block).start, block.start)


def test_moments_that_overlap_a_better_one_of_their_video_go(toy: Callable[..., Any]) -> None:
    one = toy()
    how = Decoding(top_videos=4, spans_per_query=6, spans_before_nms=100)
    before = answers(one, one.corpus(), ("VCMR",), decoding=Decoding(top_videos=4, spans_per_query=100))
    after = answers(
        one,
        one.corpus(),
        ("VCMR",),
        decoding=Decoding(**{**how.to_json(), "nms": 0.3}),
    )
    for name in one.query_ids:
        kept: list[Row] = []
        for row in before["VCMR"][name]:
            if all(row[1] != other[1] or iou(row, other) <= 0.3 for other in kept):
                kept.append(row)
        assert after["VCMR"][name] == kept[:6]
        assert kept[:6] != before["VCMR"][name][:6]


def iou(one: Row, other: Row) -> float:
    shared = max(0.0, min(one[3], other[3]) - max(one[2], other[2]))
    return shared / (one[3] - one[2] + other[3] - other[2] - shared)


def test_pools_restrict_each_query_to_its_videos(toy: Callable[..., Any]) -> None:
    one = toy()
    pools = {"q0": ["v01", "v02"], "q1": ["v00"]}
    for kind in ("borders", "localizer"):
        other = toy(kind)
        many = Decoding(spans_per_query=500)
        found = answers(other, other.corpus(), ("VCMR",), pools=pools, decoding=many)["VCMR"]
        assert {row[1] for row in found["q0"]} == {"v01", "v02"}
        assert {row[1] for row in found["q1"]} == {"v00"}
    with pytest.raises(UsageError, match="video 'v99' is not among"):
        answers(one, one.corpus(), ("VCMR",), pools={"q0": ["v99"]})


def test_another_system_chooses_the_videos(toy: Callable[..., Any]) -> None:
    whole, localizer, retriever = toy("borders"), toy("localizer"), toy("retriever")
    chooser = Ranker(retriever, retriever.corpus(batch_videos=3))
    found = answers(localizer, localizer.corpus(), ("VCMR",), retriever=chooser)
    assert found == answers(whole, whole.corpus(), ("VCMR",))
    other = answers(
        localizer,
        localizer.corpus(),
        ("VR",),
        retriever=chooser,
        retrieval_queries=lambda rows: retriever.queries(rows[::-1]),
    )
    assert other != answers(whole, whole.corpus(), ("VR",))


def test_a_retriever_of_other_videos_is_refused(toy: Callable[..., Any]) -> None:
    one, other = toy("localizer"), toy("retriever", videos=5)
    with pytest.raises(UsageError, match="the retriever has 5 videos and the localizer 13"):
        Ranker(one, one.corpus(), retriever=Ranker(other, other.corpus()))


@pytest.mark.parametrize(
    ("kind", "can", "cannot"),
    [
        ("borders", ALL, ()),
        ("retriever", ("VR",), ("VCMR", "SVMR")),
        ("localizer", ("SVMR",), ("VCMR", "VR")),
    ],
)
def test_a_system_answers_what_its_methods_allow_and_says_so(
    toy: Callable[..., Any], kind: str, can: tuple[Task, ...], cannot: tuple[Task, ...]
) -> None:
    one = toy(kind)
    ranker = Ranker(one, one.corpus())
    assert ranker.tasks == can
    for task in cannot:
        with pytest.raises(
            UsageError, match=re.escape(f"toy cannot answer {task}; it answers {', '.join(can)}")
        ):
            list(ranker.answers(one.query_ids, one.queries, [task]))


def test_queries_without_a_given_video_are_left_out_of_that_list(toy: Callable[..., Any]) -> None:
    one = toy()
    tasks: tuple[Task, ...] = ("SVMR",)
    (lists,) = Ranker(one, one.corpus()).answers(one.query_ids, one.queries, tasks)
    assert len(lists["SVMR"]) == 0
    assert lists["SVMR"].offsets.tolist() == [0]


def test_a_score_that_is_nan_names_the_video(toy: Callable[..., Any]) -> None:
    one = toy()
    one.videos[4][0, 0] = np.nan
    with pytest.raises(UsageError, match=f"video '{one.video_ids[4]}' scores NaN"):
        answers(one, one.corpus())


def test_fewer_moments_than_asked_for_are_answered_where_there_are_no_more(toy: Callable[..., Any]) -> None:
    one = toy(videos=2)
    found = answers(one, one.corpus(), ("VCMR",), decoding=Decoding(max_clips=1, spans_per_query=100))
    usable = np.minimum(one.clips, clips_inside(2.0, one.durations, Decoding()))
    assert {len(rows) for rows in found["VCMR"].values()} == {int(usable.sum())}


def test_a_corpus_of_one_video_with_one_clip_is_ranked(toy: Callable[..., Any]) -> None:
    one = toy(videos=1)
    one.clips[:], one.videos[0] = 1, one.videos[0][:1]
    found = answers(one, one.corpus(), given={"q0": "v00"})
    assert found["VCMR"]["q0"][0][1:] == found["SVMR"]["q0"][0][1:] == ("v00", 0.0, 2.0)


def test_ranking_draws_no_gradients_and_leaves_the_system_in_training(toy: Callable[..., Any]) -> None:
    one = toy()
    one.model.train()
    expected = answers(one, one.corpus())
    one.model.eval()
    assert answers(one, one.corpus()) == expected
    one.model.train()
    answers(one, one.corpus())
    assert one.model.training
    assert all(part.training for part in one.model.modules())
    assert one.model.weight.grad is None
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("small", [0, 1 << 30])
def test_the_number_of_threads_is_what_it_was(
    toy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(localize, "_SMALL_BYTES", small)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    one, seen = toy(), set()
    score_spans = one.model.score_spans

    def noted(*arguments: Any) -> Any:
        seen.add(torch.get_num_threads())
        return score_spans(*arguments)

    one.model.score_spans = noted
    try:
        answers(one, one.corpus(), ("VCMR",))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {1 if small else 2}


def test_progress_counts_the_queries(toy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranker, "_QUERIES", 4)
    one = toy()
    told: list[tuple[int, int]] = []
    answers(one, one.corpus(), progress=lambda done, total: told.append((done, total)))
    assert told == [(4, 9), (8, 9), (9, 9)]


@pytest.mark.parametrize("kind", ["borders", "map"])
def test_silent_videos_are_no_answers_and_are_scored_only_where_they_are_given(
    toy: Callable[..., Any], kind: str
) -> None:
    one = toy(kind)
    how = Decoding(top_videos=4, spans_per_query=12)
    encoded = one.corpus(batch_videos=3)
    usual = answers(one, encoded, decoding=how)["VR"]
    silent = [rows[0][1] for rows in usual.values()][:3]  # the best of the first queries
    deaf = replace(encoded, silent=np.isin(encoded.ids, silent))
    given = {"q0": silent[0], "q1": one.video_ids[0]}
    found = answers(one, deaf, decoding=how, given=given)
    for query, name in enumerate(one.query_ids):
        heard = [at for at in best_videos(one, query, 13) if one.video_ids[at] not in silent][:4]
        assert [row[1] for row in found["VR"][name]] == [one.video_ids[at] for at in heard]
        assert found["VCMR"][name] == by_hand(one, query, how, heard, weighted=True)
    assert found["SVMR"] == answers(one, encoded, ("SVMR",), decoding=how, given=given)["SVMR"]
    assert Ranker(one, deaf).unfindable == len(set(silent)) and Ranker(one, encoded).unfindable == 0


@pytest.mark.parametrize("nms", [None, 0.5])
@pytest.mark.parametrize("kind", ["borders", "localizer"])
def test_silent_videos_of_a_pool_are_no_answers(
    toy: Callable[..., Any], kind: str, nms: float | None
) -> None:
    one = toy(kind)
    encoded = one.corpus()
    pools = {name: one.video_ids[at : at + 4] for at, name in enumerate(one.query_ids)}
    silent = set(one.video_ids[2:8:2])
    deaf = replace(encoded, silent=np.isin(encoded.ids, sorted(silent)))
    how = Decoding(top_videos=13, spans_per_query=500, nms=nms)
    found = answers(one, deaf, ("VCMR",), decoding=how, pools=pools)["VCMR"]
    smaller = {name: [video for video in pool if video not in silent] for name, pool in pools.items()}
    assert found == answers(one, encoded, ("VCMR",), decoding=how, pools=smaller)["VCMR"]


def test_another_retriever_finds_what_is_silent_for_the_localizer(toy: Callable[..., Any]) -> None:
    one, retriever = toy("borders"), toy("retriever")
    deaf = replace(one.corpus(), silent=np.ones(13, bool))
    chooser = Ranker(retriever, retriever.corpus())
    assert all(answers(one, deaf, ("VCMR",), retriever=chooser)["VCMR"].values())
    assert not any(answers(one, deaf, ("VCMR",))["VCMR"].values())
