"""A whenabouts corpus as a system of the package mteb (`SearchProtocol`, mteb 2).

mteb's tasks on moments cut videos into chunks, which are the documents. The corpus holds the whole videos,
and a chunk has the score of the best moment that overlaps it:

    import mteb
    from whenabouts import Corpus
    from whenabouts_bench.mteb_search import CorpusSearch

    chunks = {"lecture_0001": ("lecture", 0.0, 30.0), "lecture_0002": ("lecture", 30.0, 60.0)}
    mteb.evaluate(CorpusSearch(Corpus("my.corpus"), chunks), tasks)

`pip install 'whenabouts-bench[mteb]'`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from whenabouts.corpus import Corpus
from whenabouts.types import UsageError
from whenabouts.version import __version__

Chunk = tuple[str, float, float]
"""video id, start, end in seconds"""

MOMENTS = 200
"""Moments to search for each query; several may lie in one chunk."""


class CorpusSearch:
    """A corpus as a search system of mteb: `index` reads a task's chunks, `search` ranks them.

    `chunks` is document id -> part of a video of the corpus.
    """

    def __init__(self, corpus: Corpus, chunks: Mapping[str, Chunk], moments: int = MOMENTS) -> None:
        self._corpus, self._chunks, self._moments = corpus, chunks, moments
        self._ids: dict[str, list[str]] = {}
        self._spans: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = {}

    @property
    def mteb_model_meta(self) -> Any:
        """The name and version that mteb writes into results."""
        from mteb.models import ModelMeta

        return ModelMeta.create_empty({"name": "whenabouts/whenabouts", "revision": __version__})

    def index(self, corpus: Any, **_: Any) -> None:
        """Read the documents (rows with an id) of a task.

        Raises UsageError for a document that is not in `chunks`, and for a video that is not in the corpus.
        """
        in_corpus = {record.video_id for record in self._corpus.records()}
        by_video: dict[str, list[str]] = {}
        for document in map(str, corpus["id"]):
            if document not in self._chunks:
                raise UsageError(f"document {document!r} is not in chunks: give its video, start and end")
            video_id = self._chunks[document][0]
            if video_id not in in_corpus:
                raise UsageError(f"document {document!r}: video {video_id!r} is not in the corpus")
            by_video.setdefault(video_id, []).append(document)
        self._ids = by_video
        self._spans = {
            video_id: np.array([self._chunks[document][1:] for document in documents], np.float64)
            for video_id, documents in by_video.items()
        }

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Mapping[str, list[str]] | None = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Query id -> the best `top_k` documents with their scores, only from `top_ranked` if given."""
        return {
            str(query_id): self._documents(text, top_k, None if top_ranked is None else top_ranked[query_id])
            for query_id, text in zip(queries["id"], queries["text"], strict=True)
        }

    def _documents(self, text: str, top_k: int, allowed: list[str] | None) -> dict[str, float]:
        within = list(self._ids) if allowed is None else sorted({self._chunks[name][0] for name in allowed})
        if not within:
            return {}
        moments = self._corpus.search(text, k=self._moments, within=within, literal="all").moments
        scores: dict[str, float] = {}
        for moment in moments:  # best first
            spans = self._spans[moment.video_id]
            overlaps = (spans[:, 0] < moment.end) & (moment.start < spans[:, 1])
            for place in np.flatnonzero(overlaps).tolist():
                scores.setdefault(self._ids[moment.video_id][place], float(moment.score))
        if allowed is not None:
            scores = {name: scores[name] for name in scores.keys() & set(allowed)}
        best = sorted(scores, key=lambda name: (-scores[name], name))[:top_k]
        return {name: scores[name] for name in best}
