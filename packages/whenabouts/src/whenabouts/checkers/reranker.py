"""The interface of rerankers, the search options for them, and a cache of their scores."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

_MOST_KEPT = 20_000
"""Greatest number of cached scores."""


@dataclass(frozen=True, slots=True)
class Document:
    """A moment as a reranker reads it: the words in it ("": none), and a frame (JPEG)."""

    words: str
    picture: bytes | None = None


class Reranker(Protocol):
    """A model that scores documents against a query.

    `name` is shown to users and has no folder in it; `fingerprint` identifies kind, model and weights.
    `reads_words`: it reads the words of a document; `sees`: it reads the frame.
    """

    reads_words: bool
    sees: bool

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    def score(self, query: str, documents: Sequence[Document]) -> list[float]:
        """A score for each document; higher is better.

        Scores of one query are compared across calls, so none may depend on the other documents.

        Raises CheckerError if the model cannot score them.
        """


@dataclass(frozen=True)
class RerankChoice:
    """Search options for a reranker that puts the first moments in order (`rerank.py`).

    `rerank` is a reranker, or its name; it may take about `rerank_seconds` seconds.
    """

    rerank: Reranker | str | None = None
    rerank_seconds: float = 10.0


class KeepsScores:
    """A reranker with a cache of its scores by query and document; safe in several threads."""

    def __init__(self, reranker: Reranker) -> None:
        self._reranker, self._lock = reranker, threading.Lock()
        self._kept: OrderedDict[bytes, float] = OrderedDict()
        self.name = reranker.name
        self.reads_words, self.sees = reranker.reads_words, reranker.sees

    @property
    def fingerprint(self) -> str:
        return self._reranker.fingerprint

    def score(self, query: str, documents: Sequence[Document]) -> list[float]:
        keys = [_key(query, document) for document in documents]
        with self._lock:
            scores = {key: self._kept[key] for key in keys if key in self._kept}
        missing = {key: document for key, document in zip(keys, documents, strict=True) if key not in scores}
        if missing:
            scores |= zip(missing, self._reranker.score(query, list(missing.values())), strict=True)
        with self._lock:
            for key in keys:
                self._kept[key] = scores[key]
                self._kept.move_to_end(key)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return [scores[key] for key in keys]


def _key(query: str, document: Document) -> bytes:
    digest = blake2b(digest_size=16)
    for part in (query.encode(errors="surrogatepass"), document.words.encode(errors="surrogatepass")):
        digest.update(len(part).to_bytes(8, "little") + part)
    digest.update(document.picture or b"")
    return digest.digest()
