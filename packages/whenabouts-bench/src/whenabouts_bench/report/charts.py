"""Draw the page's curves (recall against rank and IoU, sorted queries) as inline SVG.

Matplotlib draws in placeholder colours, which are replaced by the page's CSS variables, so that charts follow
the light or dark theme. Charts contain no text from data, only numbers and words of this module.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from whenabouts.drawing import SETTINGS
from whenabouts_bench.formats.annotations import Floats
from whenabouts_bench.report.diagnosis import LEVELS
from whenabouts_bench.report.runs import LETTERS, RunPart

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LEAST_DEPTH: Final = 10
MOST_DEPTH: Final = 1000
CURVE_LEVELS: Final = (0.5, 0.7, 0.3)
CURVE_DEPTHS: Final = (1, 10, 100)
TABLE_DEPTHS: Final = (1, 5, 10, 20, 50, 100)
_INK, _GRID, _PAPER = "#0a0b0c", "#0a0b0d", "#0a0b11"
_RUNS: Final = ("#0a0b0e", "#0a0b0f")
_COLOURS: Final = {
    _INK: "var(--ink-soft)",
    _GRID: "var(--line)",
    _PAPER: "var(--paper)",
    _RUNS[0]: "var(--run-a)",
    _RUNS[1]: "var(--run-b)",
}
DASHES: Final[tuple[Any, ...]] = ("solid", (0, (5, 2)), (0, (1, 1.6)), (0, (6, 2, 1, 2)))
"""Line styles that can be distinguished without colour."""

_SETTINGS: Final[dict[Any, Any]] = {
    **SETTINGS,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
}


class Curve(NamedTuple):
    """A line of a chart. `run` is 0 or 1 and gives the colour, `style` the position in `DASHES`."""

    label: str
    run: int
    style: int
    x: Floats
    y: Floats


class Chart(NamedTuple):
    """Contents of a chart. y runs from 0 to 1, in percent if `y_percent`."""

    name: str
    """The prefix of its ids, unique on the page."""
    described: str
    """The text for screen readers."""
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    x_log: bool = False
    x_percent: bool = False
    y_percent: bool = True


def draw(chart: Chart) -> str:
    """The chart as an inline `<svg>` element."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": chart.name}):
        figure = Figure(figsize=(5.0, 3.3), layout="constrained")
        axes = figure.subplots()
        for curve in chart.curves:
            axes.plot(curve.x, curve.y, color=_RUNS[curve.run], linestyle=DASHES[curve.style], linewidth=1.7)
        _dress(axes, chart)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    return _for_page(drawn.getvalue(), chart)


def _dress(axes: Axes, chart: Chart) -> None:
    """Axes, grid, and a legend of several line styles; the page has the legend of runs."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.set_ylim(0, 1)
    axes.margins(x=0.01)
    axes.grid(True)
    axes.set_axisbelow(True)
    if chart.y_percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if chart.x_log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_locator(NullLocator())
    if chart.x_percent:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    styles = {curve.label: curve.style for curve in chart.curves if curve.label}
    if len(styles) > 1:
        lines = [Line2D([], [], color=_INK, linestyle=DASHES[style]) for style in styles.values()]
        colours: dict[str, Any] = {"labelcolor": _INK, "facecolor": _PAPER, "edgecolor": _GRID}
        axes.legend(lines, list(styles), framealpha=1.0, fontsize=8, handlelength=2.6, **colours)


def _for_page(drawn: str, chart: Chart) -> str:
    """An SVG file reduced to an inline element: without prolog, namespaces, metadata, style and size."""
    svg = drawn[drawn.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.S)
    box = re.search(r'viewBox="([^"]+)"', svg)
    body = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
    body = re.sub(r"<defs>\s*</defs>", "", body)
    body = re.sub(r' id="', f' id="{chart.name}-', body)
    body = re.sub(r'(?:xlink:)?href="#', f'href="#{chart.name}-', body)
    body = body.replace("url(#", f"url(#{chart.name}-")
    body = re.sub(r"(font: [^;\"]*?px) '[^;\"]*", r"\1 var(--font)", body)
    body = re.sub(r"font-family: [^;\"]+", "font-family: var(--font)", body)
    for placeholder, colour in _COLOURS.items():
        body = body.replace(placeholder, colour)
    size = box.group(1) if box else "0 0 360 240"
    return f'<svg class="chart" viewBox="{size}" role="img" aria-label="{chart.described}">{body}</svg>'


def thinned(values: Floats, most: int = 300) -> tuple[Floats, Floats]:
    """At most `most` (share of queries, value) points of descending values, both ends among them."""
    ordered = np.sort(values)[::-1]
    if not len(ordered):
        return np.zeros(0), np.zeros(0)
    at = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), most)).round().astype(np.int64))
    return (at + 0.5) / len(ordered), ordered[at]


class Drawn(NamedTuple):
    """A chart and how to read it."""

    svg: str
    title: str
    reading: str


class RecallRow(NamedTuple):
    """Recall of one run at `TABLE_DEPTHS`."""

    label: str
    run: RunPart
    shares: list[float]


def curves_of(runs: Sequence[RunPart], graded: str) -> list[Drawn]:
    """Recall against rank and against IoU, and sorted queries."""
    with_moments = [run for run in runs if run.diagnosis.names_moments]
    charts = [_by_depth(runs)]
    if with_moments:
        charts += [_by_level(with_moments), _sorted_queries(with_moments, graded)]
    return charts


def _by_depth(runs: Sequence[RunPart]) -> Drawn:
    longest = max(max(int(run.diagnosis.rows.max(initial=0)) for run in runs), LEAST_DEPTH)
    depths = np.unique(np.geomspace(1, min(longest, MOST_DEPTH), 60).round().astype(np.int64))
    curves = []
    for number, run in enumerate(runs):
        levels: tuple[float | None, ...] = (*CURVE_LEVELS, None) if run.diagnosis.names_moments else (None,)
        for style, level in enumerate(levels):
            label = "right video" if level is None else f"IoU ≥ {level:g}"
            y = run.diagnosis.recall_by_depth(depths, level)
            curves.append(Curve(label, number, style if level else 3, depths.astype(np.float64), y))
    return Drawn(
        draw(Chart("by-depth", "Recall against the number of rows", "first K rows", "recall", curves, True)),
        "Recall against K",
        "Share of queries with such a row among the first K. A wide gap below “right video” means "
        "errors of localization, a curve that rises late errors of ranking.",
    )


def _by_level(runs: Sequence[RunPart]) -> Drawn:
    curves = [
        Curve(
            f"first {depth}" if depth > 1 else "first row",
            LETTERS.index(run.letter),
            style,
            np.array(LEVELS),
            run.diagnosis.recall_by_level(depth),
        )
        for run in runs
        for style, depth in enumerate(CURVE_DEPTHS)
    ]
    return Drawn(
        draw(Chart("by-level", "Recall against the IoU that is asked for", "IoU at least", "recall", curves)),
        "Recall against IoU",
        "A curve that falls steeply means right videos with imprecise borders.",
    )


def _sorted_queries(runs: Sequence[RunPart], graded: str) -> Drawn:
    curves = []
    for run in runs:
        x, y = thinned(run.quality if graded else run.diagnosis.best_iou)
        curves.append(Curve("", LETTERS.index(run.letter), 0, x, y))
    what = graded or "best IoU in the list"
    label = f"{what} of every query, sorted"
    chart = Chart("sorted", label, "share of queries", what, curves, x_percent=True, y_percent=False)
    return Drawn(
        draw(chart),
        f"{what}, every query sorted",
        "Each run is sorted separately, best query first. Queries at 0 have nothing right.",
    )


def recall_rows(runs: Sequence[RunPart]) -> list[RecallRow]:
    """Recall of every run at `TABLE_DEPTHS`, for the right video and for some IoU."""
    depths = np.array(TABLE_DEPTHS)
    rows = []
    for run in runs:
        levels = (None, *sorted(CURVE_LEVELS)) if run.diagnosis.names_moments else (None,)
        for level in levels:
            label = "the right video" if level is None else f"IoU ≥ {level:g}"
            rows.append(RecallRow(label, run, run.diagnosis.recall_by_depth(depths, level).tolist()))
    return rows
