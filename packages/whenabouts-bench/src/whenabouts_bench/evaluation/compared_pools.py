"""Bound how far unjudged answers could move the difference of two runs, if judgements come from pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whenabouts_bench.evaluation.metrics import means_of

if TYPE_CHECKING:
    from whenabouts_bench.evaluation.evaluate import Evaluation

Limits = tuple[float, float]


def possible_difference(system: Evaluation, baseline: Evaluation, metric: str) -> Limits:
    """Bounds of the difference of two runs' means by a metric, over all grades of unjudged answers.

    For measures of hits (R@K, mIoU) exact under the assumptions of `bounds`: an answer of both runs with the
    same borders (VR: the same video) is right in both or in neither. For other measures each run is bounded
    separately, so the bounds are valid but may be loose.
    """
    first, second = system.unjudged, baseline.unjudged
    assert first is not None and second is not None
    column, opposite = system.metrics.index(metric), baseline.metrics.index(metric)
    place = {query_id: number for number, query_id in enumerate(baseline.query_ids)}
    order = [place[query_id] for query_id in system.query_ids]
    least = first.lower[:, column] - second.upper[order, opposite]
    greatest = first.upper[:, column] - second.lower[order, opposite]
    mine, theirs = first.open.get(column, {}), second.open.get(opposite, {})
    for row, query_id in enumerate(system.query_ids):
        given, answered = mine.get(query_id, set()), theirs.get(query_id, set())
        if given & answered:
            value, other = system.values[row, column], baseline.values[order[row], opposite]
            # All wrong, a shared one right, or one right that only one run gives.
            greatest[row] = max(value - other, 0.0, 1 - other if given - answered else 0.0)
            least[row] = min(value - other, 0.0, value - 1 if answered - given else 0.0)
    low, high = means_of(np.stack([least, greatest], axis=1)).tolist()
    return low, high
