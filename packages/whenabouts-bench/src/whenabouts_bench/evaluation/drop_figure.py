"""Draw how much systems lose if the right video is not given: bars for VMR and MVMR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from whenabouts.drawing import BLUE, BOTH, GREY, ORANGE, check_picture, new_figure, save_both
from whenabouts_bench.evaluation.overconfidence import FIGURE_METRICS, Drop

_NAME = 22


def check_name(path: Path) -> None:
    """Raise UsageError for a suffix that `write_drop` does not write."""
    check_picture(path if path.suffix else path.with_suffix(BOTH[0]), accepted=BOTH)


def write_drop(drops: Sequence[Drop], path: Path) -> list[Path]:
    """Draw figure 6 of paper 002 as SVG and PNG; return both files.

    Bars are the mean of R@1 and R@5 at IoU 0.5, in percent, with 95 % intervals. Raises as `check_name`.
    """
    check_name(path)
    places = np.arange(len(drops))
    with new_figure(max(4.6, 1.0 + 1.1 * len(drops)), 3.6) as figure:
        axes = figure.subplots()
        sides = (("given", "VMR: its video given", BLUE), ("pool", "MVMR: from the pool", ORANGE))
        for step, (side, label, colour) in enumerate(sides):
            heights = [100 * drop.mean(side) for drop in drops]
            bars = axes.bar(places + 0.38 * (step - 0.5), heights, width=0.36, color=colour, label=label)
            for bar, drop, height in zip(bars, drops, heights, strict=True):
                low, high = (100 * end for end in drop.intervals.get(side, (height / 100, height / 100)))
                middle = bar.get_x() + bar.get_width() / 2
                if side in drop.intervals:
                    axes.vlines(middle, low, high, color="black", linewidth=1)
                # Above the interval, or inside the bar where it would leave the axis.
                above = max(high, height) + 2 <= 94
                place, align = (max(high, height) + 2, "bottom") if above else (min(low, height) - 2, "top")
                axes.text(middle, place, f"{height:.1f}", fontsize=8, color=GREY, ha="center", va=align)
        axes.set_xticks(places, [_short(drop.name) for drop in drops], fontsize=8)
        axes.set(ylabel="%", ylim=(0, 100), yticks=range(0, 101, 20))
        metrics = " and ".join(metric.split(",")[0] for metric in FIGURE_METRICS)
        figure.suptitle(f"Mean of {metrics} at IoU 0.5, with 95 % intervals", fontsize=9)
        axes.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        return save_both(figure, path.with_suffix(""))


def _short(name: str) -> str:
    plain = Path(name).name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
    return plain if len(plain) <= _NAME else plain[: _NAME - 1] + "…"
