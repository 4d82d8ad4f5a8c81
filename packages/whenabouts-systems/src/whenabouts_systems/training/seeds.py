"""Seeds that depend on several numbers, and arrays of indices."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def seed_of(*numbers: int) -> int:
    """A seed that changes altogether when one of the numbers does."""
    text = " ".join(map(str, numbers)).encode()
    # PyTorch takes seeds below 2**63 everywhere.
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1
