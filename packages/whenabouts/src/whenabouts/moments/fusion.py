"""Score fusion: adds the full-text score and the vector score of each clip on one scale.

    fused = bm25 + COSINE_WEIGHT * (cosine - level) / spread

BM25 is a sum of weights of evidence: each word of the query found near the clip adds at most some 2.2 times
the logarithm of its rarity. The scale of a cosine depends on the encoder (a CLIP's true pictures score 0.3, a
MiniLM's true sentences 0.6). So the cosine is standardised by the mean and the standard deviation of
*unrelated* sentences in the same stream (`Scale`), which makes every stream's curve independent of its
encoder. A stream of pictures uses the formula without BM25.

Measured choices: hit@1 / hit@5 in percent of the 328 titles for choosing settings ("chosen on" in
`benchmarks/results/spoken_choices.json`). This formula has 54.6 / 78.7. Differences below two points are
within chance.

- The sum of scores, not of ranks (51.2 / 77.7): ranks do not say how far the best is ahead.
- One scale for all queries. A z-score per query finds as much (54.9 / 78.7), but with one scale a query
  without an answer scores low, which confidence needs.
- A weight of 1.9: from 1 to 2.5 all are as good (53.7 to 54.0 / 78.0 to 78.4), 0.5 is not (53.0 / 75.9).
- No third term: scores of the recording's title (54.0 / 75.3) or of the whole recording (53.4 / 77.1) do not
  help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from whenabouts.moments.zero_shot import finite_row
from whenabouts.overlap import Floats
from whenabouts.types import UsageError

COSINE_WEIGHT = 1.9
"""BM25 points (log odds) per standard deviation of the cosine."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The mean and standard deviation (> 0) of the cosines of unrelated sentences in a stream.

    Each is one number, or (n,) for n clips if their groups differ. Raises UsageError for invalid numbers.
    """

    level: float | Floats
    spread: float | Floats

    def __post_init__(self) -> None:
        if not (np.isfinite(self.level).all() and np.isfinite(self.spread).all() and np.all(self.spread > 0)):
            raise UsageError(
                f"level {self.level!r} and spread {self.spread!r} are not a scale; "
                "both must be finite and the spread above 0"
            )

    def to_json(self) -> dict[str, float]:
        """A scale of one number each, as calibration stores it; one of (n,) is never stored."""
        return {"level": float(self.level), "spread": float(self.spread)}

    @classmethod
    def from_json(cls, value: Mapping[str, float]) -> Scale:
        return cls(float(value["level"]), float(value["spread"]))


def measure_scale(cosines: ArrayLike) -> Scale:
    """The scale of a stream from cosines (any shape) of unrelated sentences and its clips.

    A few hundred clips are enough. Until a corpus is measured, the cosines of one query with its candidates
    can stand in, because few candidates are true hits. If all cosines are equal, the spread is 1.
    Raises UsageError for no cosines or non-finite values.

    >>> measure_scale([0.0, 0.2])
    Scale(level=0.1, spread=0.1)
    """
    values = np.asarray(cosines, dtype=np.float64)
    if not values.size or not np.isfinite(values).all():
        raise UsageError(f"a scale needs one cosine or more, all finite; {values.size} were given")
    spread = float(values.std())
    # Equal numbers may differ by rounding.
    return Scale(float(values.mean()), spread if spread > 1e-6 else 1.0)


def fuse(cosine: ArrayLike | None, bm25: ArrayLike | None, scale: Scale | None = None) -> Floats:
    """The fused score of N clips, (N,) float64: higher is better, 0 is no evidence.

    - `cosine` (N,): the cosine of the query with each clip; None if the stream has no vectors.
    - `bm25` (N,): the BM25 score of each clip, 0 without a match; None if the stream has no words.
    - `scale`: the scale of the stream's cosines; None measures it from the given cosines.

    Raises UsageError if both are missing, lengths differ, or values are not finite.
    """
    lexical = None if bm25 is None else finite_row("bm25", bm25)
    if cosine is None:
        if lexical is None:
            raise UsageError("there is nothing to fuse: give cosines, BM25 scores, or both")
        return lexical.copy()
    semantic = finite_row("cosine", cosine)
    if lexical is not None and lexical.shape != semantic.shape:
        raise UsageError(f"{semantic.size} cosines and {lexical.size} BM25 scores; both must be one per clip")
    if not semantic.size:
        return semantic.copy()
    scale = scale or measure_scale(semantic)
    raised = COSINE_WEIGHT * (semantic - scale.level) / scale.spread
    return raised if lexical is None else lexical + raised
