"""The leaderboard: order, significance, and the three files it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.datasets.conftest import seconds, write_json

from whenabouts.types import UsageError
from whenabouts_bench.harness.results import Measured, OfRejection, Results
from whenabouts_bench.harness.running import run_task
from whenabouts_bench.harness.table import boards_of, html_of, latex_of, markdown_of, text_of, write_boards
from whenabouts_bench.harness.task import task_named

NASTY = "<b>a|b</b> & 50%_`x`"


@dataclass
class Knowing:
    """Answers right in a share of the videos."""

    name: str
    share: float
    revision: str = "1"

    def index(self, videos: Sequence[Any]) -> None:
        self.right = {video.id for video in list(videos)[: round(self.share * len(videos))]}

    def search(self, queries: Sequence[Any], k: int) -> list[list[Any]]:
        return [[(query.id[:4], 1.0 if query.id[:4] in self.right else 20.0, 25.0, 1.0)] for query in queries]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    folder = tmp_path_factory.mktemp("charades")
    write_json(folder / "charades_test.json", {f"v{i:03d}": seconds((1.0, 25.0)) for i in range(40)})
    task = task_named("charades-sta")
    return [run_task(task, Knowing(NASTY, share), folder) for share in (0.2,)] + [
        run_task(task, Knowing(name, share), folder) for name, share in (("good", 0.9), ("close", 0.85))
    ]


def test_systems_are_ordered_and_compared_with_the_best(results: list[Results]) -> None:
    (board,) = boards_of(results, resamples=2000)
    assert [line.name for line in board.lines] == ["good (1)", "close (1)", f"{NASTY} (1)"]
    first = [line.cells[0] for line in board.lines]
    assert all(cell is not None for cell in first)
    assert [cell.is_best for cell in first if cell] == [True, True, False]
    assert [round(cell.value.value, 3) for cell in first if cell] == [0.9, 0.85, 0.2]
    assert all(cell.value.low <= cell.value.value <= cell.value.high for cell in first if cell)
    assert "40 queries, 40 videos; protocol vcmr@1" in board.facts


def test_measures_of_rejection_are_columns_where_they_were_measured(results: list[Results]) -> None:
    rejection = OfRejection(4, 4, {"AUROC": Measured(0.75, 0.6, 0.9), "ECE": None})
    (board,) = boards_of(
        [msgspec.structs.replace(results[0], rejection=rejection), results[1]], resamples=500
    )
    assert "AUROC" in board.metrics and "ECE" not in board.metrics
    cells = [line.cells[board.metrics.index("AUROC")] for line in board.lines]
    assert [None if cell is None else cell.value.value for cell in cells] == [None, 0.75]


def test_one_system_has_the_interval_of_its_values(results: list[Results]) -> None:
    name = results[1].task.headline[0]
    told = results[1].metrics[name]
    narrow = msgspec.structs.replace(told, low=told.mean, high=told.mean)
    (board,) = boards_of([msgspec.structs.replace(results[1], metrics={**results[1].metrics, name: narrow})])
    cell = board.lines[0].cells[0]
    assert told.low != told.high
    assert cell is not None and (cell.value.low, cell.value.high) == (told.low, told.high)


def test_few_videos_are_warned_of_and_nothing_is_best(tmp_path: Path) -> None:
    write_json(tmp_path / "charades_test.json", {f"v{i:03d}": seconds((1.0, 25.0)) for i in range(3)})
    task = task_named("charades-sta")
    few = [run_task(task, Knowing(name, share), tmp_path) for name, share in (("a", 1.0), ("b", 0.4))]
    for some in (few, few[:1]):
        (board,) = boards_of(some, resamples=500)
        assert not any(cell.is_best for line in board.lines for cell in line.cells if cell)
        assert sum(note.startswith("3 videos are too few: ") for note in board.notes) == 1
    assert any(note.startswith("3 videos are too few: ") for note in few[0].notes)


def test_a_table_is_of_one_protocol_and_release(results: list[Results]) -> None:
    other = msgspec.structs.replace(
        results[2], task=msgspec.structs.replace(results[2].task, fingerprint="another")
    )
    assert len(boards_of([results[0], results[1], other])) == 2
    assert len(boards_of(results)) == 1


def test_two_results_of_one_name_are_refused(results: list[Results]) -> None:
    with pytest.raises(UsageError, match="two results are of good"):
        boards_of([results[1], results[1]])


def test_names_from_outside_are_escaped_everywhere(results: list[Results], tmp_path: Path) -> None:
    boards = boards_of(results, resamples=1000)
    page, markdown, latex = html_of(boards), markdown_of(boards), latex_of(boards)
    assert "&lt;b&gt;a|b&lt;/b&gt; &amp; 50%_`x`" in page and "<b>a" not in page and "<script" not in page
    assert "&lt;b&gt;a\\|b&lt;/b&gt; &amp; 50%\\_\\`x\\`" in markdown
    assert r"\textless{}b\textgreater{}a\textbar{}b" in latex and r"50\%\_" in latex
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
    assert "**90.0**" in markdown and "<strong>90.0</strong>" in page and r"\textbf{90.0}" in latex


def test_text_marks_the_best_with_a_star(results: list[Results]) -> None:
    text = "\n".join(text_of(boards_of(results, resamples=1000)))
    assert "90.0* [" in text and "20.0 [" in text and "*: no other system" in text


def test_files_are_written_by_their_ending(results: list[Results], tmp_path: Path) -> None:
    boards = boards_of(results[:1])
    for name in ("a.md", "a.html", "a.tex"):
        write_boards(boards, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 500
    with pytest.raises(UsageError, match=r"accepted: names that end in \.md, \.html, \.tex"):
        write_boards(boards, tmp_path / "a.csv")


@pytest.mark.parametrize("suffix", [".md", ".html", ".tex"])
def test_controls_in_results_reach_no_file(results: list[Results], tmp_path: Path, suffix: str) -> None:
    hostile = msgspec.convert(msgspec.to_builtins(results[0]), Results)
    hostile.task.title = hostile.task.revision = hostile.system.name = "a\x1b[31m\x07\u2028b"
    write_boards(boards_of([hostile], resamples=100), tmp_path / f"board{suffix}")
    written = (tmp_path / f"board{suffix}").read_text(encoding="utf-8")
    assert "a [31m  b" in written.replace("\\[", "[")
    assert not any(letter in written for letter in "\x1b\x07\u2028")
