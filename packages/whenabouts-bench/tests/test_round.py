"""The whole round on the sample videos: from descriptions and two systems to "is the new one better?".

Descriptions become imprecise queries and a pseudo training set; people judge the answers of two systems on
the page; what they agree on measures a system that is trained then, whose answers nobody has judged yet.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.page.conftest import browser as browser
from tests.server.page.conftest import open_tab as open_tab

from whenabouts import Corpus
from whenabouts.cli.main import main
from whenabouts.overlap import temporal_iou
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.judging.tasks import Task, TaskSet

playwright_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect = playwright_api.expect

ROOT = Path(__file__).resolve().parents[3]

# (file, start, end, description), as written by someone who knows the people.
DESCRIPTIONS = (
    ("bottle-detection.mp4", 6.0, 7.2, "Anna lifts the left bottle off the table and takes it away"),
    ("bottle-detection.mp4", 11.5, 13.6, "Anna puts the left bottle back next to the other two"),
    ("bottle-detection.mp4", 16.0, 18.0, "Two hands pick up two bottles at the same time"),
    ("bottle-detection.mp4", 18.1, 21.9, "A single bottle stands alone on the right"),
    ("car-detection.mp4", 4.5, 8.6, "A white car drives away from Anna over an empty road"),
    ("car-detection.mp4", 8.7, 14.9, "An empty road without any car"),
    ("car-detection.mp4", 15.0, 18.4, "A red car and a white car pass each other"),
    ("man_green_wall.mp4", 0.0, 3.2, "Peter looks into the camera in front of a green wall"),
    ("man_green_wall.mp4", 3.3, 5.7, "Peter pulls at his collar with both hands and looks up"),
    ("flower.webm", 0.0, 5.0, "A red flower bud opens"),
    ("friday.mp4", 0.0, 3.0, "Maria asks two women whether the lord of the universe is in"),
    ("friday.mp4", 3.0, 6.0, "One says that somebody must have stolen the crown jewels"),
    ("nasa_13013.mp4", 0.0, 8.0, "The space telescope stands in one of the largest cleanrooms"),
    ("nasa_13013.mp4", 8.0, 16.0, "The Goddard Space Flight Center in Greenbelt"),
)
ANNOTATORS = ("Ada", "Bo", "Cy", "Di")

TRAINING = """
title = "{name}"
[data]
train = "{name}.train.jsonl"
validation = "queries/val/qrels.jsonl"
weights = "similarity"
[features]
query = "tokens"
clip_seconds = 1.0
[features.streams]
likeness = "likeness"
subtitle = "subtitle"
[model]
system = "xml"
hidden = 16
[training]
epochs = {epochs}
batch_size = 4
seed = 1
"""


@contextmanager
def served(words: Sequence[str], folder: Path) -> Iterator[dict[str, str]]:
    """Annotator -> link, while `whenabouts judge` runs in its own process."""
    program = [sys.executable, "-m", "whenabouts", *words, "--port", "0", "--cache", str(folder / "cache")]
    for name in ANNOTATORS:
        program += [] if name in words else ["--annotator", name]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=os.environ) as server:
        assert server.stdout is not None
        links: dict[str, str] = {}
        try:
            for line in server.stdout:
                name, _, link = line.strip().partition(": http")
                links |= {name: f"http{link}"} if name in ANNOTATORS else {}
                if len(links) == len(ANNOTATORS):
                    break
            yield {name: links[name] for name in ANNOTATORS}
        finally:
            server.terminate()


def grade_of(annotator: str, task: Task) -> int:
    """An annotator's grade: near the truth, sometimes off by one, rarely far off."""
    words = task.text.casefold().split()[-3:]
    video, start, end, _ = next(row for row in DESCRIPTIONS if row[3].casefold().split()[-3:] == words)
    if not task.moment.video_id.startswith(Path(video).stem):
        return 0
    iou = float(temporal_iou(task.moment.start, task.moment.end, start, end))
    luck = zlib.crc32(f"{annotator} {task.query_id} {task.moment.start:.1f}".encode()) % 8
    return min(4, max(0, round(1 + 3 * iou) + {0: 1, 1: -1, 2: 3}.get(luck, 0)))


def judge_all(page: Any, link: str, annotator: str, tasks: TaskSet) -> int:
    """Grade with keys until the page is empty; returns the number of tasks."""
    page.goto(link)
    expect(page.locator("#guideline")).to_be_visible()
    page.keyboard.press("Escape")
    either = page.locator("#judging:not([aria-busy=true])").or_(page.locator("#done")).locator("visible=true")
    count = 0
    while True:
        expect(either).to_have_count(1)
        if page.locator("#done").is_visible():
            return count
        assert count < len(tasks.tasks), f"{annotator} is asked again"
        shown = page.evaluate(
            f"async () => (await (await fetch('api/task?annotator={annotator}')).json()).task"
        )
        task = tasks.task(shown["task_id"])
        expect(page.locator("#query")).to_have_text(task.text)
        page.wait_for_timeout(300)  # earlier keys are ignored, as they may be meant for the task before
        with page.expect_response(re.compile("/api/answers")):
            page.keyboard.press(str(grade_of(annotator, task)))
        count += 1


@pytest.fixture()
def address() -> str:
    """Tabs are opened at links."""
    return ""


def commands_of_the_guide() -> list[list[str]]:
    """The words of the commands in docs/better-on-my-videos.md, in order, without the program's name."""
    text = (ROOT / "docs" / "better-on-my-videos.md").read_text(encoding="utf-8")
    return [shlex.split(line)[2:] for line in text.splitlines() if line.startswith("$ whenabouts ")]


class Round:
    """The steps of a round in the current folder, below which the corpus and all files are."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *command: str) -> Any:
        """The JSON output of a command."""
        code = main([*command])
        said = self._capsys.readouterr()
        assert code == 0, f"{' '.join(command)}: {said.out}{said.err}"
        return json.loads(said.out) if said.out.startswith("{") else said.out

    def describe(self) -> None:
        """Descriptions become imprecise queries, and the guide's file the measured ones."""
        videos = {Path(video.path).name: video for video in Corpus("my.corpus").videos()}
        with Path("moments.jsonl").open("w", encoding="utf-8") as out:
            for number, (name, start, end, words) in enumerate(DESCRIPTIONS):
                about = {"vid_name": videos[name].id, "duration": videos[name].duration}
                line = {"desc_id": str(number), "desc": words, **about, "ts": [start, end]}
                out.write(json.dumps(line) + "\n")
        drawn = ("--validation", "2", "--test", "6")
        made = self.run("build", "queries", "--annotations", "moments.jsonl", *drawn, "--out", "queries")
        assert made["replacements"]["changed"] >= 3  # Anna, Peter and Maria are replaced
        asked = "".join(f"{query.text}\n" for query in read_annotations("queries/test").queries)
        Path("questions.txt").write_text(asked, encoding="utf-8")
        for stream in ("likeness", "subtitle"):
            files = ("--clip-seconds", "1", "--out", f"features/{stream}")
            self.run("features", "export", "--corpus", "my.corpus", "--stream", stream, *files)
        self.run("features", "tokens", "--queries", "queries/all", "--out", "features/tokens")

    def train(self, name: str, top: int, epochs: int, *leave_out: str) -> None:
        """A pseudo training set without the measured queries, and a system trained on it: runs/NAME."""
        kept = ["--leave-out", "queries/val", "--leave-out", "queries/test", *leave_out]
        ranked = ("--top", str(top), "--out", f"{name}.train.jsonl")
        assert self.run("relevance", "ranked", "--queries", "queries/all", *kept, *ranked)["queries"] == 6
        Path(f"{name}.toml").write_text(TRAINING.format(name=name, epochs=epochs))
        self.run("train", f"{name}.toml", "--features", "features", "--data", ".", "--out", f"runs/{name}")


@pytest.mark.slow
def test_is_the_new_model_better_on_my_videos(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    open_tab: Callable[..., Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    index, old, new, build, judge, judgements, compare, after, again, *second = commands_of_the_guide()
    steps = Round(capsys)

    steps.run(*index)
    steps.describe()
    steps.train("new", 1, 1)
    steps.run(*old)
    steps.run(*new)

    # Annotators independently judge the best answers of both.
    built = steps.run(*build)
    tasks = TaskSet.open("judging")
    assert built["tasks"] == len(tasks.tasks) >= 6
    with served(judge, tmp_path) as links:
        judged = {name: judge_all(open_tab(link), link, name, tasks) for name, link in links.items()}
    assert judged["Ada"] == judged["Bo"] == len(tasks.tasks)
    assert 0 < judged["Cy"] == judged["Di"] < len(tasks.tasks)  # only if the first two disagree
    settled = steps.run(*judgements)
    truth = read_annotations("truth")
    assert truth.most_grade == 4
    assert len(truth.query) == settled["agreed"]
    table = steps.run(*compare, "--table")
    assert ("all answers that it reads were judged" in table) or settled["discarded"]

    # The next model's answers are unjudged, and both commands say so.
    steps.train("next", 3, 3, "--leave-out", "truth")
    steps.run(*after)
    assert "answers of next; without these:" in steps.run(*again, "--table")
    compared = steps.run(*again, "--metric", "nDCG@10,IoU=0.5", "--metric", "mAP")
    (pair,) = compared["unjudged"]["condensed"]["comparisons"]
    for own in pair["metrics"].values():
        assert own["low"] <= own["difference"] <= own["high"]
        assert own["settled"] == (own["lower"] > 0 or own["upper"] < 0)
    metrics = ("--metric", "R@1,IoU=0.5", "--metric", "nDCG@10,IoU=0.5")
    told = steps.run("evaluate", "rvmr", "--truth", "truth", "--run", "next.jsonl", *metrics)
    assert told["unjudged"]["metrics"]["nDCG@10,IoU=0.5"]["unjudged"] > 0
    for metric, own in told["unjudged"]["metrics"].items():
        assert own["lower"] <= told["metrics"][metric] <= own["upper"]

    # A second round judges only new answers, and joins the first.
    build, judge, judgements, compare = second
    steps.run(*build)
    tasks = TaskSet.open("second")
    assert {task.moment for task in tasks.tasks}.isdisjoint(
        judged.moment for given in truth.qrels.values() for judged in given
    )
    with served(judge, tmp_path) as links:
        for name, link in links.items():
            judge_all(open_tab(link), link, name, tasks)
    settled = steps.run(*judgements)
    assert len(read_annotations("both").query) == len(truth.query) + settled["agreed"]
    table = steps.run(*compare, "--table")
    assert ("all answers that it reads were judged" in table) or settled["discarded"]
