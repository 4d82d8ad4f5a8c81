"""How the vectors of a table are compared, how its index was trained, and how hard it is searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whenabouts.types import UsageError

Distance = Literal["cosine", "dot", "l2"]
"""How vectors are compared. "l2" orders unit vectors as the cosine does, at the same cost. Its distances from
an index's 8 bits are correct; those of "cosine" come out twice as large."""

MOST_REFINE = 8


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard an index is searched: `share` of its partitions for up to `answers` hits, more for more.

    `refine` times as many candidates are scored with their stored vectors; None: with the index's 8 bits.
    """

    share: float
    answers: int
    refine: int | None

    def __post_init__(self) -> None:
        refine = 1 if self.refine is None else self.refine
        if not (0 < self.share <= 1 and self.answers >= 1 and 1 <= refine <= MOST_REFINE):
            raise UsageError(f"{self} is no effort: share in (0, 1], answers >= 1, refine 1 to {MOST_REFINE}")


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The last training of a table's vector index: number of rows and of partitions.

    `distance` is "cosine", or "dot" for vectors whose length counts. `effort` was chosen on sample queries,
    and found the share `recall` of their nearest clips (`effort.py`); None if none was chosen since then.
    `by_clips`: these queries were clips.
    """

    rows: int
    partitions: int
    distance: Distance = "cosine"
    effort: Effort | None = None
    recall: float | None = None
    by_clips: bool = False
