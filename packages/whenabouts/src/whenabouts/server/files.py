"""Send files over HTTP: videos, checked against the index, and files made from them."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import NotModifiedResponse
from starlette.types import Receive, Scope, Send

from whenabouts.intake import opening
from whenabouts.intake.lacks import lack_of
from whenabouts.server.errors import ServerError, busy, printable

# By the name's suffix and never by content, so that no browser runs a file.
_TYPES = {
    **dict.fromkeys(("mp4", "m4v", "mov", "qt", "f4v"), "video/mp4"),
    **dict.fromkeys(("mkv", "mk3d"), "video/x-matroska"),
    **dict.fromkeys(("ts", "mts", "m2ts", "m2t"), "video/mp2t"),
    **dict.fromkeys(("mpg", "mpeg", "mpe", "m2v", "vob"), "video/mpeg"),
    **dict.fromkeys(("ogv", "ogm"), "video/ogg"),
    **dict.fromkeys(("3gp", "3g2"), "video/3gpp"),
    **dict.fromkeys(("ogg", "oga", "opus", "spx"), "audio/ogg"),
    **dict.fromkeys(("m4a", "m4b", "aac"), "audio/mp4"),
    "webm": "video/webm",
    "avi": "video/x-msvideo",
    "wmv": "video/x-ms-wmv",
    "flv": "video/x-flv",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mka": "audio/x-matroska",
    "jpg": "image/jpeg",
}
_RETRY_SECONDS = 5
_RANGE = re.compile(r"bytes=(\d{0,99})-(\d{0,99})")


def content_type(path: Path | str) -> str:
    """The media type of a file by its name; plain bytes, which browsers do not display, if unknown."""
    return _TYPES.get(str(path).rpartition(".")[2].lower(), "application/octet-stream")


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file open for reading; the caller closes it."""

    file: BufferedReader
    status: os.stat_result

    @property
    def descriptor(self) -> int:
        return self.file.fileno()

    def close(self) -> None:
        self.file.close()


def open_regular(path: Path | str) -> OpenFile:
    """Open a file if it is a regular one. Raises OSError, or ServerError 503 if too many files are open."""
    try:
        file = opening.open_regular(path)
    except OSError as error:
        if lack_of(error):
            raise busy("files", _RETRY_SECONDS, 503) from error
        raise
    return OpenFile(file, os.fstat(file.fileno()))


def real_path(descriptor: int) -> str:
    """The real path of an open file, with links resolved."""
    if hasattr(fcntl, "F_GETPATH"):  # macOS, which has no /proc
        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """The bytes [first, last] of a Range header; None for all of them.

    One range is honoured; several, other units and nonsense are ignored (RFC 9110, 14.2). Raises ServerError
    416 for a range past the end.

    >>> byte_range("bytes=2-", 10), byte_range("bytes=-3", 10), byte_range("bytes=0-1,4-5", 10)
    ((2, 9), (7, 9), None)
    """
    match = _RANGE.fullmatch(header.strip())
    if not match or match.group(0) == "bytes=-":
        return None
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return None
    begin = int(first) if first else max(0, size - int(last))
    end = min(int(last), size - 1) if first and last else size - 1
    if begin >= size or (not first and int(last) == 0):
        raise ServerError(
            416,
            "range_not_satisfiable",
            f"the file has {size} bytes; the range starts after them",
            field="Range",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return begin, end


def respond(
    request: Request,
    opened: OpenFile,
    *,
    media_type: str,
    name: str,
    tag: str = "",
    done: Callable[[], None] = lambda: None,
) -> Response:
    """The answer to a GET or HEAD for an open file. Closes it and calls `done` when all is sent.

    `tag` is the entity tag of a file that does not change, which clients may keep for an hour (default: made
    from size and time, and checked at each use).
    """
    headers = {"Cache-Control": "private, no-cache"}
    if tag:
        headers = {"Cache-Control": "private, max-age=3600", "ETag": f'"{tag}"'}
    response = _OpenFileResponse(opened, done, headers, media_type, printable(name))
    if is_known(request, response.headers):
        response.release()
        return NotModifiedResponse(response.headers)
    try:
        response.is_range = range_of(request, response.headers, opened.status.st_size) is not None
    except ServerError:
        response.release()
        raise
    return response


def is_known(request: Request, headers: Headers) -> bool:
    """Whether the client has the file with the entity tag of `headers`."""
    tags = request.headers.get("if-none-match", "").split(",")
    return not {tag.strip().removeprefix("W/") for tag in tags}.isdisjoint({headers["etag"], "*"})


def range_of(request: Request, headers: Headers, size: int) -> tuple[int, int] | None:
    """The range of bytes to send (`byte_range`); None for all, also if `If-Range` names another version."""
    condition = request.headers.get("if-range", headers["etag"]).strip()
    is_same = condition in (headers["etag"], headers["last-modified"])
    return byte_range(request.headers.get("range", ""), size) if request.method == "GET" and is_same else None


class _OpenFileResponse(FileResponse):
    """Starlette's file and range answer, for an already open file.

    It reads through the descriptor, so the file that was checked is sent, even if another takes its name.
    Starlette answers an invalid range with 400 in plain text, so ranges that `byte_range` rejects are
    removed from the request.
    """

    chunk_size = 256 << 10

    def __init__(
        self,
        opened: OpenFile,
        done: Callable[[], None],
        headers: Mapping[str, str],
        media_type: str,
        name: str,
    ) -> None:
        super().__init__(
            f"/dev/fd/{opened.descriptor}",
            headers=headers,
            media_type=media_type,
            filename=name,
            stat_result=opened.status,
            content_disposition_type="inline",
        )
        self.is_range = False
        self._opened, self._done = opened, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.is_range:
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"range"]}
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.release()

    def release(self) -> None:
        """Close the file and call `done`."""
        self._opened.close()
        self._done()
