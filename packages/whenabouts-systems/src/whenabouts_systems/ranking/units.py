"""Cut videos into units: parts of videos that a system encodes as if each were a video.

A unit is a segment of a long video that is cut into equal lengths (`Units.cut`), or a window around a moment
or a proposal (`Units.around`). Rows are rows of features; videos and units are counted from 0.

Shapes: V videos, U units, T rows, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from whenabouts.clips import clip_spans, same_instant, whole_clips
from whenabouts.types import UsageError, Video
from whenabouts_bench.formats.sentences import Sentence
from whenabouts_systems.features.sentences import shifted
from whenabouts_systems.features.source import Rows
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.protocol import ClipBatch
from whenabouts_systems.ranking.encoded_corpus import Floats, Indices, MemoryCorpus, Progress, encode_corpus


class Footage(Protocol):
    """Features of videos, such as `training.examples.Examples` or `trained_search`'s `StoredFootage`."""

    @property
    def inputs(self) -> Inputs:
        """The settings by which the system's rows are prepared."""

    @property
    def videos(self) -> Sequence[Video]:
        """The V videos; their places in this list are their numbers."""

    @property
    def durations(self) -> Floats:
        """(V,) the length of each video in seconds."""

    @property
    def row_counts(self) -> Indices:
        """(V,) the number of rows used of each video; a row covers `inputs.clip_seconds`."""

    def rows_of_video(self, video: int, /) -> Mapping[str, Rows]:
        """Stream -> (T, D) rows of the video with this number."""

    def sentences_of_video(self, video: int, /) -> Sequence[Sentence]:
        """The sentences of the video with this number; only called if the system reads sentences."""


@dataclass(frozen=True, eq=False)
class Units:
    """U parts of videos: unit u is rows first[u] to stop[u] - 1 of video number video[u]; all are (U,)."""

    footage: Footage
    video: Indices
    first: Indices
    stop: Indices

    @classmethod
    def cut(cls, footage: Footage, seconds: float) -> Units:
        """All videos cut into segments of `seconds`, to whole rows; the last of a video may be shorter."""
        size = whole_clips(seconds, footage.inputs.clip_seconds)
        rows = np.asarray(footage.row_counts, np.int64)
        counts = -(-rows // size)
        video = np.repeat(np.arange(len(rows)), counts)
        place = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        return cls(footage, video, place * size, np.minimum((place + 1) * size, rows[video]))

    @classmethod
    def around(cls, footage: Footage, video: Indices, start: Floats, end: Floats) -> Units:
        """Unit u has the rows of video[u] from second start[u] to end[u], at least one; all are (U,)."""
        clip, rows = footage.inputs.clip_seconds, np.asarray(footage.row_counts, np.int64)[video]
        first, last = clip_spans(start, end, clip)
        first = first.clip(0, rows - 1)
        return cls(footage, np.asarray(video, np.int64), first, np.clip(last + 1, first + 1, rows))

    def __len__(self) -> int:
        return len(self.video)

    @property
    def start(self) -> Floats:
        """(U,) the second at which each unit begins."""
        return np.asarray(self.first * self.footage.inputs.clip_seconds, np.float64)

    @property
    def end(self) -> Floats:
        """(U,) the second at which each unit ends, at most the end of its video."""
        ends = self.stop * self.footage.inputs.clip_seconds
        return np.asarray(np.minimum(ends, self.footage.durations[self.video]), np.float64)

    def take(self, numbers: Indices) -> Units:
        """The units with these numbers, in the order given."""
        return Units(self.footage, self.video[numbers], self.first[numbers], self.stop[numbers])

    def distinct(self) -> tuple[Units, Indices]:
        """(the distinct units, for each unit (U,) its number among them)."""
        columns = np.stack([self.video, self.first, self.stop], 1)
        distinct, number = np.unique(columns, axis=0, return_inverse=True)
        video, first, stop = (np.ascontiguousarray(column) for column in distinct.T)
        return Units(self.footage, video, first, stop), number.reshape(-1)

    def clip_batch(self, numbers: Indices) -> ClipBatch:
        """The units with these numbers as a system's batch of videos; each video is read only once."""
        units = self.take(np.asarray(numbers, np.int64))
        _, begins, owner = np.unique(units.video, return_index=True, return_inverse=True)
        pieces: list[Mapping[str, Rows]] = [{} for _ in range(len(units))]
        transcripts: list[Sequence[Sentence]] = [() for _ in range(len(units))]
        streams: Mapping[str, Rows] = {}
        sentences: Sequence[Sentence] = ()
        inputs, read = self.footage.inputs, -1
        for at in np.argsort(begins[owner.reshape(-1)], kind="stable").tolist():
            video, span = int(units.video[at]), slice(int(units.first[at]), int(units.stop[at]))
            if video != read:
                streams, read = self.footage.rows_of_video(video), video
                sentences = self.footage.sentences_of_video(video) if inputs.reads_sentences else ()
            transcripts[at] = shifted(sentences, span.start * inputs.clip_seconds)
            pieces[at] = {stream: np.array(values[span]) for stream, values in streams.items()}
        parts = zip(units.video.tolist(), units.first.tolist(), units.stop.tolist(), strict=True)
        videos = self.footage.videos
        names = [f"{videos[video].id}, rows {low} to {high - 1}" for video, low, high in parts]
        return inputs.clips(pieces, names=names, transcripts=transcripts)

    def encoded(self, model: Any, *, progress: Progress | None = None) -> MemoryCorpus:
        """All units encoded as the videos of a corpus, in the same order."""
        inputs, seconds = self.footage.inputs, self.end - self.start
        lengths = list(zip((self.stop - self.first).tolist(), seconds.tolist(), strict=True))
        return encode_corpus(
            model,
            self.clip_batch,
            [f"{number:012d}" for number in range(len(self))],
            clips=np.array([inputs.clips_of(rows) for rows, _ in lengths], np.int64),
            clip_seconds=np.array([inputs.clip_seconds_of(*length) for length in lengths]),
            durations=seconds,
            progress=progress,
        )


def segment_clips(inputs: Inputs, seconds: float, name: str) -> int:
    """The number of clips in a segment of `seconds`, rounded to whole clips.

    Raises UsageError for invalid lengths, lengths below a clip, and those too long for the system `name`.
    """
    clip, limit = inputs.clip_seconds, inputs.max_clips
    if not 0 < seconds < float("inf"):
        raise UsageError(f"segments of {seconds!r} seconds: give a number above 0, such as 4")
    if seconds < clip and not same_instant(seconds, clip):
        raise UsageError(
            f"segments of {seconds:g} s are shorter than the clips of {name} ({clip:g} s); give {clip:g} or "
            "more"
        )
    clips = whole_clips(seconds, clip)
    if clips > limit:
        raise UsageError(
            f"segments of {seconds:g} s are {clips} clips of {clip:g} s, but {name} takes at most {limit}; "
            f"give {limit * clip:g} or less"
        )
    return clips
