"""Checkers at an address with OpenAI's chat protocol: `http://127.0.0.1:8000/v1#MODEL`."""

from __future__ import annotations

from collections.abc import Sequence

from whenabouts.checkers.protocol import PROMPT, SCHEMA, Checker, CheckerError, CheckerUnavailable, Part
from whenabouts.intake.chat import (
    Bounds,
    Chat,
    ChatError,
    ChatUnreachable,
    Endpoint,
    is_address,
    picture_part,
    text_part,
)
from whenabouts.types import UsageError

ORDER = 10


def recognises(name: str) -> bool:
    """True for addresses."""
    return is_address(name)


def open(name: str, *, send_frames: bool) -> Checker:
    """The checker at an address. Raises UsageError if frames would leave this machine without permission."""
    endpoint = Endpoint.parse(name)
    if not endpoint.is_loopback and not send_frames:
        way = "" if endpoint.is_encrypted else ", without encryption"
        raise UsageError(
            f"{endpoint.host} is another machine: frames of your videos, words that are said in them and "
            f"your query would be sent there{way}. Say --send-frames if that is what you want (in Python: "
            "open_checker(…, send_frames=True))"
        )
    return ChatChecker(endpoint)


class ChatChecker:
    """A chat endpoint whose model reads pictures."""

    runs_here = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.name = endpoint.model
        self.fingerprint = f"chat prompt={PROMPT} {endpoint.address}#{endpoint.model}"

    def answer(self, instructions: str, parts: Sequence[Part], seconds: float) -> str:
        chat = Chat(self._endpoint, Bounds(seconds=seconds))
        message = [text_part(part) if isinstance(part, str) else picture_part(part) for part in parts]
        try:
            return chat.complete(instructions, message, schema=SCHEMA)
        except ChatUnreachable as error:
            raise CheckerUnavailable(str(error)) from error
        except ChatError as error:
            raise CheckerError(str(error)) from error
