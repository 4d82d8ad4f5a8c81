"""Check a folder: the data sets in it, whether they match the publications, and missing files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from whenabouts.intake.files import ReaderMissing, sibling_file
from whenabouts.plugins import PackageMissing
from whenabouts.types import WhenaboutsError, number_of
from whenabouts_bench.datasets import declarations, read_split
from whenabouts_bench.datasets.card import Card, make_card
from whenabouts_bench.datasets.declaration import Declaration, FeatureFile
from whenabouts_bench.datasets.folder import DEEPEST, MOST_ENTRIES, DatasetFolder, LocatedFile
from whenabouts_bench.feature_files import open_features
from whenabouts_bench.formats.annotations import Annotations

State = Literal["ok", "missing", "differs", "unverified", "broken", "optional"]
"""`optional` files are missing but not needed; `unverified` ones need a package that is not installed."""

FINE, WANTING, BROKEN = 0, 1, 2

_ITEMS_READ = 3
"""The number of items read from a feature file."""


@dataclass(frozen=True)
class Finding:
    """One file: whether it is present and right, or how to obtain it."""

    kind: Literal["annotations", "beside", "features"]
    state: State
    what: str
    """The split, or the file's contents."""
    path: str
    """Its path, or its name if it is missing."""
    message: str
    how: str = ""

    def line(self) -> str:
        """One line of text."""
        return f"  {self.state:11}{self.what}: {self.path}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True)
class Diagnosis:
    """The findings on one data set."""

    name: str
    title: str
    findings: tuple[Finding, ...]

    def lines(self) -> Iterator[str]:
        yield f"{self.title} ({self.name})"
        yield from (finding.line() for finding in self.findings)
        missing = dict.fromkeys(finding.how for finding in self.findings if finding.state == "missing")
        yield from (f"  how to get what is missing: {how}" for how in missing)


@dataclass(frozen=True)
class Report:
    """The findings on a folder."""

    folder: str
    datasets: tuple[Diagnosis, ...]
    not_here: tuple[str, ...]
    """Data sets without any annotation file."""
    unreadable: tuple[str, ...]
    """Errors of files named like annotations that are too damaged to be recognised."""
    complete: bool
    """False if the folder is deeper or larger than the limits of the search."""

    @property
    def exit_code(self) -> int:
        """0: all is present and right, 1: something is missing or differs, 2: a file is broken."""
        states = {finding.state for dataset in self.datasets for finding in dataset.findings}
        if self.unreadable or "broken" in states:
            return BROKEN
        return FINE if self.datasets and states <= {"ok", "optional"} else WANTING

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}

    def lines(self) -> Iterator[str]:
        for dataset in self.datasets:
            yield from dataset.lines()
        yield from (f"broken: {error}" for error in self.unreadable)
        if not self.datasets:
            yield f"{self.folder}: holds no annotation file of a known data set"
        if self.not_here:
            yield f"not here: {', '.join(self.not_here)} (how to get one: whenabouts datasets list --json)"
        if not self.complete:
            yield f"not all was looked at: only {DEEPEST} folders deep, and {MOST_ENTRIES:,} entries"


def examine(folder: str | Path) -> Report:
    """Find and verify all known data sets in a folder.

    Annotations are read and their counts compared with the papers'; features are opened and must have every
    video of the available splits, with the published width. Raises UsageError if the folder does not exist.
    """
    within = DatasetFolder(Path(folder))
    located = {dataset: within.annotations_of(dataset) for dataset in declarations()}
    return Report(
        str(folder),
        tuple(
            Diagnosis(dataset.name, dataset.title, tuple(_findings(within, dataset, files)))
            for dataset, files in located.items()
            if files
        ),
        tuple(dataset.name for dataset, files in located.items() if not files),
        tuple(str(error) for error in within.unreadable.values()),
        within.complete,
    )


def _findings(
    folder: DatasetFolder, dataset: Declaration, files: tuple[LocatedFile, ...]
) -> Iterator[Finding]:
    read: list[Annotations] = []
    for split in dataset.splits:
        here = [located for located in files if located.split == split.name]
        for located in here:
            yield _annotation_finding(dataset, located, read)
        if not here:
            names = " or ".join(file.name for file in split.files)
            yield Finding("annotations", "missing", split.name, names, "", dataset.how)
    for beside in dataset.beside:
        path = next(filter(None, (sibling_file(located.path, beside.name) for located in files)), None)
        if path:
            yield Finding("beside", "ok", beside.holds, str(path), "")
            continue
        state: State = "missing" if beside.needed else "optional"
        elsewhere = folder.any_of((beside.name,))
        message = f"{elsewhere} is not read: it must lie beside the annotations" if elsewhere else ""
        yield Finding("beside", state, beside.holds, beside.name, message, dataset.how)
    for feature in dataset.features:
        yield _feature_finding(folder, feature, read)


def _annotation_finding(dataset: Declaration, located: LocatedFile, read: list[Annotations]) -> Finding:
    """A finding on one annotation file; its annotations are appended to `read`."""
    split = dataset.split(located.split)
    assert split is not None  # `located` belongs to this data set
    try:
        annotations = read_split(dataset, located)
        card = make_card(dataset, split, located.file, located.path, annotations)
    except WhenaboutsError as error:
        return Finding("annotations", "broken", located.split, str(located.path), str(error))
    read.append(annotations)
    differing = card.differing_counts()
    message = "; ".join(differing) if differing else _summary(card)
    return Finding("annotations", "differs" if differing else "ok", located.split, str(located.path), message)


def _summary(card: Card) -> str:
    release = {True: ", the known release", False: ", another release than the known one", None: ""}
    odd = "".join(f"; {rule}: {times:,}" for rule, times in card.rules.items())
    numbers = card.numbers
    counts = f"{number_of(numbers.videos or 0, 'video')}, {number_of(numbers.queries or 0, 'query')}"
    return f"{counts}{release[card.is_known_release]}{odd}"


def _feature_finding(folder: DatasetFolder, feature: FeatureFile, read: Sequence[Annotations]) -> Finding:
    what = f"{feature.of} features, {feature.width} wide ({feature.made_by})"
    path = folder.any_of(feature.names)
    if path is None:
        state: State = "missing" if feature.needed else "optional"
        return Finding("features", state, what, " or ".join(feature.names), feature.layout, feature.how)
    state, message = _verified(path, feature, read)
    return Finding("features", state, what, str(path), message)


def _verified(path: Path, feature: FeatureFile, read: Sequence[Annotations]) -> tuple[State, str]:
    try:
        with open_features(path) as source:
            if source.width != feature.width:
                return "differs", f"rows are {source.width} wide, published are {feature.width}"
            items = _ids(feature, read)
            under = [next((name for name in names if name in source), None) for names in items]
            lacking = [names[0] for names, name in zip(items, under, strict=True) if name is None]
            if lacking:
                return "differs", f"lacks {len(lacking):,} of {len(items):,}, such as {lacking[0]!r}"
            for name in [name for name in under if name is not None][:_ITEMS_READ]:
                source.get(name)
            return "ok", f"has all {len(items):,}"
    except (ReaderMissing, PackageMissing) as error:
        return "unverified", str(error)
    except WhenaboutsError as error:
        return "broken", str(error)


def _ids(feature: FeatureFile, read: Sequence[Annotations]) -> list[tuple[str, ...]]:
    """The names under which each required item may be stored."""
    if feature.of == "query":
        queries = dict.fromkeys(query.id for annotations in read for query in annotations.queries)
        return [(query, f"qid{query}") for query in queries]
    videos = {video.id: video for annotations in read for video in annotations.videos}
    return [(video.id, *video.metadata.get("file_names", ())) for video in videos.values()]
