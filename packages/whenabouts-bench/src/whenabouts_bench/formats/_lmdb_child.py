"""The child process that reads an LMDB file, a script run by `lmdb_records.LmdbRecords`.

    python _lmdb_child.py PACKAGES FILE

PACKAGES is the folder from which `lmdb` is imported; all else is of the standard library. A request on
standard input is a length and a key, or the length -1 for all keys. A reply on standard output is a length
and that many bytes, or the length -1 followed by a length and an error text. The first reply, before any
request, is empty, or an error if the file cannot be opened; the reply to -1 has each key after its 16-bit
length.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

LENGTH = struct.Struct("<q")
ALL_KEYS = ERROR = -1
KEY_LENGTH = struct.Struct("<H")
_LONGEST_KEY = 511


def main() -> None:
    """Open the file and answer requests until standard input is closed."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path.append(sys.argv[1])
    import lmdb

    try:
        # Without a lock file, so that read-only folders work.
        environment = lmdb.open(
            sys.argv[2], subdir=False, readonly=True, lock=False, create=False, readahead=False
        )
        size = _size(environment, sys.argv[2])
        reading = environment.begin(buffers=True)
    except (lmdb.Error, OSError, ValueError, UnicodeError) as error:
        _fail(replies, error)
        return
    _reply(replies, b"")
    while head := requests.read(LENGTH.size):
        (length,) = LENGTH.unpack(head)
        try:
            if length == ALL_KEYS:
                reply: Any = b"".join(_keys(reading))
            else:
                reply = reading.get(requests.read(length))
                if reply is None or len(reply) > size:
                    raise ValueError(
                        "a record is longer than the file" if reply else "no record has this key"
                    )
        except (lmdb.Error, OSError, ValueError) as error:
            _fail(replies, error)
            continue
        # An error from here on ends the process: the length, and part of the content, are already sent.
        _reply(replies, reply)


def _size(environment: Any, path: str) -> int:
    """Bytes of all pages. Raises ValueError if the file has fewer, which would crash the library."""
    needed: int = environment.stat()["psize"] * (environment.info()["last_pgno"] + 1)
    if (size := Path(path).stat().st_size) < needed:
        raise ValueError(f"it is cut off: it has {size:,} bytes, and its pages need {needed:,}")
    return needed


def _keys(reading: Any) -> Iterator[bytes]:
    """All keys, each after its length.

    Raises ValueError for a key of impossible length, keys out of order, or another number of keys than the
    file states.
    """
    count, before = 0, b""
    expected = reading.stat()["entries"]
    with reading.cursor() as cursor:
        for view in cursor.iternext(values=False):
            if not 0 < len(view) <= _LONGEST_KEY:
                raise ValueError("a key has an impossible length")
            key = bytes(view)
            # lmdb does not check its pages; a misplaced one shows as keys out of order.
            if key <= before:
                raise ValueError("its keys are out of order")
            count, before = count + 1, key
            yield KEY_LENGTH.pack(len(key)) + key
    if count != expected:
        raise ValueError(f"it says that it has {expected:,} records, and {count:,} are there")


def _reply(replies: IO[bytes], content: Any) -> None:
    """Write a reply. Raises OSError (a bad address) where `content` reaches beyond the mapped file."""
    replies.write(LENGTH.pack(len(content)))
    content = memoryview(content)
    while len(content):
        content = content[replies.write(content) :]


def _fail(replies: IO[bytes], error: Exception) -> None:
    text = str(error).encode("utf-8", "replace")
    replies.write(LENGTH.pack(ERROR))
    _reply(replies, text)


if __name__ == "__main__":
    main()
