"""Files opened for reading: regular ones only, so that none can hang a reader or feed it without end.

What a name leads to may change between a look at it and its opening, so the open descriptor is what is
checked. Standard library only; every room that reads a file that a person names reads it through here.
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

    Raises OSError for what cannot be opened, and for a folder, a pipe, a socket or a device: none of them is
    waited for. A name with a NUL character is one that is not there.
    """
    return os.fdopen(open_descriptor(path), "rb")


def open_descriptor(path: Path | str) -> int:
    """The descriptor of a regular file, open for reading, as `open_regular` checks it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:  # what a socket says
            raise _refusal(path, errno.EINVAL) from None
        raise
    except ValueError:
        raise OSError(errno.EINVAL, "a name that holds the character NUL", repr(str(path))) from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _refusal(path, errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL)
    return descriptor


@contextmanager
def regular_name(path: Path | str) -> Iterator[str]:
    """A name by which a library that takes no open file opens a regular file: that of the open descriptor.

    It leads to this very file, whatever `path` leads to by then. What the library maps or keeps open stays
    after it is gone. Raises OSError as `open_regular` does.
    """
    descriptor = open_descriptor(path)
    try:
        yield f"/dev/fd/{descriptor}"
    finally:
        os.close(descriptor)


def read_regular(path: Path | str, most_bytes: int) -> bytes:
    """All bytes of a regular file. Raises OSError, also (EFBIG) for one of more than `most_bytes`."""
    with open_regular(path) as file:
        data = file.read(min(os.fstat(file.fileno()).st_size, most_bytes) + 1)
    if len(data) > most_bytes:
        reason = f"larger than {most_bytes >> 20} MB, the most that is read of such a file"
        raise OSError(errno.EFBIG, reason, str(path))
    return data


def _refusal(path: Path | str, number: int) -> OSError:
    is_folder = number == errno.EISDIR
    reason = "a folder, not a file" if is_folder else "no plain file (a pipe, a socket or a device)"
    return OSError(number, reason, str(path))
