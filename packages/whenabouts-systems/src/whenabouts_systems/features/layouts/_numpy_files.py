"""Read NumPy's files without trusting them: no pickles, no sizes larger than the file."""

from __future__ import annotations

import io
import math
import struct
import sys
import threading
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError, most_unpacked
from whenabouts.intake.opening import open_regular
from whenabouts.lines import first_line
from whenabouts_systems.features.source import (
    MOST_BYTES,
    FeatureLocation,
    FeatureSource,
    OpenOptions,
    UnreadArray,
)

_FAULTS = (
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    NotImplementedError,
    struct.error,
    tokenize.TokenError,  # of a header's text
)


# NumPy reads headers with `ast.literal_eval`, which in CPython 3.11 counts the depth of all threads together
# and raises SystemError if two read at once.
_HEADERS = threading.Lock()


def inspect_npy(path: Path, item: str) -> UnreadArray:
    """A .npy file, memory-mapped. Raises FormatError if it is damaged or holds Python objects."""
    try:
        with open_regular(path) as stream:
            shape, fortran, dtype = _header(stream)
            order: Literal["F", "C"] = "F" if fortran else "C"
            mapped = np.memmap(stream, dtype, "r", stream.tell(), shape, order).view(np.ndarray)
    except _FAULTS as error:
        raise _fault(path, item, ".npy", error) from None
    return UnreadArray(shape, dtype, lambda: mapped)


def inspect_npz(
    archive: Path | bytes, item: str, names: Sequence[str] | None, path: Path | None = None
) -> UnreadArray:
    """One array of an npz archive, a file or its bytes: the first of `names` that it has.

    If `names` is None, its only array. `path` is named in errors if the archive is bytes.
    """
    path_to_name = archive if isinstance(archive, Path) else path
    assert path_to_name is not None
    try:
        with _unzipped(archive) as packed:
            name = _choose(path_to_name, item, packed.namelist(), names)
            with _member(packed, name) as stream:
                shape, _, dtype = _header(stream)
                file_bytes = packed.getinfo(name).file_size
            if not dtype.hasobject and file_bytes < math.prod(shape) * dtype.itemsize:
                raise ValueError(f"shape {shape} needs more bytes than the file's {file_bytes}")
    except _FAULTS as error:
        raise _fault(path_to_name, item, "npz", error) from None
    return UnreadArray(shape, dtype, lambda: _read_member(archive, name, item, path_to_name))


def array_names(path: Path) -> tuple[str, ...]:
    """Names of the arrays of an npz file; () for any other file."""
    try:
        with _unzipped(path) as packed:
            return _names(packed.namelist())
    except _FAULTS:
        return ()


def _names(members: Sequence[str]) -> tuple[str, ...]:
    return tuple(member.removesuffix(".npy") for member in members if member.endswith(".npy"))


def _choose(path: Path, item: str, members: Sequence[str], keys: Sequence[str] | None) -> str:
    names = _names(members)
    if keys is None and len(names) == 1:
        return f"{names[0]}.npy"
    for name in keys or ():
        if name in names:
            return f"{name}.npy"
    raise FormatError(
        path,
        f"has the arrays {', '.join(map(repr, names[:5]))}" if names else "has no arrays",
        field=f"item {item!r}",
        accepted=f"an array named {' or '.join(map(repr, keys))}"
        if keys
        else "one array, or name it with key",
    )


@contextmanager
def _unzipped(archive: Path | bytes) -> Iterator[zipfile.ZipFile]:
    with (
        io.BytesIO(archive) if isinstance(archive, bytes) else open_regular(archive) as stream,
        zipfile.ZipFile(stream) as packed,
    ):
        yield packed


def _member(packed: zipfile.ZipFile, name: str) -> IO[bytes]:
    """A member, open for reading. Only for deflated ones does Python limit the memory of unpacking."""
    if packed.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("its arrays are not packed as numpy.savez_compressed does")
    return packed.open(name)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the array is in Fortran's order, and dtype."""
    version = np.lib.format.read_magic(stream)
    with _HEADERS:
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"version {version} of the npy format")
    if dtype.hasobject:
        raise _PickleInside
    size = math.prod(filter(None, shape)) * dtype.itemsize  # NumPy's reader lets any size pass, as True, -2
    if any(type(length) is not int or length < 0 for length in shape) or size > sys.maxsize:
        raise ValueError(f"shape {shape} of {dtype}, which no array has"[:100])
    return shape, fortran, dtype


class _PickleInside(ValueError):
    """An array of Python objects."""


def _read_member(archive: Path | bytes, name: str, item: str, place: Path) -> NDArray[Any]:
    try:
        with _unzipped(archive) as packed, _member(packed, name) as stream:
            shape, fortran, dtype = _header(stream)
            size = math.prod(shape) * dtype.itemsize
            # A member cannot be larger than what precedes the archive's directory, even if that says so.
            stored = min(packed.getinfo(name).compress_size, packed.start_dir)
            if size > min(MOST_BYTES, most_unpacked(stored)):
                raise ValueError(f"claims {size:,} bytes from {stored:,}")
            # One more byte than needed: a member's checksum is compared only at its end.
            data = stream.read(size + 1)
        if len(data) != size:
            raise ValueError(f"holds {len(data)} bytes, but its shape {shape} needs {size}")
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    except _FAULTS as error:
        raise _fault(place, item, "npz", error) from None


def _fault(path: Path, item: str, kind: str, error: Exception) -> FormatError:
    if isinstance(error, _PickleInside):
        return FormatError(
            path,
            "holds Python objects (a pickle), which are never read",
            field=f"item {item!r}",
            accepted="arrays of float16, float32, float64",
        )
    reason = getattr(error, "strerror", None) or first_line(error)
    return FormatError(
        path, f"is cut off, damaged or not {kind} ({reason[:120]}); fetch it again", field=f"item {item!r}"
    )


class FolderSource(FeatureSource):
    """A folder with one file for each item, and `fingerprint.json`, which tells how they were made."""

    def __init__(self, location: FeatureLocation, options: OpenOptions) -> None:
        super().__init__(location.path, options)
        self._location = location

    def _facts(self) -> Mapping[str, Any]:
        return self._location.stated_facts()

    def _by_id(self, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
        """File names by id. Raises FormatError if two files have the same id."""
        names: dict[str, str] = {}
        for item, name in pairs:
            if item in names:
                raise FormatError(
                    self.path,
                    f"has two files, {names[item]!r} and {name!r}",
                    field=f"item {item!r}",
                    accepted="one",
                )
            names[item] = name
        return names

    def _file_of(self, name: str, item: str) -> Path:
        """The path of a file in the folder. Raises FormatError for a link that leads out of the folder."""
        path = self.path / name
        if path.is_symlink():
            try:
                inside = path.resolve(strict=True).is_relative_to(self.path.resolve(strict=True))
            except (OSError, RuntimeError):
                raise FormatError(self.path, "is a link that leads nowhere", field=f"item {item!r}") from None
            if not inside:
                raise FormatError(
                    self.path,
                    "is a link that leads out of the folder",
                    field=f"item {item!r}",
                    accepted="files in the folder; the folder itself may be a link",
                )
        return path
