"""Checksums of a corpus's files: a byte that a disk or a copy changed would be read as if it were right.

Lance writes each file once and gives it no checksum. So whoever has written a corpus in a folder leaves a
list of its files beside the tables, with their sizes and CRC-32, and takes it away before the next writing:
the list is there while the corpus is at rest, and only then. A crash leaves none, and nothing is held against
the files until the next writing has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from whenabouts.index.records import StoreError
from whenabouts.intake.opening import open_regular, read_regular

CHECKSUMS_FILE = "checksums.json"
READ_AT_OPENING = 64 << 20
"""A corpus of up to so many bytes is read when it is opened (0.1 s); of a larger one sizes are looked at."""

_MOST_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20
# Lance keeps the number of the newest version in it, and looks for a newer one.
_REWRITTEN = "latest_version_hint.json"


@dataclass(frozen=True, slots=True)
class Checksum:
    """What a file is: its bytes, and the CRC-32 of them; `written_ns` is when it was written, from 1970."""

    size: int
    crc: int
    written_ns: int


Checksums = Mapping[str, Checksum]


def begin(folder: Path) -> Checksums:
    """Take the list away before something is written; the checksums that it had."""
    listed = _listed(folder) or {}
    (folder / CHECKSUMS_FILE).unlink(missing_ok=True)
    return listed


def finish(folder: Path, before: Checksums) -> None:
    """Leave the list of all files as they are now. Those that were listed before are not read again.

    A disk that is full leaves no list, and that is no fault.
    """
    with contextlib.suppress(OSError):
        sums = {}
        for name, status in _files(folder):
            # A table that is made anew has files of the same names.
            now, earlier = (status.st_size, status.st_mtime_ns), before.get(name)
            is_same = earlier is not None and (earlier.size, earlier.written_ns) == now
            sums[name] = earlier if is_same and earlier else Checksum(now[0], _crc(folder / name), now[1])
        text = json.dumps({name: [entry.size, entry.crc, entry.written_ns] for name, entry in sums.items()})
        draft = folder / f"{CHECKSUMS_FILE}.{os.getpid()}"
        draft.write_text(text, encoding="utf-8")
        draft.replace(folder / CHECKSUMS_FILE)


def verify(place: str, folder: Path, *, whole: bool = False) -> None:
    """Raise StoreError for a file that is not as it was written, or is gone.

    All bytes are read of a corpus that is small (`READ_AT_OPENING`), or with `whole` of any.
    """
    listed = _listed(folder)
    if listed is None:
        return
    is_read = whole or sum(entry.size for entry in listed.values()) <= READ_AT_OPENING
    problem = next(_problems(folder, listed, is_read), None)
    # A writer may have begun meanwhile: it takes the list away first, and files only then.
    if problem is not None and _listed(folder) == listed:
        raise StoreError(
            f"{place} is damaged: {problem}; restore the corpus from a copy, or index into a new folder"
        )


def has_list(folder: Path) -> bool:
    """Whether there is a list: the corpus is at rest."""
    return _listed(folder) is not None


def _problems(folder: Path, listed: Checksums, is_read: bool) -> Iterator[str]:
    there = dict(_files(folder))
    # Another version of this program may have written without a list: what it took away is no damage.
    # In a folder that several machines mount, the lease is given back after the list was written.
    fresh = [name for name in there.keys() - listed.keys() if not name.startswith("corpus.lance/")]
    is_stale = any("/_versions/" in name for name in fresh)
    for name, entry in listed.items():
        if name not in there:
            if not is_stale:
                yield f"its file {name} is gone"
        elif there[name].st_size != entry.size:
            yield f"its file {name} has {there[name].st_size:,} bytes and not {entry.size:,}"
        elif is_read:
            with contextlib.suppress(FileNotFoundError):
                if _crc(folder / name) != entry.crc:
                    yield f"its file {name} does not hold what was written"


def _listed(folder: Path) -> Checksums | None:
    """The list; None where there is none that can be read."""
    try:
        entries = json.loads(read_regular(folder / CHECKSUMS_FILE, _MOST_BYTES))
        return {name: Checksum(*map(int, facts)) for name, facts in entries.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files of the tables that are written once, by their path in the corpus."""
    for top, _, names in os.walk(folder):
        for name in names if top != str(folder) else ():
            path = Path(top) / name
            with contextlib.suppress(FileNotFoundError):
                if name != _REWRITTEN:
                    yield path.relative_to(folder).as_posix(), path.stat()


def _crc(path: Path) -> int:
    crc = 0
    with open_regular(path) as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc
