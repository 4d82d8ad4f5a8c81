"""The file of results: written, read, refused where it was changed, and computed again from its answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.datasets.conftest import RELEASES

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats import open_run
from whenabouts_bench.harness.results import Results, public, read_results, results_in
from whenabouts_bench.harness.running import default_out, facts_of, run_task
from whenabouts_bench.harness.system import open_system, parse_settings
from whenabouts_bench.harness.task import task_named

TVR = task_named("tvr")


class Guessing:
    """Answers with a few moments of two clips."""

    name, revision = "guess/er", "v 1"

    def index(self, videos: Sequence[Any]) -> None:
        self.videos = [video.id for video in videos]

    def search(self, queries: Sequence[Any], k: int) -> list[list[Any]]:
        return [
            [
                (video, 3.0 * at, 3.0 * at + 4, 1.0 / (at + 1))
                for video in query.videos or self.videos[:2]
                for at in range(4)
            ]
            for query in queries
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tvr")
    RELEASES["tvr"](made)
    return made


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return run_task(TVR, Guessing(), folder)


@pytest.mark.parametrize("name", ["r.json", "r.json.gz"])
def test_results_come_back_as_they_were_written(name: str, results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / name)
    assert read_results(tmp_path / name) == results


def test_every_number_can_be_computed_again_from_the_answers(
    results: Results, folder: Path, tmp_path: Path
) -> None:
    results.write(tmp_path / "r.json")
    truth = TVR.read(folder).annotations
    metrics = list(results.metrics)
    again = evaluate(truth, tmp_path / "r.json", metrics, protocol="tvr")
    means = {name: None if mean != mean else mean for name, mean in again.means().items()}
    assert means == {name: told.mean for name, told in results.metrics.items()}
    assert 0 < (means["R@5,IoU=0.5"] or 0) < 1


def change(path: Path, *keys: Any, to: Any) -> None:
    value = json.loads(path.read_text())
    inner = value
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("keys", "to", "said"),
    [
        (("metrics", "R@1,IoU=0.5", "mean"), 0.99, "its values per query have the mean"),
        (("metrics", "R@1,IoU=0.5", "mean"), 7.0, "not a file of results"),
        (("per_query", "clusters"), [1], "lists of different lengths"),
        (("per_query", "clusters", 0), 1 << 63, "not a file of results"),
        (("whenabouts_bench",), 2, "not a file of results"),
        (("system", "name"), 7, "not a file of results"),
        (("per_query", "query_ids", 0), "101", "names a query twice"),
    ],
)
def test_results_that_were_changed_are_refused(
    keys: Any, to: Any, said: str, results: Results, tmp_path: Path
) -> None:
    results.write(tmp_path / "r.json")
    change(tmp_path / "r.json", *keys, to=to)
    with pytest.raises(FormatError, match=r"r\.json") as caught:
        read_results(tmp_path / "r.json")
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_row_with_one_of_its_two_times_is_no_run(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "r.json")
    query_id = next(iter(results.answers["VCMR"]))
    change(tmp_path / "r.json", "answers", "VCMR", query_id, 0, 2, to=None)
    with pytest.raises(FormatError, match="has only one of start and end"):
        open_run(tmp_path / "r.json")


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="holds no results"):
        results_in([tmp_path])


def test_names_of_systems_become_safe_folders(results: Results) -> None:
    assert default_out(results.system, TVR) == Path("results/guess-er/v-1/tvr.json")


def test_settings_in_results_name_no_host_and_no_place(tmp_path: Path) -> None:
    settings = {"endpoint": "http://10.0.0.7:8000/v1#qwen", "checkpoint": str(tmp_path), "seconds": "15"}
    settings |= {"service": "http://10.0.0.7:9000/", "cache": str(tmp_path / "not-yet"), "log": "~/jane/log"}
    named = {"endpoint": "qwen", "checkpoint": tmp_path.name, "seconds": "15", "service": ""}
    named |= {"cache": "not-yet", "log": "log"}
    assert public(settings) == named
    assert facts_of(Guessing(), f"{tmp_path}/mine.py:make").factory == "mine.py:make"
    assert facts_of(Guessing(), "bm25").factory == "bm25"


def test_a_system_with_a_blank_name_has_that_of_its_factory() -> None:
    system = Guessing()
    vars(system).update(name=" ", revision=None)
    facts = facts_of(system, "mine.py:make")
    assert (facts.name, facts.revision) == ("make", "unversioned")


def test_systems_are_opened_by_name_module_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("outside_system.py", "2nd-system.py"):
        (tmp_path / name).write_text(
            "class S:\n  def __init__(self, size='1'): self.size = size\n  def index(self, videos): pass\n"
            "  def search(self, queries, k): return [[] for _ in queries]\n"
        )
    monkeypatch.chdir(tmp_path)
    assert open_system("outside_system:S", {"size": "9"}).size == "9"
    assert open_system("2nd-system:S", {"size": "9"}).size == "9"
    assert open_system(f"{tmp_path}/outside_system.py:S", {}).size == "1"
    assert open_system("bm25", {"seconds": "20"}).name == "bm25"
    for named, settings, said in (
        ("bm26", {}, "did you mean 'bm25'"),
        ("outside_system:T", {}, "has no function"),
        ("nowhere_at_all:T", {}, "cannot be imported"),
        ("nowhere.py:T", {}, "there is no file"),
        (":T", {}, "accepted: PACKAGE:FACTORY or FILE.py:FACTORY"),
        (".sibling:T", {}, "accepted: PACKAGE:FACTORY or FILE.py:FACTORY"),
        ("outside_system:S", {"color": "x"}, "cannot be made with color=x"),
        ("bm25", {"seconds": "-3"}, "give a number above 0"),
        ("reranked", {"model": "none", "depth": "2.7"}, "give a whole number above 0"),
    ):
        with pytest.raises(UsageError, match=said):
            open_system(named, settings)


def test_the_file_of_a_system_hides_no_module_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text(
        "class S:\n    def index(self, videos): pass\n    def search(self, queries, k): return []\n"
    )
    standard = sys.modules.get("random")
    assert open_system(f"{tmp_path}/random.py:S", {}).search([], 1) == []
    assert sys.modules.get("random") is standard


def test_settings_are_pairs() -> None:
    for pairs in (["a"], ["=b"], ["a=1", "a=2"], ["a b=1"]):
        with pytest.raises(UsageError, match="accepted: NAME=VALUE"):
            parse_settings(pairs)
