"""The picture of a training: losses, metrics and learning rate along the epochs; needs the extra `report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from whenabouts.formats.files import write_atomically

_COLOURS: Final = ("#1f5fa8", "#c2571a", "#2f7d4f", "#8a3f8f", "#a8861f", "#3b8ea5", "#b03a48", "#767676")
_SETTINGS: Final[dict[Any, Any]] = {
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(curves: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Write the picture; False where matplotlib is not installed or there is nothing to draw."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        return False
    if not curves:
        return False
    validated = [line for line in curves if line.get("metrics")]
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(9.2 if validated else 4.8, 3.8), layout="constrained")
        panels = figure.subplots(1, 2 if validated else 1, squeeze=False)[0]
        _draw_losses(panels[0], curves)
        if validated:
            _draw_metrics(panels[1], validated)
        with write_atomically(path) as stream:
            figure.savefig(stream, format="png", dpi=160, metadata={"Software": None})
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
    axes.axvline(best["epoch"], color="#767676", linewidth=0.8, linestyle=":", label="best")
    axes.set_ylim(bottom=0)
    _finish(axes, "validation, percent")


def _shown(metrics: Mapping[str, Any]) -> list[str]:
    """Some metrics, such that one can tell their lines apart."""
    first = [name for name in metrics if "@1," in name or name.endswith("@1")]
    rest = [name for name in metrics if name not in first]
    return (first + rest)[: len(_COLOURS)]


def _line(axes: Any, curves: Sequence[Mapping[str, Any]], values: list[Any], name: str, number: int) -> None:
    epochs = [line["epoch"] for line in curves]
    axes.plot(
        epochs,
        values,
        color=_COLOURS[number % len(_COLOURS)],
        linewidth=1.2,
        marker=".",
        markersize=4,
        label=name,
    )


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel("epoch")
    axes.legend(frameon=False, fontsize=7)
