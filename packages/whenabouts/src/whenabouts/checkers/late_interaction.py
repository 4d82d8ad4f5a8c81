"""Late interaction as a reranker: compares each token of the query with its most similar document token.

Khattab and Zaharia, "ColBERT" (SIGIR 2020), https://arxiv.org/abs/2004.12832. A name opens a multi-vector
model of sentence-transformers. `tokens:NAME` takes the token vectors of a sentence encoder, although these
were not trained for late interaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whenabouts.checkers._sentence_models import LATE, SentenceModel, class_of
from whenabouts.checkers.protocol import CheckerUnavailable
from whenabouts.checkers.reranker import Document, Reranker
from whenabouts.encoders import EncoderUnavailable, TokenEncoder, encode_tokens, open_text_encoder
from whenabouts.encoders.protocol import TextEncoder, token_fingerprint, unit_length
from whenabouts.intake.hub import ModelCard

ORDER = 10
MODELS = (ModelCard("answerdotai/answerai-colbert-small-v1", "--rerank, English, late interaction"),)
"""Entries of `whenabouts models list`."""
_BATCH = 8
_PREFIX = "tokens:"


def recognises(name: str) -> bool:
    """True for `tokens:NAME`, and for a folder or a downloaded model of this class."""
    return name.startswith(_PREFIX) or class_of(name) == LATE


def open_reranker(name: str) -> Reranker:
    """The reranker of that name or folder. Raises EncoderUnavailable or CheckerUnavailable with a remedy."""
    if not name.startswith(_PREFIX):
        return MultiVectorReranker(name)
    encoder = open_text_encoder(name.removeprefix(_PREFIX))
    if not isinstance(encoder, TokenEncoder):
        raise CheckerUnavailable(f"{name}: this encoder gives no token vectors; give {_PREFIX}minilm")
    return TokenReranker(encoder)


class MultiVectorReranker(SentenceModel):
    """A multi-vector model; a score is the similarity that the model was trained with."""

    def __init__(self, name: str) -> None:
        super().__init__(name, LATE)
        # Without a chat template, models of document pages (ColPali) read every text as a query.
        self.reads_words = self.takes_chats or not self.sees

    def score(self, query: str, documents: Sequence[Document]) -> list[float]:
        def similarities() -> list[float]:
            options = {"batch_size": _BATCH, "show_progress_bar": False}
            queries = self.model.encode_query([self.plain(query)], **options)
            moments = self.model.encode_document([*map(self.input_of, documents)], **options)
            similarity = self.model.similarity(queries, moments)
            rows: list[float] = similarity[0].float().cpu().tolist()
            return rows

        return self.scores_from(similarities, len(documents))


class TokenReranker:
    """A sentence encoder; a score is the mean, over the query's tokens, of the greatest document cosine."""

    reads_words, sees = True, False

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self.name = f"{_PREFIX}{encoder.name.rpartition('/')[2]}"

    @property
    def fingerprint(self) -> str:
        return f"maxsim {token_fingerprint(self._encoder)}"

    def score(self, query: str, documents: Sequence[Document]) -> list[float]:
        try:
            rows = encode_tokens(self._encoder, [query, *(document.words for document in documents)])
        except EncoderUnavailable as error:
            raise CheckerUnavailable(str(error)) from error
        tokens, *others = map(unit_length, rows)
        return [float(np.mean((tokens @ other.T).max(axis=1))) for other in others]
