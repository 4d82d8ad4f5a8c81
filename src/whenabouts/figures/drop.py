"""What systems lose when the right video is no longer given: bars for VMR and MVMR side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from whenabouts.evaluation.overconfidence import FIGURE_METRICS, Drop
from whenabouts.figures.drawing import draw, picture_name

_BLUE, _ORANGE, _GREY = "#1f5fa8", "#c2571a", "#767676"
_NAME = 22


def write_drop(drops: Sequence[Drop], path: Path) -> list[Path]:
    """The picture of figure 6 of paper 002, `path` as SVG and PNG: the mean of R@1 and R@5 at IoU 0.5.

    Raises UsageError as `figures.picture_name` and `figures.draw` do.
    """
    names = [_short(drop.name) for drop in drops]
    width = max(4.6, 1.0 + 1.1 * len(drops))

    def drawing(axes: Any) -> None:
        places = np.arange(len(drops))
        for step, (side, label, colour) in enumerate(
            (("given", "VMR: its video given", _BLUE), ("pool", "MVMR: from the pool", _ORANGE))
        ):
            heights = [100 * drop.mean(side) for drop in drops]
            bars = axes.bar(places + 0.38 * (step - 0.5), heights, width=0.36, color=colour, label=label)
            axes.bar_label(bars, fmt="%.1f", fontsize=8, color=_GREY, padding=2)
        axes.set_xticks(places, names, fontsize=8)
        axes.set(ylabel="%", ylim=(0, 115), yticks=range(0, 101, 20))
        metrics = " and ".join(metric.split(",")[0] for metric in FIGURE_METRICS)
        axes.set_title(f"Mean of {metrics} at IoU 0.5", fontsize=9)
        axes.legend(frameon=False, fontsize=8, loc="upper right", ncols=2)

    return draw(path.parent, picture_name(path), 1, drawing, width)


def _short(name: str) -> str:
    plain = Path(name).name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
    return plain if len(plain) <= _NAME else plain[: _NAME - 1] + "…"
