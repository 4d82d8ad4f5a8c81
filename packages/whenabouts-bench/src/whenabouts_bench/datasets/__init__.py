"""Open published data sets (videos, queries, judgements, splits) from their files in a folder.

Every module here with a `DATASET` (see `declaration.Declaration`) is a data set; a new one is a new file.
Annotation files are recognised by their released names, anywhere in a folder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from whenabouts import plugins
from whenabouts.types import UsageError
from whenabouts_bench.datasets.card import Card, make_card
from whenabouts_bench.datasets.declaration import Declaration, Split
from whenabouts_bench.datasets.folder import DatasetFolder, LocatedFile
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.formats.annotations import Annotations

__all__ = ["Dataset", "dataset_names", "declaration_named", "declarations", "open_dataset"]


def declarations() -> tuple[Declaration, ...]:
    """All known data sets, sorted by name."""
    included = (module.DATASET for module in plugins.modules_declaring(__name__, "DATASET"))
    return tuple(sorted((*included, *plugins.loaded("datasets").values()), key=lambda each: str(each.name)))


def dataset_names() -> tuple[str, ...]:
    """The names of all known data sets."""
    return tuple(dataset.name for dataset in declarations())


def declaration_named(name: str) -> Declaration:
    """The data set of that name, in any case, with underscores or hyphens. Raises UsageError if unknown."""
    for dataset in declarations():
        if dataset.name.lower().replace("_", "-") == name.lower().replace("_", "-"):
            return dataset
    names = ", ".join(dataset_names())
    raise UsageError(f"{name!r}: no such data set; known: {names}; perhaps in a package not installed here")


def open_dataset(name: str, folder: str | Path) -> Dataset:
    """A data set whose annotation files are in a folder or below it.

    Raises UsageError for an unknown name, a missing folder, or if no file is found, with instructions to
    obtain them; FormatError if a file cannot be read.
    """
    declaration = declaration_named(name)
    here = DatasetFolder(Path(folder))
    files = here.annotations_of(declaration)
    if not files:
        for error in here.unreadable.values():
            raise error
        names = ", ".join(file.name for split in declaration.splits for file in split.files)
        raise UsageError(
            f"{folder}: holds no annotations of {declaration.title} ({names}; .gz is fine). "
            f"How to get them: {declaration.how}"
        )
    return Dataset(declaration, files)


class Dataset:
    """A data set in a folder; splits are read at first use, and cached."""

    def __init__(self, declaration: Declaration, files: tuple[LocatedFile, ...]) -> None:
        self.declaration = declaration
        self._files = files
        self._read: dict[str, Annotations] = {}

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(located.split for located in self._files))

    def file(self, split: str) -> LocatedFile:
        """The file of a split. Raises UsageError for a split that is unknown or missing."""
        for located in self._files:
            if located.split == split:
                return located
        declared = self._declared(split)
        names = " or ".join(file.name for file in declared.files)
        raise UsageError(
            f"{self.declaration.title}: split {split!r} is not there (looked for {names}; .gz is fine); "
            f"there are {', '.join(self.splits)}. How to get it: {self.declaration.how}"
        )

    def annotations(self, split: str) -> Annotations:
        """Videos, queries and judgements of a split. Raises FormatError for a malformed file."""
        if split not in self._read:
            located = self.file(split)
            self._read[split] = read_split(self.declaration, located)
        return self._read[split]

    def card(self, split: str) -> Card:
        """The split's numbers beside the papers'."""
        located = self.file(split)
        return make_card(
            self.declaration, self._declared(split), located.file, located.path, self.annotations(split)
        )

    def _declared(self, split: str) -> Split:
        declared = self.declaration.split(split)
        if declared is None:
            names = ", ".join(names.name for names in self.declaration.splits)
            raise UsageError(f"{self.declaration.title} has no split {split!r}; it has {names}")
        return declared


def read_split(declaration: Declaration, located: LocatedFile) -> Annotations:
    """Videos, queries and judgements of an annotation file; texts are stripped, side files added."""
    annotations = read_annotations(located.path, located.file.format)
    queries = tuple(
        query if query.text == query.text.strip() else replace(query, text=query.text.strip())
        for query in annotations.queries
    )
    annotations = replace(annotations, name=f"{declaration.name} {located.split}", queries=queries)
    complete = declaration.complete
    return complete(annotations, located.path, located.split) if complete else annotations
