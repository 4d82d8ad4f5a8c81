"""How probable it is that each moment that is like an example shows the same video."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from whenabouts.confidence.alike import Alike
from whenabouts.search.moments import StreamAnswer
from whenabouts.types import ScoredMoment


def with_probabilities(
    ranked: Sequence[ScoredMoment], answers: Sequence[StreamAnswer], curves: Mapping[str, Alike]
) -> list[ScoredMoment]:
    """`ranked` (best first) with the probability of each that a stream of `curves` found; others have none.

    Probabilities never rise from a moment to the next.
    """
    by_stream = {answer.stream: answer for answer in answers}
    least, moments = 1.0, []
    for scored in ranked:
        own = [
            curves[name].of(_cosine(scored, by_stream[name])) for name in scored.evidence if name in curves
        ]
        least = min(least, max(own, default=1.0))
        moments.append(replace(scored, confidence=least if own else None))
    return moments


def _cosine(scored: ScoredMoment, answer: StreamAnswer) -> float:
    """The cosine of the example with the moment's clip that is most like it.

    Of a moment without any of the nearest clips no more is known than that it is not above the last of these.
    """
    moment, nearest = scored.moment, answer.nearest
    if nearest is None or not len(nearest):
        return -1.0
    inside = (nearest.start < moment.end) & (nearest.end > moment.start)
    inside &= np.array([video_id == moment.video_id for video_id in nearest.video_ids])
    return float(nearest.score[inside].max() if inside.any() else nearest.score.min())
