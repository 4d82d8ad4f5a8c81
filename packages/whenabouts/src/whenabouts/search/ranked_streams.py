"""Moments of several streams in one order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from whenabouts.confidence.chance import Chance
from whenabouts.types import ScoredMoment

# Moments of different streams that share this much (IoU) are one moment with two reasons.
_SAME_MOMENT = 0.5


ChanceOf = Callable[[str, str], Chance | None]
"""What unrelated sentences score in a stream (first) among the videos like one (second, by its id)."""


def ranked(moments: Iterable[ScoredMoment], chance_of: ChanceOf, streams: int) -> list[ScoredMoment]:
    """The moments of `streams` streams, as each scores them (`StreamAnswer.scored`), in one order.

    Scores become surprises among unrelated sentences (`Chance.surprise`), which puts streams, and groups of
    videos within a stream, on one scale. A moment that several streams have gets the sum of its surprises,
    and the span of the stream that is surer. With m streams searched, an unrelated sentence has m chances,
    so the percentile is (1 - exp(-surprise)) ** m. A moment without a chance has no percentile, and is ranked
    by another chance of its stream.
    """
    scored = [(next(iter(moment.evidence)), moment) for moment in moments]
    chances = {(name, moment.video_id): chance_of(name, moment.video_id) for name, moment in scored}
    others = {name: chance for (name, _), chance in chances.items() if chance is not None}
    without = {id for id, chance in chances.items() if chance is None}
    by_surprise = [
        (name, _surprising(moment, chances[name, moment.video_id] or others.get(name)))
        for name, moment in scored
    ]
    by_surprise.sort(key=lambda item: item[1].sort_key)
    merged: list[ScoredMoment] = []
    for name, moment in by_surprise:
        twin = _twin(merged, moment, name) if streams > 1 else None
        if twin is None:
            merged.append(moment)
        else:
            merged[twin] = _joined(merged[twin], moment)
    merged.sort(key=lambda moment: moment.sort_key)
    return [
        moment
        if any((name, moment.video_id) in without for name in moment.evidence)
        else replace(moment, chance_percentile=(-math.expm1(-moment.score)) ** streams)
        for moment in merged
    ]


def _surprising(scored: ScoredMoment, chance: Chance | None) -> ScoredMoment:
    return replace(scored, score=chance.surprise(scored.score)) if chance else scored


def _twin(ranked: Sequence[ScoredMoment], scored: ScoredMoment, stream: str) -> int | None:
    """Where another stream already has the same moment."""
    for place, other in enumerate(ranked):
        if stream not in other.evidence and other.moment.iou(scored.moment) >= _SAME_MOMENT:
            return place
    return None


def _joined(first: ScoredMoment, second: ScoredMoment) -> ScoredMoment:
    """One moment of two streams; `first` is the surer and keeps its span."""
    return replace(
        first,
        score=first.score + max(0.0, second.score),
        evidence={**first.evidence, **second.evidence},
        text=first.text or second.text,
    )
