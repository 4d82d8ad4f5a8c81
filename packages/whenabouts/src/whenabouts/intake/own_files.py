"""Files of a folder that a user names. Someone else may have made it, so links in it are not followed.

    path = own_file(folder, "journal.jsonl")      # refuses a link, and a name that is a path
    descriptor = open_appending(path)             # refuses a link that took its place meanwhile

A link in such a folder could point to any file of the user, which a write would then change.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from whenabouts.intake.files import FormatError
from whenabouts.intake.opening import refuse_irregular


def own_file(folder: Path, name: str) -> Path:
    """The path of a file in a folder; the file need not exist.

    Raises FormatError for a link, and for a name that could leave the folder: one with a separator, `.`,
    `..`, or nothing.
    """
    path = folder / name
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise FormatError(folder, "names a file outside itself:", value=name, accepted="a plain file name")
    try:
        is_link = stat.S_ISLNK(path.lstat().st_mode)
    except OSError:  # opening the file reports the error
        is_link = False
    if is_link:
        raise _link(path)
    return path


def open_appending(path: Path) -> int:
    """A descriptor of a regular file to read and append, created if missing, never a link; the caller's.

    Raises OSError, and FormatError for a link.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link(path) from None
        raise
    refuse_irregular(path, descriptor)
    return descriptor


def _link(path: Path) -> FormatError:
    return FormatError(path, "is a link, which is not followed here; put its target in its place")
