"""The reranker and the rewriter of a server. Its owner chooses them; clients only turn them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from whenabouts.checkers import CheckerError, Reranker, Rewriter, open_reranker, open_rewriter
from whenabouts.checkers.reranker import Document
from whenabouts.server.errors import ServerError
from whenabouts.server.paths import Paths
from whenabouts.server.schemas import SearchRequest
from whenabouts.server.settings import Settings

_HIDDEN = "the model gave no usable answer"


@dataclass(frozen=True, slots=True)
class AnswerModels:
    """The reranker and the rewriter that the server's owner chose; None: not chosen."""

    reranker: Reranker | None = None
    rewriter: Rewriter | None = None

    @classmethod
    def of(cls, settings: Settings, paths: Paths) -> AnswerModels:
        """The models of the settings, opened. Raises CheckerUnavailable, and UsageError without consent."""
        rewriter = (
            open_rewriter(settings.rewrite, send_query=settings.send_query) if settings.rewrite else None
        )
        reranker = open_reranker(settings.rerank) if settings.rerank else None

        def hidden(text: str) -> str:
            return paths.unless_hidden(text, _HIDDEN)

        return cls(
            None if reranker is None else _QuietReranker(reranker, hidden),
            None if rewriter is None else _QuietRewriter(rewriter, hidden),
        )

    def options_for(self, search: SearchRequest) -> dict[str, Any]:
        """The models that a search asks for, as its options. Raises ServerError without model or words."""
        if search.rerank and self.reranker is None:
            problem = "this server does not rerank moments; start it with --rerank to allow that"
            raise ServerError(404, "no_reranker", problem, field="rerank")
        if search.rewrite and self.rewriter is None:
            problem = "this server does not rewrite queries; start it with --rewrite to allow that"
            raise ServerError(404, "no_rewriter", problem, field="rewrite")
        for name in ("rerank", "rewrite"):
            if getattr(search, name) and (search.query is None or search.all):
                problem = "reranking and rewriting need a query and cannot be combined with `all`"
                raise ServerError(400, "invalid", problem, field=name)
        return {
            "rerank": self.reranker if search.rerank else None,
            "rewrite": self.rewriter if search.rewrite else None,
        }


class _QuietReranker:
    """A reranker whose error messages contain no folder."""

    def __init__(self, reranker: Reranker, hidden: Callable[[str], str]) -> None:
        self._reranker, self._hidden = reranker, hidden
        self.name, self.fingerprint = reranker.name, reranker.fingerprint
        self.reads_words, self.sees = reranker.reads_words, reranker.sees

    def score(self, query: str, documents: Sequence[Document]) -> list[float]:
        try:
            return self._reranker.score(query, documents)
        except CheckerError as error:
            raise type(error)(self._hidden(str(error))) from error


class _QuietRewriter:
    """A rewriter whose error messages contain no address."""

    def __init__(self, rewriter: Rewriter, hidden: Callable[[str], str]) -> None:
        self._rewriter, self._hidden, self.name = rewriter, hidden, rewriter.name

    def rewritten(self, query: str, seconds: float) -> list[str]:
        try:
            return self._rewriter.rewritten(query, seconds)
        except CheckerError as error:
            raise type(error)(self._hidden(str(error))) from error
