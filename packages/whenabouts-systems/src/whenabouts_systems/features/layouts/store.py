"""Our own layout: a folder with all rows in one memory-mapped file, and files of ids and lengths.

    features.npy      (N, D) rows of all items, one after the other, as NumPy writes them
    index.json        format, version, and in the order of the rows: ids, lengths
    fingerprint.json  how the features were made, and the hash of ids and rows

Any program that reads .npy and JSON can read it. An item is a slice of the mapped file: `get` copies nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError, folder_aside, read_json, write_atomically
from whenabouts.types import UsageError, number_of
from whenabouts_bench.formats.json_records import Origin
from whenabouts_systems.features.fingerprint import Fingerprint
from whenabouts_systems.features.layouts._numpy_files import inspect_npy
from whenabouts_systems.features.source import (
    FINGERPRINT,
    STORE_INDEX,
    STORE_ROWS,
    FeatureLocation,
    FeatureSource,
    OpenOptions,
    Rows,
    UnreadArray,
)

NAME = "whenabouts"
SUMMARY = "folder with features.npy, index.json, fingerprint.json: our own store"
OUTLINE = r"store\n.*"

DTYPES = ("float16", "float32", "float64")
FORMAT, VERSION = "whenabouts-features", 1
# The project was called cuepoint until 0.x: stores of that name are read, and the name stays in the hash of
# the content, so that features have the same fingerprint whichever version wrote them.
_FORMER_FORMAT = "cuepoint-features"


@dataclass(frozen=True, slots=True)
class WrittenStore:
    """The store that was written: `bytes` on disk, and `content`, the hash of ids and rows."""

    path: Path
    items: int
    rows: int
    width: int
    dtype: str
    bytes: int
    rows_not_finite: int
    content: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {name: getattr(self, name) for name in self.__slots__} | {"path": str(self.path)}

    def lines(self) -> list[str]:
        """Lines of text."""
        lines = [
            f"{self.path}: {number_of(self.items, 'item')}, {number_of(self.rows, 'row')} of {self.width} "
            f"{self.dtype}, {self.bytes / 1e6:,.1f} MB",
            f"content {self.content}",
        ]
        if self.rows_not_finite:
            not_finite = number_of(self.rows_not_finite, "row is", "rows are")
            lines.append(f"{not_finite} not finite, as in the source")
        return lines


class Source(FeatureSource):
    """Slices of one memory-mapped array."""

    layout = NAME
    has_keys = False

    def __init__(self, location: FeatureLocation, options: OpenOptions) -> None:
        super().__init__(location.path, options)
        ids, lengths = _read_index(location.path / STORE_INDEX)
        self._rows = _map(location.path / STORE_ROWS)
        if not self._rows.dtype.isnative:
            raise FormatError(
                location.path / STORE_ROWS,
                "is",
                field="descr",
                value=self._rows.dtype.str,
                accepted="<f2, <f4, <f8",
            )
        self._ends = np.cumsum(lengths)
        if self._rows.ndim != 2 or len(self._rows) != int(self._ends[-1]):
            raise FormatError(
                location.path / STORE_ROWS,
                f"has shape {self._rows.shape}",
                accepted=f"(rows, width) with the {int(self._ends[-1])} rows that {STORE_INDEX} lists",
            )
        starts = (self._ends - lengths).tolist()
        self._slices = {
            item: slice(*ends) for item, *ends in zip(ids, starts, self._ends.tolist(), strict=True)
        }
        self._stated = location.stated_facts()
        self._checked_item(ids[0])  # all items are slices of one array, so a fault shows in the first

    def _content(self) -> str | None:
        content = self._stated.get("content")
        return content if isinstance(content, str) else None

    def _items_by_id(self) -> Mapping[str, Any]:
        return self._slices

    def _facts(self) -> Mapping[str, Any]:
        return self._stated

    def get(self, item: str) -> Rows:
        """(T, D) rows of an item: a slice of the file, nothing is copied."""
        place = self._slices.get(item)
        if place is None or self._closed or self.options.strict:
            return super().get(item)
        return self._rows[place]

    def _inspect(self, item: str, where: Any) -> UnreadArray:
        rows = self._rows[where]
        return UnreadArray(rows.shape, rows.dtype, lambda: rows)


open_source = Source


def write_store(
    path: Path,
    items: Iterable[tuple[str, Rows]],
    fingerprint: Fingerprint,
    dtype: np.dtype[Any] | None = None,
) -> WrittenStore:
    """Write items (id, (T, D) rows) in the order they come, one in memory at a time.

    The folder appears whole under its name or not at all. `dtype` None keeps that of the first item.
    Raises UsageError if `path` exists, an id comes twice, widths differ, or numbers would change (a wider
    type later, or too large for float16); FormatError for an id that is a path.
    """
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path}: is there already; nothing is overwritten, give another name or remove it")
    with folder_aside(path) as folder:
        with (folder / STORE_ROWS).open("wb") as stream:
            writer = _Writer(path, stream, dtype)
            for item, rows in items:
                writer.add(item, rows)
            writer.finish()
        _write_json(folder / STORE_INDEX, writer.index())
        content = writer.content()
        stated = replace(fingerprint, dtype=writer.dtype.name, width=writer.width, content=content)
        _write_json(folder / FINGERPRINT, stated.to_json())
        size = sum(file.stat().st_size for file in folder.iterdir())
    return WrittenStore(
        path, len(writer.ids), writer.rows, writer.width, writer.dtype.name, size, writer.not_finite, content
    )


def convert_to_store(
    source: FeatureSource,
    path: str | Path,
    *,
    facts: Mapping[str, Any] | None = None,
    dtype: str | None = None,
) -> WrittenStore:
    """Write a source as our own store; one item is in memory at a time.

    Numbers are unchanged unless `dtype` names another type. `facts` are added to the source's fingerprint;
    their names are its fields or others. Raises UsageError, and writes nothing, if `path` exists already or a
    fact contradicts the source's fingerprint.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r} is not stored; accepted: {', '.join(DTYPES)}")
    stated = source.fingerprint
    of_source = {**stated.to_json(), **stated.extra, "extra": None}
    for name, value in (facts or {}).items():
        if of_source.get(name) is not None and of_source[name] != value:
            raise UsageError(
                f"{source.path}: {name} is {of_source[name]!r} in the source, not {value!r}; leave it out"
            )
    fingerprint = stated.with_facts(facts or {}, "--set")
    rows = ((item, source.get(item)) for item in source)
    return write_store(Path(path), rows, fingerprint, None if dtype is None else np.dtype(dtype))


def content_hash(items: Iterable[tuple[str, Rows]]) -> str:
    """SHA-256 of ids and rows; it does not depend on the order of the items or the layout."""
    return _joined((item, _digest(rows)) for item, rows in items)


class _Writer:
    """Rows appended to a .npy file, whose header is filled in at the end."""

    def __init__(self, path: Path, stream: IO[bytes], dtype: np.dtype[Any] | None) -> None:
        self._path, self._stream, self._given_dtype = path, stream, dtype
        self.ids: list[str] = []
        self._lengths: list[int] = []
        self._known: set[str] = set()
        self._digests: list[bytes] = []
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        self.width, self.rows, self.not_finite = 0, 0, 0

    def add(self, item: str, rows: Rows) -> None:
        if item in self._known:
            raise UsageError(f"{self._path}: item {item!r} comes twice; accepted: ids that differ")
        _check_id(self._path, item)
        if rows.ndim != 2 or 0 in rows.shape or rows.dtype.kind != "f":
            raise UsageError(
                f"{self._path}: item {item!r} is {rows.dtype} of shape {rows.shape}; "
                "accepted: (T, D) floats with at least one row"
            )
        if not self.ids:
            self.dtype, self.width = self._given_dtype or rows.dtype.newbyteorder("="), rows.shape[1]
            self._write_header(0)
        if rows.shape[1] != self.width:
            raise UsageError(f"{self._path}: item {item!r} is {rows.shape[1]} wide; accepted: {self.width}")
        kept = self._cast(item, rows)
        self._stream.write(kept.data)
        self.ids.append(item)
        self._known.add(item)
        self._lengths.append(len(kept))
        self._digests.append(_digest(kept))
        self.rows += len(kept)

    def _cast(self, item: str, rows: Rows) -> Rows:
        finite = np.isfinite(rows)
        self.not_finite += len(rows) - int(finite.all(axis=1).sum())
        if self._given_dtype is None and not np.can_cast(rows.dtype, self.dtype):
            raise UsageError(
                f"{self._path}: item {item!r} is {rows.dtype}, and the first one was {self.dtype}; "
                "name the type for all with --dtype"
            )
        with np.errstate(over="ignore"):
            kept = np.ascontiguousarray(rows, dtype=self.dtype.newbyteorder("<"))
        if kept.dtype.itemsize < rows.dtype.itemsize and not np.array_equal(np.isfinite(kept), finite):
            raise UsageError(
                f"{self._path}: item {item!r} has numbers too large for {self.dtype}; take a wider type"
            )
        return kept

    def finish(self) -> None:
        if not self.ids:
            raise UsageError(f"{self._path}: there are no items to write")
        length = self._stream.tell() - self.rows * self.width * self.dtype.itemsize
        self._stream.seek(0)
        self._write_header(self.rows)
        assert self._stream.tell() == length, "the header grew over the first rows"

    def index(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, "ids": self.ids, "lengths": self._lengths}

    def content(self) -> str:
        return _joined(zip(self.ids, self._digests, strict=True))

    def _write_header(self, rows: int) -> None:
        header = {
            "descr": self.dtype.newbyteorder("<").str,
            "fortran_order": False,
            "shape": (rows, self.width),
        }
        # NumPy leaves room in it for the first size to grow.
        np.lib.format.write_array_header_1_0(self._stream, header)


def _digest(rows: Rows) -> bytes:
    little = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("<"))
    hasher = hashlib.sha256(f"{little.dtype.name} {little.shape} ".encode())
    hasher.update(little.data)
    return hasher.digest()


def _joined(digests: Iterable[tuple[str, bytes]]) -> str:
    hasher = hashlib.sha256(f"{_FORMER_FORMAT} {VERSION}\n".encode())
    for item, digest in sorted(digests):
        hasher.update(json.dumps(item).encode() + b" " + digest)
    return hasher.hexdigest()


def _check_id(path: Path, item: Any) -> None:
    """Raise FormatError for an id that is not text, or that as a file's name would lead out of a folder."""
    good = isinstance(item, str) and item and item.isprintable() and not item.startswith("/")
    if not good or {"..", "."} & set(item.replace("\\", "/").split("/")):
        raise FormatError(
            path,
            "is not an id",
            field=f"item {item!r}",
            accepted="printable text that is not a path (../, /)",
        )


_MOST_ROWS = (1 << 48) - 1  # in all, so that sums fit into 64 bits
_Length = Annotated[int, msgspec.Meta(ge=1, le=_MOST_ROWS, title="1 or more rows")]


class _Index(msgspec.Struct):
    """The content of index.json."""

    format: Annotated[Literal["whenabouts-features", "cuepoint-features"], msgspec.Meta(title=f"{FORMAT!r}")]
    version: Annotated[Literal[1], msgspec.Meta(title=f"{VERSION}")]
    ids: Annotated[list[str], msgspec.Meta(min_length=1, title="a list of ids")]
    lengths: list[_Length]


def _read_index(path: Path) -> tuple[list[str], NDArray[np.int64]]:
    index = Origin(path).convert(read_json(path), _Index, f'a JSON object with "format": "{FORMAT}"')
    ids, lengths = index.ids, index.lengths
    if len(ids) != len(lengths):
        raise FormatError(
            path, "have different lengths", field="ids, lengths", accepted="one length for each id"
        )
    for item in ids:
        _check_id(path, item)
    if (rows := sum(lengths)) > _MOST_ROWS:
        raise Origin(path, field="lengths").error("list too many rows:", rows, f"at most {_MOST_ROWS}")
    if len(set(ids)) < len(ids):
        twice, _ = Counter(ids).most_common(1)[0]
        raise FormatError(path, "is listed twice", field=f"item {twice!r}", accepted="ids that differ")
    return ids, np.array(lengths, dtype=np.int64)


def _map(path: Path) -> NDArray[Any]:
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        raise FormatError(path, "is a link that leads out of the store", accepted="the file itself")
    return inspect_npy(path, "all rows").read()


def _write_json(path: Path, value: Any) -> None:
    with write_atomically(path) as stream:
        stream.write(json.dumps(value).encode())
