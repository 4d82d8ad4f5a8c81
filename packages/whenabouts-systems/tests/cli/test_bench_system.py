"""A trained system in `whenabouts bench` answers as `whenabouts run` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_run import QUERIES, called, lines, saved, write_features

from whenabouts.types import UsageError
from whenabouts_bench import formats
from whenabouts_bench.harness.running import run_task
from whenabouts_bench.harness.system import BenchQuery, methods_of
from whenabouts_bench.harness.task import Material, Task
from whenabouts_systems.cli.bench_system import make


def task_on(file: Path) -> Task:
    def read(folder: Path) -> Material:
        return Material(formats.read_annotations(file), (file,))

    return Task(
        name="tiny",
        title="tiny",
        split="test",
        revision="1",
        licence="none",
        how="-",
        read=read,
        headline=("R@1,IoU=0.5",),
    )


@pytest.fixture()
def trained(tmp_path: Path) -> tuple[Any, Path, Path]:
    features = write_features(tmp_path / "features")
    checkpoint = saved(features, tmp_path / "trained")
    system = make(str(checkpoint), str(features), device="cpu")
    return system, features, checkpoint


def test_answers_are_those_of_run(trained: Any, tmp_path: Path) -> None:
    system, features, checkpoint = trained
    assert methods_of(system) == ("search", "ground", "rank_videos")
    results = run_task(task_on(features / "test.jsonl"), system, features, factory="trained")
    assert results.system.name == "xml" and results.missing == 0 and not results.not_honoured
    for task, listed in (("vcmr", "VCMR"), ("svmr", "SVMR")):
        out = tmp_path / f"{task}.jsonl"
        assert called(features, checkpoint, "--out", str(out), "--task", task) == 0
        found = {
            query: [(row["video_id"], row["start"], row["end"]) for row in rows]
            for query, rows in lines(out).items()
        }
        assert len(found) == QUERIES
        assert found == {
            query: [(video, start, end) for video, start, end, _ in rows]
            for query, rows in results.answers[listed].items()
        }


def test_a_query_with_videos_of_its_own_is_answered_in_them(trained: Any) -> None:
    system, features, _ = trained
    system.index(task_on(features / "test.jsonl").read(features).annotations.videos)
    rows = system.search([BenchQuery("1", "s 1", ("v0", "v3")), BenchQuery("2", "s 2", ("v4",))], 5)
    assert [{row[0] for row in of_query} for of_query in rows] == [{"v0", "v3"}, {"v4"}]


def test_a_query_is_answered_in_each_video_of_its_pool_that_it_is_asked_for(trained: Any) -> None:
    system, features, _ = trained
    system.index(task_on(features / "test.jsonl").read(features).annotations.videos)
    rows = system.ground([BenchQuery("1", "s 1", (video,)) for video in ("v0", "v3")], 5)
    assert [{row[0] for row in of_query} for of_query in rows] == [{"v0"}, {"v3"}]


def test_a_query_that_the_features_do_not_have_is_refused(trained: Any) -> None:
    system, features, _ = trained
    videos = task_on(features / "test.jsonl").read(features).annotations.videos
    system.index(videos)
    for query in (BenchQuery("99", "s 99"), BenchQuery("1", "other words")):
        with pytest.raises(UsageError, match="is not in the test split of the features"):
            system.search([query], 5)


def test_a_task_of_other_videos_is_refused(trained: Any) -> None:
    from whenabouts_bench.harness.system import BenchVideo

    with pytest.raises(UsageError, match=r"has no video 'elsewhere' \(1 of 1 are missing\)"):
        trained[0].index([BenchVideo("elsewhere")])
