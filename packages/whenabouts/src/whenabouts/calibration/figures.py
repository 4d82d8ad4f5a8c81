"""Draws the figures of a corpus's calibration: reliability, and risk over coverage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from whenabouts.confidence.outcomes import Outcome, RiskCoverage, bins, reliability_of, risk_coverage
from whenabouts.drawing import BLUE, DASHED, GREY, new_figure, save_both


def write_figures(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Write `reliability.svg`/`.png` and `risk_coverage.svg`/`.png`; returns the paths.

    A missing folder is created. The second figure needs questions with known answers. Raises UsageError
    without matplotlib, FormatError if a file cannot be written.
    """
    with new_figure(4.6, 3.6) as figure:
        _draw_bins(figure.subplots(), outcomes)
        written = save_both(figure, folder / "reliability")
    curve = risk_coverage(outcomes)
    if curve is None:
        return written
    with new_figure(4.6, 3.6) as figure:
        axes = figure.subplots()
        draw_risk(axes, curve, "questions")
        axes.set_title(
            f"An answer is wrong if its video was taken out; area {curve.area:.3f} (best {curve.ideal:.3f})",
            fontsize=8,
        )
        return [*written, *save_both(figure, folder / "risk_coverage")]


def draw_as_claimed(axes: Any) -> None:
    """Draw the diagonal of perfect calibration."""
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=DASHED, label="as claimed")


def draw_risk(axes: Any, curve: RiskCoverage, what: str) -> None:
    """Draw risk over coverage, without a title; `what` names the answered things, in the plural."""
    axes.plot(curve.coverage, curve.risk, color=BLUE, drawstyle="steps-post")
    axes.set(xlabel=f"coverage: share of {what} answered, surest first", xlim=(0, 1), ylim=(0, 1))
    axes.set_ylabel("risk: share of these answered wrongly")


def _draw_bins(axes: Any, outcomes: Sequence[Outcome]) -> None:
    """Draw accuracy against stated confidence."""
    rows = bins(outcomes)
    draw_as_claimed(axes)
    if rows:
        stated = np.array([row.stated for row in rows])
        shares = np.array([row.right.share or 0.0 for row in rows])
        limits = np.array([row.right.interval for row in rows])
        spread = np.abs(limits.T - shares)
        axes.errorbar(stated, shares, spread, fmt="o", color=BLUE, ecolor=GREY, capsize=3, linewidth=1)
    axes.set(xlabel="confidence", xlim=(0, 1), ylabel="first answers that are right", ylim=(0, 1))
    error = reliability_of(outcomes).error
    stated_error = "" if error is None else f"; expected calibration error {error:.3f}"
    axes.set_title(f"Questions with an answer{stated_error}", fontsize=9)
