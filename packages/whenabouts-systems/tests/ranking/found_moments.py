"""Moments as plain tuples, for tests that find them by loops of their own."""

from __future__ import annotations

from typing import Any

from whenabouts.search.search_result import SearchResult


def spans_of(result: SearchResult) -> list[tuple[str, float, float]]:
    """(video, start, end) of an answer's moments."""
    return [(one.moment.video_id, one.moment.start, one.moment.end) for one in result.moments]


def distinct(found: list[tuple[Any, ...]], k: int) -> list[tuple[Any, ...]]:
    """The first k of (score, video, start, end) less those that share time with a better one."""
    kept: list[tuple[Any, ...]] = []
    for one in found:
        if all(one[1] != other[1] or one[3] <= other[2] or other[3] <= one[2] for other in kept):
            kept.append(one)
    return kept[:k]
