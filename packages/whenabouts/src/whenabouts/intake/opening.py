"""Opens regular files only, so that a pipe or device cannot hang a reader or feed it without end.

A path may change between a check and its opening, so the open descriptor is checked. Standard library only;
every file that a user names is opened through here.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path | str) -> BufferedReader:
    """A regular file, open for reading; the caller closes it.

    Raises OSError if it cannot be opened, or is a folder, a pipe, a socket or a device; none of them blocks.
    A name with a NUL character counts as missing.
    """
    return os.fdopen(open_descriptor(path), "rb")


def read_lines(path: Path | str, most_bytes: int) -> list[str]:
    """The lines of a regular file in UTF-8, which may begin with a byte order mark.

    Only line feeds end a line: `str.splitlines` also cuts at characters that JSON may contain (U+2028).
    Raises OSError as `read_regular`, and UnicodeDecodeError.
    """
    return read_regular(path, most_bytes).decode("utf-8-sig").split("\n")


def open_descriptor(path: Path | str) -> int:
    """The descriptor of a regular file, checked as in `open_regular`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise _refusal(path, errno.EINVAL) from None
        raise
    except ValueError:
        raise OSError(errno.EINVAL, "a name with a NUL character", repr(str(path))) from None
    refuse_irregular(path, descriptor)
    return descriptor


def refuse_irregular(path: Path | str, descriptor: int) -> None:
    """Close the descriptor and raise OSError unless it is a regular file's."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _refusal(path, errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL)


@contextmanager
def regular_name(path: Path | str) -> Iterator[str]:
    """A name that opens this very file, by its descriptor, for libraries that take no open file.

    It stays valid if `path` changes meanwhile. Data that the library maps or keeps open outlive it.
    Raises OSError like `open_regular`.
    """
    descriptor = open_descriptor(path)
    try:
        yield f"/dev/fd/{descriptor}"
    finally:
        os.close(descriptor)


def read_regular(path: Path | str, most_bytes: int) -> bytes:
    """All bytes of a regular file. Raises OSError, and EFBIG for more than `most_bytes`."""
    with open_regular(path) as file:
        data = file.read(min(os.fstat(file.fileno()).st_size, most_bytes) + 1)
    if len(data) > most_bytes:
        reason = f"larger than {most_bytes >> 20} MB, the most that is read of such a file"
        raise OSError(errno.EFBIG, reason, str(path))
    return data


def _refusal(path: Path | str, number: int) -> OSError:
    is_folder = number == errno.EISDIR
    reason = "a folder, not a file" if is_folder else "not a regular file (a pipe, a socket or a device)"
    return OSError(number, reason, str(path))
