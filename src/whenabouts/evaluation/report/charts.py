"""Curves as SVG text that stands inside the page: no fonts, no fixed colours, ids of their own.

Matplotlib draws in a few placeholder colours, and these become the page's own (CSS variables), so that a
chart follows the light or dark theme. No text from data enters a chart; what it shows is numbers and words
of this module.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.drawing import SETTINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

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
"""Line styles that stay apart without colour, also in print."""

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
    """What a chart shows. y runs from 0 to 1 and is shown in percent where `y_percent` says so."""

    name: str
    """The prefix of every id in it: unique on the page."""
    described: str
    """What a reader hears who cannot see it."""
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    x_log: bool = False
    x_percent: bool = False
    y_percent: bool = True


def draw(chart: Chart) -> str:
    """The chart as an `<svg>` element that may stand inside HTML."""
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
    """Axes and grid; whose line it is, the page's own legend says."""
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
    _legend(axes, {curve.label: curve.style for curve in chart.curves if curve.label})


def _legend(axes: Axes, styles: dict[str, int]) -> None:
    """What the line styles mean, where there are several."""
    from matplotlib.lines import Line2D

    if len(styles) < 2:
        return
    axes.legend(
        [Line2D([], [], color=_INK, linestyle=DASHES[style]) for style in styles.values()],
        list(styles),
        labelcolor=_INK,
        facecolor=_PAPER,
        edgecolor=_GRID,
        framealpha=1.0,
        fontsize=8,
        handlelength=2.6,
    )


def _for_page(drawn: str, chart: Chart) -> str:
    """A drawing without what only a file of its own needs: prolog, namespaces, metadata, style, size."""
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
    """Share of queries (0 to 1) and value at that share, values descending; at most `most` points.

    The ends stay, and every point is one of the values.
    """
    ordered = np.sort(values)[::-1]
    if not len(ordered):
        return np.zeros(0), np.zeros(0)
    at = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), most)).round().astype(np.int64))
    return (at + 0.5) / len(ordered), ordered[at]
