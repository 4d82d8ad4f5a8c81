from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.clips import INSTANT, ClipGrid, clip_among, clip_counts, clip_spans
from whenabouts.types import UsageError

grids = st.builds(
    ClipGrid,
    clip_seconds=st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 1 / 3, 0.04]),
    duration=st.floats(0.05, 5000),
)


@given(grids)
def test_the_clips_tile_the_video_without_gap_or_overlap(grid: ClipGrid) -> None:
    assert grid.bounds(0)[0] == 0
    assert grid.bounds(len(grid) - 1)[1] == pytest.approx(grid.duration)
    for index in (0, len(grid) // 2, len(grid) - 1):
        start, end = grid.bounds(index)
        assert start < end
        assert grid.index_at(start) == index


@given(grids, st.data())
def test_seconds_to_span_and_back_covers_what_was_asked_for(grid: ClipGrid, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(grid) - 1))
    last = data.draw(st.integers(first, len(grid) - 1))
    assert tuple(map(int, grid.spans_of(*grid.seconds_of(first, last)))) == (first, last)


def test_a_span_that_ends_on_a_border_does_not_enter_the_next_clip() -> None:
    grid = ClipGrid(2.0, 20.0)
    assert tuple(map(int, grid.spans_of(2.0, 4.0))) == (1, 1)
    assert tuple(map(int, grid.spans_of(2.0, 4.1))) == (1, 2)


def test_tenths_of_seconds_that_floats_cannot_hold_still_fall_into_their_clip() -> None:
    grid = ClipGrid(0.1, 10.0)
    assert [grid.index_at(i * 0.1) for i in range(100)] == list(range(100))


def test_instants_outside_fall_into_the_first_or_last_clip() -> None:
    grid = ClipGrid(2.0, 9.0)
    assert (grid.index_at(-5.0), grid.index_at(99.0)) == (0, 4)


def test_faults_name_the_value() -> None:
    with pytest.raises(UsageError, match=r"0\.0"):
        ClipGrid(0.0, 5.0)
    with pytest.raises(UsageError, match="clip 9"):
        ClipGrid(2.0, 5.0).bounds(9)
    with pytest.raises(UsageError, match="no clip"):
        ClipGrid(2.0, 0.0).index_at(1.0)
    with pytest.raises(UsageError, match="reversed"):
        ClipGrid(2.0, 5.0).seconds_of(2, 1)


@given(
    st.lists(st.tuples(st.floats(0, 500), st.floats(0.01, 500)), min_size=1), st.sampled_from([0.1, 1.5, 3.0])
)
def test_arrays_have_the_clips_that_each_number_has(spans: list[tuple[float, float]], clip: float) -> None:
    start = np.array([low for low, _ in spans])
    end = start + np.array([length for _, length in spans])
    first, last = clip_spans(start, end, clip)
    grids = [ClipGrid(clip, duration) for duration in end.tolist()]
    assert clip_counts(end, clip).tolist() == [len(grid) for grid in grids]
    each = [
        grid.spans_of(*span)
        for grid, span in zip(grids, zip(start.tolist(), end.tolist(), strict=True), strict=True)
    ]
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == each


def test_an_instant_is_found_among_clips_by_where_they_begin() -> None:
    starts = np.arange(5, dtype=np.float64) * 2.0
    assert [clip_among(starts, at) for at in (-1.0, 2.0 - INSTANT / 2, 3.9, 99.0)] == [0, 1, 1, 4]
    assert clip_among(starts, 4.0, ends=True) == 1


def _clip_arithmetic(tree: ast.AST) -> Iterator[int]:
    """Lines of code that round seconds to clips, or define the length of an instant."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="floor" | "ceil" | "floor_" | "ceil_"), args=args):
                quotients = [part for arg in args for part in ast.walk(arg) if isinstance(part, ast.BinOp)]
            case ast.BinOp(op=ast.FloorDiv()):
                quotients = [node]
            case ast.Name(id=name, ctx=ast.Store()) if "INSTANT" in name:
                yield node.lineno
                continue
            case _:
                continue
        for part in quotients:
            divisor = ast.unparse(part.right).rsplit(".", 1)[-1]
            if isinstance(part.op, ast.Div | ast.FloorDiv) and re.fullmatch(
                r"_?(clip|clip_seconds)", divisor
            ):
                yield node.lineno


@pytest.mark.slow
def test_no_other_file_turns_seconds_into_clips() -> None:
    packages = Path(__file__).resolve().parents[2]
    lines = [
        f"{path.relative_to(packages)}:{line}"
        for path in sorted(packages.glob("*/src/**/*.py"))
        if path.name != "clips.py"
        for line in _clip_arithmetic(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not lines, f"use whenabouts.clips in {', '.join(lines)}"


def test_the_check_sees_clip_arithmetic() -> None:
    source = "_INSTANT = 1e-6\nnp.floor((start + 1e-6) / clip)\nend // self.clip_seconds\nnp.ceil(rows / 2)\n"
    assert sorted(_clip_arithmetic(ast.parse(source))) == [1, 2, 3]
