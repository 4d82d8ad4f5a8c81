"""Read features of videos or sentences from disk, in any layout: id -> (T, D) rows.

A `FeatureLocation` is a place on disk that may hold features, and `OpenOptions` say how to open it. Each
layout makes a `FeatureSource` from both.
"""

from __future__ import annotations

import dataclasses
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from whenabouts import plugins
from whenabouts.clips import ClipGrid, same_instant
from whenabouts.intake.files import FormatError, is_lmdb, read_json
from whenabouts.intake.opening import open_regular
from whenabouts.types import UsageError, number_of
from whenabouts_systems.features.fingerprint import Fingerprint

Rows = NDArray[np.floating[Any]]

MOST_BYTES = 1 << 32
"""The most bytes of an item; larger ones are refused, because a damaged file may claim any size."""

FINGERPRINT = "fingerprint.json"
"""The file of a folder that says how its features were made."""

STORE_ROWS, STORE_INDEX = "features.npy", "index.json"
"""The files of our own layout (see `layouts.store`)."""

_HEAD_BYTES = 4096
_HDF5 = b"\x89HDF\r\n\x1a\n"
_DTYPES = ("float16", "float32", "float64")
_ITEMSIZES = (2, 4, 8)
# A video may have more rows than clips, by at most the larger of this number and this share of its clips.
_SURPLUS_ROWS, _SURPLUS_SHARE = 2, 0.1


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """Options for opening features.

    `clip_seconds`: length of a row in seconds, if the file does not say it. `strict`: a row that is not
    finite is an error. `key`: which array of an item, if it has several.
    """

    clip_seconds: float | None = None
    strict: bool = False
    key: str | None = None

    def __post_init__(self) -> None:
        given = self.clip_seconds
        if given is not None and not 0 < given < float("inf"):
            raise UsageError(f"clip_seconds is {given!r}; give a number of seconds above 0")


@dataclass(frozen=True)
class FeatureLocation:
    """A file or folder that may hold features, and the parts of it by which its layout is recognised."""

    path: Path

    @cached_property
    def is_folder(self) -> bool:
        """Whether it is a folder. Raises FormatError if it does not exist or cannot be read."""
        try:
            self.path.stat()
        except OSError as error:
            raise FormatError(self.path, f"cannot be read: {error.strerror or error}") from None
        return self.path.is_dir()

    @cached_property
    def head(self) -> bytes:
        """The first bytes of a file; none for a folder."""
        if self.is_folder:
            return b""
        if not self.path.is_file():
            raise FormatError(self.path, "is neither a file nor a folder")
        try:
            with open_regular(self.path) as stream:
                return stream.read(_HEAD_BYTES)
        except OSError as error:
            raise FormatError(self.path, f"cannot be read: {error.strerror or error}") from None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the files and links in a folder, sorted, without hidden ones."""
        if not self.is_folder:
            return ()
        try:
            with os.scandir(self.path) as entries:
                names = [
                    e.name for e in entries if not e.name.startswith(".") and (e.is_symlink() or e.is_file())
                ]
        except OSError as error:
            raise FormatError(self.path, f"cannot be read: {error.strerror or error}") from None
        return tuple(sorted(names))

    @property
    def is_hdf5(self) -> bool:
        """Whether it begins like an HDF5 file (after a user block of up to 2 KiB)."""
        return any(self.head[at : at + 8] == _HDF5 for at in (0, 512, 1024, 2048))

    @cached_property
    def lmdb_file(self) -> Path | None:
        """The data file of an LMDB environment: a folder's `data.mdb`, or the file; None for others."""
        if "data.mdb" in self.names:
            return self.path / "data.mdb"
        return self.path if is_lmdb(self.head) else None

    def stated_facts(self) -> Mapping[str, Any]:
        """The facts in a folder's `fingerprint.json`; none if it has no such file."""
        if FINGERPRINT not in self.names:
            return {}
        path = self.path / FINGERPRINT
        facts = read_json(path)
        if not isinstance(facts, dict):
            raise FormatError(path, "holds a list or a bare value", accepted="one JSON object")
        extra = facts.get("extra")
        if extra is not None and not isinstance(extra, dict):
            raise FormatError(path, "is", field="extra", value=extra, accepted="a JSON object")
        return {name: value for name, value in facts.items() if value is not None} | (extra or {})

    def describe(self) -> str:
        """The kind of file or folder, in words, for an error message."""
        if self.is_folder:
            if not self.names:
                return "a folder without files"
            if "lock.mdb" in self.names:
                return "a folder with lock.mdb but without data.mdb, the file of LMDB that holds the items"
            return f"a folder of {number_of(len(self.names), 'file')}, such as {self.names[0]!r}"
        if not self.head:
            return "an empty file"
        if self.head.startswith(b"version https://git-lfs"):
            return "a Git LFS pointer, not the file itself (run: git lfs pull)"
        return f"a file that begins with {self.head[:16]!r}"


@dataclass(frozen=True, slots=True)
class UnreadArray:
    """An item's array whose rows `read` will read; shape and dtype are known before."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class GridRows:
    """One row of features for each clip of a video.

    `rows` (clips, D) are zero, and `mask` (clips,) is false, where the file has no row. `surplus`: number of
    rows left out after the video's end. `missing`: number of clips without a row.
    """

    rows: Rows
    mask: NDArray[np.bool_]
    surplus: int
    missing: int


class FeatureSource(ABC):
    """Features of items by id, read one item at a time; a context manager.

    An item has (T, D) rows: T clips of a video, T tokens of a sentence, or one vector for all of it (T = 1).
    All items have the same width D. Numbers are unchanged from the file: float16 stays float16, and nothing
    is normalised. Arrays from `get` may be read-only and may share memory with the file.
    """

    layout: str
    has_keys: ClassVar[bool] = True
    """Whether an item of this layout may have several arrays; `options.key` then names one."""

    def __init__(self, path: Path, options: OpenOptions) -> None:
        if options.key is not None and not self.has_keys:
            raise UsageError(f"{path}: key {options.key!r}: an item of layout {self.layout} is one array")
        self.path = path
        self.options = options
        self._closed = False

    # For a layout to implement.

    @abstractmethod
    def _items_by_id(self) -> Mapping[str, Any]:
        """Id -> location of each item, in the file's order; the layout defines what a location is."""

    @abstractmethod
    def _inspect(self, item: str, where: Any) -> UnreadArray:
        """The item's array at the location `where`, without reading its rows if the layout allows."""

    def _facts(self) -> Mapping[str, Any]:
        """What the file says of how it was made: fields of `Fingerprint`, and other facts."""
        return {}

    def _content(self) -> str | None:
        """The stored hash of ids and rows, if there is one."""
        return None

    def _release(self) -> None:  # noqa: B027
        """Close the layout's open files."""

    # Shared by all layouts.

    @cached_property
    def _items(self) -> Mapping[str, Any]:
        self._check_open()
        items = self._items_by_id()
        if not items:
            raise FormatError(self.path, "holds no items")
        return items

    def ids(self) -> Sequence[str]:
        """The ids of all items, in the order of the file."""
        return tuple(self._items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    @property
    def width(self) -> int:
        """D, the same for all items."""
        return self._first.shape[-1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The float type of the first item, in native byte order; other items may have another."""
        return self._first.dtype.newbyteorder("=")

    @property
    def is_pooled(self) -> bool:
        """Whether every item is stored as one bare vector (D,); `get` gives it as (1, D)."""
        return len(self._first.shape) == 1

    @property
    def clip_seconds(self) -> float | None:
        """The seconds of video that a row covers, None if nobody says. Raises as `fingerprint` does."""
        return self.fingerprint.clip_seconds

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The encoder and settings that made these features, as far as they are known.

        Raises UsageError if the caller's clip length differs from the file's.
        """
        measured = Fingerprint(dtype=str(self.dtype), width=self.width, content=self._content())
        stated = measured.with_facts(self._facts(), self.path)
        given = self.options.clip_seconds
        if given is not None:
            if stated.clip_seconds is not None and not same_instant(stated.clip_seconds, given):
                raise UsageError(
                    f"{self.path}: its clips are {stated.clip_seconds:g} s long, as the file or its name "
                    f"says, not {given:g} s; leave the clip length out"
                )
            return dataclasses.replace(stated, clip_seconds=given)
        return stated

    def get(self, item: str) -> Rows:
        """(T, D) rows of an item, T at least 1.

        Raises FormatError, naming file and item, if the item is missing, damaged, not a (T, D) or (D,) array
        of floats, too large, or unlike the first item; with `strict` also for rows that are not finite.
        """
        unread = self._checked_item(item)
        try:
            rows = unread.read()
        except MemoryError:
            self._refuse(item, f"of {unread.shape} does not fit into memory")
        if not rows.dtype.isnative:
            rows = rows.astype(rows.dtype.newbyteorder("="))
        if rows.shape != unread.shape:
            self._refuse(item, f"has shape {rows.shape}, but {unread.shape} was announced")
        rows = rows.reshape(-1, rows.shape[-1])
        if self.options.strict:
            self._check_finite(item, rows)
        return rows

    def length(self, item: str) -> int:
        """T, the number of rows of an item, without reading them if the layout allows. Raises FormatError."""
        shape = self._checked_item(item).shape
        return shape[0] if len(shape) == 2 else 1

    def grid(self, item: str, duration: float) -> ClipGrid:
        """The clips of a video of `duration` seconds. `on_grid` cuts or pads an item's rows to these.

        Raises FormatError for an unknown item, UsageError if the clip length is unknown: it is never guessed.
        """
        if item not in self:
            self._refuse_unknown(item)
        if self.clip_seconds is None:
            raise UsageError(
                f"{self.path}: the file does not say how many seconds a row covers; "
                "give clip_seconds (--clip-seconds), as the release's page says"
            )
        return ClipGrid(self.clip_seconds, duration)

    def on_grid(self, item: str, duration: float) -> GridRows:
        """One row for each clip of a video, with a mask and counts; raises as `grid` and `rows_on_grid`."""
        return rows_on_grid(self.get(item), self.grid(item, duration), f"{self.path}: item {item!r}")

    def close(self) -> None:
        """Close the file. Arrays from `get` stay valid."""
        if not self._closed:
            self._closed = True
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process reopen the file: handles of HDF5 and LMDB must not be shared."""
        return _reopened, (self.path, self.layout, self.options)

    def _checked_item(self, item: str) -> UnreadArray:
        self._check_open()
        if item not in self._items:
            self._refuse_unknown(item)
        unread = self._inspect(item, self._items[item])
        self._check(item, unread)
        first = self._first
        if len(unread.shape) != len(first.shape):
            self._refuse(
                item,
                f"has shape {unread.shape}, but the first item has {first.shape}",
                "arrays of one rank in a file: (T, D), or one vector (D,) in all items",
            )
        if unread.shape[-1] != first.shape[-1]:
            self._refuse(
                item, f"is {unread.shape[-1]} wide", f"the width of the first item, {first.shape[-1]}"
            )
        return unread

    @cached_property
    def _first(self) -> UnreadArray:
        item, where = next(iter(self._items.items()))
        unread = self._inspect(item, where)
        self._check(item, unread)
        # Keep only shape and dtype, because the array would stay in memory as long as the source is open.
        return UnreadArray(unread.shape, unread.dtype, lambda: np.empty(0))

    def _check(self, item: str, unread: UnreadArray) -> None:
        """Raise FormatError for an item that is not a (T, D) or (D,) array of floats."""
        if unread.dtype.hasobject:
            self._refuse(
                item, "holds objects, not numbers; they are never read", f"arrays of {', '.join(_DTYPES)}"
            )
        if unread.dtype.kind != "f" or unread.dtype.itemsize not in _ITEMSIZES:
            self._refuse(item, f"holds {unread.dtype.name}", f"arrays of {', '.join(_DTYPES)}")
        if len(unread.shape) not in (1, 2):
            self._refuse(item, f"has shape {unread.shape}", "(T, D), rows by width")
        if 0 in unread.shape:
            self._refuse(item, f"is empty, of shape {unread.shape}", "at least one row")
        size = math.prod(unread.shape) * unread.dtype.itemsize
        if size > MOST_BYTES:
            self._refuse(item, f"claims to be {size:,} bytes large", f"items of at most {MOST_BYTES:,} bytes")

    def _check_finite(self, item: str, rows: Rows) -> None:
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            self._refuse(
                item, f"{len(bad)} of {len(rows)} rows are not finite, row {bad[0]} first", "finite numbers"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"{self.path}: these features are closed")

    def _refuse(self, item: str, problem: str, accepted: str = "") -> NoReturn:
        raise FormatError(self.path, problem, field=f"item {item!r}", accepted=accepted) from None

    def _refuse_unknown(self, item: str) -> NoReturn:
        examples = ", ".join(repr(name) for name in list(self._items)[:3])
        self._refuse(
            str(item), "there is no such item", f"one of its {len(self._items)} ids, such as {examples}"
        )


def _reopened(path: Path, layout: str, options: OpenOptions) -> FeatureSource:
    source: FeatureSource = plugins.load("features", "layouts").open_features(
        path, layout=layout, **dataclasses.asdict(options)
    )
    return source


def refuse_surplus(rows: int, grid: ClipGrid, name: str) -> None:
    """Raise UsageError if rows exceed clips by more than 2 and by more than a tenth of the clips."""
    clips = len(grid)
    if rows - clips > max(_SURPLUS_ROWS, _SURPLUS_SHARE * clips):
        raise UsageError(
            f"{name}: {rows} rows for {clips} clips of {grid.clip_seconds:g} s in {grid.duration:g} s; "
            f"rows of {grid.duration / rows:.3g} s would fit: is the clip length right?"
        )


def rows_on_grid(rows: Rows, grid: ClipGrid, name: str = "these features") -> GridRows:
    """One row for each clip of a video: row i of `rows` (T, D) is clip i, counted from the video's start.

    Released features often have one row more than the video has clips; rows after its end are left out. Rows
    may also end early (cut at 100 clips, or the last frames not decoded); the last clips are then zero, and
    false in the mask. Raises UsageError for many more rows than clips (`refuse_surplus`), because the clip
    length, or the video, is then wrong. `name` names the rows in the error.
    """
    refuse_surplus(len(rows), grid, name)
    clips = len(grid)
    surplus, missing = max(0, len(rows) - clips), max(0, clips - len(rows))
    kept = rows[:clips]
    if missing:
        kept = np.concatenate([kept, np.zeros((missing, rows.shape[1]), rows.dtype)])
    return GridRows(kept, np.arange(clips) < len(rows), surplus, missing)
