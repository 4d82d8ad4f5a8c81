"""`whenabouts bench` from another folder: an outside system of fifty lines, two tasks, a leaderboard."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Whenabouts
from tests.tasks.released_forms import FORMS, spoken_task

from whenabouts_bench.harness.results import read_results

PAGE = Path(__file__).parents[4] / "docs" / "bench.md"

OUTSIDE = '''\
"""Sliding windows over transcripts, scored by rare letters that they share with a query."""

from collections import Counter
from math import log


def grams(text):
    plain = " ".join(text.lower().split())
    return Counter(plain[at : at + 4] for at in range(len(plain) - 3))


class Windows:
    def __init__(self, lines):
        self.lines = lines

    def index(self, videos):
        self.windows = []
        for video in videos:
            for at in range(len(video.lines)):
                some = video.lines[at : at + self.lines]
                said = grams(" ".join(text for _, _, text in some))
                self.windows.append((video.id, some[0][0], some[-1][1], said))
            if not video.lines:  # no words: the middle of the video
                seconds = video.duration or 10.0
                self.windows.append((video.id, seconds / 4, 3 * seconds / 4, Counter()))
        seen = Counter(gram for *_, said in self.windows for gram in said)
        self.rarity = {gram: log(len(self.windows) / times) for gram, times in seen.items()}

    def score(self, asked, said):
        return sum(self.rarity.get(gram, 0.0) for gram in asked if gram in said)

    def search(self, queries, k):
        answers = []
        for query in queries:
            asked = grams(query.text)
            most = self.score(asked, asked) or 1.0
            rows = []
            for video, start, end, said in self.windows:
                if query.videos and video not in query.videos:
                    continue
                score = self.score(asked, said)
                rows.append((video, start, end, score, min(1.0, score / most)))
            rows.sort(key=lambda row: (-row[3], row[0], row[1]))
            answers.append(rows[:k])
        return answers


def make(lines="1"):
    return Windows(int(lines))
'''


BROKEN = """\
class Broken:
    name, revision = "bm25", "k1-1.2-b-0.75"

    def index(self, videos):
        raise ValueError

    def ground(self, queries, k):
        return []
"""


@pytest.fixture()
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is not the repository's, with two tasks and an outside system."""
    spoken_task(tmp_path / "data" / "charades")
    FORMS["untruth-charades-id"](tmp_path / "data" / "untruth")
    (tmp_path / "windows.py").write_text(OUTSIDE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which knows nothing of this one."""
    command = "import sys; from whenabouts.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", command, "bench", *words],
        capture_output=True, text=True, check=False, timeout=300, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


@pytest.mark.slow
def test_an_outside_system_of_fifty_lines_runs_on_two_tasks(elsewhere: Path) -> None:
    assert 40 <= len(OUTSIDE.splitlines()) <= 55
    for task, data in (("charades-sta", "charades"), ("untruth-charades-id", "untruth")):
        done = bench(
            "run", "--system", "windows:make", "--task", task, "--data", f"data/{data}",
            "--out", f"results/windows/2/{task}.json", "--table",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert f"windows (2) on {task}@1" in done.stdout
    spoken = read_results(elsewhere / "results/windows/2/charades-sta.json")
    assert spoken.metrics["R@1,IoU=0.5"].mean == spoken.metrics["VR R@1"].mean == 1.0
    untruth = read_results(elsewhere / "results/windows/2/untruth-charades-id.json")
    assert untruth.rejection is not None and untruth.rejection.unanswerable == 4
    assert untruth.metrics["SVMR R@1,IoU=0.5"].mean == 0.0


def test_the_form_may_be_chosen_before_the_inner_verb(elsewhere: Path, bare: Whenabouts) -> None:
    chosen, default = (bare("bench", *words) for words in (("--table", "list"), ("list",)))
    assert chosen.out.startswith("tasks\n") and default.out.startswith("{")


def test_results_of_several_systems_become_a_leaderboard(elsewhere: Path, bare: Whenabouts) -> None:
    run = ("bench", "run", "--task", "charades-sta", "--data", "data/charades")
    for system in ("windows.py:make", "bm25"):
        done = bare(*run, "--system", system, "--json")
        assert done.code == 0, done.err
    assert (elsewhere / "results/bm25/k1-1.2-b-0.75/charades-sta.json").is_file()
    (elsewhere / "broken.py").write_text(BROKEN)
    for system in ("bm25", "broken.py:Broken"):  # refused before it is indexed
        again = bare(*run, "--system", system)
        assert again.code == 2 and "--force" in again.err
    assert bare(*run, "--system", "bm25", "--force").code == 0
    worse = (
        "--system",
        "windows.py:make",
        "--set",
        "lines=3",
        "--out",
        "results/wide/3/charades-sta.json.gz",
    )
    assert bare(*run, *worse).code == 0
    writes = [word for name in ("b.md", "b.html", "b.tex") for word in ("--write", name)]
    done = bare("bench", "table", "results", *writes, "--table")
    assert done.code == 0, done.err
    assert "bm25 (k1-1.2-b-0.75)" in done.out and "wide (3)" in done.out and "make (unversioned)" in done.out
    assert "100.0 [" in done.out and "4 videos are too few" in done.out
    for name in ("b.md", "b.html", "b.tex"):
        assert "Charades-STA" in (elsewhere / name).read_text()
    told = json.loads(bare("bench", "table", "results", "--json").out)
    assert [len(board["systems"]) for board in told] == [3]


def test_results_are_a_run_for_evaluate(elsewhere: Path, bare: Whenabouts) -> None:
    done = bare(
        "bench", "run", "--task", "charades-sta", "--data", "data/charades", "--system", "bm25", "--json"
    )
    told = json.loads(done.out)
    evaluated = bare(
        "evaluate", "vcmr", "--truth", "data/charades/charades_test.json", "--run", told["out"], "--json"
    )
    assert evaluated.code == 0, evaluated.err
    means = json.loads(evaluated.out)["metrics"]
    assert {name: told["metrics"][name]["mean"] for name in means} == means
    second = ("--system", "windows.py:make", "--out", "w/1/charades-sta.json")
    assert bare("bench", "run", "--task", "charades-sta", "--data", "data/charades", *second).code == 0
    compared = bare(
        "compare", "--truth", "data/charades/charades_test.json", told["out"], "w/1/charades-sta.json",
        "--metric", "SVMR mIoU", "--json",
    )  # fmt: skip
    systems = json.loads(compared.out)["systems"]
    assert [system["metrics"]["SVMR mIoU"]["mean"] for system in systems] == [1.0, 1.0]


def test_only_a_place_named_by_the_task_names_a_system(elsewhere: Path, bare: Whenabouts) -> None:
    run = ("bench", "run", "--task", "charades-sta", "--data", "data/charades", "--system", "windows.py:make")
    names = []
    for out in ("mine/7/charades-sta.json.gz", "mine/7/first-try.json", "mine/charades-sta.json"):
        system = json.loads(bare(*run, "--out", out, "--json").out)["system"]
        names.append((system["name"], system["revision"]))
    assert names == [("mine", "7"), ("make", "unversioned"), ("make", "unversioned")]


def test_the_systems_and_tasks_of_the_page_work(elsewhere: Path, bare: Whenabouts) -> None:
    system, task = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    (elsewhere / "mine.py").write_text(system)
    done = bare(
        "bench", "run", "--task", "charades-sta", "--data", "data/charades", "--system", "mine.py:make",
        "--set", "least=2", "--json",
    )  # fmt: skip
    told = json.loads(done.out)
    assert done.code == 0 and told["system"]["name"] == "overlap"
    assert told["metrics"]["R@1,IoU=0.5"]["mean"] == 1.0 and told["rejection"] is not None
    names: dict[str, Any] = {}
    exec(compile(task, "mine_task.py", "exec"), names)
    (elsewhere / "mine.tsv").write_text("q1\ta dog\tv1\t3\t4.5\n")
    (mine,) = names["TASKS"]
    assert mine.read(elsewhere).annotations.qrels["q1"][0].moment.end == 4.5


def test_a_task_of_a_plugin_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from whenabouts import plugins
    from whenabouts_bench.harness.task import Material, Task, task_named

    mine = Task(
        name="mine", title="Mine", split="test", revision="1", licence="CC0", how="-",
        read=lambda folder: Material(None, ()), headline=(),  # type: ignore[arg-type]
    )  # fmt: skip
    loaded = plugins.loaded
    monkeypatch.setattr(
        plugins, "loaded", lambda group: {"mine": (mine,)} if group == "tasks" else loaded(group)
    )
    assert task_named("mine") is mine


def test_wrong_use_is_refused_in_one_line(elsewhere: Path, bare: Whenabouts) -> None:
    run = ("bench", "run", "--data", "data/charades")
    (elsewhere / "broken.py").write_text(BROKEN)
    broken = ("--task", "charades-sta", "--system", "broken.py:Broken")
    for words, said in (
        (("--task", "tvrr", "--system", "bm25"), "did you mean 'tvr'"),
        (("--task", "charades-sta", "--system", "bm25", "--out", "a.txt"), "ends in .json or .json.gz"),
        ((*broken, "--out", "broken.py/r.json"), "broken.py cannot be written: File exists"),
        (("--task", "tvr", "--system", "bm25"), "How to get"),
        (("--task", "charades-sta", "--system", "bm25", "--set", "x"), "accepted: NAME=VALUE"),
    ):
        done = bare(*run, *words)
        assert done.code == 2 and said in done.err, (words, done.err)
    assert bare(*run, "--task", "charades-sta", "--system", "bm25", "--out", "good.json").code == 0
    done = bare("bench", "table", "good.json", "--write", "board.md", "--write", "board.pdf")
    assert done.code == 2 and "board.pdf: accepted: names that end in .md" in done.err
    assert not (elsewhere / "board.md").exists()
    done = bare("bench", "table", "nothing-here")
    assert done.code == 2 and "nothing-here" in done.err


def test_the_list_names_tasks_and_systems(bare: Whenabouts) -> None:
    told = json.loads(bare("bench", "list", "--json").out)
    assert {"tvr", "mvmr-tacos", "extreme-when-bench"} <= {task["name"] for task in told["tasks"]}
    assert "bm25" in told["systems"]
    assert "charades-sta" in bare("bench", "--table").out
