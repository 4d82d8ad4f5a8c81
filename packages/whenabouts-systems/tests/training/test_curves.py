from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from whenabouts_systems.training import run_folder
from whenabouts_systems.training.run_folder import draw_curves


def _line(epoch: float, metrics: dict[str, float] | None) -> dict[str, Any]:
    line: dict[str, Any] = {
        "epoch": epoch,
        "step": 10 * epoch,
        "losses": {"spans": 0.5 / epoch, "total": 1 / epoch},
    }
    return line if metrics is None else {**line, "metric": 0.1 * epoch, "metrics": metrics}


@pytest.mark.parametrize("metrics", [None, {"VR R@1": 0.2, "R@1,IoU=0.5": 0.1}])
def test_the_picture_is_written_whole(tmp_path: Path, metrics: dict[str, float] | None) -> None:
    assert draw_curves([_line(epoch, metrics) for epoch in (0.5, 1, 1.5)], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]


def test_no_legend_covers_a_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(run_folder, "save_figure", lambda figure, _: drawn.append(figure))
    metrics = {f"R@{depth},IoU=0.5": depth / 100 for depth in (1, 5, 10, 50, 100)}
    assert draw_curves([_line(epoch, metrics) for epoch in (1, 2, 3)], tmp_path / "curves.png")
    (figure,) = drawn
    figure.canvas.draw()
    for axes in figure.axes:
        assert axes.get_legend().get_window_extent().x0 >= axes.get_window_extent().x1


def test_nothing_is_drawn_of_nothing_or_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not draw_curves([], tmp_path / "curves.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not draw_curves([_line(1, None)], tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()
