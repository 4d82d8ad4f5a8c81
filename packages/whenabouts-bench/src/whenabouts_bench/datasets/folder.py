"""Finds the annotation files of data sets in a folder, by their names and first bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from whenabouts.intake.files import FileHead, FormatError, read_head
from whenabouts.types import UsageError
from whenabouts_bench.datasets.declaration import AnnotationFile, Declaration

DEEPEST = 5
"""The most levels of folders below the searched one that are read; releases unpack to three."""
MOST_ENTRIES = 300_000
"""The most files and folders that are looked at: a folder of features has one per video, a disk has more."""


@dataclass(frozen=True)
class LocatedFile:
    """An annotation file that was found, with its split."""

    split: str
    file: AnnotationFile
    path: Path


@dataclass
class DatasetFolder:
    """A folder that is searched once, level by level, so that its nearest files come first.

    Links to files inside the folder are read. Links to folders and to places outside are ignored: they may
    be cyclic or lead to unintended files. Names that begin with a dot are ignored, too.
    """

    path: Path
    unreadable: dict[Path, FormatError] = field(default_factory=dict)
    """Files named like annotations that could not be read, by the calls so far."""
    complete: bool = True
    """True until the search (by `by_name`) leaves out deeper folders or entries after `MOST_ENTRIES`."""

    _heads: dict[Path, FileHead | None] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.path = Path(os.path.expanduser(self.path))  # noqa: PTH111 - without an error for an unknown user
        if not self.path.is_dir():
            what = "is a file" if self.path.exists() else "is not there"
            raise UsageError(f"{self.path}: {what}; give the folder that holds the data sets' files")

    @cached_property
    def by_name(self) -> Mapping[str, tuple[Path, ...]]:
        """Name (without .gz) -> its files and folders, nearest first."""
        named: dict[str, list[Path]] = {}
        for path in self._walk():
            named.setdefault(path.name.removesuffix(".gz"), []).append(path)
        return {name: tuple(paths) for name, paths in named.items()}

    def annotations_of(self, dataset: Declaration) -> tuple[LocatedFile, ...]:
        """A data set's annotation files: by split, then in the order that it prefers, then nearest first."""
        return tuple(
            LocatedFile(split.name, file, path)
            for split in dataset.splits
            for file in split.files
            for path in self._named(file.name)
            if path.is_file() and self._has_mark(dataset, path)
        )

    def _named(self, name: str) -> Iterable[Path]:
        *folders, last = PurePosixPath(name).parts
        for path in self.by_name.get(last, ()):
            parents = path.parent.absolute().parts  # "." has a name, too
            if list(parents[len(parents) - len(folders) :]) == folders:
                yield path

    def any_of(self, names: Iterable[str]) -> Path | None:
        """The nearest path with the first name that occurs ("test.json", "QV-M2/test.jsonl"), else None."""
        return next((path for name in names for path in self._named(name)), None)

    def _has_mark(self, dataset: Declaration, path: Path) -> bool:
        head = self._head_of(path)
        return head is not None and re.search(dataset.mark, head.head) is not None

    def _head_of(self, path: Path) -> FileHead | None:
        if path not in self._heads:
            try:
                self._heads[path] = read_head(path)
            except FormatError as error:
                self.unreadable[path] = error
                self._heads[path] = None
        return self._heads[path]

    def _walk(self) -> Iterable[Path]:
        root = self.path.resolve()
        level, seen = [self.path], 0
        for _ in range(DEEPEST + 1):
            below: list[Path] = []
            for folder in level:
                for entry in _entries(folder):
                    seen += 1
                    if seen > MOST_ENTRIES:
                        self.complete = False
                        return
                    if entry.is_dir(follow_symlinks=False):
                        below.append(Path(entry.path))
                        yield below[-1]
                    elif not entry.is_symlink() or _is_file_inside(Path(entry.path), root):
                        yield Path(entry.path)
            level = below
        self.complete = self.complete and not level


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if not e.name.startswith(".")), key=lambda entry: entry.name)
    except OSError:
        return []


def _is_file_inside(path: Path, root: Path) -> bool:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return False
    return target.is_file() and target.is_relative_to(root)
