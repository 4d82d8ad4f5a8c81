"""The types with which a module of this folder declares a data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from whenabouts_bench.formats.annotations import Annotations


@dataclass(frozen=True)
class Statistics:
    """What a paper says of a split, or what a released file holds; None where it does not say.

    Lengths are seconds. `judged_videos` are those with a judgement, `videos` all that are searched;
    `relevant_per_query` counts judgements above relevance 0; `full_pools` counts queries whose pool has the
    data set's size.
    """

    videos: int | None = None
    queries: int | None = None
    judgements: int | None = None
    judged_videos: int | None = None
    full_pools: int | None = None
    video_seconds: float | None = None
    moment_seconds: float | None = None
    moment_share: float | None = None
    words_per_query: float | None = None
    relevant_per_query: float | None = None


MEASURES = tuple(field.name for field in fields(Statistics))
"""The names of a card's numbers, in the order in which it shows them."""
COUNTS = ("videos", "queries", "judgements", "judged_videos", "full_pools")
"""Those that are whole numbers and must agree exactly."""


@dataclass(frozen=True)
class AnnotationFile:
    """A file of judgements as a release names it, with its folder where the name alone tells nothing.

    .gz behind the name is accepted everywhere.

    `fingerprint` is the beginning of the sha256 of the unpacked file, where one release of it is known.
    """

    name: str
    format: str
    """The name of the format that reads it (`whenabouts_bench.formats`)."""
    holds: Statistics = Statistics()
    fingerprint: str = ""


@dataclass(frozen=True)
class Split:
    """A split, the files that may hold it (the first that is found is read), and what papers say of it."""

    name: str
    files: tuple[AnnotationFile, ...]
    paper: Statistics = Statistics()
    note: str = ""
    """A sentence on where the files and the papers differ, and why."""


@dataclass(frozen=True)
class SideFile:
    """A file beside the annotations that completes them."""

    name: str
    holds: str
    needed: bool = True


@dataclass(frozen=True)
class FeatureFile:
    """Released features of a data set.

    `names` are file or folder names, any of which will do. A data set's `needed` features are reported as
    missing; the others (alternatives) are only mentioned.
    """

    names: tuple[str, ...]
    of: Literal["video", "subtitle", "query"]
    layout: str
    """Container and keys, in words."""
    width: int
    made_by: str
    how: str
    clip_seconds: float | None = None
    """Seconds a row stands for; None where rows are words, or spread over the video evenly."""
    needed: bool = False


@dataclass(frozen=True)
class Declaration:
    """A published data set: how it is called, in which files it ships, and how they are obtained."""

    name: str
    title: str
    tasks: tuple[str, ...]
    citation: str
    licence: str
    how: str
    """How a person obtains the annotation files."""
    mark: bytes
    """A regular expression that the beginning of each annotation file contains: several data sets ship a
    `train.json`."""
    splits: tuple[Split, ...]
    features: tuple[FeatureFile, ...] = ()
    beside: tuple[SideFile, ...] = ()
    notes: tuple[str, ...] = ()
    """What a person must know before they compare numbers."""
    pool_size: int | None = None
    """Videos in a full pool, where the data set has pools."""
    shared_query_ids: tuple[tuple[str, str], ...] = ()
    """Pairs of splits in which the same query id may come, so that their answers must not be put together."""
    complete: Callable[[Annotations, Path, str], Annotations] | None = None
    """Completes a split's annotations from the files beside (annotations, the file, the split's name)."""

    def to_json(self) -> dict[str, Any]:
        """As `datasets list --json` prints it: what a person must know to get the files."""
        own = {name: getattr(self, name) for name in ("name", "title", "tasks", "citation", "licence", "how")}
        return {
            **own,
            "splits": {split.name: [file.name for file in split.files] for split in self.splits},
            "beside": {file.name: file.holds for file in self.beside},
            "features": [asdict(feature) for feature in self.features],
            "notes": list(self.notes),
        }

    def split(self, name: str) -> Split | None:
        """The split of that name."""
        return next((split for split in self.splits if split.name == name), None)
