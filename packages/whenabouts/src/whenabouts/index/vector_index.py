"""Facts about a table's vector index: how vectors are compared, its training, and its search effort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whenabouts.types import UsageError

Distance = Literal["cosine", "dot", "l2"]
"""How vectors are compared. "l2" orders unit vectors as the cosine does, at the same cost. Distances computed
from an index's 8 bits are correct for "l2", but twice as large as they should be for "cosine"."""

MOST_REFINE = 8


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of an index is searched: `share` of its partitions for up to `answers` hits, else more.

    `refine` times as many candidates as hits are scored with their stored vectors; None: candidates are
    scored with the index's 8 bits. Raises UsageError for numbers out of range.
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

    `effort` was chosen on sample queries, and found the share `recall` of their nearest clips (`effort.py`);
    None if none was chosen since the training. `by_clips`: the sample queries were clips.
    """

    rows: int
    partitions: int
    distance: Distance = "cosine"
    effort: Effort | None = None
    recall: float | None = None
    by_clips: bool = False
