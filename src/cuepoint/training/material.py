"""What a training reads: annotations and features brought together, checked, and handed out in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cuepoint.formats.columns import Annotations
from cuepoint.models.inputs import Inputs, LongVideos
from cuepoint.models.protocol import Batch, ClipBatch, QueryBatch
from cuepoint.types import Query, Video

Labels = Literal["inclusive", "as-released"]


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The table `[data]` of an experiment: annotations, and how they become lessons.

    `train`, `validation`, `test` are files of judgements in any format that we read, or split names of
    `dataset` where that is given. A relative path lies in `folder`, else beside the features.
    `pairs` is a file of potentially relevant pairs. `weights` "relevance" weighs each lesson by its
    judgement's relevance (a ranked training set). `labels` is how seconds become clips: see
    `batches.spans_in_clips`. `positives` "known" takes every video that is judged relevant to a query, or
    to another query of the same words, out of its negatives; "own" (as released) its own video alone.
    `order` "by-length" puts videos of similar length into one batch.
    """

    train: str = ""
    validation: str = ""
    test: str = ""
    dataset: str = ""
    folder: str = ""
    pairs: str = ""
    weights: Literal["none", "relevance"] = "none"
    labels: Labels = "inclusive"
    positives: Literal["known", "own"] = "known"
    order: Literal["random", "by-length"] = "random"


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """The table `[features]` of an experiment: files below the features folder, and how rows are made ready.

    `query` is the file of token features, `streams` stream name -> file. `clip_seconds` is the length of a
    row where the files do not tell. `memory_mb` bounds what is held in memory; larger files are read as
    they are needed. The rest is as in `models.inputs.Inputs`.
    """

    query: str = ""
    streams: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    clip_seconds: float | None = None
    max_clips: int = 100
    max_tokens: int = 30
    long_videos: LongVideos = "pool"
    tef: bool = False
    normalise: bool = True
    normalise_query: bool = True
    memory_mb: int = 4096


class Lessons:
    """One split: queries, videos, their truth in clips, and batches of them."""

    name: str
    annotations: Annotations
    inputs: Inputs
    query: NDArray[np.int64]
    """(N,) row of `queries` of each lesson; a lesson is a query with one of its moments."""
    video: NDArray[np.int64]
    """(N,) row of `videos`."""
    spans: NDArray[np.int64]
    """(N, 2) first and last clip of the truth."""
    durations: NDArray[np.float64]
    """(V,) seconds."""
    clips: NDArray[np.int64]
    """(V,) how many clips each video has for the model, after pooling or cutting."""
    clip_seconds: NDArray[np.float64]
    """(V,) how long they are."""

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries of the split."""
        raise NotImplementedError

    @property
    def videos(self) -> tuple[Video, ...]:
        """The videos of the split: the corpus of a validation."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.query)

    def batch_count(self, size: int) -> int:
        """How many batches an epoch has."""
        raise NotImplementedError

    def batches(
        self, *, size: int, epoch: int = 0, seed: int = 0, epochs: int = 1, first: int = 0, ahead: int = 2
    ) -> Iterator[Batch]:
        """The batches of an epoch from the one numbered `first`; the same for the same seed and epoch.

        `epochs` is how many the training has: `Batch.progress` is (epoch + batch / batches) / epochs.
        `ahead` batches are prepared by a thread while the step runs; 0 for none.
        """
        raise NotImplementedError

    def query_batch(self, rows: NDArray[np.int64]) -> QueryBatch:
        """Some of `queries`, as a model reads them."""
        raise NotImplementedError

    def video_batch(self, rows: NDArray[np.int64]) -> ClipBatch:
        """Some of `videos`, as a model reads them."""
        raise NotImplementedError


class Material:
    """Annotations and features of an experiment."""

    inputs: Inputs

    @classmethod
    def open(
        cls,
        data: DataSettings,
        features: FeatureSettings,
        features_dir: str | Path,
        *,
        inputs: Inputs | None = None,
        splits: tuple[str, ...] = ("train", "validation", "test"),
    ) -> Material:
        """All that the experiment names, opened and checked; see `checks`.

        `inputs` are those of a checkpoint that goes on or is evaluated: features made by another encoder
        are refused. `splits` are read where the experiment names them.
        """
        raise NotImplementedError

    def split(self, name: str) -> Lessons:
        """A split by its name: "train", "validation" or "test"."""
        raise NotImplementedError

    def summary(self) -> list[str]:
        """What was found and which rules for odd data applied, for people."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back the feature files."""
        raise NotImplementedError
