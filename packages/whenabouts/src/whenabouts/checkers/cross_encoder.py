"""Cross-encoders of sentence-transformers as rerankers: the model reads query and document together.

Nogueira and Cho, "Passage Re-ranking with BERT" (2019), https://arxiv.org/abs/1901.04085.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whenabouts.checkers._sentence_models import CROSS, SentenceModel, class_of
from whenabouts.checkers.protocol import CheckerUnavailable
from whenabouts.checkers.reranker import Document, Reranker
from whenabouts.intake.hub import ModelCard, is_name

ORDER = 20
MODELS = (
    ModelCard("cross-encoder/ms-marco-MiniLM-L6-v2", "--rerank, English, small"),
    ModelCard("BAAI/bge-reranker-v2-m3", "--rerank, 100 languages"),
    ModelCard("Qwen/Qwen3-VL-Reranker-2B", "--rerank, frames and words"),
)
"""Entries of `whenabouts models list`."""
_BATCH = 8


def recognises(name: str) -> bool:
    """True for a folder or a downloaded model of this class, and for a hub name that is not downloaded."""
    kind = class_of(name)
    return kind == CROSS or (kind is None and is_name(name))


def open_reranker(name: str) -> Reranker:
    """The reranker of a name or folder. Raises EncoderUnavailable or CheckerUnavailable with a remedy."""
    return CrossEncoderReranker(name)


class CrossEncoderReranker(SentenceModel):
    """A cross-encoder that gives a pair one score; it reads frames and words if the model takes both."""

    reads_words = True

    def __init__(self, name: str) -> None:
        super().__init__(name, CROSS)
        if self.model.num_labels != 1:
            raise CheckerUnavailable(
                f"{self.name}: sorts pairs into {self.model.num_labels} classes; give a model with one "
                "score, such as cross-encoder/ms-marco-MiniLM-L6-v2"
            )

    def score(self, query: str, documents: Sequence[Document]) -> list[float]:
        def predicted() -> Any:
            pairs = [(self.plain(query), self.input_of(document)) for document in documents]
            return self.model.predict(pairs, batch_size=_BATCH, show_progress_bar=False)

        return self.scores_from(predicted, len(documents))
