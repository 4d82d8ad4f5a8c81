"""Negatives from retrieval lists: what may be drawn, how it is drawn, and lists that are odd."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.golden_folder import cases, golden_folder, told_inside

from whenabouts.types import Query, UsageError, Video
from whenabouts_bench import formats
from whenabouts_bench.formats.runs import MemoryRun, RunBlock, RunSource, Task
from whenabouts_bench.relevance.cooccurrence import Cooccurrence, Words
from whenabouts_systems.training.experiment import RetrievedSettings
from whenabouts_systems.training.retrieval_negatives import RetrievalNegatives, drawn_candidates
from whenabouts_systems.training.tables import converted

VIDEOS = 12


@dataclass
class _Split:
    """Query q asks for video q; 3 is judged to answer query 0 as well."""

    query: Any = field(default_factory=lambda: np.arange(5))
    video: Any = field(default_factory=lambda: np.arange(5))
    name: str = "train"
    positives_too: tuple[tuple[int, int], ...] = ((0, 3),)
    size: tuple[int, int] = (6, VIDEOS)

    @property
    def queries(self) -> tuple[Query, ...]:
        return tuple(Query(f"q{number}", "words") for number in range(self.size[0]))

    @property
    def videos(self) -> tuple[Video, ...]:
        return tuple(Video(f"v{number}", 10.0) for number in range(self.size[1]))

    @property
    def positive_pairs(self) -> tuple[Any, Any]:
        more = np.array(self.positives_too, np.int64).reshape(-1, 2)
        return np.append(self.query, more[:, 0]), np.append(self.video, more[:, 1])


def block_of(
    lists: Mapping[str, Sequence[int]],
    scores: Mapping[str, Sequence[float]] | None = None,
    videos: int = VIDEOS + 1,
) -> RunBlock:
    """A block of lists of some of the videos; the scores fall where none are given."""
    counts = [len(one) for one in lists.values()]
    told = scores or {}
    score = [told.get(name, range(len(one), 0, -1)) for name, one in lists.items()]
    nothing = np.full(sum(counts), np.nan)
    return RunBlock(
        tuple(lists),
        np.cumsum([0, *counts]),
        tuple(f"v{number}" for number in range(videos)),
        np.array([video for one in lists.values() for video in one], np.int32),
        nothing,
        nothing,
        np.array([one for some in score for one in some], np.float64),
    )


def run_of(*blocks: RunBlock, task: Task = "VR") -> MemoryRun:
    return MemoryRun("a.run", {task: blocks})


def whole(*, changed: dict[str, Sequence[int]] | None = None) -> dict[str, Sequence[int]]:
    """Every query lists all videos from 11 down to 0; own video q is then of rank 11 - q."""
    return {**{f"q{query}": range(VIDEOS - 1, -1, -1) for query in range(5)}, **(changed or {})}


def made(source: RunSource | None = None, split: Any = None, seed: int = 3, **settings: Any) -> Any:
    told = RetrievedSettings(**{"lists": "a.run", "videos": 3, **settings})
    examples: Any = split or _Split()
    return RetrievalNegatives(source or run_of(block_of(whole())), examples, told, seed)


def test_the_first_of_a_list_are_candidates_without_what_is_judged_to_answer() -> None:
    found = made(depth=9)
    assert found.candidates(0).tolist() == [11, 10, 9, 8, 7, 6, 5, 4]
    assert found.candidates(4).tolist() == [11, 10, 9, 8, 7, 6, 5, 3]
    assert found.ranks.tolist() == [11, 10, 9, 8, 7]


def test_the_depth_may_follow_the_rank_of_the_own_video() -> None:
    found = made(beyond_own=2, depth=1)
    # Own video 4 is of rank 7: seven before it, and two behind it.
    assert found.candidates(4).tolist() == [11, 10, 9, 8, 7, 6, 5, 3, 2]
    assert found.candidates(0).tolist() == [11, 10, 9, 8, 7, 6, 5, 4, 2, 1]


def test_the_whole_list_may_be_drawn_from_where_the_own_video_is_not_listed() -> None:
    found = made(run_of(block_of(whole(changed={"q2": [5, 6, 7, 8]}))), beyond_own=1)
    assert found.candidates(2).tolist() == [5, 6, 7, 8]


def test_a_query_of_two_own_videos_has_the_rank_of_the_better_one() -> None:
    split = _Split(query=np.array([0, 1, 2, 3, 4, 4]), video=np.array([0, 1, 2, 3, 4, 9]))
    found = made(split=split, beyond_own=1)
    assert found.candidates(4).tolist() == [11, 10, 8]
    assert found.ranks.tolist() == [11, 10, 9, 8, 7, 2]


def test_examples_are_within_where_their_own_video_is_listed_far_enough_up() -> None:
    found = made(run_of(block_of(whole(changed={"q3": [1, 2]}))), own_within=9)
    assert found.within.tolist() == [False, False, False, False, True]
    assert made().within.all()


def test_what_is_drawn_are_candidates_and_none_comes_twice() -> None:
    found = made(depth=7)
    query = np.array([0, 1, 2, 3, 4, 0])
    for epoch in range(30):
        rows = found.of_epoch(query, epoch)
        for one, row in zip(query.tolist(), rows.tolist(), strict=True):
            assert len(set(row)) == 3
            assert set(row) <= set(found.candidates(one).tolist())
        assert rows[0].tolist() == rows[5].tolist()


def test_draws_depend_on_seed_epoch_and_query_and_on_nothing_else() -> None:
    found, other = made(), made(run_of(*(block_of({name: one}) for name, one in reversed(whole().items()))))
    every = np.arange(5)
    alone = np.concatenate([other.of_epoch(every[[one]], 7) for one in (4, 2, 0, 1, 3)])
    assert np.array_equal(found.of_epoch(every, 7)[[4, 2, 0, 1, 3]], alone)
    assert not np.array_equal(found.of_epoch(every, 7), found.of_epoch(every, 8))
    assert not np.array_equal(found.of_epoch(every, 7), made(seed=4).of_epoch(every, 7))
    assert not np.array_equal(*found.of_epoch(np.array([1, 2]), 7))


def test_every_candidate_is_drawn_equally_often() -> None:
    """3 of 8 in each of 4,000 epochs: 1,500 times each, with a deviation of 31."""
    found = made(depth=9)
    rows = np.concatenate([found.of_epoch(np.array([0]), epoch) for epoch in range(4000)])
    times = np.bincount(rows.reshape(-1), minlength=VIDEOS)
    assert times[[0, 1, 2, 3]].sum() == 0
    assert np.abs(times[4:] - 1500).max() < 130
    first = np.bincount(rows[:, 0], minlength=VIDEOS)
    assert np.abs(first[4:] - 500).max() < 100


def test_a_batch_holds_its_own_videos_first_and_what_was_drawn_behind() -> None:
    found = made(depth=4)
    query, own = np.array([4, 1, 2]), np.array([4, 1, 2])
    drawn = found.drawn(query, own, own, epoch=0)
    assert drawn.videos[:3].tolist() == [4, 1, 2]
    assert len(set(drawn.videos.tolist())) == len(drawn.videos)
    assert np.array_equal(drawn.videos[drawn.negatives], found.of_epoch(query, 0))
    assert drawn.queries.shape == (0,)
    assert drawn.negative_queries.shape == (3, 0)


def test_the_own_video_of_another_query_may_be_drawn_and_is_not_held_twice() -> None:
    found = made(run_of(block_of(whole(changed={"q1": [4, 1, 2]}))))
    drawn = found.drawn(*[np.array([1, 4])] * 3, epoch=0)
    assert sorted(drawn.videos[drawn.negatives[0][:2]].tolist()) == [2, 4]
    assert drawn.negatives[0, 2] == -1
    assert len(set(drawn.videos.tolist())) == len(drawn.videos)


def test_fewer_candidates_than_are_asked_for_are_all_drawn_and_counted() -> None:
    found = made(run_of(block_of(whole(changed={"q1": [1, 8], "q2": []}))))
    rows = found.of_epoch(np.array([2, 1, 0]), 0)
    assert rows[0].tolist() == [-1, -1, -1]
    assert rows[1].tolist() == [8, -1, -1]
    assert (rows[2] >= 0).all()
    assert found.counts["queries have fewer than 3 videos to draw from"] == 2


def test_no_candidates_at_all_are_no_fault_of_a_batch() -> None:
    found = made(run_of(block_of({f"q{query}": [] for query in range(5)})))
    drawn = found.drawn(*[np.arange(5)] * 3, 0)
    assert (drawn.negatives == -1).all()
    assert drawn.videos.tolist() == [0, 1, 2, 3, 4]


def test_a_video_that_comes_twice_counts_once_where_it_is_best() -> None:
    found = made(run_of(block_of(whole(changed={"q1": [7, 8, 7, 9, 8, 1]}))), depth=3)
    assert found.candidates(1).tolist() == [7, 8, 9]
    assert found.ranks[1] == 3
    assert found.counts["videos come twice in a list and count once, at their best place"] == 2


def test_scores_decide_where_they_contradict_the_order_and_equal_ones_stay() -> None:
    scores = {"q1": [0.1, 0.9, 0.5, 0.9]}
    found = made(run_of(block_of(whole(changed={"q1": [7, 9, 8, 5]}), scores)))
    assert found.candidates(1).tolist() == [9, 5, 8, 7]
    assert found.counts["lists were not in the order of their scores; the scores count"] == 1
    assert found.candidates(2).tolist() == made().candidates(2).tolist()


def test_a_list_of_moments_ranks_videos_by_their_best_moment() -> None:
    found = made(run_of(block_of(whole(changed={"q1": [7, 7, 1, 7, 8, 1]})), task="VCMR"))
    assert found.candidates(1).tolist() == [7, 8]
    assert found.ranks[1] == 1
    assert not any(times for what, times in found.counts.items() if "twice" in what)


def test_lists_of_queries_without_a_example_are_passed_over() -> None:
    lists = {"q5": [VIDEOS, 3], "elsewhere": [VIDEOS], **whole()}
    assert made(run_of(block_of(lists))).candidates(4).tolist() == made().candidates(4).tolist()


def test_a_video_that_the_split_lacks_is_named_with_query_and_remedy() -> None:
    source = run_of(block_of(whole(changed={"q1": [7, VIDEOS, 8]})))
    with pytest.raises(
        UsageError, match=r"a\.run: query 'q1' has video 'v12'.*12 videos of train.*--task vr"
    ):
        made(source)


def test_a_query_without_a_list_is_named() -> None:
    lists = {name: one for name, one in whole().items() if name not in ("q2", "q4")}
    with pytest.raises(
        UsageError, match=r"a\.run: has no list for query 'q2' of train \(and 1 others of its 5\)"
    ):
        made(run_of(block_of(lists)))


def test_a_run_of_moments_in_given_videos_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a\.run: ranks only moments in given videos"):
        made(run_of(block_of(whole()), task="SVMR"))


def test_a_list_of_videos_is_taken_where_a_run_holds_both(tmp_path: Path) -> None:
    moments = block_of({f"q{query}": [2] for query in range(5)})
    both = MemoryRun("a.run", {"VCMR": (moments,), "VR": (block_of(whole()),)})
    assert made(both).candidates(4).tolist() == made().candidates(4).tolist()


def test_files_of_json_lines_and_trec_rows_give_the_same_candidates(tmp_path: Path) -> None:
    lines = [
        {
            "query_id": name,
            "moments": [{"video_id": f"v{video}", "score": 20.0 - at} for at, video in enumerate(one)],
        }
        for name, one in whole().items()
    ]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    formats.write_run(formats.open_run(tmp_path / "run.jsonl"), tmp_path / "run.trec", "trec")
    for name in ("run.jsonl", "run.trec"):
        found = made(formats.open_run(tmp_path / name))
        assert [found.candidates(query).tolist() for query in range(5)] == [
            made().candidates(query).tolist() for query in range(5)
        ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"videos": -1}, r"\[data.retrieved\] videos is -1; accepted: a whole number, 0 or more"),
        ({"depth": 0}, r"\] depth is 0; accepted: a whole number, 1 or more"),
        ({"beyond_own": 0}, r"\] beyond_own is 0; accepted: a whole number, 1 or more, or none"),
        ({"own_within": 0}, r"\] own_within is 0"),
        ({"beyond_own_usual": 0}, r"\] beyond_own_usual is 0; accepted: a whole number, 1 or more"),
        ({"cooccurrence": "queries"}, r"retrieved\.beyond_own is missing; give it, such as 500"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        converted(settings, RetrievedSettings, "[data.retrieved]")


def test_how_far_lists_are_looked_at_follows_from_what_is_asked() -> None:
    assert RetrievedSettings(videos=4).reach == 100
    assert RetrievedSettings(videos=4, depth=10, own_within=50).reach == 50
    assert RetrievedSettings(videos=3, beyond_own=1000, own_within=100).reach == 1100
    assert RetrievedSettings(videos=3, beyond_own=1000).reach is None


def test_candidates_and_ranks_are_those_of_the_released_program() -> None:
    """CONQUER's record of its pools: the list without the own video, up to so far behind that one's place."""
    files = cases("conquer", "*.npz")
    if not files:
        pytest.skip(f"{golden_folder()} has no conquer folder")
    for told in map(told_inside, files):
        names, numbers = list(told["video2idx"]), list(told["video2idx"].values())
        listed = told["hero_ranklist_decoded"]
        lists = {name: listed[name] for name in (str(query["desc_id"]) for query in told["queries"])}
        own = np.array([names.index(query["vid_name"]) for query in told["queries"]])
        split = _Split(np.arange(len(own)), own, size=(len(own), len(names)))
        rows = {
            f"q{at}": [numbers.index(video) for video, _ in lists[query]] for at, query in enumerate(lists)
        }
        scores = {f"q{at}": [score for _, score in lists[query]] for at, query in enumerate(lists)}
        split.positives_too = ()
        run = run_of(block_of(rows, scores, len(names)))
        found = made(run, split, beyond_own=told["use_extend_pool"])
        for at, pool in enumerate(told["train_negative_pool"]):
            assert [names[video] for video in found.candidates(at)] == pool["negative_pool"]
            assert found.ranks[at] == pool["gt_location"]
            drawn = told["train_negatives"][at]
            assert set(drawn) <= {names[video] for video in found.candidates(at)}


def test_a_query_that_says_the_usual_has_candidates_of_its_own_depth() -> None:
    usual = np.array([False, False, True, False, True, False])
    told = RetrievedSettings(videos=2, beyond_own=4, cooccurrence="queries", beyond_own_usual=1)
    examples: Any = _Split(positives_too=())
    found = RetrievalNegatives(run_of(block_of(whole())), examples, told, 0, None, usual)
    assert found.candidates(3).tolist() == [11, 10, 9, 8, 7, 6, 5, 4, 2, 1, 0]
    assert found.candidates(4).tolist() == [11, 10, 9, 8, 7, 6, 5, 3]


def test_pools_are_those_of_squidnets_program() -> None:
    """A tenth of the allowance where a query says the usual."""
    files = cases("squidnet", "*.npz")
    if not files:
        pytest.skip(f"{golden_folder()} has no squidnet folder")
    for told in map(told_inside, files):
        table = Cooccurrence(
            {noun: [(verb, count) for verb, count in verbs] for noun, verbs in told["cooccurrence"]}
        )
        numbers, names = zip(*((video["idx"], video["name"]) for video in told["videos"]), strict=True)
        queries = [told["queries"][row] for row in told["train_rows"]]
        usual = np.array([table.is_usual(words_told(query)) for query in queries])
        assert usual.tolist() == told["told"]["train_is_positive"]
        lists = {
            f"q{at}": [numbers.index(one) for one, _ in query["bmr"]] for at, query in enumerate(queries)
        }
        scores = {f"q{at}": [score for _, score in query["bmr"]] for at, query in enumerate(queries)}
        own = np.array([names.index(query["vid_name"]) for query in queries])
        size = (len(own), len(names))
        split: Any = _Split(np.arange(len(own)), own, positives_too=(), size=size)
        settings = RetrievedSettings(
            videos=told["neg_bmr_pred_num"],
            beyond_own=told["bmr_allowance"],
            cooccurrence="queries",
            beyond_own_usual=told["bmr_allowance"] // 10,
        )
        run = run_of(block_of(lists, scores, len(names)))
        found = RetrievalNegatives(run, split, settings, 0, None, usual)
        for at, pool in enumerate(told["told"]["train_pool"]):
            assert [names[video] for video in found.candidates(at)] == pool["pool"]
            assert found.ranks[at] == pool["ground_truth_rank"]
            drawn = told["told"]["train_video_lists"][at]
            assert drawn[0] == names[own[at]]
            assert set(drawn[1:]) <= set(pool["pool"])


TWO_MOMENTS: dict[str, Any] = {"query": np.array([0, 1, 2, 3, 4, 4]), "video": np.array([0, 1, 2, 3, 4, 9])}
"""Query 4 asks for video 4, of rank 7, and for video 9, of rank 2."""


def test_each_own_video_of_a_query_may_have_draws_by_its_own_rank() -> None:
    """Its own video is taken out, and what else is judged to answer: 3 answers query 0."""
    found = made(split=_Split(**TWO_MOMENTS), beyond_own=1, draws="example")
    first, second, zero = found.units(np.array([4, 4, 0]), np.array([4, 9, 0])).tolist()
    assert found.candidates(first).tolist() == [11, 10, 9, 8, 7, 6, 5, 3]
    assert found.candidates(second).tolist() == [11, 10, 8]
    assert found.candidates(zero).tolist() == [11, 10, 9, 8, 7, 6, 5, 4, 2, 1]
    assert found.ranks.tolist() == [11, 10, 9, 8, 7, 2]


def test_a_batch_draws_for_each_of_its_examples() -> None:
    found = made(split=_Split(**TWO_MOMENTS), beyond_own=1, draws="example", videos=4)
    query, own = np.array([4, 4, 2]), np.array([9, 4, 2])
    for epoch in range(20):
        drawn = found.drawn(query, own, own, epoch)
        rows = [set(drawn.videos[row[row >= 0]].tolist()) for row in drawn.negatives]
        assert rows[0] == {11, 10, 8}
        assert rows[1] <= {11, 10, 9, 8, 7, 6, 5, 3} and len(rows[1]) == 4
        assert 2 not in rows[2]
    assert found.counts["pairs of a query and its video have fewer than 4 videos to draw from"] == 1


def _split_of(query: Any, video: Any, videos: int) -> Any:
    return SimpleNamespace(
        name="val",
        query=query,
        video=video,
        queries=tuple(Query(f"q{at}", "words") for at in range(int(query.max()) + 1)),
        videos=tuple(Video(f"v{at}", 10.0) for at in range(videos)),
        positive_pairs=(query, video),
    )


def test_a_video_that_is_not_listed_is_of_rank_100_to_the_ranked_program() -> None:
    """120 videos are listed, and not the own one: 100 + 2 of them are drawn from."""
    ids, scores = tuple(f"v{at}" for at in range(130)), -np.arange(120.0)
    block = RunBlock(("q0",), np.array([0, 120]), ids, np.arange(120, dtype=np.int32), scores, scores, scores)
    split = _split_of(np.array([0]), np.array([125]), 130)
    found = made(run_of(block), split, beyond_own=2, draws="example")
    assert found.candidates(0).tolist() == list(range(102))


def test_candidates_are_drawn_by_the_last_moment_of_a_query_as_by_the_ranked_program() -> None:
    told = RetrievedSettings(videos=2, beyond_own=1, validation_draws=3)
    split: Any = _Split(**TWO_MOMENTS)
    found = [drawn_candidates(run_of(block_of(whole())), split, told, seed) for seed in range(12)]
    assert all(set(one.lists) == {f"q{query}" for query in range(6)} for one in found)
    assert all(set(one.lists["q4"][0]) == {"v11", "v10", "v8"} for one in found)
    assert all(len(set(one.lists["q1"][0])) == 3 and "v1" not in one.lists["q1"][0] for one in found)
    assert len({frozenset(one.lists["q1"][0]) for one in found}) > 1
    assert all(one.lists["q5"][0] == () for one in found), "a query that asks for nothing"


def test_draws_are_from_the_pools_of_the_ranked_program() -> None:
    files = [path for path in cases("squidnet", "*.npz") if "ranked" in told_inside(path)["told"]]
    if not files:
        pytest.skip(f"{golden_folder()} has no ranked case of squidnet")
    for told in map(told_inside, files):
        names, numbers = ([video[key] for video in told["videos"]] for key in ("name", "idx"))
        queries = {query["desc_id"]: query["bmr"] for query in told["queries"]}
        lists = {f"q{at}": [numbers.index(one) for one, _ in bmr] for at, bmr in enumerate(queries.values())}
        rows = told["told"]["ranked"]["candidate_rows"]
        query = np.array([list(queries).index(row["desc_id"]) for row in rows])
        own = np.array([names.index(row["own_video"]) for row in rows])
        split, allowance = _split_of(query, own, len(names)), told["bmr_allowance"]
        run = run_of(block_of(lists, videos=len(names)))
        found = made(run, split, beyond_own=allowance, draws="example")
        for row, unit in zip(rows, found.units(query, own).tolist(), strict=True):
            pool = {names[video] for video in found.candidates(unit).tolist()}
            assert set(row["candidates"]) <= pool and row["own_video"] not in pool


def words_told(query: Mapping[str, Any]) -> Words:
    """The nouns and verbs that a case tells of a query."""
    nouns, verbs = (frozenset((word, word) for word in query[kind]) for kind in ("noun", "verb"))
    return Words(nouns, verbs)
