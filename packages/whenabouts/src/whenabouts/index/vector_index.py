"""How the vectors of a table are compared, and how its index was trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Distance = Literal["cosine", "dot", "l2"]
"""How vectors are compared. "l2" orders unit vectors as the cosine does, at the same cost. Its distances from
an index's 8 bits are correct; those of "cosine" come out twice as large."""


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The last training of a table's vector index: number of rows and of partitions.

    `distance` is "cosine", or "dot" for vectors whose length counts.
    """

    rows: int
    partitions: int
    distance: Distance = "cosine"
