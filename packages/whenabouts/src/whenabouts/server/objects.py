"""Send videos from an object store to a client, reading only the requested ranges."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from hashlib import md5
from typing import BinaryIO
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.staticfiles import NotModifiedResponse
from starlette.types import Receive, Scope, Send

from whenabouts.server.errors import ServerError, printable
from whenabouts.server.files import is_known, range_of
from whenabouts.video.objects import ObjectPath, open_source

_CHUNK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class OpenObject:
    """An object of a store, open for reading; the caller closes it."""

    reader: BinaryIO
    status: os.stat_result

    @classmethod
    def of(cls, path: ObjectPath) -> OpenObject:
        """Open an object of a store. Raises OSError."""
        return cls(open_source(path), path.stat())

    def close(self) -> None:
        self.reader.close()

    @property
    def headers(self) -> dict[str, str]:
        """Validators (entity tag, date) that change with the object."""
        facts = f"{self.status.st_mtime_ns}-{self.status.st_size}".encode()
        return {
            "ETag": f'"{md5(facts, usedforsecurity=False).hexdigest()}"',
            "Last-Modified": formatdate(self.status.st_mtime, usegmt=True),
            "Accept-Ranges": "bytes",
            "Cache-Control": "private, no-cache",
        }


def respond_object(
    request: Request, opened: OpenObject, *, media_type: str, name: str, done: Callable[[], None]
) -> Response:
    """The answer to a GET or HEAD for an open object, like `files.respond` for a file."""
    headers, size = MutableHeaders(opened.headers), opened.status.st_size

    def release() -> None:
        opened.close()
        done()

    if is_known(request, headers):
        release()
        return NotModifiedResponse(headers)
    try:
        span = range_of(request, headers, size)
    except ServerError:
        release()
        raise
    first, last = span or (0, size - 1)
    if span:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    headers["Content-Length"] = str(last - first + 1)
    headers["Content-Disposition"] = f"inline; filename*=utf-8''{quote(printable(name), safe='')}"
    body = _pieces(opened.reader, first, last) if request.method == "GET" else iter(())
    return _Answer(release, body, 206 if span else 200, headers, media_type)


class _Answer(StreamingResponse):
    """Streams pieces of an object, and closes it when all is sent or the client has left."""

    def __init__(
        self,
        release: Callable[[], None],
        pieces: Iterator[bytes],
        status: int,
        headers: Mapping[str, str],
        media_type: str,
    ) -> None:
        super().__init__(pieces, status, headers, media_type)
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()


def _pieces(reader: BinaryIO, first: int, last: int) -> Iterator[bytes]:
    reader.seek(first)
    while first <= last:
        piece = reader.read(min(_CHUNK_BYTES, last + 1 - first))
        if not piece:
            return
        first += len(piece)
        yield piece
