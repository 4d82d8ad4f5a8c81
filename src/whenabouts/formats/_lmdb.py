"""LMDB environments: opened for reading, once in a process, and only where their file is whole.

The package `lmdb` is not always there; who calls hands it over.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from whenabouts.formats._lmdb_pages import check_pages
from whenabouts.formats.files import FormatError

Mark = tuple[int, int, int]
"""Under which an environment is to be closed: process, device and number of its file."""

_environments: dict[Mark, tuple[Any, int]] = {}
"""Open environments and how many users each has: LMDB forbids to open one twice in a process."""

_MAGIC = b"\xde\xc0\xef\xbe"
_MAGIC_AT = (16, 24)


def is_lmdb(head: bytes) -> bool:
    """Whether a file that begins like this is an LMDB environment's (32 or 64 bits, little-endian)."""
    return any(head[at : at + len(_MAGIC)] == _MAGIC for at in _MAGIC_AT)


def open_environment(lmdb: Any, file: Path) -> tuple[Mark, Any]:
    """An environment to read and its mark. Raises FormatError for a file that is none, cut off or damaged."""
    try:
        status = file.stat()
    except OSError as error:
        raise FormatError(file, f"cannot be read: {error.strerror or error}") from None
    # A child process may not use what its parent opened.
    mark = (os.getpid(), status.st_dev, status.st_ino)
    if mark in _environments:
        environment, users = _environments[mark]
        _environments[mark] = environment, users + 1
        return mark, environment
    environment = _opened(lmdb, file)
    _environments[mark] = environment, 1
    return mark, environment


def _opened(lmdb: Any, file: Path) -> Any:
    try:
        check_pages(file)
        # Read only and without its lock file, so that a folder nobody may write to is read too. The map's
        # size comes from the file.
        return lmdb.open(str(file), subdir=False, readonly=True, lock=False, create=False, readahead=False)
    except (lmdb.Error, OSError, UnicodeError) as error:
        raise FormatError(file, f"is no whole LMDB file ({error}); fetch it again") from None


def close_environment(mark: Mark) -> None:
    """One user less; the last one closes it."""
    environment, users = _environments[mark]
    if users > 1:
        _environments[mark] = environment, users - 1
        return
    del _environments[mark]
    if mark[0] == os.getpid() and not sys.is_finalizing():
        environment.close()
