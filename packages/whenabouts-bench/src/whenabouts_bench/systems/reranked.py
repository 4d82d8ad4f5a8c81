"""Rank the best passages of BM25 again, by a cross-encoder that reads query and passage together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whenabouts.encoders import on_torch, weight_files
from whenabouts.encoders.plain_text import plain_texts, special_tokens
from whenabouts.encoders.protocol import EncoderSettings
from whenabouts_bench.harness.system import BenchQuery, BenchVideo
from whenabouts_bench.systems import bm25
from whenabouts_bench.systems._passages import PassageRows, whole_setting

NAME = "reranked"
SUMMARY = "BM25, ranked again; --set model=NAME of any CrossEncoder of sentence-transformers, depth=100"

_EXTRA = "sentence-transformers"


class Reranked:
    """Scores each of the best passages with its query; passages further down stay behind, in their order."""

    def __init__(self, name: str, model: Any, depth: int) -> None:
        self.name, self.revision = f"bm25 + {name.rpartition('/')[2]}", f"depth-{depth}"
        self._model, self._depth = model, depth
        self._special = special_tokens(model)
        self._retriever = bm25.make()

    def index(self, videos: Sequence[BenchVideo]) -> None:
        """Index the transcripts for BM25. Raises UsageError without transcripts."""
        self._retriever.index(videos)
        self._texts = self._retriever.texts()

    def search(self, queries: Sequence[BenchQuery], k: int) -> list[PassageRows]:
        retrieved = self._retriever.search(queries, max(k, self._depth))
        return [self._rank(query, rows)[:k] for query, rows in zip(queries, retrieved, strict=True)]

    def _rank(self, query: BenchQuery, rows: PassageRows) -> PassageRows:
        best, others = rows[: self._depth], rows[self._depth :]
        if not best:
            return []
        question, *texts = plain_texts([query.text, *(self._texts[row[:3]] for row in best)], self._special)
        scores = self._model.predict([(question, text) for text in texts]).tolist()
        scored = [(*row[:3], float(score)) for row, score in zip(best, scores, strict=True)]
        scored.sort(key=lambda row: -row[3])
        least = scored[-1][3]
        return [*scored, *((*row[:3], least - rank) for rank, row in enumerate(others, 1))]


def make(model: str, depth: str | int = 100, device: str | None = None) -> Reranked:
    """The system, with a model by hub name or folder. Raises EncoderUnavailable."""
    first = whole_setting("depth", depth)
    weight_files.require(model, ("sentence_transformers",), _EXTRA)
    folder = weight_files.locate(model)
    with weight_files.loading(model, _EXTRA):
        from sentence_transformers import CrossEncoder

        with on_torch.quiet_transformers():
            loaded = CrossEncoder(
                str(folder.path),
                device=str(on_torch.choose_device(EncoderSettings(device=device))),
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
    return Reranked(folder.name, loaded, first)
