"""The folders of `--allow`, which are all that clients may list and index.

Clients name a place by the allowed folder's name and the path below it, such as "talks/2024/a.mp4". They
neither send nor see absolute paths. Links are resolved before a place is checked.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from whenabouts.server.errors import ServerError
from whenabouts.server.files import real_path
from whenabouts.server.folders import ServedFolders
from whenabouts.types import UsageError
from whenabouts.video.files import MEDIA_SUFFIXES, TRANSCRIPT_SUFFIXES, real_place, with_home

MOST_ENTRIES = 1000
_SUFFIXES = MEDIA_SUFFIXES | TRANSCRIPT_SUFFIXES


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a folder. `kind` is "outside" for a link that leads out of all allowed folders."""

    name: str
    place: str
    kind: str
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """A folder's subfolders, then its recordings and transcripts, by name. `left_out` counts the unlisted."""

    entries: tuple[Entry, ...]
    left_out: int = 0


class Allowed:
    """Allowed folders by their names for clients. Raises UsageError for a missing folder."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.roots: dict[str, str] = {}
        for folder in folders:
            real = Path(real_place(with_home(folder)))
            if not real.is_dir():
                raise UsageError(f"--allow {folder}: there is no such folder; check the path")
            if str(real) not in self.roots.values():
                self.roots[_unused(real.name or "files", self.roots)] = str(real)
        self.folders = ServedFolders(frozenset(self.roots.values()))

    def hold(self, path: str) -> bool:
        """Whether a path, with links resolved, lies in an allowed folder."""
        return self.folders.hold(os.path.realpath(path))

    def path(self, place: str) -> str:
        """The real path of a place. Raises ServerError: 404 if it does not exist, 403 if it leads outside."""
        name, *parts = place.split("/")
        root = self.roots.get(name)
        if root is None or "\0" in place or any(part in ("", ".", "..") for part in parts):
            raise _nowhere(place)
        path = os.path.realpath(Path(root, *parts))
        if not self.folders.hold(path):
            raise _outside(place)
        if not os.path.exists(path):  # noqa: PTH110, because pathlib raises for a name that is too long
            raise _nowhere(place)
        return path

    def place(self, path: str) -> str | None:
        """The name of a path for clients; None if it is not allowed or not valid Unicode."""
        for name, root in self.roots.items():
            if path == root or path.startswith(root.rstrip("/") + "/"):
                below = path[len(root) :].strip("/")
                return _shown("/".join(filter(None, (name, below))))
        return None

    def listed(self, place: str) -> Listing:
        """The allowed folders for "", else the entries of a folder. Raises ServerError like `path`."""
        if not place:
            return Listing(tuple(Entry(name, name, "folder") for name in self.roots))
        with self._opened(place) as folder, os.scandir(folder) as inside:
            entries = [entry for each in inside if (entry := self._entry(place, folder, each)) is not None]
        entries.sort(key=lambda entry: (entry.kind != "folder", entry.name.casefold(), entry.name))
        return Listing(tuple(entries[:MOST_ENTRIES]), max(0, len(entries) - MOST_ENTRIES))

    @contextlib.contextmanager
    def _opened(self, place: str) -> Iterator[int]:
        """Open a folder, then check it, so that no other folder can take its place in between."""
        try:
            folder = os.open(self.path(place), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except NotADirectoryError:
            raise ServerError(400, "no_folder", f"{place} is a file, not a folder", field="place") from None
        except OSError as error:
            raise ServerError(
                404, "no_such_place", f"{place} cannot be read ({error.strerror}); check its permissions"
            ) from None
        try:
            if not self.folders.hold(real_path(folder)):
                raise _outside(place)
            yield folder
        finally:
            os.close(folder)

    def _entry(self, place: str, folder: int, item: os.DirEntry[str]) -> Entry | None:
        name = _shown(item.name)
        if name is None or name.startswith("."):
            return None
        try:
            status = item.stat()
            if item.is_symlink() and not self.hold(f"{real_path(folder)}/{item.name}"):
                return Entry(name, f"{place}/{name}", "outside")
        except OSError:
            return None
        if stat.S_ISDIR(status.st_mode):
            return Entry(name, f"{place}/{name}", "folder")
        if stat.S_ISREG(status.st_mode) and Path(name).suffix.lower() in _SUFFIXES:
            return Entry(name, f"{place}/{name}", "file", status.st_size)
        return None


def _shown(name: str) -> str | None:
    """A name that JSON and an address can hold; None if it is not valid Unicode."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return None
    return name


def _unused(name: str, used: Mapping[str, str]) -> str:
    shown = _shown(name) or "files"
    numbered = (shown, *(f"{shown} ({number})" for number in range(2, len(used) + 3)))
    return next(each for each in numbered if each not in used)


def _nowhere(place: str) -> ServerError:
    return ServerError(
        404, "no_such_place", f"there is no {place[:200]!r} in the folders of --allow", field="place"
    )


def _outside(place: str) -> ServerError:
    return ServerError(
        403,
        "not_allowed",
        f"{place[:200]!r} is a link that leads outside; allow its folder with --allow",
        field="place",
    )
