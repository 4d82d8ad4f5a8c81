"""The types by which modules of this folder, and plugins of others, declare data sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from whenabouts_bench.formats.annotations import Annotations


@dataclass(frozen=True)
class Statistics:
    """Numbers of a split in a paper, or of a released file; None if not stated.

    `COUNTS` are counts, the others means: `moment_share` that of a moment in its video. `judged_videos` have
    a judgement, `videos` are all that are searched; `relevant_per_query` counts judgements above relevance 0;
    `full_pools` counts queries whose pool has `Declaration.pool_size` videos.
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
"""The names of the numbers, in the order in which a data set's card (`card.py`) shows them."""
COUNTS = ("videos", "queries", "judgements", "judged_videos", "full_pools")
"""Integers that must equal those of the released file or of the paper exactly."""


@dataclass(frozen=True)
class AnnotationFile:
    """A released file of judgements, perhaps gzipped; `name` has its folder if it is ambiguous without.

    `fingerprint` has the first 16 digits of the sha256 of the unpacked file; "" if no release is known.
    """

    name: str
    format: str
    """The name of its format (`whenabouts_bench.formats`)."""
    holds: Statistics = Statistics()
    fingerprint: str = ""


@dataclass(frozen=True)
class Split:
    """A split, the files that may hold it (the first found is read), and the papers' numbers."""

    name: str
    files: tuple[AnnotationFile, ...]
    paper: Statistics = Statistics()
    note: str = ""
    """Why the files differ from the papers."""

    @classmethod
    def made(cls, name: str, file: str, videos: int, queries: int) -> Split:
        """A split of a data set that a command of ours makes, in one file in TVR's format."""
        counts = Statistics(videos=videos, queries=queries)
        return cls(name, (AnnotationFile(file, "tvr", counts),), counts)


@dataclass(frozen=True)
class SideFile:
    """A file beside the annotations that completes them."""

    name: str
    holds: str
    needed: bool = True


@dataclass(frozen=True)
class FeatureFile:
    """Released features of a data set.

    `names` are alternative file or folder names; `how` says how to get one. Missing features are reported if
    `needed`, else only mentioned.
    """

    names: tuple[str, ...]
    of: Literal["video", "subtitle", "query"]
    layout: str
    """Container and keys in words, not the name of a feature layout."""
    width: int
    made_by: str
    how: str
    clip_seconds: float | None = None
    """Seconds per row; None if rows are words, or evenly spaced over the video."""
    needed: bool = False


def made_features(prefix: str, words: str, clip_seconds: float) -> tuple[FeatureFile, FeatureFile]:
    """Features by MiniLM of a data set that a command of ours makes: of its `words` and of its queries."""
    how = "The command that makes the data set writes them."
    clips, tokens = "store, video id -> (clips, width)", "store, query id -> (tokens, width)"
    of_words = f"MiniLM over {words}"
    return (
        FeatureFile((f"{prefix}_words",), "subtitle", clips, 384, of_words, how, clip_seconds, needed=True),
        FeatureFile((f"{prefix}_queries",), "query", tokens, 384, "MiniLM, token by token", how, needed=True),
    )


@dataclass(frozen=True)
class Declaration:
    """A published data set: its names, files, and how to obtain them."""

    name: str
    title: str
    tasks: tuple[str, ...]
    citation: str
    licence: str
    how: str
    """The way to obtain the annotation files, in words."""
    mark: bytes
    """A regular expression that matches within each file's head; several sets have a `train.json`."""
    splits: tuple[Split, ...]
    features: tuple[FeatureFile, ...] = ()
    beside: tuple[SideFile, ...] = ()
    notes: tuple[str, ...] = ()
    """Caveats for comparing numbers."""
    pool_size: int | None = None
    """Videos in a full pool, if the data set has pools."""
    shared_query_ids: tuple[tuple[str, str], ...] = ()
    """Pairs of splits that may share query ids, so that one run cannot answer both."""
    complete: Callable[[Annotations, Path, str], Annotations] | None = None
    """Completes annotations from side files (annotations, file, name of the split)."""

    def to_json(self) -> dict[str, Any]:
        names = ("name", "title", "tasks", "citation", "licence", "how")
        return {
            **{name: getattr(self, name) for name in names},
            "splits": {split.name: [file.name for file in split.files] for split in self.splits},
            "beside": {file.name: file.holds for file in self.beside},
            "features": [asdict(feature) for feature in self.features],
            "notes": list(self.notes),
        }

    def split(self, name: str) -> Split | None:
        """The split of that name, if any."""
        return next((split for split in self.splits if split.name == name), None)
