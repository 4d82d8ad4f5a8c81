"""Draws a calibration's reliability, its confidence with and without an answer, and risk over coverage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whenabouts.calibration.figures import draw_as_claimed, draw_risk
from whenabouts.confidence.outcomes import risk_coverage
from whenabouts.drawing import BLUE, ORANGE, new_figure, save_both
from whenabouts.intake.files import write_atomically

if TYPE_CHECKING:
    from whenabouts_systems.ranking.calibration import TrainedReport


def write_report(report: TrainedReport, folder: Path) -> list[Path]:
    """Write `confidence.svg`, `.png` and `.json` to a folder, which may be new; returns their paths.

    Raises UsageError without matplotlib, FormatError if a file cannot be written.
    """
    with new_figure(12.0, 3.6) as figure:
        reliability, answerable, risk = figure.subplots(1, 3)
        _draw_reliability(reliability, report)
        _draw_answerable(answerable, report)
        curve = risk_coverage(report.outcomes)
        assert curve is not None  # every report has answered queries
        draw_risk(risk, curve, "queries")
        risk.set_title(f"Risk and coverage; area {curve.area:.3f} (best {curve.ideal:.3f})", fontsize=9)
        files = save_both(figure, folder / "confidence")
    path = folder / "confidence.json"
    with write_atomically(path) as stream:
        stream.write((json.dumps(report.to_json(), indent=1) + "\n").encode())
    return [*files, path]


def _draw_reliability(axes: Any, report: TrainedReport) -> None:
    claimed = np.array([row.confidence for row in report.bins])
    right = np.array([row.right for row in report.bins])
    counts = np.array([row.count for row in report.bins], np.float64)
    draw_as_claimed(axes)
    axes.plot(claimed, right, color=BLUE, linewidth=1)
    sizes = 8 + 120 * counts / counts.max()
    axes.scatter(claimed, right, s=sizes, color=BLUE, label="first answers (area: number)")
    axes.set(xlabel="confidence", ylabel="share of first answers that are right", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(f"Reliability; expected calibration error {report.error:.3f}", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _draw_answerable(axes: Any, report: TrainedReport) -> None:
    edges = np.linspace(0, 1, 21).tolist()
    for kind, label, colour in (
        ("known", "with an answer", BLUE),
        ("taken_out", "all judged videos removed", ORANGE),
    ):
        confidence = [outcome.sureness for outcome in report.outcomes if outcome.kind == kind]
        if confidence:
            weights = np.full(len(confidence), 1 / len(confidence))
            axes.hist(confidence, edges, weights=weights, color=colour, alpha=0.55, label=label)
    axes.set(xlabel="confidence", ylabel="share of queries", xlim=(0, 1))
    value = report.auroc[report.confidence.definition]
    shown = "-" if value is None else f"{value:.3f}"
    # The confidences are cross-validated, and each half has its own scale: AUROC is of the raw number.
    axes.set_title(f"Answerable or not; AUROC of the raw {report.confidence.definition} {shown}", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
