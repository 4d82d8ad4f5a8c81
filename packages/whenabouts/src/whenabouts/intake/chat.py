"""A client of chat endpoints with OpenAI's protocol: vLLM, Ollama, llama.cpp, LM Studio, hosted ones.

The server is not trusted: answers are bounded in time and size, redirects are not followed, and its error
messages are shortened and stripped of control characters. The key comes from the environment and appears in
no message.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from whenabouts.intake.bounded_http import Reply, RequestFailed, retry_after, send
from whenabouts.intake.files import loads
from whenabouts.lines import one_line
from whenabouts.types import UsageError, WhenaboutsError

KEY_VARIABLE = "WHENABOUTS_CHAT_KEY"
"""Environment variable with the key for chat endpoints."""

_MOST_SHOWN = 200
_FIRST_PAUSE_SECONDS = 0.5
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})


class ChatError(WhenaboutsError):
    """A chat endpoint gave no usable answer; the message names its host, the cause and the remedy."""


class ChatUnreachable(ChatError):
    """The endpoint cannot be used now: no connection, no answer in time, or it refuses every request."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A chat model's address: `address` up to and with "/v1", the `model` there, and a secret `key`.

    Raises UsageError for an invalid address, one with a password, or one to which the key would be sent
    unencrypted.
    """

    address: str
    model: str
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        parts = _split(self.address)
        if parts.username is not None or parts.password is not None:
            raise UsageError(
                f"the address of {parts.hostname} carries a name or a password; leave it out, and set "
                f"{KEY_VARIABLE} to the key"
            )
        if not self.model.strip() or not self.model.isprintable():
            raise UsageError(f"{self.host}: which model? Write it after a '#': {self.address}#MODEL")
        if not (self.key.isascii() and self.key.isprintable()):
            raise UsageError(f"{KEY_VARIABLE} holds characters that no key has; set it to the key alone")
        if self.key and not self.is_encrypted and not self.is_loopback:
            raise UsageError(
                f"{self.host}: {KEY_VARIABLE} would be sent without encryption; give an https address, or "
                "unset it"
            )

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str] = os.environ) -> Endpoint:
        """From ADDRESS#MODEL, with the environment's key.

        >>> Endpoint.parse("http://127.0.0.1:8000/v1#qwen", {}).model
        'qwen'
        """
        address, _, model = text.partition("#")
        return cls(address.rstrip("/"), model, environment.get(KEY_VARIABLE, "").strip())

    @property
    def host(self) -> str:
        """The host with the port, for display."""
        return _split(self.address).netloc.rpartition("@")[2]

    @property
    def is_encrypted(self) -> bool:
        return _split(self.address).scheme == "https"

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine, by its name alone."""
        host = _split(self.address).hostname or ""
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False


def is_address(text: str) -> bool:
    """Whether a text is an address rather than a name or a path."""
    return text.lower().startswith(("http://", "https://"))


def _split(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        is_fit = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        is_fit = False
    if (
        not is_fit
        or not address.isascii()
        or any(sign.isspace() or not sign.isprintable() for sign in address)
    ):
        raise UsageError(
            f"{address[:80]!r} is not an address; give one such as http://127.0.0.1:8000/v1#MODEL"
        )
    if parts.query or parts.fragment:
        raise UsageError(f"{address[:80]!r}: an address has no '?' and one '#', before the model's name")
    return parts


Part = Mapping[str, Any]
"""A piece of a message: `text_part` or `picture_part`."""


def text_part(text: str) -> Part:
    """The text of a message."""
    return {"type": "text", "text": text}


def picture_part(jpeg: bytes) -> Part:
    """A picture of a message, from the bytes of a JPEG."""
    return {
        "type": "image_url",
        "image_url": {"url": "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")},
    }


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of an answer: `seconds` in all, retries included; number of `tries`; size `most_bytes`."""

    seconds: float = 60.0
    tries: int = 3
    most_bytes: int = 1 << 20


class Chat:
    """Asks one endpoint; thread-safe. `pause` waits between tries."""

    def __init__(
        self,
        endpoint: Endpoint,
        bounds: Bounds = Bounds(),
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint, self.bounds, self._pause = endpoint, bounds, pause

    def complete(
        self,
        system: str,
        parts: Sequence[Part],
        *,
        schema: Mapping[str, Any] | None = None,
        temperature: float = 0.0,
        most_tokens: int = 300,
    ) -> str:
        """The model's answer to instructions (`system`) and a message.

        With `schema` (JSON Schema) the server is asked to answer in that form; callers check whether it did.
        Raises ChatUnreachable, or ChatError for an unusable answer.
        """
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": list(parts)}],
            "temperature": temperature,
            "max_tokens": most_tokens,
            "stream": False,
        }
        until = time.monotonic() + self.bounds.seconds
        if schema is not None:
            form = {"name": "answer", "strict": True, "schema": dict(schema)}
            in_form = {**body, "response_format": {"type": "json_schema", "json_schema": form}}
            reply = self._tried(in_form, until)
            if reply.status not in (400, 422):
                return self._content(reply)
            # The server does not support schemas: ask without one.
        return self._content(self._tried(body, until))

    def _tried(self, body: Mapping[str, Any], until: float) -> Reply:
        """The reply to a request, retried after temporary errors."""
        data = json.dumps(body).encode()
        for number in range(self.bounds.tries):
            is_last = number + 1 == self.bounds.tries
            wait = _FIRST_PAUSE_SECONDS * 2**number
            try:
                reply = self._once(data, until)
            except (TimeoutError, RequestFailed) as error:
                if is_last or time.monotonic() + wait >= until:
                    raise ChatUnreachable(self._unreachable(error.__cause__ or error, until)) from error
            else:
                if reply.status not in _AGAIN:
                    return reply
                wait = max(wait, retry_after(reply.headers))
                if is_last or time.monotonic() + wait >= until:
                    raise ChatUnreachable(self._refused(reply))
            self._pause(wait)
        raise AssertionError("the last try returns or raises")

    def _once(self, data: bytes, until: float) -> Reply:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "whenabouts",
        }
        if self.endpoint.key:
            headers["Authorization"] = f"Bearer {self.endpoint.key}"
        return send(
            "POST",
            f"{self.endpoint.address}/chat/completions",
            headers=headers,
            content=data,
            seconds=max(0.05, until - time.monotonic()),
            most_bytes=self.bounds.most_bytes,
        )

    def _content(self, reply: Reply) -> str:
        """The text of a reply. Raises ChatError for an unusable one."""
        host, status = self.endpoint.host, reply.status
        if 300 <= status < 400:
            # Not urlsplit, which raises for some addresses.
            target = re.split("[/?#]", reply.headers.get("location", "").partition("//")[2])[0]
            raise ChatUnreachable(
                f"{host} redirects ({self._shown(target) or 'without a target'}), which is "
                "not followed; give the final address"
            )
        if status != 200:
            raise ChatUnreachable(self._refused(reply))
        if not reply.is_whole:
            raise ChatError(
                f"{host} answers with more than {self.bounds.most_bytes:,} bytes; nothing was read"
            )
        try:
            choices = loads(reply.body)["choices"]
            (choice,) = choices
            text, reason = choice["message"]["content"], choice.get("finish_reason")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ChatError(f"{host} answers, but not like a chat endpoint; check the address") from None
        if reason == "length":  # also if a model that thinks first has not come to its answer
            raise ChatError(f"{host}: the answer of {self.endpoint.model} is too long and was cut off")
        if not isinstance(text, str) or not text.strip():
            raise ChatError(f"{host}: {self.endpoint.model} gives no answer")
        return text

    def _refused(self, reply: Reply) -> str:
        host, model = self.endpoint.host, self.endpoint.model
        seconds = retry_after(reply.headers)
        remedy = {
            401: f"set {KEY_VARIABLE} to a key that it takes",
            403: f"set {KEY_VARIABLE} to a key that may use {model}",
            404: f"check the address (it mostly ends in /v1) and the name {model!r}",
            413: "ask with fewer frames",
            429: f"try again in {seconds:g} s" if seconds else "try again later",
        }.get(reply.status, "see its log, or name another endpoint")
        cause = self._shown(_message_of(reply.body))
        return f"{host} answers {reply.status}{f' ({cause})' if cause else ''}; {remedy}"

    def _unreachable(self, error: BaseException, until: float) -> str:
        host = self.endpoint.host
        if isinstance(error, ssl.SSLCertVerificationError):
            cause = error.verify_message
            return f"{host} shows a certificate that cannot be trusted ({cause}); check the address"
        if isinstance(error, TimeoutError) or time.monotonic() >= until - 0.01:
            return f"{host} has not answered within {self.bounds.seconds:g} s; is the model loaded?"
        if isinstance(error, socket.gaierror):
            return f"{host} is not known here; check the address and the network"
        if isinstance(error, ConnectionRefusedError):
            return f"nothing answers at {host}; start the model's server, or check the address"
        cause = self._shown(str(error)) or type(error).__name__
        return f"{host}: the connection broke off ({cause}); see its log"

    def _shown(self, text: str) -> str:
        """A server's text on one short line, without the key."""
        if self.endpoint.key:
            text = text.replace(self.endpoint.key, "***")
        return one_line(text, _MOST_SHOWN)


def _message_of(body: bytes) -> str:
    """The message in the body of a refusal."""
    try:
        error = loads(body[: 1 << 16])["error"]
        message = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError):
        return ""
    return message if isinstance(message, str) else ""
