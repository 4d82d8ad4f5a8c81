"""A video's own file, found by its id: checked against the index, and sent in ranges and blocks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from whenabouts.index.records import VideoRecord
from whenabouts.server.errors import ServerError, printable

BLOCK_BYTES = 256 << 10

# By the name's ending and never by content: nothing that a browser would run can come of it.
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
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def content_type(path: Path | str) -> str:
    """The media type of a file by its name; unknown endings are bytes that no browser shows."""
    return _TYPES.get(str(path).rpartition(".")[2].lower(), "application/octet-stream")


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file that is open for reading; whoever has it closes it."""

    descriptor: int
    size: int
    modified_ns: int

    def close(self) -> None:
        """Close it."""
        os.close(self.descriptor)


def open_regular(path: Path | str) -> OpenFile:
    """Open a file if it is a regular one. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no regular file")
    except OSError:
        os.close(descriptor)
        raise
    return OpenFile(descriptor, status.st_size, status.st_mtime_ns)


def open_video(record: VideoRecord) -> OpenFile:
    """The file of a video as it was indexed.

    Raises ServerError: 404 for a transcript without a recording, 410 where the file is gone or may not be
    read, 409 where it is another one than was indexed, 503 while it is being indexed.
    """
    if record.kind != "media":
        raise ServerError(404, "no_recording", f"{record.video_id} is a transcript without a recording")
    if record.size < 0:
        raise ServerError(
            503, "being_indexed", f"{record.video_id} is being indexed", headers={"Retry-After": "2"}
        )
    try:
        opened = open_regular(record.path)
    except (OSError, ValueError):
        raise ServerError(
            410,
            "video_gone",
            f"the file of {record.video_id} is gone or cannot be read; put it back, or index its new place",
        ) from None
    if (opened.size, opened.modified_ns) != (record.size, record.modified_ns):
        opened.close()
        raise ServerError(
            409,
            "video_changed",
            f"the file of {record.video_id} has changed since it was indexed; `whenabouts index` it again",
        )
    return opened


def checked_path(record: VideoRecord) -> Path:
    """Where the file of a video lies, after the same checks as `open_video`."""
    open_video(record).close()
    return Path(record.path)


def part_of(header: str, size: int) -> tuple[int, int] | None:
    """The bytes [first, last] that a Range header asks for; None for all of them.

    One range is honoured; several, another unit or nonsense count as none (RFC 9110, 14.2). Raises
    ServerError 416 for a range behind the end.

    >>> part_of("bytes=2-", 10), part_of("bytes=-3", 10), part_of("bytes=0-1,4-5", 10)
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
            f"the file has {size} bytes; the range starts behind them",
            field="Range",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return begin, end


@dataclass(frozen=True, slots=True)
class Sending:
    """How an open file is to be sent: its type, what to call it, and its tag."""

    media_type: str
    name: str
    tag: str
    max_age: int = 0

    def headers(self, size: int, modified_ns: int) -> dict[str, str]:
        """Headers that do not depend on the range."""
        return {
            "Accept-Ranges": "bytes",
            "ETag": f'"{self.tag}"',
            "Last-Modified": formatdate(modified_ns / 1e9, usegmt=True),
            "Content-Length": str(size),
            "Content-Disposition": f"inline; filename*=UTF-8''{quote(printable(self.name), safe='')}",
            "Cache-Control": f"private, max-age={self.max_age}" if self.max_age else "private, no-cache",
        }


def respond(
    request: Request,
    opened: OpenFile,
    sending: Sending,
    threads: ThreadPoolExecutor,
    done: Callable[[], None],
) -> Response:
    """The answer to a GET or HEAD for an open file; it is closed, and `done` called, when all is sent."""
    try:
        response = _respond(request, opened, sending, threads, done)
    except BaseException:
        opened.close()
        done()
        raise
    if not isinstance(response, _Blocks):
        opened.close()
        done()
    return response


def _respond(
    request: Request,
    opened: OpenFile,
    sending: Sending,
    threads: ThreadPoolExecutor,
    done: Callable[[], None],
) -> Response:
    headers = sending.headers(opened.size, opened.modified_ns)
    if is_known(request, headers["ETag"]):
        return Response(status_code=304, headers={k: v for k, v in headers.items() if k != "Content-Length"})
    if request.method == "HEAD":
        return Response(headers=headers, media_type=sending.media_type)
    part = None
    if "range" in request.headers and _is_same(request.headers.get("if-range"), headers):
        part = part_of(request.headers["range"], opened.size)
    if part is None:
        blocks = _blocks(opened, 0, opened.size, threads)
        return _Blocks(blocks, 200, headers, sending.media_type, opened, done)
    first, last = part
    headers["Content-Range"] = f"bytes {first}-{last}/{opened.size}"
    headers["Content-Length"] = str(last - first + 1)
    blocks = _blocks(opened, first, last + 1, threads)
    return _Blocks(blocks, 206, headers, sending.media_type, opened, done)


def is_known(request: Request, tag: str) -> bool:
    """Whether the client says that it has the answer with this entity tag (RFC 9110, 13.1.2)."""
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    return tag in known or known == ["*"]


def _is_same(condition: str | None, headers: Mapping[str, str]) -> bool:
    """Whether a range may be sent under `If-Range`: no condition, the same tag, or the same date."""
    return condition is None or condition.strip() in (headers["ETag"], headers["Last-Modified"])


class _Blocks(StreamingResponse):
    """A body in blocks whose file is closed however the sending ends."""

    def __init__(
        self,
        blocks: AsyncIterator[bytes],
        status: int,
        headers: Mapping[str, str],
        media_type: str,
        opened: OpenFile,
        done: Callable[[], None],
    ) -> None:
        super().__init__(blocks, status, headers, media_type)
        self._opened, self._done = opened, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with contextlib.suppress(OSError):
                self._opened.close()
            self._done()


async def _blocks(
    opened: OpenFile, first: int, end: int, threads: ThreadPoolExecutor
) -> AsyncIterator[bytes]:
    """The bytes [first, end) of a file; OSError where it has become shorter meanwhile."""
    loop = asyncio.get_running_loop()
    at = first
    while at < end:
        wanted = min(BLOCK_BYTES, end - at)
        block = await loop.run_in_executor(threads, os.pread, opened.descriptor, wanted, at)
        if not block:
            raise OSError("the file became shorter while it was being sent")
        at += len(block)
        yield block
