"""A place on disk that may hold features, and options for opening it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from whenabouts.intake.files import FormatError, is_lmdb, read_json
from whenabouts.intake.opening import open_regular
from whenabouts.types import UsageError, number_of

FINGERPRINT = "fingerprint.json"
"""The file in which a folder's owner notes how its features were made."""

STORE_ROWS, STORE_INDEX = "features.npy", "index.json"
"""The files of our own layout (see `layouts.store`)."""

_HEAD_BYTES = 4096
_HDF5 = b"\x89HDF\r\n\x1a\n"


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
        return self._first_bytes(self.path)

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

    def _first_bytes(self, path: Path) -> bytes:
        try:
            with open_regular(path) as stream:
                return stream.read(_HEAD_BYTES)
        except OSError as error:
            raise FormatError(path, f"cannot be read: {error.strerror or error}") from None
