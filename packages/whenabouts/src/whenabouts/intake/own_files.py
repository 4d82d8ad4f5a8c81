"""Files of a folder that a person names: a stranger may have made it, so no link in it is followed.

    path = own_file(folder, "journal.jsonl")      # refused if it is a link, or if the name is a path
    descriptor = open_appending(path)             # refuses a link that took its place meanwhile

A link in such a folder could point at any file of the person, which a write would then change.
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
    except OSError:  # the opening says what is wrong
        is_link = False
    if is_link:
        raise _link(path)
    return path


def open_appending(path: Path) -> int:
    """The descriptor of a regular file for reading and appending, made if it is missing; never through a
    link. The caller closes it.

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
