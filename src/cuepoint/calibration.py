"""What scores mean on one corpus: measured by asking it unrelated sentences, kept with it.

Two things are measured for each stream. The *scale* of its encoder: which cosines unrelated sentences have
with its clips, so that a cosine can be told in spreads above chance and added to what full text scores.
Then *chance*: what such sentences score best in the whole way of a query, so that a score can be told as a
confidence. Both are measured again once a stream has changed by a tenth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuepoint.background import SENTENCES
from cuepoint.confidence import Chance, fit_chance
from cuepoint.index.store import Store
from cuepoint.models.fusion import Scale, measure_scale
from cuepoint.search import Encodes, Question, Searcher

# Share of a stream's clips that may be new before it is measured again.
REMEASURED_AT = 0.1
# Clips that unrelated sentences are compared with; more change the second digit no more.
_SAMPLED_CLIPS = 20_000
_SAMPLED_VIDEOS = 100


@dataclass(frozen=True, slots=True)
class Calibration:
    """Scales and chances of the streams that have been measured.

    `clips` is how many clips each stream had then, also where they were too few to say anything.
    """

    scales: Mapping[str, Scale] = field(default_factory=dict)
    chances: Mapping[str, Chance] = field(default_factory=dict)
    clips: Mapping[str, int] = field(default_factory=dict)


def load(store: Store) -> Calibration:
    """What has been measured on a corpus so far."""
    facts = {name: store.fact(f"calibration:{name}") or {} for name in store.streams}
    return Calibration(
        {name: Scale.from_json(fact["scale"]) for name, fact in facts.items() if "scale" in fact},
        {name: Chance.from_json(fact["chance"]) for name, fact in facts.items() if "chance" in fact},
        {name: fact["clips"] for name, fact in facts.items() if "clips" in fact},
    )


def is_due(store: Store, known: Calibration) -> bool:
    """Whether a stream has changed by more than `REMEASURED_AT` since it was measured, or never was."""
    return any(
        abs(count - known.clips.get(name, 0)) > REMEASURED_AT * known.clips.get(name, 0)
        for name, count in _counts(store).items()
    )


def measure(
    store: Store,
    encoders: Mapping[str, Encodes],
    sentences: Sequence[str] = SENTENCES,
    told: Callable[[float], None] = lambda share: None,
) -> Calibration:
    """Measure all streams of a corpus and keep the result with it; `told` hears which share is done."""
    banks = {name: encoder.encode_text(sentences) for name, encoder in encoders.items()}
    scales = {name: scale for name, bank in banks.items() if (scale := _scale(store, name, bank)) is not None}
    searcher = Searcher(store, encoders, scales, {})
    best: dict[str, list[float]] = {name: [] for name in store.streams}
    for row, sentence in enumerate(sentences):
        told(row / len(sentences))
        question = Question(sentence, {name: bank[row] for name, bank in banks.items()})
        for name, scores in best.items():
            moments = searcher.find(name, question).moments
            if len(moments):
                scores.append(float(moments.score[0]))
    chances = {name: chance for name, scores in best.items() if (chance := fit_chance(scores)) is not None}
    counts = _counts(store)
    for name, count in counts.items():
        store.put_fact(f"calibration:{name}", _fact(scales.get(name), chances.get(name), count))
    return Calibration(scales, chances, counts)


def _counts(store: Store) -> dict[str, int]:
    """Clips of each stream."""
    return {name: stats.clips for name, stats in store.stats().streams.items()}


def _scale(store: Store, stream: str, bank: NDArray[np.float32]) -> Scale | None:
    """The scale of a stream's encoder, from clips of videos all over the corpus."""
    ids = [record.video_id for record in store.videos() if stream in record.streams]
    step = max(1, len(ids) // _SAMPLED_VIDEOS)
    vectors = store.clips_of(stream, ids[::step][:_SAMPLED_VIDEOS]).vectors
    if not len(vectors):
        return None
    vectors = vectors[:: max(1, len(vectors) // _SAMPLED_CLIPS)]
    return measure_scale(vectors @ bank.T)


def _fact(scale: Scale | None, chance: Chance | None, clips: int) -> dict[str, Any]:
    fact: dict[str, Any] = {"clips": clips}
    if scale is not None:
        fact["scale"] = scale.to_json()
    if chance is not None:
        fact["chance"] = chance.to_json()
    return fact
