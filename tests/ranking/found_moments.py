"""Moments as plain tuples, for tests that find them by loops of their own."""

from __future__ import annotations

from typing import Any

from whenabouts.product.search_result import SearchResult


def spans_of(result: SearchResult) -> list[tuple[str, float, float]]:
    """(video, start, end) of an answer's moments."""
    return [(one.moment.video_id, one.moment.start, one.moment.end) for one in result.moments]


def distinct(found: list[tuple[Any, ...]], k: int) -> list[tuple[Any, ...]]:
    """The first k of (score, video, start, end) less those that share over half with a better one."""
    kept: list[tuple[Any, ...]] = []
    for one in found:
        if all(one[1] != other[1] or _iou(one, other) <= 0.5 for other in kept):
            kept.append(one)
    return kept[:k]


def _iou(a: tuple[Any, ...], b: tuple[Any, ...]) -> float:
    shared = max(0.0, min(a[3], b[3]) - max(a[2], b[2]))
    return float(shared / (a[3] - a[2] + b[3] - b[2] - shared))
