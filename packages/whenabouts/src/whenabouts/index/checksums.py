"""Checksums of a corpus's files, to find bytes that a disk or a copy changed.

Lance writes each file once, without a checksum. So a writer of a corpus in a folder leaves a list of its
files beside the tables, with sizes and CRC-32, and deletes it before the next write: the list exists only
while the corpus is at rest. After a crash there is no list, and files are not verified until the next write
ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from whenabouts.index.records import StoreError
from whenabouts.intake.files import FormatError, write_atomically
from whenabouts.intake.opening import open_regular, read_regular
from whenabouts.intake.own_files import own_file

CHECKSUMS_FILE = "checksums.json"
READ_AT_OPENING = 64 << 20
"""Corpora up to this size in bytes are read when opened (0.1 s); for larger ones only sizes are compared."""

_MOST_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20
# Not files that other programs leave (`.DS_Store`), nor the hint of the newest version, which Lance rewrites.
_OF_TABLE = re.compile(r"[^/]+\.lance/(?:[^./][^/]*/)*(?!\.|latest_version_hint\.json$)[^/]+")


class Checksum(NamedTuple):
    """Size and CRC-32 of a file; `written_ns` is its modification time (nanoseconds since 1970)."""

    size: int
    crc: int
    written_ns: int


Checksums = Mapping[str, Checksum]


def begin(folder: Path) -> Checksums:
    """Delete the list before a write; returns its checksums, for `finish`."""
    listed = _listed(folder) or {}
    (folder / CHECKSUMS_FILE).unlink(missing_ok=True)
    return listed


def finish(folder: Path, before: Checksums) -> None:
    """Write the list of all files as they are now; only files that differ from `before` are read.

    If the disk is full or the folder gone, no list is written and no error raised.
    """
    if not folder.is_dir():
        return
    with contextlib.suppress(OSError, FormatError):
        sums = {}
        for name, status in table_files(folder):
            # A table that is dropped and made again has files of the same names.
            now, earlier = (status.st_size, status.st_mtime_ns), before.get(name)
            is_same = earlier is not None and (earlier.size, earlier.written_ns) == now
            sums[name] = earlier if is_same and earlier else Checksum(now[0], _crc(folder / name), now[1])
        with write_atomically(own_file(folder, CHECKSUMS_FILE)) as stream:
            stream.write(json.dumps(sums).encode())


def verify(place: str, folder: Path, *, whole: bool = False) -> bool:
    """Raise StoreError for a listed file that is missing or changed; without a list, return false.

    All bytes are compared if the corpus is small (`READ_AT_OPENING`) or `whole` is true, else only sizes.
    """
    listed = _listed(folder)
    if listed is None:
        return False
    is_read = whole or sum(entry.size for entry in listed.values()) <= READ_AT_OPENING
    problem = next(_problems(folder, listed, is_read), None)
    # A writer may have begun meanwhile: it deletes the list first, then files.
    if problem is not None and _listed(folder) == listed:
        raise StoreError(
            f"{place} is damaged: {problem}; restore the corpus from a copy, or index into a new folder"
        )
    return True


def _problems(folder: Path, listed: Checksums, is_read: bool) -> Iterator[str]:
    present = dict(table_files(folder))
    # Earlier versions of this program write without a list, so files that they deleted are not damage.
    # In a folder that several machines mount, releasing the lease changes `corpus.lance` after the list.
    fresh = [name for name in present.keys() - listed.keys() if not name.startswith("corpus.lance/")]
    is_stale = any("/_versions/" in name for name in fresh)
    for name, entry in listed.items():
        if name not in present:
            if not is_stale:
                yield f"its file {name} is gone"
        elif present[name].st_size != entry.size:
            yield f"its file {name} has {present[name].st_size:,} bytes and not {entry.size:,}"
        elif is_read:
            with contextlib.suppress(FileNotFoundError):
                if _crc(folder / name) != entry.crc:
                    yield f"its file {name} does not hold what was written"


def _listed(folder: Path) -> Checksums | None:
    """The list; None if it is missing or cannot be read."""
    try:
        entries = json.loads(read_regular(folder / CHECKSUMS_FILE, _MOST_BYTES))
        listed = {name: Checksum(*map(int, facts)) for name, facts in entries.items()}
        return {name: checksum for name, checksum in listed.items() if _OF_TABLE.fullmatch(name)}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def table_files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Path in the corpus and status of each file of the tables that is written once."""
    for top, _, names in os.walk(folder):
        for path in map(Path(top).joinpath, names):
            name = path.relative_to(folder).as_posix()
            with contextlib.suppress(FileNotFoundError):
                if _OF_TABLE.fullmatch(name):
                    yield name, path.stat()


def _crc(path: Path) -> int:
    crc = 0
    with open_regular(path) as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc
