"""Read HDF5 files without trusting them: no links, no data outside the file, nothing kept in memory."""

from __future__ import annotations

import importlib
import itertools
import math
import mmap
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError, ReaderMissing
from whenabouts.intake.opening import regular_name
from whenabouts_systems.features.layouts._hdf5_bounds import UNPACKED, Bounds, Costly
from whenabouts_systems.features.source import FeatureLocation, FeatureSource, OpenOptions, UnreadArray

_FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError, zlib.error)
_MOST_FACTS, _LARGEST_FACT = 1_000, 1 << 16


def open_hdf5(path: Path) -> Any:
    """The file, open for reading. FormatError: not an HDF5 file, or cut off. ReaderMissing: no h5py."""
    try:
        import h5py
    except ImportError:
        raise ReaderMissing(path, "HDF5", "h5py") from None
    try:
        # Not the driver "core" that some releases use: it reads the whole file into memory. No locks: they
        # fail on many network file systems, and reading needs none.
        with regular_name(path) as name:
            return _with_any_lock(lambda locking: h5py.File(name, "r", locking=locking))
    except _FAULTS as error:
        raise FormatError(path, f"is not a complete HDF5 file ({_reason(error)}); fetch it again") from None


def _with_any_lock(open_file: Callable[[Any], Any]) -> Any:
    """A file opened without locks, or with the kind of lock with which this process has it open already."""
    for locking in (False, "best-effort"):
        try:
            return open_file(locking)
        except OSError as error:
            if "locking" not in str(error):
                raise
    return open_file(True)


def outline(path: Path) -> tuple[str, ...]:
    """`hdf5` and the name of the first entry; for a group `hdf5 group`, its name and names of its entries."""
    with open_hdf5(path) as file:
        try:
            name = next(iter(file), None)
            if name is None:
                return ("hdf5 without entries",)
            # A link is not followed, because it may lead to another file.
            is_here = _is_hard_link(file.id, name)
            entry = file[name] if is_here else ()
            if hasattr(entry, "keys"):
                return ("hdf5 group", *map(_text, (name, *itertools.islice(entry, 10))))
            return ("hdf5", _text(name))
        except _FAULTS as error:
            raise FormatError(path, f"is damaged ({_reason(error)}); fetch it again") from None


class Hdf5Source(FeatureSource):
    """Features in the data sets of an HDF5 file. Layouts extend it with the names of data sets."""

    def __init__(self, location: FeatureLocation, options: OpenOptions) -> None:
        super().__init__(location.path, options)
        self._file = open_hdf5(location.path)
        self._h5py = importlib.import_module("h5py")
        self._types: list[tuple[Any, np.dtype[Any], bool]] = []
        self._bounds = Bounds(self._file.id.get_filesize())

    def _item_of(self, key: str) -> str:
        """The id of an entry of the root."""
        return key

    def _inner(self) -> str | None:
        """The name of the data set in each entry if entries are groups, else None."""
        return None

    def _items_by_id(self) -> Mapping[str, Any]:
        try:
            keys = [_text(name) for name in self._file]
        except _FAULTS as error:
            raise FormatError(self.path, f"is damaged ({_reason(error)}); fetch it again") from None
        keys_by_id: dict[str, str] = {}
        for key in keys:
            item = self._item_of(key)
            if item in keys_by_id:
                self._refuse(item, f"has two entries, {keys_by_id[item]!r} and {key!r}", "one")
            keys_by_id[item] = key
        return keys_by_id

    def _facts(self) -> Mapping[str, Any]:
        attributes, root = self._h5py.h5a, self._file.id
        try:
            if (count := attributes.get_num_attrs(root)) > _MOST_FACTS:
                raise ValueError(f"{count:,} attributes, more than {_MOST_FACTS:,}")
            headers = {_text(name): attributes.open(root, _bytes(name)) for name in self._file.attrs}
            return {
                name: self._file.attrs[_bytes(name)]
                for name, header in headers.items()
                if math.prod(header.shape) == 1 and header.get_storage_size() <= _LARGEST_FACT
            }
        except _FAULTS as error:
            problem = f"has attributes that cannot be read ({_reason(error)})"
            raise FormatError(self.path, problem, accepted="a file whose attributes are whole") from None

    def _inspect(self, item: str, where: Any) -> UnreadArray:
        # h5py's low-level interface opens an item in a third of the time, which matters for 100,000 items.
        try:
            data = self._entry(item, self._file.id, where)
            inner = self._inner()
            if inner is not None:
                if not hasattr(data, "links") or inner.encode() not in data:
                    entries = _names(data) or "one data set"
                    self._refuse(item, f"holds {entries}", f"a group with {inner!r}")
                data = self._entry(item, data, inner)
            if not isinstance(data, self._h5py.h5d.DatasetID):
                kind = f"a group of {_names(data)}" if hasattr(data, "links") else "a stored type"
                self._refuse(item, f"is {kind}", "a data set of (T, D)")
            offset = data.get_offset()
            if offset is None:  # not in one piece in this file
                self._check_inside(item, data.get_create_plist())
            shape = data.shape or ()
            dtype, as_in_memory = self._type_of(data)
            if offset is not None and as_in_memory:
                return UnreadArray(shape, dtype, lambda: self._mapped_rows(item, offset, shape, dtype))
            return UnreadArray(shape, dtype, lambda: self._rows(item, data, shape, dtype))
        except _FAULTS as error:
            self._refuse(item, f"is damaged ({_reason(error)}); fetch the file again")

    def _type_of(self, data: Any) -> tuple[np.dtype[Any], bool]:
        """An item's dtype, and whether NumPy can read its bytes; a file rarely has more than one type."""
        stored = data.get_type()
        for earlier, dtype, as_in_memory in self._types:
            if stored.equal(earlier):
                return dtype, as_in_memory
        dtype = stored.dtype
        as_in_memory = dtype.kind == "f" and bool(stored.equal(self._h5py.h5t.py_create(dtype)))
        self._types.append((stored, dtype, as_in_memory))
        return dtype, as_in_memory

    @cached_property
    def _bytes(self) -> NDArray[np.uint8]:
        """The file that is open, mapped; another file may have its name by now."""
        handle = self._file.id.get_vfd_handle()
        return np.frombuffer(mmap.mmap(handle, 0, access=mmap.ACCESS_READ), np.uint8)

    def _mapped_rows(self, item: str, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Rows stored in one piece and not compressed: a view of the file, nothing is copied."""
        size = math.prod(shape) * dtype.itemsize
        content = self._bytes[offset : offset + size]
        if len(content) != size:
            self._refuse(item, f"is damaged: {size:,} bytes are not all in the file; fetch the file again")
        return content.view(dtype).reshape(shape)

    def _entry(self, item: str, group: Any, name: str) -> Any:
        if not _is_hard_link(group, name):
            self._refuse(item, "is a link, which is not followed", "data in this file")
        return self._h5py.h5o.open(group, _bytes(name))

    def _check_inside(self, item: str, plan: Any) -> None:
        if plan.get_layout() == self._h5py.h5d.VIRTUAL or plan.get_external_count():
            self._refuse(item, "keeps its numbers in another file", "numbers in this file")

    def _rows(self, item: str, data: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        try:
            self._bounds.check(item, data)
            rows = np.empty(shape, dtype)
            data.read(self._h5py.h5s.ALL, self._h5py.h5s.ALL, rows)
        except Costly as error:
            self._refuse(item, str(error), UNPACKED)
        except _FAULTS as error:
            self._refuse(item, f"is damaged or packed in a way that h5py lacks ({_reason(error)})")
        return rows

    def _release(self) -> None:
        self._file.close()


def _names(data: Any) -> list[str]:
    """Names of a group's entries; none for a data set."""
    names = itertools.islice(data, 5) if hasattr(data, "links") else ()
    return [name.decode("utf-8", "replace") for name in names]


def _is_hard_link(group: Any, name: str | bytes) -> bool:
    from h5py import h5l

    return bool(group.links.get_info(_bytes(name)).type == h5l.TYPE_HARD)


def _text(name: str | bytes) -> str:
    """A name in the file as text; h5py returns bytes for a name that is not UTF-8."""
    return name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")


def _bytes(name: str | bytes) -> bytes:
    return name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
