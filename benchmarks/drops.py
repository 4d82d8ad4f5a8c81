"""The picture of figure 6 of paper 002, of a study's results: its video given, or found in a pool.

    python -m benchmarks.drops benchmarks/results/table_2.json docs/pictures/drops.png

Each bar is the mean of R@1 and R@5 at IoU 0.5 over the queries and the trainings of a row.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from whenabouts_bench.evaluation.drop_figure import write_drop
from whenabouts_bench.evaluation.overconfidence import FIGURE_METRICS, Drop


def drops(runs: Sequence[Mapping[str, Any]], queries: int) -> list[Drop]:
    """One a row, in the order of the runs; means over its trainings."""
    of_row: dict[str, list[Mapping[str, float]]] = {}
    for run in runs:
        of_row.setdefault(run["system"], []).append(run["metrics"])
    return [Drop(row, _means(own, "VMR "), _means(own, ""), queries) for row, own in of_row.items()]


def _means(runs: Sequence[Mapping[str, float]], prefix: str) -> dict[str, float]:
    return {metric: statistics.fmean(run[f"{prefix}{metric}"] for run in runs) for metric in FIGURE_METRICS}


def main() -> None:
    """Read the results, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path, help="a PNG")
    options = parser.parse_args()
    results = json.loads(options.results.read_text(encoding="utf-8"))
    with TemporaryDirectory() as folder:
        files = write_drop(drops(results["runs"], results["queries"]), Path(folder) / "drops.png")
        picture = next(file for file in files if file.suffix == ".png")
        options.picture.write_bytes(picture.read_bytes())


if __name__ == "__main__":
    main()
