"""The files that servers make of videos (pictures, clips, films); those of a removed video are erased."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from whenabouts.types import UsageError
from whenabouts.video.files import with_home

# Earlier versions made names of 40 digits, which do not tell the video.
_NAME = re.compile(r"(?:([0-9a-f]{16})_[0-9a-f]{24}|[0-9a-f]{40})(-[0-9]+-[0-9]+\.part)?(?:\.[a-z0-9]+)?")


def cached_name(video_id: str, *facts: str) -> str:
    """A file name, without suffix, unique to these texts; `video_id` is "" for a file of several videos."""
    return f"{_digest(8, video_id)}_{_digest(12, *facts)}"


def _digest(size: int, *texts: str) -> str:
    return blake2b("\0".join(texts).encode("utf-8", "surrogateescape"), digest_size=size).hexdigest()


def cached_files(folder: Path) -> Iterator[tuple[Path, str | None, bool]]:
    """A server's files in a folder: path, digest of the video (None: an old name), whether unfinished."""
    for path in folder.glob("??/*"):
        name = _NAME.fullmatch(path.name)
        if name is not None and path.parent.name == path.name[:2]:
            yield path, name[1], name[2] is not None


def erase_cached(folder: Path | None, video_ids: Iterable[str]) -> None:
    """Delete the files that may show these videos. None is the usual folder, which may be missing.

    Raises OSError for a file that cannot be deleted, and UsageError for a given folder that cannot be read.
    """
    if folder is None:
        with contextlib.suppress(UsageError):  # without a home folder there is no usual one
            folder = default_cache()
    elif not os.access(with_home(folder), os.R_OK | os.X_OK):
        raise UsageError(f"{folder} is not a folder that can be read; name that of `serve --cache`")
    erased = {None, *(_digest(8, name) for name in ("", *video_ids))}
    for path, video, _ in cached_files(with_home(folder)) if folder else ():
        if video in erased:
            path.unlink(missing_ok=True)


def default_cache() -> Path:
    """The folder for thumbnails and clips, by the XDG base directory specification.

    Raises UsageError for a user without a home folder.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = named if named.is_absolute() else with_home("~/.cache")
    if not base.is_absolute():
        raise UsageError("this user has no home folder to cache files in; set XDG_CACHE_HOME to a folder")
    return base / "whenabouts" / "serve"
