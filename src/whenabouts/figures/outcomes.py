"""The reliability diagram and the risk-coverage curve of questions whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whenabouts.confidence.outcomes import Outcome, bins, claims, risk_coverage
from whenabouts.figures.drawing import draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = tuple(np.linspace(0.0, 1.0, 101).tolist())
_BLUE, _ORANGE, _GREY = "#1f5fa8", "#c2571a", "#767676"


def write_figures(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """`reliability.svg`/`.png` and `risk_coverage.svg`/`.png` in a folder, which is made if need be.

    The second only where there are known questions. Each file appears whole or not at all. Raises UsageError
    where matplotlib is missing or the folder cannot be written.
    """
    written = draw(folder, "reliability", 2, partial(_draw_reliability, outcomes))
    if risk_coverage(outcomes) is not None:
        written += draw(folder, "risk_coverage", 1, partial(_draw_risk, outcomes))
    return written


def _draw_reliability(outcomes: Sequence[Outcome], axes: Any) -> None:
    """What confidence claims of chance beside what came of it; and right answers by confidence."""
    left, right = axes
    held = claims(outcomes, _LEVELS)
    left.plot([0, 1], [0, 1], color=_GREY, linewidth=0.8, linestyle=(0, (2, 2)), label="as claimed")
    for name, colour, rates in (
        ("unrelated questions", _BLUE, [one.unrelated for one in held]),
        ("true video taken out", _ORANGE, [one.taken_out for one in held]),
    ):
        if rates[0].of:
            low, high = zip(*(rate.interval for rate in rates), strict=True)
            left.plot(_LEVELS, [rate.share or 0.0 for rate in rates], color=colour, label=name)
            left.fill_between(_LEVELS, low, high, color=colour, alpha=0.15, linewidth=0)
    left.set(xlabel="confidence", ylabel="share of questions that stay below it", xlim=(0, 1), ylim=(0, 1))
    left.set_title("Questions without an answer", fontsize=9)
    left.legend(frameon=False, fontsize=8)
    _draw_bins(outcomes, right)


def _draw_bins(outcomes: Sequence[Outcome], axes: Axes) -> None:
    found = bins(outcomes)
    shares = np.array([one.right.share or 0.0 for one in found])
    limits = np.array([one.right.interval for one in found]).reshape(len(found), 2)
    places = np.arange(len(found))
    if len(found):
        spread = np.abs(limits.T - shares)
        axes.bar(places, shares, color=_BLUE, alpha=0.8, width=0.7)
        axes.errorbar(places, shares, spread, fmt="none", ecolor=_GREY, capsize=3, linewidth=1)
        labels = [f"{100 * one.low:g} to\n{100 * one.high:g} %\nn={one.right.of}" for one in found]
        axes.set_xticks(places, labels, fontsize=8)
    axes.set(ylabel="first answers that are right", ylim=(0, 1), xlabel="confidence")
    axes.set_title("Questions with an answer", fontsize=9)


def _draw_risk(outcomes: Sequence[Outcome], axes: Axes) -> None:
    curve = risk_coverage(outcomes)
    assert curve is not None
    axes.plot(curve.coverage, curve.risk, color=_BLUE, drawstyle="steps-post")
    axes.set(xlabel="coverage: share of questions answered, surest first", xlim=(0, 1), ylim=(0, 1))
    axes.set_ylabel("risk: share of these answered wrongly")
    axes.set_title(
        f"Half of the questions have their video taken out; area {curve.area:.3f} (best {curve.ideal:.3f})",
        fontsize=8,
    )
