"""The leaderboard: a table of systems for each task, as text, Markdown, HTML and LaTeX.

A table has only results on the same files under the same protocol. Means and intervals are recomputed from
the values per query. Systems are compared as in `whenabouts compare`: whole videos are resampled, and Holm's
correction covers the comparisons of one metric with its best system. Measures of rejection are taken from the
files.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whenabouts.intake.files import write_atomically
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.compared import Estimate, Settings, booktabs, escaped
from whenabouts_bench.evaluation.comparison import compare, estimates_of, few_videos
from whenabouts_bench.evaluation.significance import FEW_CLUSTERS
from whenabouts_bench.harness.rejection import MEASURES
from whenabouts_bench.harness.results import Results, clusters_in, evaluation_of

_COST = (
    "processor seconds per hour of video",
    "GPU seconds per hour of video",
    "bytes per hour of video",
    "ms per query",
)


@dataclass(frozen=True)
class Cell:
    """A number of the table; `is_best`: no other system is shown to be better, with enough videos."""

    value: Estimate
    is_best: bool


@dataclass(frozen=True)
class Line:
    """A system's row."""

    name: str
    results: Results
    cells: tuple[Cell | None, ...]

    @property
    def unjudged(self) -> float | None:
        """The largest share of answers of a headline metric that nobody judged; None without pools."""
        shares = self.results.unjudged
        if shares is None:
            return None
        return max((shares.get(metric, 0.0) for metric in self.results.task.headline), default=0.0)


@dataclass(frozen=True)
class Board:
    """The table of one task; its lines are sorted by the first metric."""

    title: str
    facts: str
    metrics: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "facts": self.facts,
            "systems": [
                {
                    "name": line.name,
                    "missing": line.results.missing,
                    "unjudged": line.unjudged,
                    "date": line.results.date,
                    "metrics": {
                        metric: None if cell is None else cell.value.to_json("mean") | {"best": cell.is_best}
                        for metric, cell in zip(self.metrics, line.cells, strict=True)
                    },
                }
                for line in self.lines
            ],
            "notes": list(self.notes),
        }


def boards_of(results: Sequence[Results], *, resamples: int = 10_000) -> list[Board]:
    """A board for each task, protocol and release of its files. Raises UsageError for repeated names."""

    def place(result: Results) -> tuple[str, str, str]:
        return result.task.task, result.task.protocol, result.task.fingerprint

    ordered = sorted(results, key=place)
    return [_board(list(group), resamples) for _, group in itertools.groupby(ordered, key=place)]


def _board(results: list[Results], resamples: int) -> Board:
    task = results[0].task
    names = [f"{result.system.name} ({result.system.revision})" for result in results]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(
            f"{task.task}: two results are of {twice}; keep one, or run them under different revisions"
        )
    by_metric = {metric: _column(results, metric, resamples) for metric in (*task.headline, *MEASURES)}
    metrics = tuple(name for name in by_metric if name not in MEASURES or any(by_metric[name]))
    columns = [by_metric[metric] for metric in metrics]
    lines = [
        Line(name, result, tuple(column[number] for column in columns))
        for number, (name, result) in enumerate(zip(names, results, strict=True))
    ]
    lines.sort(key=lambda line: (-_first(line), line.name))
    facts = (
        f"{task.task}, {task.revision}; {results[0].queries:,} queries, {results[0].videos:,} videos; "
        f"protocol {task.protocol}; files {task.fingerprint}"
    )
    return Board(task.title or task.task, facts, metrics, tuple(lines), tuple(_notes(results)))


def _first(line: Line) -> float:
    cell = line.cells[0] if line.cells else None
    return -1.0 if cell is None else cell.value.value


def _column(results: Sequence[Results], metric: str, resamples: int) -> list[Cell | None]:
    """The cells of a metric; None for systems that it does not apply to."""
    if metric in MEASURES:
        return [_rejection_cell(result, metric) for result in results]
    having = [
        number
        for number, result in enumerate(results)
        if metric in result.per_query.values and result.metrics[metric].mean is not None
    ]
    cells: list[Cell | None] = [None] * len(results)
    is_enough = bool(having) and results[having[0]].per_query.videos()[metric] >= FEW_CLUSTERS
    if len(having) == 1:
        only = results[having[0]]
        estimates = estimates_of(evaluation_of(only, metric), clusters_in(only))
        cells[having[0]] = Cell(estimates[metric], is_enough)
    elif having:
        having.sort(key=lambda number: -(results[number].metrics[metric].mean or 0.0))
        evaluations = [evaluation_of(results[number], metric) for number in having]
        compared = compare(
            evaluations,
            clusters_in(results[having[0]]),
            names=[str(number) for number in having],
            settings=Settings(resamples=resamples),
        )
        worse = {d.system for d in compared.differences if d.verdict == "worse"}
        for system in compared.systems:
            cells[int(system.name)] = Cell(system.means[metric], is_enough and system.name not in worse)
    return cells


def _rejection_cell(results: Results, name: str) -> Cell | None:
    stated = None if results.rejection is None else results.rejection.metrics.get(name)
    if stated is None or stated.mean is None:
        return None
    return Cell(Estimate(stated.mean, stated.low or 0.0, stated.high or 0.0), False)


def _notes(results: Sequence[Results]) -> Iterator[str]:
    yield (
        "Percent, with 95 % intervals from draws of whole videos. Bold: no other system is shown to be "
        f"better (paired randomisation of at least {FEW_CLUSTERS} whole videos, Holm's correction over the "
        "systems, p at most 0.05). A query that a system does not answer counts as 0. A dash: the system has "
        "no method for the metric."
    )
    if any(result.unjudged is not None for result in results):
        yield "Unjudged: the share of answers that nobody judged; they count as wrong."
    notes = ((*few_videos(result.per_query.videos()), *result.notes) for result in results)
    yield from dict.fromkeys(itertools.chain.from_iterable(notes))


_HEAD = ("system", "missing", "unjudged", "s/h", "GPU s/h", "bytes/h", "ms/query")
_FACTS = (
    "s/h: processor seconds of indexing for an hour of video; GPU s/h: seconds for which it occupies a GPU."
)


def _cells(board: Board, show: Any) -> list[list[str]]:
    """Rows of texts: name, metrics, then other facts."""
    rows = []
    for line in board.lines:
        result = line.results
        cost = [result.cost.get(name) for name in _COST]
        unjudged = "-" if line.unjudged is None else f"{100 * line.unjudged:.1f} %"
        facts = [f"{result.missing:,}", unjudged, *(_number(value) for value in cost)]
        rows.append([show(line.name), *(_cell(cell, show) for cell in line.cells), *map(show, facts)])
    return rows


def _cell(cell: Cell | None, show: Any) -> str:
    if cell is None:
        return str(show("-"))
    mean, low, high = (f"{100 * value:.1f}" for value in (cell.value.value, cell.value.low, cell.value.high))
    return str(show(mean, bold=cell.is_best, after=f" [{low}, {high}]"))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if 0 < value < 0.001:
        return "< 0.001"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def text_of(boards: Sequence[Board]) -> list[str]:
    """The boards for a terminal; a star marks what Markdown prints bold."""

    def show(text: str, *, bold: bool = False, after: str = "") -> str:
        return text + "*" * bold + after

    lines: list[str] = []
    for board in boards:
        head = [_HEAD[0], *board.metrics, *_HEAD[1:]]
        table = [head, *_cells(board, show)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += [board.title, board.facts, ""]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        lines += ["", *board.notes, _FACTS, ""]
    return [line.replace("Bold:", "*:") for line in lines[:-1]]


def markdown_of(boards: Sequence[Board]) -> str:
    """The boards as Markdown."""

    def show(text: str, *, bold: bool = False, after: str = "") -> str:
        plain = html.escape(" ".join(text.split()), quote=False)
        for sign in "\\`*_[]|":
            plain = plain.replace(sign, "\\" + sign)
        return (f"**{plain}**" if bold else plain) + after.replace("[", "\\[").replace("]", "\\]")

    lines: list[str] = []
    for board in boards:
        head = [_HEAD[0], *map(show, board.metrics), *_HEAD[1:]]
        lines += [f"## {show(board.title)}", "", show(board.facts), ""]
        lines += [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
        lines += [f"| {' | '.join(row)} |" for row in _cells(board, show)]
        lines += ["", *(f"- {show(note)}" for note in (*board.notes, _FACTS)), ""]
    return "\n".join(lines)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>whenabouts bench</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: clamp(.8rem, 3vw, 2rem); max-width: 90rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: .3rem .5rem; border-bottom: 1px solid #8886; text-align: right; }
th:first-child { text-align: left; min-width: 7rem; max-width: 16rem; overflow-wrap: anywhere; }
small { display: block; opacity: .75; white-space: nowrap; } ul { padding-left: 1.2rem; }
</style></head><body><h1>whenabouts bench</h1>
"""


def html_of(boards: Sequence[Board]) -> str:
    """The boards as one page without scripts; texts from results are escaped."""

    def show(text: str, *, bold: bool = False, after: str = "") -> str:
        plain = html.escape(text)
        strong = f"<strong>{plain}</strong>" if bold else plain
        return strong + (f"<small>{html.escape(after)}</small>" if after else "")

    parts = [_PAGE]
    for board in boards:
        head = "".join(
            f'<th scope="col">{show(name)}</th>' for name in (_HEAD[0], *board.metrics, *_HEAD[1:])
        )
        rows = "".join(
            f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>\n'
            for name, *cells in _cells(board, show)
        )
        notes = "".join(f"<li>{show(note)}</li>" for note in (*board.notes, _FACTS))
        parts.append(
            f"<section><h2>{show(board.title)}</h2><p>{show(board.facts)}</p>"
            f'<div class="wide" tabindex="0"><table aria-label="{show(board.title)}">'
            f"<thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div><ul>{notes}</ul></section>\n"
        )
    return "".join([*parts, "</body></html>\n"])


def latex_of(boards: Sequence[Board]) -> str:
    """The boards as booktabs tables."""

    def show(text: str, *, bold: bool = False, after: str = "") -> str:
        plain = escaped(text)
        above = rf"\textbf{{{plain}}}" if bold else plain
        return rf"\shortstack{{{above}\\{{\scriptsize{escaped(after)}}}}}" if after else above

    return "\n".join(
        booktabs(
            [_HEAD[0], *map(escaped, board.metrics), *map(escaped, _HEAD[1:])],
            _cells(board, show),
            caption=escaped(f"{board.title}: {board.facts}. {board.notes[0]} {_FACTS}"),
            label=f"tab:bench-{number}",
            before=[r"needs \usepackage{booktabs}"],
        )
        for number, board in enumerate(boards, 1)
    )


_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""What a terminal would obey; line ends stay."""
_WRITERS = {".md": markdown_of, ".html": html_of, ".tex": latex_of}


def check_ending(path: Path) -> None:
    """Raise UsageError for an ending that `write_boards` does not write."""
    if path.suffix not in _WRITERS:
        raise UsageError(f"{path}: accepted: names that end in {', '.join(_WRITERS)}")


def write_boards(boards: Sequence[Board], path: Path) -> None:
    """Write the boards in the format of the file's ending. Raises UsageError, FormatError."""
    check_ending(path)
    with write_atomically(path) as stream:
        stream.write(_CONTROLS.sub(" ", _WRITERS[path.suffix](boards)).encode("utf-8", "backslashreplace"))
