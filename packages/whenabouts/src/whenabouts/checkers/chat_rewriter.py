"""Rewriters at an address with OpenAI's chat protocol: `http://127.0.0.1:8000/v1#MODEL`."""

from __future__ import annotations

from functools import lru_cache

from whenabouts.checkers.protocol import CheckerError, CheckerUnavailable
from whenabouts.checkers.rewriter import INSTRUCTIONS, SCHEMA, Rewriter, question_of, read_answer
from whenabouts.intake.chat import Bounds, Chat, ChatError, ChatUnreachable, Endpoint, is_address, text_part
from whenabouts.types import UsageError

ORDER = 10
_KEPT = 1000


def recognises(name: str) -> bool:
    """True for addresses."""
    return is_address(name)


def open_rewriter(name: str, *, send_query: bool) -> Rewriter:
    """The rewriter at an address. Raises UsageError if queries would leave this machine unpermitted."""
    endpoint = Endpoint.parse(name)
    if not endpoint.is_loopback and not send_query:
        way = "" if endpoint.is_encrypted else ", without encryption"
        raise UsageError(
            f"{endpoint.host} is another machine: your query would be sent there{way}. Say --send-query if "
            "that is what you want (in Python: open_rewriter(…, send_query=True))"
        )
    return ChatRewriter(endpoint)


class ChatRewriter:
    """A chat endpoint that rewrites queries; its last `_KEPT` answers are cached, failures are not."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.name = endpoint.model
        self._answer = lru_cache(_KEPT)(self._ask)

    def rewritten(self, query: str, seconds: float) -> list[str]:
        return list(self._answer(query, seconds))

    def _ask(self, query: str, seconds: float) -> tuple[str, ...]:
        chat = Chat(self._endpoint, Bounds(seconds=seconds))
        try:
            answer = chat.complete(INSTRUCTIONS, [text_part(question_of(query))], schema=SCHEMA)
        except ChatUnreachable as error:
            raise CheckerUnavailable(str(error)) from error
        except ChatError as error:
            raise CheckerError(str(error)) from error
        try:
            return tuple(read_answer(answer, query))
        except CheckerError as error:
            raise CheckerError(f"{self.name} {error}") from error
