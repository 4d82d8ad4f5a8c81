"""The figures of a calibration: what they draw."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the extra figures is not installed")

from whenabouts.calibration import figures
from whenabouts.calibration.figures import draw_as_claimed, draw_risk, write_figures
from whenabouts.confidence.outcomes import Outcome, bins, reliability_of, risk_coverage
from whenabouts.drawing import new_figure

KNOWN = [
    Outcome("known", (number + 0.5) / 20, True, number % 3 != 0, False, False, f"{number}")
    for number in range(20)
]


def test_the_curves_are_those_of_the_outcomes() -> None:
    curve = risk_coverage(KNOWN)
    assert curve is not None
    with new_figure(3.0, 2.0) as figure:
        axes = figure.subplots()
        draw_as_claimed(axes)
        draw_risk(axes, curve, "titles")
        claimed, risk = axes.get_lines()
        assert (list(claimed.get_xdata()), list(claimed.get_ydata())) == ([0, 1], [0, 1])
        assert list(risk.get_xdata()) == list(curve.coverage) and list(risk.get_ydata()) == list(curve.risk)
        assert (axes.get_xlim(), axes.get_ylim()) == ((0, 1), (0, 1))
        assert "share of titles answered" in axes.get_xlabel()


def test_the_dots_are_the_bins_with_their_intervals() -> None:
    rows, error = bins(KNOWN), reliability_of(KNOWN).error
    with new_figure(3.0, 2.0) as figure:
        axes = figure.subplots()
        figures._draw_bins(axes, KNOWN)
        dots, (bars,) = axes.get_lines()[1], axes.collections
        assert list(dots.get_xdata()) == [row.stated for row in rows]
        assert list(dots.get_ydata()) == [row.right.share for row in rows]
        for row, bar in zip(rows, bars.get_segments(), strict=True):
            assert bar[:, 1].tolist() == pytest.approx(list(row.right.interval))
        assert (axes.get_xlim(), axes.get_ylim()) == ((0, 1), (0, 1))
        assert error is not None and axes.get_title().endswith(f"expected calibration error {error:.3f}")


@pytest.mark.slow
def test_the_second_figure_needs_known_answers(tmp_path: Path) -> None:
    unrelated = Outcome("unrelated", 0.1, True, False, False, False, "0")
    names = ["reliability.svg", "reliability.png"]
    assert [path.name for path in write_figures([unrelated], tmp_path / "new")] == names
    written = write_figures(KNOWN, tmp_path / "new")
    assert [path.name for path in written] == [*names, "risk_coverage.svg", "risk_coverage.png"]
    assert all(path.stat().st_size for path in written)
