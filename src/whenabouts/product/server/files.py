"""Files on the wire: a video's own, checked against the index, and those that are made of it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import NotModifiedResponse
from starlette.types import Receive, Scope, Send

from whenabouts.product.index.records import VideoRecord
from whenabouts.product.server.errors import ServerError, printable
from whenabouts.video.files import modified_ns

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
    status: os.stat_result

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
    return OpenFile(descriptor, status)


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
    if (opened.status.st_size, modified_ns(opened.status)) != (record.size, record.modified_ns):
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


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """The bytes [first, last] that a Range header asks for; None for all of them.

    One range is honoured; several, another unit or nonsense count as none (RFC 9110, 14.2). Raises
    ServerError 416 for a range behind the end.

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
            f"the file has {size} bytes; the range starts behind them",
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
    max_age: int = 0,
    done: Callable[[], None] = lambda: None,
) -> Response:
    """The answer to a GET or HEAD for an open file; it is closed, and `done` called, when all is sent.

    `tag` is the entity tag (default: one made of size and time).
    """
    headers = {"Cache-Control": f"private, max-age={max_age}" if max_age else "private, no-cache"}
    if tag:
        headers["ETag"] = f'"{tag}"'
    response = _OpenFileResponse(opened, done, headers, media_type, printable(name))
    known_tags = request.headers.get("if-none-match", "").split(",")
    if {tag.strip().removeprefix("W/") for tag in known_tags} & {response.headers["etag"], "*"}:
        response.release()
        return NotModifiedResponse(response.headers)
    try:
        response.is_range = _is_range(request, response.headers, opened.status.st_size)
    except ServerError:
        response.release()
        raise
    return response


def _is_range(request: Request, headers: Mapping[str, str], size: int) -> bool:
    condition = request.headers.get("if-range", headers["etag"]).strip()
    is_same = condition in (headers["etag"], headers["last-modified"])
    return (
        request.method == "GET" and is_same and byte_range(request.headers.get("range", ""), size) is not None
    )


class _OpenFileResponse(FileResponse):
    """Starlette's answer for files and their ranges, for a file that is open already.

    It reads through the descriptor, so that the file that was checked is the file that is sent, whatever
    lies under its name by then. Starlette answers a range that it cannot read with 400 in plain text;
    therefore `byte_range` decides, and other ranges are taken out of the request.
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
        """Send it."""
        if not self.is_range:
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"range"]}
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.release()

    def release(self) -> None:
        """Close the file."""
        self._opened.close()
        self._done()
