"""Opens files inside a folder that a user names, without following links.

    path = own_file(folder, "journal.jsonl")      # refuses a link, and a name that is a path
    descriptor = open_appending(path)             # refuses a link that replaced the file meanwhile

Someone else may have made the folder, and a link in it could make a write change any file of the user.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from whenabouts.intake.files import FormatError
from whenabouts.intake.opening import refuse_irregular


def own_file(folder: Path, name: str) -> Path:
    """The path of a file in a folder; the file need not exist.

    Raises FormatError for a link, and for a name that is not a plain file name: one that has a separator or a
    null character, `.`, `..` or "".
    """
    path = folder / name
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise FormatError(folder, "cannot hold a file named", value=name, accepted="a plain file name")
    if os.path.islink(path):  # noqa: PTH114, which is false where opening the file reports the error
        raise _link(path)
    return path


def open_appending(path: Path) -> int:
    """Open a regular file to read and append, and create it if missing; the caller closes the descriptor.

    Raises FormatError for a link, OSError for a file that is not regular or cannot be opened.
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
