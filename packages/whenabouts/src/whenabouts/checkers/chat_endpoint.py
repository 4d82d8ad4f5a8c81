"""Checkers and rewriters at an address with OpenAI's chat protocol: `http://127.0.0.1:8000/v1#MODEL`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from whenabouts.checkers import protocol, rewriter
from whenabouts.checkers.protocol import PROMPT, Checker, CheckerError, CheckerUnavailable
from whenabouts.checkers.rewriter import Rewriter
from whenabouts.intake.chat import (
    Bounds,
    Chat,
    ChatError,
    ChatUnreachable,
    Endpoint,
    Part,
    is_address,
    picture_part,
    text_part,
)
from whenabouts.types import UsageError

ORDER = 10
_CACHED = 1000


def recognises(name: str) -> bool:
    """True for addresses."""
    return is_address(name)


def open(name: str, *, send_frames: bool) -> Checker:
    """The checker at an address. Raises UsageError if frames may not leave this machine, but would."""
    sent = "frames of your videos, words that are said in them and your query"
    option, call = "--send-frames", "open_checker(…, send_frames=True)"
    return ChatChecker(_permitted(name, sent, option, call, is_permitted=send_frames))


def open_rewriter(name: str, *, send_query: bool) -> Rewriter:
    """The rewriter at an address. Raises UsageError if queries may not leave this machine, but would."""
    option, call = "--send-query", "open_rewriter(…, send_query=True)"
    return ChatRewriter(_permitted(name, "your query", option, call, is_permitted=send_query))


def _permitted(name: str, sent: str, option: str, call: str, *, is_permitted: bool) -> Endpoint:
    """The endpoint at an address. Raises UsageError if it is another machine, unless that is permitted."""
    endpoint = Endpoint.parse(name)
    if not endpoint.is_loopback and not is_permitted:
        way = "" if endpoint.is_encrypted else ", without encryption"
        raise UsageError(
            f"{endpoint.host} is another machine: {sent} would be sent there{way}. Say {option} if that is "
            f"what you want (in Python: {call})"
        )
    return endpoint


class ChatChecker:
    """A chat endpoint whose model reads pictures."""

    runs_here = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.name = endpoint.model
        self.fingerprint = f"chat prompt={PROMPT} {endpoint.address}#{endpoint.model}"

    def answer(self, instructions: str, parts: Sequence[protocol.Part], seconds: float) -> str:
        message = [text_part(part) if isinstance(part, str) else picture_part(part) for part in parts]
        return _completed(self._endpoint, instructions, message, protocol.SCHEMA, seconds)


class ChatRewriter:
    """A chat endpoint that rewrites queries; its last `_CACHED` answers are kept, failures are not."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.name = endpoint.model
        self._answer = lru_cache(_CACHED)(self._ask)

    def rewritten(self, query: str, seconds: float) -> list[str]:
        return list(self._answer(query, seconds))

    def _ask(self, query: str, seconds: float) -> tuple[str, ...]:
        message = [text_part(rewriter.question_of(query))]
        answer = _completed(self._endpoint, rewriter.INSTRUCTIONS, message, rewriter.SCHEMA, seconds)
        try:
            return tuple(rewriter.read_answer(answer, query))
        except CheckerError as error:
            raise CheckerError(f"{self.name} {error}") from error


def _completed(
    endpoint: Endpoint, instructions: str, message: Sequence[Part], schema: Mapping[str, Any], seconds: float
) -> str:
    """The model's answer in the form of a schema. Raises CheckerUnavailable or CheckerError."""
    try:
        return Chat(endpoint, Bounds(seconds=seconds)).complete(instructions, message, schema=schema)
    except ChatUnreachable as error:
        raise CheckerUnavailable(str(error)) from error
    except ChatError as error:
        raise CheckerError(str(error)) from error
