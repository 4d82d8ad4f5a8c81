from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.encoders.protocol import unit_length
from whenabouts.types import Query
from whenabouts_bench.relevance.phrases import Phrases


class WordEncoder:
    """A sentence's vector is the sum of fixed word vectors; counts the encoded texts."""

    name = "words"
    dimension = 48
    fingerprint = "words:1"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += texts
        rows = [np.sum([_vector(word) for word in text.lower().strip(".").split()], axis=0) for text in texts]
        return unit_length(np.array(rows))


def _vector(word: str) -> NDArray[np.float64]:
    return np.random.default_rng(zlib.crc32(word.encode())).normal(size=48)


class PairExtractor:
    """Verb phrases are the last two words and the last one; the clause is the first with the last."""

    name = "pairs"
    fingerprint = "pairs:1"

    def phrases(self, texts: Sequence[str]) -> list[Phrases]:
        words = [text.lower().strip(".").split() for text in texts]
        return [Phrases((" ".join(one[-2:]), one[-1]), (one[0],), (f"{one[0]} {one[-1]}",)) for one in words]


@pytest.fixture
def encoder() -> WordEncoder:
    return WordEncoder()


@pytest.fixture
def extractor() -> PairExtractor:
    return PairExtractor()


def made_queries(count: int, seed: int = 0) -> list[Query]:
    """Queries of three to six words from a small vocabulary; every fifth is a duplicate."""
    draw = np.random.default_rng(seed)
    words = ["man", "dog", "sits", "runs", "opens", "door", "red", "box", "holds", "eats", "cup", "bread"]
    texts: list[str] = []
    for number in range(count):
        if number % 5 == 4:
            texts.append(texts[int(draw.integers(number))])
        else:
            texts.append(" ".join(draw.choice(words, int(draw.integers(3, 7)))))
    return [Query(f"q{number}", text) for number, text in enumerate(texts)]


@pytest.fixture
def queries() -> list[Query]:
    return made_queries(90)
