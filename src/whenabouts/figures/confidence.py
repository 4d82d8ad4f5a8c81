"""How sure answers are: reliability, and risk over coverage, of a corpus and of a trained system."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whenabouts.confidence.outcomes import Outcome, RiskCoverage, bins, reliability_of, risk_coverage
from whenabouts.drawing import BLUE, DASHED, GREY, ORANGE, new_figure, save_both
from whenabouts.formats.files import write_atomically

if TYPE_CHECKING:
    from whenabouts.ranking.calibration import TrainedReport


def write_figures(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """`reliability.svg`/`.png` and `risk_coverage.svg`/`.png` in a folder, which is made if need be.

    The second only where there are known questions. Raises UsageError where matplotlib is missing,
    FormatError where a file cannot be written.
    """
    with new_figure(4.6, 3.6) as figure:
        _draw_bins(figure.subplots(), outcomes)
        written = save_both(figure, folder / "reliability")
    curve = risk_coverage(outcomes)
    if curve is None:
        return written
    with new_figure(4.6, 3.6) as figure:
        axes = figure.subplots()
        _draw_risk(axes, curve, "questions")
        axes.set_title(
            "Half of the questions have their video taken out; "
            f"area {curve.area:.3f} (best {curve.ideal:.3f})",
            fontsize=8,
        )
        return [*written, *save_both(figure, folder / "risk_coverage")]


def write_report(report: TrainedReport, folder: Path) -> list[Path]:
    """`confidence.svg`, `.png` and `confidence.json` in a folder; raises as `write_figures` does."""
    with new_figure(12.0, 3.6) as figure:
        reliability, answerable, risk = figure.subplots(1, 3)
        _draw_reliability(reliability, report)
        _draw_answerable(answerable, report)
        curve = risk_coverage(report.outcomes)
        assert curve is not None  # a report has queries that have an answer
        _draw_risk(risk, curve, "queries")
        risk.set_title(f"Risk and coverage; area {curve.area:.3f} (best {curve.ideal:.3f})", fontsize=9)
        files = save_both(figure, folder / "confidence")
    path = folder / "confidence.json"
    with write_atomically(path) as stream:
        stream.write((json.dumps(report.to_json(), indent=1) + "\n").encode())
    return [*files, path]


def _draw_as_claimed(axes: Any) -> None:
    """The diagonal on which claims come true."""
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=DASHED, label="as claimed")


def _draw_risk(axes: Any, curve: RiskCoverage, what: str) -> None:
    """Risk over coverage, without a title; `what` is answered, in the plural."""
    axes.plot(curve.coverage, curve.risk, color=BLUE, drawstyle="steps-post")
    axes.set(xlabel=f"coverage: share of {what} answered, surest first", xlim=(0, 1), ylim=(0, 1))
    axes.set_ylabel("risk: share of these answered wrongly")


def _draw_bins(axes: Any, outcomes: Sequence[Outcome]) -> None:
    """Right answers beside what their confidence states."""
    rows = bins(outcomes)
    _draw_as_claimed(axes)
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


def _draw_reliability(axes: Any, report: TrainedReport) -> None:
    claimed = np.array([row.confidence for row in report.bins])
    right = np.array([row.right for row in report.bins])
    counts = np.array([row.count for row in report.bins], np.float64)
    _draw_as_claimed(axes)
    axes.plot(claimed, right, color=BLUE, linewidth=1)
    sizes = 8 + 120 * counts / counts.max()
    axes.scatter(claimed, right, s=sizes, color=BLUE, label="answers (area: how many)")
    axes.set(xlabel="confidence", ylabel="share of first answers that are right", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(f"Reliability; expected calibration error {report.error:.3f}", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _draw_answerable(axes: Any, report: TrainedReport) -> None:
    edges = np.linspace(0, 1, 21).tolist()
    for kind, label, colour in (
        ("known", "with an answer", BLUE),
        ("taken_out", "all judged videos taken out", ORANGE),
    ):
        confidence = [outcome.sureness for outcome in report.outcomes if outcome.kind == kind]
        if confidence:
            weights = np.full(len(confidence), 1 / len(confidence))
            axes.hist(confidence, edges, weights=weights, color=colour, alpha=0.55, label=label)
    axes.set(xlabel="confidence", ylabel="share of queries", xlim=(0, 1))
    value = report.auroc[report.confidence.definition]
    shown = "-" if value is None else f"{value:.3f}"
    axes.set_title(f"Answerable or not; AUROC {shown}", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
