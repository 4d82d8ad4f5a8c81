"""The page: the few files of one folder, kept in memory, sent with a tag and compressed."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from whenabouts.server.errors import ServerError
from whenabouts.server.files import is_known

FOLDER = Path(__file__).with_name("page")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}


@dataclass(frozen=True, slots=True)
class _PageFile:
    """A file in memory, and what it was read from."""

    content: bytes
    compressed: bytes
    tag: str
    media_type: str
    modified_ns: int


class PageFiles:
    """Files of a folder by their names. Names are looked up among those there are, and never joined."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._kept: dict[Path, _PageFile] = {}

    def respond(self, request: Request, name: str) -> Response:
        """The file of a name below the folder; ServerError 404 where there is none."""
        there = {
            path.relative_to(self._folder).as_posix(): path
            for path in self._folder.rglob("*")
            if path.suffix in _TYPES and path.is_file()
        }
        if name not in there:
            raise ServerError(404, "not_found", "there is no such file of the page")
        found = self._read(there[name])
        headers = {"ETag": found.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if is_known(request, found.tag):
            return Response(status_code=304, headers=headers)
        content = found.content
        if "gzip" in request.headers.get("accept-encoding", "") and len(found.compressed) < len(content):
            content = found.compressed
            headers["Content-Encoding"] = "gzip"
        return Response(content, headers=headers, media_type=found.media_type)

    def _read(self, path: Path) -> _PageFile:
        modified = path.stat().st_mtime_ns
        kept = self._kept.get(path)
        if kept is None or kept.modified_ns != modified:
            content = path.read_bytes()
            tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
            kept = _PageFile(content, gzip.compress(content, mtime=0), tag, _TYPES[path.suffix], modified)
            self._kept[path] = kept
        return kept
