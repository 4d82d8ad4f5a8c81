"""The picture of a sweep of drawn negatives (paper 001, figure 8; paper 002, figure 9), of a study's results.

    python -m benchmarks.studies charades-negatives FEATURES OUT --pools POOLS
    python -m benchmarks.negatives OUT [--study charades-negatives] [--picture OUT/negatives.png]

A point a row crocs_X_Y of the study (crocs_0_0: the control): X negative videos of a query, p'(v|q), and Y
negative queries of a video, p'(q|v); R@1 among the pool, mean and deviation over seeds. The first stage,
which draws none, is dashed.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import trainings

METRICS = ("R@1,IoU=0.3", "R@1,IoU=0.5", "R@1,IoU=0.7")
FIRST = (-1, -1)
_ROW = re.compile(r"crocs_(\d+)_(\d+)")


def swept(lines: Sequence[Mapping[str, Any]], study: str) -> dict[tuple[int, int], dict[str, list[float]]]:
    """(videos, queries) -> metric -> percent of each seed; FIRST is the first stage."""
    points: dict[tuple[int, int], dict[str, list[float]]] = {}
    for line in lines:
        row = _ROW.fullmatch(line["system"])
        if line["study"] != study or not (row or line["system"] == "crocs_first"):
            continue
        place = (int(row[1]), int(row[2])) if row else FIRST
        for metric in METRICS:
            if line["metrics"].get(metric) is not None:
                points.setdefault(place, {}).setdefault(metric, []).append(100 * line["metrics"][metric])
    return dict(sorted(points.items()))


def draw(points: Mapping[tuple[int, int], Mapping[str, Sequence[float]]], path: Path) -> None:
    """A line for each IoU over the pairs of numbers, in their order."""
    from whenabouts.drawing import COLOURS, DASHED, new_figure, save_figure

    places = [place for place in points if place != FIRST]
    with new_figure(1.5 + 0.7 * len(places), 3.4) as figure:
        axes = figure.subplots()
        for metric, colour in zip(METRICS, COLOURS, strict=False):
            means = [statistics.fmean(points[place][metric]) for place in places]
            spread = [statistics.pstdev(points[place][metric]) for place in places]
            axes.errorbar(
                range(len(places)), means, spread, fmt="o-", color=colour, label=metric, markersize=3
            )
            if FIRST in points:
                first = statistics.fmean(points[FIRST][metric])
                axes.axhline(first, color=colour, linestyle=DASHED, linewidth=0.8)
        axes.set_xticks(range(len(places)), [f"({x}, {y})" for x, y in places], rotation=45)
        axes.set(xlabel="negative videos of a query, negative queries of a video", ylabel="%")
        axes.legend(frameon=False, fontsize=8)
        save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--study", default="charades-negatives")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    points = swept(trainings.results(options.out), options.study)
    if not points:
        raise SystemExit(f"{options.out}: has no results of {options.study}; train it first")
    draw(points, options.picture or options.out / "negatives.png")


if __name__ == "__main__":
    main()
