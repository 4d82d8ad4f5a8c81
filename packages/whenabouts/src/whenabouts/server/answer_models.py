"""The reranker and the rewriter of a server. Its owner chooses them; clients only turn them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from whenabouts.checkers import Checker, CheckerError, Reranker, Rewriter, open_reranker
from whenabouts.checkers.reranker import Document
from whenabouts.search.sounds_alike import opened_rewriter
from whenabouts.server.errors import ServerError
from whenabouts.server.paths import Paths
from whenabouts.server.schemas import SearchRequest
from whenabouts.server.settings import Settings

_HIDDEN = "the model gave no usable answer"
# For each model: the code and the message of a server without it, and the message of a search without words.
_REFUSALS = {
    "check": (
        "no_checker",
        "this server does not check moments; start it with --check to allow that",
        "a check needs a query and cannot be combined with `all`",
    ),
    "rerank": (
        "no_reranker",
        "this server does not rerank moments; start it with --rerank to allow that",
        "reranking and rewriting need a query and cannot be combined with `all`",
    ),
    "rewrite": (
        "no_rewriter",
        "this server does not rewrite queries; start it with --rewrite to allow that",
        "reranking and rewriting need a query and cannot be combined with `all`",
    ),
}


@dataclass(frozen=True, slots=True)
class AnswerModels:
    """The reranker and the rewriter (`opened_rewriter`) that the server's owner chose; None: not chosen."""

    reranker: Reranker | None = None
    rewriter: Rewriter | str | None = None

    @classmethod
    def of(cls, settings: Settings, paths: Paths) -> AnswerModels:
        """The models of the settings, opened. Raises CheckerUnavailable, and UsageError without consent."""
        reranker = open_reranker(settings.rerank) if settings.rerank else None

        def hidden(text: str) -> str:
            return paths.unless_hidden(text, _HIDDEN)

        rewriter: Rewriter | str | None = None
        if settings.rewrite:
            opened = opened_rewriter(settings.rewrite, send_query=settings.send_query)
            rewriter = opened if isinstance(opened, str) else _QuietRewriter(opened, hidden)
        return cls(None if reranker is None else _QuietReranker(reranker, hidden), rewriter)

    @property
    def names(self) -> dict[str, str | None]:
        """What the server tells of them."""
        models: dict[str, Any] = {"reranker": self.reranker, "rewriter": self.rewriter}
        return {kind: getattr(model, "name", model) for kind, model in models.items()}

    def asked_by(self, search: SearchRequest, checker: Checker | None) -> dict[str, Any]:
        """The models that a search asks for, by parameter; else None.

        Raises ServerError without the model, and without words.
        """
        models = {"check": checker, "rerank": self.reranker, "rewrite": self.rewriter}
        chosen = {name: model if getattr(search, name) else None for name, model in models.items()}
        for name, (code, without_model, without_words) in _REFUSALS.items():
            if getattr(search, name) and chosen[name] is None:
                raise ServerError(404, code, without_model, field=name)
            if chosen[name] is not None and (search.query is None or search.all):
                raise ServerError(400, "invalid", without_words, field=name)
        return chosen


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
