"""HTTP requests that end: a deadline for the whole request, and a size limit for its answer.

httpx's time-outs restart with every byte, so a server that sends a byte now and then could hold its client
for ever. Here a request runs in an event loop, which cancels it at the deadline in any phase: connecting, TLS
handshake, sending or reading. The loop has its own thread, because the caller may be in an event loop, as in
a notebook.

The client is httpx2, which continues httpx and comes with huggingface-hub.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any

from whenabouts.types import UsageError

_MOST_REDIRECTS = 5


class RequestFailed(ConnectionError):
    """No whole answer came. `__cause__` is the underlying error, such as a refused connection."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `headers` have names in lower case; `is_whole` is false for a body over the size limit."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    is_whole: bool = True


Sink = tuple[Callable[[bytes], object], int]
"""A function that takes the pieces of a body, and the most bytes it takes."""


def send(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    content: bytes | None = None,
    seconds: float,
    idle_seconds: float | None = None,
    most_bytes: int = 1 << 20,
    sink: Callable[[Reply], Sink | None] = lambda reply: None,
    is_direct: bool = True,
) -> Reply:
    """Send a request and return the answer, with at most `most_bytes` of its body.

    `sink` is called with status and headers; if it returns a `Sink`, the body goes there instead. With
    `is_direct`, the request goes to no other address: redirects and the environment's proxies are ignored.
    Only the first host gets the header `Authorization`.

    Raises TimeoutError after `seconds`; RequestFailed for network errors, and after `idle_seconds`
    without a byte; UsageError for a wrong SSL_CERT_FILE; and whatever the sink raises.
    """
    import httpx2
    from anyio.from_thread import start_blocking_portal

    try:
        certificates = httpx2.create_ssl_context()
    except OSError as error:  # it does not name the file
        file = os.environ.get("SSL_CERT_FILE")
        raise UsageError(f"no trusted certificates ({error.strerror}): SSL_CERT_FILE is {file}") from error

    async def ask() -> Reply:
        client = httpx2.AsyncClient(
            verify=certificates,
            timeout=idle_seconds,
            trust_env=not is_direct,
            follow_redirects=not is_direct,
            max_redirects=_MOST_REDIRECTS,
        )
        # A compressed body could be far larger than the counted bytes.
        sent = {"Accept-Encoding": "identity", **headers}
        traced = {"trace": note_opened}
        async with (
            client,
            client.stream(method, url, headers=sent, content=content, extensions=traced) as response,
        ):
            return await _read(response, sink, most_bytes)

    opened: list[Any] = []

    async def note_opened(event: str, facts: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            opened.append(facts["return_value"])

    try:
        with start_blocking_portal() as portal:
            reply: Reply = portal.call(_in_time, ask, opened, seconds)
            return reply
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise RequestFailed(str(error) or type(error).__name__) from _root(error)


async def _read(response: Any, sink: Callable[[Reply], Sink | None], most_bytes: int) -> Reply:
    """The answer; a body longer than its limit is cut off."""
    body = bytearray()
    head = Reply(response.status_code, dict(response.headers))
    write, left = sink(head) or (body.extend, most_bytes)
    async for block in response.aiter_raw():
        write(block[:left])
        if len(block) > left:
            return replace(head, body=bytes(body), is_whole=False)
        left -= len(block)
    return replace(head, body=bytes(body))


async def _in_time(ask: Callable[[], Awaitable[Reply]], opened: Sequence[Any], seconds: float) -> Reply:
    """The answer of `ask` within `seconds`; the `opened` connections are closed in any case."""
    import anyio

    try:
        with anyio.fail_after(max(0.0, seconds)):
            return await ask()
    finally:
        # A client cancelled in the TLS handshake leaves its connection open.
        with anyio.CancelScope(shield=True):
            for stream in opened:
                await stream.aclose()


def _root(error: BaseException) -> BaseException:
    """The first of a chain of causes; if several addresses failed, that of the first."""
    if isinstance(error, BaseExceptionGroup):
        return _root(error.exceptions[0])
    below = error.__cause__ or error.__context__
    return _root(below) if below else error


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait, given as a number or date; 0 for anything else."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value) if value else 0.0
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), 86_400.0) if seconds == seconds else 0.0
