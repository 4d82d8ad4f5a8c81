"""VMR beside MVMR over the same queries, and the drop between, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from whenabouts.types import Moment, ScoredMoment, UsageError
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.evaluation.overconfidence import FIGURE_METRICS, IOUS, RANKS, Drop, drop_of
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun

RIGHT, WRONG = (0.0, 10.0), (20.0, 30.0)


def truth(pools: bool = True) -> Annotations:
    """Four queries: a has two positives, d a short pool."""
    told = AnnotationBuilder("pools.json")
    for name in "abcd":
        told.add_query(name, f"words of {name}")
        told.judge(name, f"{name}1", *RIGHT)
        if pools:
            told.set_pool(name, [f"{name}1", f"{name}2", *(["x"] if name != "d" else [])])
    told.judge("a", "a2", *RIGHT)
    return told.annotations()


def run(told: dict[str, list[tuple[str, tuple[float, float]]]], name: str) -> MemoryRun:
    """Lists of (video, span), best first."""
    return MemoryRun.from_run(
        {
            query: [ScoredMoment(Moment(video, *span), -float(at)) for at, (video, span) in enumerate(rows)]
            for query, rows in told.items()
        },
        name,
    )


def given(told: dict[str, list[tuple[str, tuple[float, float]]]], name: str) -> MemoryRun:
    """The same with the videos given."""
    return MemoryRun(name, {"SVMR": run(told, name).lists["VCMR"]})


POOL = run(
    {
        "a": [("a2", RIGHT)],
        "b": [("b2", RIGHT), ("x", RIGHT), ("b1", RIGHT)],
        "c": [("c2", RIGHT), ("c1", WRONG)],
        "d": [("d1", RIGHT)],
    },
    "runs/pool.jsonl",
)
GIVEN = given({name: [(f"{name}1", RIGHT if name != "c" else WRONG)] for name in "abcd"}, "runs/given.jsonl")


def test_the_drop_is_told_for_every_rank_and_overlap_over_the_same_queries() -> None:
    found = drop_of(truth(), POOL, GIVEN)
    assert found.queries == 3  # d has no full pool
    assert list(found.pool) == [f"R@{k},IoU={m}" for m in IOUS for k in RANKS]
    assert found.given["R@1,IoU=0.5"] == 2 / 3  # a and b
    assert found.pool["R@1,IoU=0.5"] == 1 / 3  # a, by its other positive
    assert found.pool["R@5,IoU=0.5"] == 2 / 3  # b, at rank 3
    assert found.points("R@1,IoU=0.5") == pytest.approx(1 / 3)
    assert found.share("R@1,IoU=0.5") == pytest.approx(1 / 2)
    assert found.mean("pool") == pytest.approx((1 / 3 + 2 / 3) / 2)
    assert found.notes == ()
    for side in ("given", "pool"):
        low, high = found.intervals[side]
        assert 0 <= low <= found.mean(side) <= high <= 1
    assert found.to_json()["figure"]["intervals"]["pool"] == list(found.intervals["pool"])


def test_a_query_that_is_not_answered_counts_as_zero_and_is_told() -> None:
    some = given({"a": [("a1", RIGHT)]}, "some.jsonl")
    found = drop_of(truth(), POOL, some)
    assert found.given["R@1,IoU=0.5"] == 1 / 3
    assert found.notes == ("VMR: 2 queries are missing",)


def test_a_run_that_ranked_pools_is_not_taken_for_one_with_the_video_given() -> None:
    with pytest.raises(UsageError, match=r"runs/pool\.jsonl: ranked moments of several videos.*--task svmr"):
        drop_of(truth(), POOL, POOL)


def test_nothing_to_lose_has_no_share() -> None:
    metrics = dict.fromkeys(FIGURE_METRICS, 0.0)
    told = Drop("x", metrics, metrics, 3).to_json()
    assert told["metrics"]["R@1,IoU=0.5"]["share_lost"] is None


def test_a_run_of_other_queries_is_refused() -> None:
    other = run({"e": [("e1", RIGHT)]}, "other.jsonl")
    with pytest.raises(UsageError, match=r"other\.jsonl"):
        drop_of(truth(), POOL, other)


def test_a_run_that_answers_only_queries_without_a_full_pool_is_refused() -> None:
    other = given({"d": [("d1", RIGHT)]}, "other.jsonl")
    with pytest.raises(UsageError, match=r"other\.jsonl: answers none of the 3 judged queries.*--task svmr"):
        drop_of(truth(), POOL, other)
    with pytest.raises(UsageError, match="answers none of the 3 judged queries"):
        drop_of(truth(), POOL, other, protocol="mvmr-as-released")


def test_runs_of_different_queries_have_no_drop_where_unanswered_ones_are_left_out() -> None:
    some = given({"a": [("a1", RIGHT)]}, "some.jsonl")
    with pytest.raises(UsageError, match=r"some\.jsonl and runs/pool\.jsonl answer different queries"):
        drop_of(truth(), POOL, some, protocol="mvmr-as-released")
    assert drop_of(truth(), POOL, GIVEN, protocol="mvmr@1") == drop_of(truth(), POOL, GIVEN)


def test_a_protocol_or_judgements_without_pools_are_refused() -> None:
    with pytest.raises(UsageError, match=r"vcmr: has no pools.*accepted: mvmr"):
        drop_of(truth(), POOL, GIVEN, protocol="vcmr")
    with pytest.raises(UsageError, match=r"pools\.json: mvmr needs the pool of each query"):
        drop_of(truth(pools=False), POOL, GIVEN)


@pytest.mark.slow
def test_the_picture_has_both_bars_of_each_system(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from whenabouts_bench.evaluation.drop_figure import write_drop

    drops = [drop_of(truth(), POOL, GIVEN), drop_of(truth(), GIVEN, GIVEN, name="the second system")]
    written = write_drop(drops, tmp_path / "figures" / "drop.svg")
    assert [path.name for path in written] == ["drop.svg", "drop.png"]
    drawn = written[0].read_text()
    for text in ("pool", "the second system", "66.7", "50.0", "VMR: its video given"):
        assert f">{text}<" in drawn
    assert "95 % intervals" in drawn and ">100<" in drawn and ">120<" not in drawn
    assert drawn == write_drop(drops, tmp_path / "figures" / "drop")[0].read_text()


def test_queries_without_a_positive_in_their_pool_are_left_out_and_counted() -> None:
    told = AnnotationBuilder("pools.json")
    for name in "ab":
        told.add_query(name)
        told.judge(name, f"{name}1", *RIGHT)
    told.set_pool("a", ["a1", "x"])
    told.set_pool("b", ["y", "x"])
    result = evaluate(told.annotations(), POOL, ["R@5,IoU=0.5"], protocol="mvmr")
    assert result.query_ids == ("a",)
    assert result.left_out == {"queries have no positive in their pool": 1}
