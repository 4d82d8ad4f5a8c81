"""A picture of how sure a trained system is: reliability, answerable or not, risk and coverage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from whenabouts.confidence.outcomes import risk_coverage
from whenabouts.figures.drawing import draw
from whenabouts.formats.files import write_atomically
from whenabouts.ranking.confidence import TrainedReport

_BLUE, _ORANGE, _GREY = "#1f5fa8", "#c2571a", "#767676"


def write_report(report: TrainedReport, folder: Path) -> list[Path]:
    """`confidence.svg`, `.png` and `confidence.json` in a folder. Raises UsageError as `figures.draw`."""

    def drawing(axes: Sequence[Any]) -> None:
        _draw_reliability(report, axes[0])
        _draw_answerable(report, axes[1])
        _draw_risk(report, axes[2])

    files = draw(folder, "confidence", 3, drawing, 4.0)
    path = folder / "confidence.json"
    with write_atomically(path) as stream:
        stream.write((json.dumps(report.to_json(), indent=1) + "\n").encode())
    return [*files, path]


def _draw_reliability(report: TrainedReport, axes: Any) -> None:
    axes.plot([0, 1], [0, 1], color=_GREY, linewidth=0.8, linestyle=(0, (2, 2)), label="as claimed")
    claimed, right = (
        np.array([getattr(one, name) for one in report.bins]) for name in ("confidence", "right")
    )
    counts = np.array([one.count for one in report.bins], np.float64)
    axes.plot(claimed, right, color=_BLUE, linewidth=1)
    axes.scatter(
        claimed, right, s=8 + 120 * counts / counts.max(), color=_BLUE, label="answers (area: how many)"
    )
    axes.set(xlabel="confidence", ylabel="share of first answers that are right", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(f"Reliability; expected calibration error {report.error:.3f}", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _draw_answerable(report: TrainedReport, axes: Any) -> None:
    edges = np.linspace(0, 1, 21).tolist()
    for kind, label, colour in (
        ("known", "with an answer", _BLUE),
        ("taken_out", "all judged videos taken out", _ORANGE),
    ):
        told = [one.sureness for one in report.outcomes if one.kind == kind]
        if told:
            weights = np.full(len(told), 1 / len(told))
            axes.hist(told, edges, weights=weights, color=colour, alpha=0.55, label=label)
    axes.set(xlabel="confidence", ylabel="share of queries", xlim=(0, 1))
    value = report.auroc[report.confidence.definition]
    axes.set_title(f"Answerable or not; AUROC {value:.3f}", fontsize=9)
    axes.legend(frameon=False, fontsize=8)


def _draw_risk(report: TrainedReport, axes: Any) -> None:
    curve = risk_coverage(report.outcomes)
    assert curve is not None  # a report has known queries
    axes.plot(curve.coverage, curve.risk, color=_BLUE, drawstyle="steps-post")
    axes.set(xlabel="coverage: share of queries answered, surest first", xlim=(0, 1), ylim=(0, 1))
    axes.set_ylabel("risk: share of these answered wrongly")
    axes.set_title(f"Risk and coverage; area {curve.area:.3f} (best {curve.ideal:.3f})", fontsize=9)
