"""The picture of a training: losses, metrics and learning rate along the epochs; needs the extra `report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whenabouts.drawing import COLOURS, GREY, new_figure, require_matplotlib, save_figure
from whenabouts.types import UsageError


def draw(curves: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Write the picture; False where matplotlib is not installed or there is nothing to draw."""
    if not curves:
        return False
    try:
        require_matplotlib()
    except UsageError:
        return False
    validated = [line for line in curves if line.get("metrics")]
    with new_figure(9.2 if validated else 4.8, 3.8) as figure:
        panels = figure.subplots(1, 2 if validated else 1, squeeze=False)[0]
        _draw_losses(panels[0], curves)
        if validated:
            _draw_metrics(panels[1], validated)
        save_figure(figure, path)
    return True


def _draw_losses(axes: Any, curves: Sequence[Mapping[str, Any]]) -> None:
    names = [name for name in curves[-1]["losses"] if name != "gradient"]
    for number, name in enumerate(names):
        _line(axes, curves, [line["losses"].get(name) for line in curves], name, number)
    positive = all(value > 0 for line in curves for name, value in line["losses"].items() if name in names)
    if positive:
        axes.set_yscale("log")
        # Formulas are off in this picture, and so are powers of ten.
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="y", which="minor", labelsize=6)
    _finish(axes, "loss (mean since the last point)")


def _draw_metrics(axes: Any, curves: Sequence[Mapping[str, Any]]) -> None:
    """The metrics of the measure, and what it is: their sum."""
    best = max(curves, key=lambda line: line["metric"])
    for number, name in enumerate(_shown(curves[-1]["metrics"])):
        values = [line["metrics"].get(name) for line in curves]
        _line(axes, curves, [None if value is None else 100 * value for value in values], name, number)
    axes.axvline(best["epoch"], color=GREY, linewidth=0.8, linestyle=":", label="best")
    axes.set_ylim(bottom=0)
    _finish(axes, "validation, percent")


def _shown(metrics: Mapping[str, Any]) -> list[str]:
    """Some metrics, such that one can tell their lines apart."""
    first = [name for name in metrics if "@1," in name or name.endswith("@1")]
    rest = [name for name in metrics if name not in first]
    return (first + rest)[: len(COLOURS)]


def _line(axes: Any, curves: Sequence[Mapping[str, Any]], values: list[Any], name: str, number: int) -> None:
    epochs = [line["epoch"] for line in curves]
    axes.plot(
        epochs,
        values,
        color=COLOURS[number % len(COLOURS)],
        linewidth=1.2,
        marker=".",
        markersize=4,
        label=name,
    )


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel("epoch")
    axes.legend(frameon=False, fontsize=7)
