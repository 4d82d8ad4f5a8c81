"""Rows of a run in order: what is sorted in part is what sorting all would give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.intake.files import Losses
from whenabouts_bench.formats.runs import RunBlock, RunBlockBuilder, best_first, in_order_of_scores

rows = st.lists(
    st.tuples(
        st.sampled_from(["b", "a", "ab", "c"]),
        st.sampled_from([0.0, 1.0, float("nan")]),
        st.integers(-2, 2).map(float),
    ).map(lambda row: (row[0], row[1], row[1] + 2, row[2])),
    max_size=6,
)
blocks = st.lists(rows, max_size=4)


def built(lists: list[list[tuple[str, float, float, float]]]) -> RunBlock:
    builder = RunBlockBuilder()
    for number, made in enumerate(lists):
        builder.add(f"q{number}", made)
    return builder.block()


def content(block: RunBlock) -> list[tuple[str, float, float, float]]:
    start, end = np.nan_to_num(block.start, nan=99.0), np.nan_to_num(block.end, nan=99.0)
    names = [block.video_ids[code] for code in block.video.tolist()]
    return list(zip(names, start.tolist(), end.tolist(), block.score.tolist(), strict=True))


@pytest.mark.slow
@given(blocks)
def test_rows_are_sorted_by_score_then_video_start_and_end(
    lists: list[list[tuple[str, float, float, float]]],
) -> None:
    block = built(lists)
    found = best_first(block)
    expected = []
    for number in range(len(block)):
        part = content(block)[block.offsets[number] : block.offsets[number + 1]]
        expected += sorted(part, key=lambda row: (-row[3], row[:3]))
    assert content(found) == expected
    assert found.query_ids == block.query_ids and found.offsets is block.offsets


def test_rows_in_order_are_not_copied() -> None:
    block = built([[("v", 0.0, 1.0, 3.0), ("u", 0.0, 1.0, 2.0)], [("w", 0.0, 1.0, 9.0)]])
    assert best_first(block) is block


def test_scores_that_tie_are_not_said_to_contradict_their_order() -> None:
    tied = built([[("v", 4.0, 5.0, 0.5), ("v", 2.0, 3.0, 0.5)], [("v", 1.0, 2.0, 0.5), ("v", 2.0, 3.0, 0.5)]])
    losses = Losses(None)  # type: ignore[arg-type]
    assert in_order_of_scores(tied, losses).score.tolist() == [2.0, 1.0, 0.5, 0.5]
    assert losses.counts == {
        "queries had equal scores that leave their order open; they are written with the scores n .. 1": 1
    }


@pytest.mark.slow
@given(blocks)
def test_scores_for_an_order_give_that_order_back(
    lists: list[list[tuple[str, float, float, float]]],
) -> None:
    block = built(lists)
    scored = in_order_of_scores(block, Losses(None))  # type: ignore[arg-type]
    assert [row[:3] for row in content(best_first(scored))] == [row[:3] for row in content(block)]
    kept = best_first(block)
    if content(kept) == content(block):
        assert scored.score.tolist() == block.score.tolist()
    assert replace(scored, score=block.score).video is block.video
