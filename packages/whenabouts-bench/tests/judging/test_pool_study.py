"""What each run gave to a pool, what it lacks, and who grades higher than the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.judging.conftest import Clock

from whenabouts.cli.main import main
from whenabouts.types import Moment, UsageError
from whenabouts_bench.formats import open_run
from whenabouts_bench.judging.bias import Bias, biases
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.pool_study import pool_study
from whenabouts_bench.judging.qrels import Judged
from whenabouts_bench.judging.tasks import Source, Task, TaskSet

QUERIES, DEPTH = 24, 4
METRIC = "R@1,IoU=0.5,grade>=3"
Runs = dict[str, list[list[int]]]


@pytest.fixture
def pooled(tmp_path: Path, clock: Clock) -> tuple[Judged, dict[str, Path], Runs, np.ndarray[Any, Any]]:
    """Three runs over moments 0 to 9 of one video, pooled to depth 4, and all of the pool judged."""
    rng = np.random.default_rng(3)
    grades = rng.integers(0, 5, (QUERIES, 10))
    answers: Runs = {}
    for name, skill in (("good", 3.0), ("fair", 1.0), ("poor", 0.0)):
        scores = skill * grades + rng.normal(0, 3, grades.shape)
        answers[name] = np.argsort(-scores, axis=1).tolist()
    ranks: dict[tuple[int, int], dict[str, int]] = {}
    for name, lists in answers.items():
        for query, order in enumerate(lists):
            for rank, moment in enumerate(order[:DEPTH], 1):
                ranks.setdefault((query, moment), {})[name] = rank
    tasks = tuple(
        Task(f"q{query}m{moment}", f"q{query}", f"Sentence {query}", span(moment), 100.0)
        for query, moment in ranks
    )
    (tmp_path / "video.mp4").write_bytes(b"")
    made = TaskSet(tmp_path / "set", "pooled", tasks, {"video": "../video.mp4"}, annotators=1)
    made.write({task.id: Source(given) for task, given in zip(tasks, ranks.values(), strict=True)})
    task_set = TaskSet.open(tmp_path / "set")
    journal = Journal.open(task_set, clock)
    for task, (query, moment) in zip(tasks, ranks, strict=True):
        journal.append(Event("grade", "Ada", task.id, int(grades[query, moment])))
    files = {name: write_run(tmp_path / f"{name}.jsonl", lists) for name, lists in answers.items()}
    return Judged.of(task_set, journal.state()), files, answers, grades


def span(moment: int) -> Moment:
    return Moment("video", 10.0 * moment, 10.0 * moment + 8)


def write_run(path: Path, lists: list[list[int]]) -> Path:
    with path.open("w") as stream:
        for query, order in enumerate(lists):
            moments = [
                {"video_id": "video", "start": span(m).start, "end": span(m).end, "score": -float(rank)}
                for rank, m in enumerate(order)
            ]
            stream.write(json.dumps({"query_id": f"q{query}", "moments": moments}) + "\n")
    return path


def plain_values(lists: list[list[int]], right: set[tuple[int, int]]) -> list[float]:
    """Recall of the first answer, by loops."""
    return [float((query, order[0]) in right) for query, order in enumerate(lists)]


def test_a_run_without_its_own_moments_equals_a_plain_count(pooled: Any) -> None:
    judged, files, answers, grades = pooled
    study = pool_study(judged, {name: open_run(str(path)) for name, path in files.items()}, METRIC)
    pools = {
        name: {(q, m) for q, order in enumerate(lists) for m in order[:DEPTH]}
        for name, lists in answers.items()
    }
    everything = set().union(*pools.values())
    right = {(q, m) for q, m in everything if grades[q, m] >= 3}
    assert study.queries == QUERIES
    for each in study.contributions:
        others = set().union(*(pool for name, pool in pools.items() if name != each.run))
        own = everything - others
        assert (each.own, each.own_right) == (len(own), len(own & right))
        assert each.value == pytest.approx(np.mean(plain_values(answers[each.run], right)))
        assert each.without == pytest.approx(np.mean(plain_values(answers[each.run], right & others)))
        low, high = each.drop or (np.nan, np.nan)
        assert 0 <= low <= each.value - each.without <= high
        unjudged = [
            np.mean([(q, order[rank]) not in everything for q, order in enumerate(answers[each.run])])
            for rank in range(10)
        ]
        assert each.holes == pytest.approx(unjudged)
        assert not any(each.holes[:DEPTH])
    assert any(each.without < each.value for each in study.contributions)


def test_a_shallow_pool_and_pairs_of_runs(pooled: Any) -> None:
    judged, files, answers, grades = pooled
    runs = {name: open_run(str(path)) for name, path in files.items()}
    study = pool_study(judged, runs, METRIC)
    assert [depth.depth for depth in study.depths] == [1, 2, 3]
    firsts = {(q, order[0]) for lists in answers.values() for q, order in enumerate(lists)}
    assert study.depths[0].judgements == len(firsts)
    assert study.depths[0].tau == 1.0  # first answers are all in it
    everything = {
        (q, m) for lists in answers.values() for q, order in enumerate(lists) for m in order[:DEPTH]
    }
    right = {(q, m) for q, m in everything if grades[q, m] >= 3}
    values = {name: np.array(plain_values(lists, right)) for name, lists in answers.items()}
    for pair in study.pairs:
        apart = values[pair.first] - values[pair.second]
        assert pair.difference == pytest.approx(apart.mean())
        needed = (1.959964 + 0.841621) ** 2 * apart.var(ddof=1) / 0.03**2
        assert pair.queries == pytest.approx(needed, abs=1)
        assert pair.detectable == pytest.approx(0.03 * (needed / QUERIES) ** 0.5, rel=1e-3)
        assert pair.queries is not None and pair.interval is not None
        assert pair.interval[0] <= pair.queries <= pair.interval[1] + 1
    assert [half.queries for half in study.halves] == [3, 6, 12]
    taus = [half.tau for half in study.halves]
    assert taus == sorted(taus) and all(-1 <= half.interval[0] <= half.tau <= 1 for half in study.halves)


def test_a_run_of_another_pool_and_a_single_run_are_refused(pooled: Any) -> None:
    judged, files, _, _ = pooled
    runs = {name: open_run(str(path)) for name, path in files.items()}
    with pytest.raises(UsageError, match=r"'new' gave no judged moment .* 'fair', 'good', 'poor'"):
        pool_study(judged, {"new": runs["good"], "good": runs["good"]}, METRIC)
    with pytest.raises(UsageError, match="two or more of its runs"):
        pool_study(judged, {"good": runs["good"]}, METRIC)


@pytest.mark.slow
def test_the_command_prints_it(pooled: Any, capsys: pytest.CaptureFixture[str]) -> None:
    judged, files, _, _ = pooled
    given = [part for path in files.values() for part in ("--run", str(path))]
    command = ["judgements", str(judged.task_set.folder), "--pool"]
    assert main([*command, *given, "--table"]) == 0
    printed = capsys.readouterr().out
    assert f"the pool, by {METRIC} over 24 queries:" in printed
    assert "Kendall's tau of the order of runs without their own moments:" in printed
    assert "to find 3 points, queries needed:" in printed
    assert main([*command, *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pool"]["queries"] == QUERIES
    assert main(command) == 2
    assert "--pool goes with --run" in capsys.readouterr().err


def test_runs_are_known_by_the_names_of_their_files(pooled: Any) -> None:
    """As `build judging` names them, and `judgements --run` without their endings."""
    judged, files, _, _ = pooled
    sources = {
        task_id: Source({f"{name}.jsonl": rank for name, rank in source.ranks.items()})
        for task_id, source in judged.task_set.sources().items()
    }
    (judged.task_set.folder / "judging.json").unlink()
    judged.task_set.write(sources)
    runs = {name: open_run(str(path)) for name, path in files.items()}
    study = pool_study(judged, runs, METRIC)
    assert [each.run for each in study.contributions] == ["good.jsonl", "fair.jsonl", "poor.jsonl"]
    assert any(each.own for each in study.contributions)
    with pytest.raises(UsageError, match="run 'again' gave no judged moment"):
        pool_study(judged, {"good": runs["good"], "again": runs["good"]}, METRIC)


def test_bias_and_drift_by_hand(make_set: Callable[..., TaskSet], clock: Clock) -> None:
    task_set = make_set()
    journal = Journal.open(task_set, clock)
    for number, (ada, bo) in enumerate([(1, 1), (2, 2), (1, 1), (3, 2), (4, 3), (3, 2)]):
        journal.append(Event("grade", "Ada", f"t{number}", ada))
        journal.append(Event("grade", "Bo", f"t{number}", bo))
    first, second = biases(Judged.of(task_set, journal.state()))
    assert (first.annotator, first.tasks, first.bias, first.drift) == ("Ada", 6, 0.5, 1.0)
    assert (second.annotator, second.bias, second.drift) == ("Bo", -0.5, -1.0)
    assert first.interval is not None and first.interval[0] <= 0.5 <= first.interval[1]
    assert "Ada: bias +0.50 [" in first.line() and "drift +1.00" in first.line()
    alone = Bias.of("Cy", [("q", 2, 1.0)])
    assert (alone.bias, alone.drift, alone.interval) == (1.0, None, None)
