"""The curves of the page: recall against rank and IoU, and every query sorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from whenabouts.evaluation.report.charts import Chart, Curve, draw, thinned
from whenabouts.evaluation.report.diagnosis import LEVELS
from whenabouts.evaluation.report.runs import LETTERS, RunPart

LEAST_DEPTH: Final = 10
MOST_DEPTH: Final = 1000
CURVE_LEVELS: Final = (0.5, 0.7, 0.3)
CURVE_DEPTHS: Final = (1, 10, 100)
TABLE_DEPTHS: Final = (1, 5, 10, 20, 50, 100)


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
    """Recall against the rank and against IoU, and every query sorted."""
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
        "Share of queries with such a row among the first K. A wide gap below “right video” is localization; "
        "a curve that climbs late is ranking.",
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
        "A curve that falls steeply has the right videos and loose borders.",
    )


def _sorted_queries(runs: Sequence[RunPart], graded: str) -> Drawn:
    curves = []
    for run in runs:
        x, y = thinned(run.quality if graded else run.diagnosis.best_iou)
        curves.append(Curve("", LETTERS.index(run.letter), 0, x, y))
    what = graded or "best IoU in the list"
    return Drawn(
        draw(
            Chart(
                "sorted",
                f"{what} of every query, sorted",
                "share of queries",
                what,
                curves,
                False,
                True,
                False,
            )
        ),
        f"{what}, every query sorted",
        "Each run is sorted by itself, best query first. A long floor at 0 is queries with nothing right.",
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
