"""Stands for the encoder of queries: what is asked is a number, and its vectors are those of a list."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


class QueryTokens:
    """A text encoder (`whenabouts.encoders.TextEncoder`) for queries "0", "1", ..."""

    name, fingerprint = "generated", "generated:1"

    def __init__(self, tokens: Sequence[Matrix]) -> None:
        """`tokens`: for each query (L, D)."""
        self._tokens = tokens
        self.dimension = tokens[0].shape[1]

    def encode_text(self, texts: Sequence[str]) -> Matrix:
        """(Q, D): the mean of each query's tokens, of unit length."""
        means = np.stack([one.mean(0) for one in self.encode_tokens(texts)])
        unit: Matrix = means / np.linalg.norm(means, axis=1, keepdims=True)
        return unit

    def encode_tokens(self, texts: Sequence[str]) -> list[Matrix]:
        """(L, D) for each number."""
        return [self._tokens[int(text)] for text in texts]
