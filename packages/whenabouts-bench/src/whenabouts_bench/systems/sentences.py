"""Rank passages of transcripts by the cosine of their sentence vectors with the query's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whenabouts.encoders import encode_passages, open_text_encoder
from whenabouts.encoders.protocol import TextEncoder
from whenabouts_bench.harness.system import BenchQuery, BenchVideo
from whenabouts_bench.systems._passages import (
    PASSAGE_SECONDS,
    PassageRanking,
    PassageRows,
    number_setting,
    passages_of,
    with_seconds,
)

NAME = "sentences"
SUMMARY = "sentence vectors over transcripts; --set encoder=NAME, any sentence-transformers:NAME too"


class Sentences:
    """Ranks passages by the cosine with the query."""

    def __init__(self, encoder: TextEncoder, seconds: float) -> None:
        self.name, self.revision = f"{NAME} {encoder.name}", with_seconds(encoder.fingerprint[:12], seconds)
        self._encoder, self._seconds = encoder, seconds

    def index(self, videos: Sequence[BenchVideo]) -> None:
        """Encode passages. Raises UsageError without transcripts."""
        passages = passages_of(videos, self._seconds)
        self._ranking = PassageRanking(passages)
        self._vectors = encode_passages(self._encoder, [passage.text for passage in passages])

    def search(self, queries: Sequence[BenchQuery], k: int) -> list[PassageRows]:
        vectors = self._encoder.encode_text([query.text for query in queries])
        return [
            self._ranking.best(query, np.asarray(self._vectors @ vector, np.float64), k)
            for query, vector in zip(queries, vectors, strict=True)
        ]

    def index_bytes(self) -> int:
        """Bytes of the vectors."""
        return int(self._vectors.nbytes)


def make(encoder: str | None = None, seconds: str | float = PASSAGE_SECONDS) -> Sentences:
    """The system. Raises EncoderUnavailable."""
    return Sentences(open_text_encoder(encoder), number_setting("seconds", seconds))
