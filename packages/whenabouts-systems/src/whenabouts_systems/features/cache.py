"""Check the rows of many items, and keep them in memory up to a limit, or mapped if the layout allows it.

Training reads every item of its features hundreds of times, in random order. Here each is read once at the
start, so that damage is found before the first step and not in the third hour.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError, read_json, write_atomically
from whenabouts.types import UsageError
from whenabouts_systems.features import open_features
from whenabouts_systems.features.layouts.hdf5_tacos import NAME as TACOS_LAYOUT
from whenabouts_systems.features.layouts.store import NAME as OWN_LAYOUT
from whenabouts_systems.features.layouts.store import write_store
from whenabouts_systems.features.source import FeatureSource, Rows

_BITS: dict[int, tuple[type[np.unsignedinteger[Any]], int, int]] = {
    2: (np.uint16, 0x7FFF, 0x7C00),
    4: (np.uint32, 0x7FFF_FFFF, 0x7F80_0000),
    8: (np.uint64, 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
}
"""Size of a float in bytes -> the integer type of that size, all bits but the sign, the bits of infinity."""

LARGEST_VALUE = 1e16
"""The largest value that a row may hold: the sum of a million of its squares is finite in float32."""


class CachedRows:
    """Rows of N items of a feature file, by number.

    `lengths` (N,) counts rows; `is_zero` (N,) marks items whose values are all 0. Items beyond `most_bytes`
    are read from the file each time. Raises FormatError for values that are not finite or above 1e16.
    """

    def __init__(self, source: FeatureSource, ids: Sequence[str], most_bytes: int) -> None:
        self.source = source
        self.ids = tuple(ids)
        self.lengths: NDArray[np.int64] = np.zeros(len(self.ids), np.int64)
        self.is_zero: NDArray[np.bool_] = np.zeros(len(self.ids), bool)
        self.bytes_held = 0
        self._held: list[Rows | None] = [None] * len(self.ids)
        self._map: mmap.mmap | None = None
        for number, rows in self._read():
            self._keep(number, rows, most_bytes)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, number: int) -> Rows:
        rows = self._held[number]
        return self.source.get(self.ids[number]) if rows is None else rows

    @property
    def items_held(self) -> int:
        """The number of items that are in memory or mapped."""
        return sum(rows is not None for rows in self._held)

    def _read(self) -> Iterator[tuple[int, Rows]]:
        for number, item in enumerate(self.ids):
            rows = self.source.get(item)
            largest, infinity = largest_bits(rows)
            if largest >= infinity:
                bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
                raise FormatError(
                    self.source.path,
                    f"{len(bad)} of {len(rows)} rows are not finite, the first is row {bad[0]}",
                    field=f"item {item!r}",
                    accepted="finite numbers",
                )
            if largest > _bits_of(LARGEST_VALUE, rows):
                row = int(np.argmax(np.abs(rows).max(axis=1)))
                raise FormatError(
                    self.source.path,
                    f"row {row} of {len(rows)} holds a number as large as {np.abs(rows[row]).max():g}",
                    field=f"item {item!r}",
                    accepted=f"numbers up to {LARGEST_VALUE:g}, whose squares float32 can add",
                )
            self.lengths[number], self.is_zero[number] = len(rows), largest == 0
            yield number, rows

    def _keep(self, number: int, rows: Rows, most_bytes: int) -> None:
        mapped = _map_of(rows)
        if mapped is not None and self._map in (None, mapped):
            # All items are views of one map; each of several maps would keep a file open.
            self._map, self._held[number] = mapped, rows
            return
        kept = rows.astype(np.float32) if rows.dtype.itemsize > 4 else np.array(rows, copy=mapped is not None)
        if self.bytes_held + kept.nbytes <= most_bytes:
            self._held[number] = kept
            self.bytes_held += kept.nbytes


def largest_bits(rows: Rows) -> tuple[int, int]:
    """The largest absolute value as bits, and the bits of infinity: a fast test for zeros and NaN.

    Without their sign, floats are ordered as their bits, and those that are not finite come last.
    """
    integer, unsigned, infinity = _BITS[rows.dtype.itemsize]
    bits = np.ascontiguousarray(rows).view(integer)
    return int((bits & integer(unsigned)).max()), infinity


def _bits_of(value: float, rows: Rows) -> int:
    """A positive number as bits, to compare with `largest_bits`; no number of float16 is too large."""
    integer, _, infinity = _BITS[rows.dtype.itemsize]
    return infinity if rows.dtype.itemsize == 2 else int(np.array(value, rows.dtype).view(integer))


def open_cached_copy(source: FeatureSource, cache: Path) -> FeatureSource:
    """The same features from a copy in our own layout, which opens quickly; it is made if there is none.

    The copy is used only while path, size and time of change of the original are the same as when it was
    made. Features in our own layout are returned unchanged, and so are those of TACoS, whose items have two
    names each. The caller closes what is returned; the original is closed if a copy replaces it.
    """
    if source.layout in (OWN_LAYOUT, TACOS_LAYOUT):
        return source
    place = cache / f"{source.path.name}-{_short(source)}"
    record = place.with_name(place.name + ".json")
    state = _state(source.path)
    if _is_current(place, record, state):
        with contextlib.suppress(FormatError):  # a damaged copy is made again
            copy = open_features(place, layout=OWN_LAYOUT)
            source.close()
            return copy
    shutil.rmtree(place, ignore_errors=True)
    if not place.exists():  # an old copy that cannot be removed must not become current
        with write_atomically(record) as stream:
            stream.write(json.dumps(state).encode())
    try:
        write_store(place, ((item, source.get(item)) for item in source), source.fingerprint)
    except (FormatError, UsageError):
        if not _is_current(place, record, state):  # else another process has made it meanwhile
            raise
    source.close()
    return open_features(place, layout=OWN_LAYOUT)


def _short(source: FeatureSource) -> str:
    description = f"{source.path.resolve()} {source.options}"
    return hashlib.sha256(description.encode()).hexdigest()[:12]


def _state(path: Path) -> dict[str, Any]:
    """Size and time of change of a file, or of all the files in a folder."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    stats = [file.stat() for file in files]
    return {
        "path": str(path.resolve()),
        "files": len(files),
        "size": sum(status.st_size for status in stats),
        "changed_ns": max((status.st_mtime_ns for status in stats), default=0),
    }


def _is_current(place: Path, record: Path, state: dict[str, Any]) -> bool:
    try:
        return bool(read_json(record) == state) and place.is_dir()
    except FormatError:
        return False


def _map_of(rows: Rows) -> mmap.mmap | None:
    """The map of a file, if rows are a view of one."""
    base: Any = rows
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None
