"""HDF5 opened without trusting it: no links, no data outside the file, nothing kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cuepoint.features.protocol import Options, Place, ReaderMissing
from cuepoint.features.source import FeatureSource, Unread
from cuepoint.formats.opened import FormatError

_FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError)


def open_hdf5(path: Path) -> Any:
    """The file, for reading. Raises FormatError for what is no HDF5 file or is cut off; ReaderMissing."""
    try:
        import h5py
    except ImportError:
        raise ReaderMissing(path, "HDF5", "h5py") from None
    try:
        # "core", the driver that some releases use, would read the whole file into memory. Locks fail on
        # many network file systems, and reading needs none.
        return _with_any_lock(lambda locking: h5py.File(path, "r", locking=locking))
    except _FAULTS as error:
        raise FormatError(path, f"is no whole HDF5 file ({_reason(error)}); fetch it again") from None


def _with_any_lock(open_file: Callable[[Any], Any]) -> Any:
    """A file opened without locks, or with those that this process uses on it already."""
    for locking in (False, "best-effort"):
        try:
            return open_file(locking)
        except OSError as error:
            if "locking" not in str(error):
                raise
    return open_file(True)


def first_entry(place: Place) -> tuple[str, Any] | None:
    """Name of the first entry of an HDF5 file, and what it is: a tuple of names for a group, else None.

    None altogether where the file is not HDF5 or holds nothing.
    """
    if not place.is_hdf5:
        return None
    with open_hdf5(place.path) as file:
        try:
            name = next(iter(file), None)
            if name is None:
                return None
            if type(file.get(name, getlink=True)).__name__ != "HardLink":
                return name, None
            entry = file[name]
            return name, tuple(entry)[:10] if hasattr(entry, "keys") else None
        except _FAULTS as error:
            raise FormatError(place.path, f"is damaged ({_reason(error)}); fetch it again") from None


class Hdf5Source(FeatureSource):
    """Features in the data sets of an HDF5 file; a layout says how they are named."""

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place.path, options)
        self._file = open_hdf5(place.path)

    def _item_of(self, key: str) -> str:
        """The id of an entry of the root."""
        return key

    def _inner(self) -> str | None:
        """Name of the data set within an entry, where entries are groups."""
        return None

    def _find(self) -> Mapping[str, Any]:
        try:
            keys = list(self._file)
        except _FAULTS as error:
            raise FormatError(self.path, f"is damaged ({_reason(error)}); fetch it again") from None
        found: dict[str, str] = {}
        for key in keys:
            item = self._item_of(key)
            if item in found:
                self._refuse(item, f"has two entries, {found[item]!r} and {key!r}", "one")
            found[item] = key
        return found

    def _facts(self) -> Mapping[str, Any]:
        return {
            str(name): value for name, value in self._file.attrs.items() if getattr(value, "size", 1) == 1
        }

    def _look(self, item: str, where: Any) -> Unread:
        try:
            data = self._entry(item, self._file, where)
            inner = self._inner()
            if inner is not None:
                if not hasattr(data, "keys") or inner not in data:
                    held = list(data)[:5] if hasattr(data, "keys") else "one data set"
                    self._refuse(item, f"holds {held}", f"a group with {inner!r}")
                data = self._entry(item, data, inner)
            if hasattr(data, "keys"):
                self._refuse(item, f"is a group of {list(data)[:5]}", "a data set of (T, D)")
            if data.shape is None:
                self._refuse(item, "is a data set without data", "(T, D), rows by width")
            if data.is_virtual or data.external:
                self._refuse(item, "keeps its numbers in another file", "numbers in this file")
        except _FAULTS as error:
            self._refuse(item, f"is damaged ({_reason(error)}); fetch the file again")
        return Unread(tuple(data.shape), data.dtype, lambda: self._rows(item, data))

    def _entry(self, item: str, group: Any, name: str) -> Any:
        kind = type(group.get(name, getlink=True)).__name__
        if kind != "HardLink":
            self._refuse(item, f"is a link ({kind}), which is not followed", "data in this file")
        return group[name]

    def _rows(self, item: str, data: Any) -> Any:
        try:
            return data[()]
        except _FAULTS as error:
            self._refuse(item, f"is damaged or packed in a way that h5py lacks ({_reason(error)})")

    def _release(self) -> None:
        self._file.close()


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
