"""The probability that each moment found by an example shows the same video as the example."""

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
    """`ranked` (best first) with a probability for each moment of a stream of `curves`, None for others.

    Probabilities never rise from one moment to the next.
    """
    by_stream = {answer.stream: answer for answer in answers}
    least, moments = 1.0, []
    for scored in ranked:
        probabilities = [
            curves[name].of(_cosine(scored, by_stream[name])) for name in scored.evidence if name in curves
        ]
        least = min(least, max(probabilities, default=1.0))
        moments.append(replace(scored, confidence=least if probabilities else None))
    return moments


def _cosine(scored: ScoredMoment, answer: StreamAnswer) -> float:
    """The largest cosine of the example with a clip of the moment.

    If none of the nearest clips lies in the moment, the last one's cosine stands in as an upper bound.
    """
    moment, nearest = scored.moment, answer.nearest
    if nearest is None or not len(nearest):
        return -1.0
    inside = (nearest.start < moment.end) & (nearest.end > moment.start)
    inside &= np.array([video_id == moment.video_id for video_id in nearest.video_ids])
    return float(nearest.score[inside].max() if inside.any() else nearest.score.min())
