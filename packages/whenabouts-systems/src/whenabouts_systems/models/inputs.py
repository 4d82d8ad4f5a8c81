"""How features on disk become what a model reads: the same in training, in a run and in a search.

Shapes: V videos, T clips, Q queries, L tokens, D width; see `protocol`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from whenabouts.clips import ClipGrid
from whenabouts.types import UsageError
from whenabouts_bench.formats.sentences import Sentence
from whenabouts_systems.features.cache import LARGEST_VALUE
from whenabouts_systems.features.grid_rows import refuse_surplus
from whenabouts_systems.features.resample import average_to_length, unit_rows
from whenabouts_systems.features.sentences import sentence_of_clips
from whenabouts_systems.models.parts.text_encoder import tokens_of
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch, SentenceBatch
from whenabouts_systems.models.settings import Positive, Size, check_fields, check_keys

Rows = NDArray[np.floating[Any]]

LongVideos = Literal["pool", "cut", "pool-as-released", "even", "even-as-released"]

_ADDED = np.float32(1e-5)
"""Added to a row's length before it is divided by it (XML, ReLoCLNet, TVR-Ranking, CONQUER, MS-SL)."""

_MOST_WORDS = 256
"""Ids of a sentence of a video; of a longer one the beginning is read."""

_LATER = {"clips_per_cell": 1, "tokenizer": "", "reads_sentences": False}
"""Settings that came after the first checkpoints, with the values that change nothing."""


@dataclass(frozen=True, slots=True)
class StreamInput:
    """One stream of features: `width` values a row; each row brought to unit length where `normalise`.

    `encoder` and `fingerprint` say what made the features ("" where the file does not say).
    """

    width: Size
    normalise: bool = True
    encoder: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        check_fields(self, "inputs of a stream")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a system was trained on, and how it was made ready.

    `streams` are those of the videos, on one grid of `clip_seconds`; `query` are the tokens. Queries keep
    their first `max_tokens` tokens. Videos of more than `max_clips` clips are pooled to that many ("pool":
    every row counts once, and clips are longer, see `clip_seconds_of`) or cut off ("cut", as XML does).
    "pool-as-released" is ReLoCLNet's program: the last row is usually left out, and its times still count
    clips of the old length. `tef` appends two columns to each stream: where a clip begins and ends, as
    shares of the video (temporal endpoint features).

    "even": every video, short or long, has `max_clips` clips of equal time, as for the map of 2D-TAN and MMN;
    rows are brought to unit length before they are averaged. "even-as-released" is their program: as in
    "pool-as-released" the last row is usually left out. `clips_per_cell`: so many clips make one step of
    the grid on which the system answers. `tokenizer`: queries are ids of that tokenizer (a folder, or a hub's
    repository), for a text encoder inside the system, and `query` says nothing. `reads_sentences`: what is
    said in the videos is read, too, by the same tokenizer, sentence by sentence with the clips that each
    covers; such a system puts its own special tokens around words, so that neither has any.
    """

    query: StreamInput
    streams: Mapping[str, StreamInput] = field(default_factory=dict)
    clip_seconds: Positive = 1.5
    max_clips: Size = 100
    max_tokens: Size = 30
    long_videos: LongVideos = "pool"
    tef: bool = False
    clips_per_cell: Size = 1
    tokenizer: str = ""
    reads_sentences: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "inputs", leave_out=("query", "streams"))
        if self.reads_sentences and not self.tokenizer:
            raise UsageError(
                'inputs: sentences are read by a tokenizer, and there is none; give query = "tokenizer:NAME"'
            )

    @property
    def widths(self) -> dict[str, int]:
        """Values in a row of each stream as the model sees it: the two columns of `tef` included."""
        return {name: stream.width + 2 * self.tef for name, stream in self.streams.items()}

    @property
    def is_even(self) -> bool:
        """Whether every video has the same number of clips, each an equal share of it."""
        return self.long_videos in ("even", "even-as-released")

    def clips_of(self, rows: int) -> int:
        """How many clips a video of that many rows has for the model."""
        return self.max_clips if self.is_even else min(rows, self.max_clips)

    def cells_of(self, rows: int) -> int:
        """How many steps the grid of answers has in a video of that many rows."""
        return -(-self.clips_of(rows) // self.clips_per_cell)

    def clip_seconds_of(self, rows: int, duration: float | None = None) -> float:
        """Seconds of a step of the grid of answers in a video of that many rows (before pooling).

        A step is a clip, or `clips_per_cell` of them. With "even" it is an equal share of `duration`, or of
        what the rows cover where that is not known.

        >>> Inputs(StreamInput(4), clip_seconds=1.5, max_clips=100).clip_seconds_of(200)
        3.0
        """
        if self.is_even:
            return (rows * self.clip_seconds if duration is None else duration) / self.cells_of(rows)
        if self.long_videos == "pool" and rows > self.max_clips:
            return rows * self.clip_seconds / self.max_clips * self.clips_per_cell
        return self.clip_seconds * self.clips_per_cell

    def rows_of(self, video: Mapping[str, Rows], duration: float | None = None, name: str = "") -> int:
        """How many rows of a video count: those of its longest stream, none of them behind `duration`.

        Raises UsageError where there are many more than clips in that time: another clip length, or video.
        With "even" all rows count, for they are spread over the duration whatever it is.
        """
        return self.rows_in(max(len(rows) for rows in video.values()), duration, name)

    def rows_in(self, rows: int, duration: float | None = None, name: str = "") -> int:
        """The same from the number of rows of the longest stream."""
        if duration is None or self.is_even:
            return rows
        grid = ClipGrid(self.clip_seconds, duration)
        refuse_surplus(rows, grid, f"video {name!r}")
        return max(1, min(rows, len(grid)))

    def clips(
        self,
        videos: Sequence[Mapping[str, Rows]],
        durations: Sequence[float] | None = None,
        names: Sequence[str] | None = None,
        transcripts: Sequence[Sequence[Sentence]] | None = None,
    ) -> ClipBatch:
        """Videos made ready: stream -> (V, T, D) padded with zeros, the mask, and which videos are silent.

        A video is stream name -> (rows, D). A stream that ends early, or that a video lacks, has rows of
        zeros there. With `durations` (seconds) rows behind a video's end are left out: releases often have
        one more than there are clips. `names` are what errors call the videos. `transcripts` are the
        sentences of each, for a system that reads them (`reads_sentences`).

        Raises UsageError, naming video and stream, for rows of another width, for values that are not
        finite and for a video without rows.
        """
        named = _named(names, len(videos), "video")
        rows = np.array([self._counted(at, videos, durations, named) for at in range(len(videos))], np.int64)
        counts = np.array([self.clips_of(count) for count in rows.tolist()], np.int64)
        mask = np.arange(counts.max(initial=1)) < counts[:, None]
        streams = {}
        silent = np.ones(len(videos), bool)
        for stream, settings in self.streams.items():
            width = settings.width
            block = np.zeros((*mask.shape, width + 2 * self.tef), np.float32)
            for at, video in enumerate(videos):
                features = video.get(stream)
                if features is not None:
                    _check_rows(features, width, f"{named[at]}, stream {stream!r}", self.is_even)
                    ready = self._fitted(features, int(rows[at]), settings.normalise)
                    block[at, : len(ready), :width] = ready
            # Evenly pooled rows were brought to unit length before they were averaged.
            normalise = settings.normalise and not self.is_even
            not_zero = _bring_to_unit(block[..., :width], normalise, named, f", stream {stream!r}")
            silent &= ~not_zero.any(1)
            if self.tef:
                block[..., width:] = endpoint_features(counts, mask)
            streams[stream] = torch.from_numpy(block)
        spoken = None
        if self.reads_sentences:
            spoken = self._sentence_batch(transcripts, rows, durations, mask)
            silent &= ~spoken.mask.any((1, 2)).numpy()
        return ClipBatch(streams, torch.from_numpy(mask), torch.from_numpy(silent), spoken)

    def queries(self, tokens: Sequence[Rows], names: Sequence[str] | None = None) -> QueryBatch:
        """Queries made ready: (Q, L, D) padded with zeros to the longest, and the mask.

        A query is (tokens, D). Raises UsageError, naming the query, as `clips` does.
        """
        named = _named(names, len(tokens), "query")
        counts = np.array([min(len(rows), self.max_tokens) for rows in tokens], np.int64)
        mask = np.arange(counts.max(initial=1)) < counts[:, None]
        block = np.zeros((*mask.shape, self.query.width), np.float32)
        for at, rows in enumerate(tokens):
            _check_rows(rows, self.query.width, named[at])
            block[at, : counts[at]] = rows[: counts[at]]
        _bring_to_unit(block, self.query.normalise, named, "")
        return QueryBatch(torch.from_numpy(block), torch.from_numpy(mask))

    def sentences(self, texts: Sequence[str]) -> QueryBatch:
        """Queries as ids of the `tokenizer`: (Q, L), and the mask. Raises UsageError where there is none."""
        if not self.tokenizer:
            raise UsageError(
                "this system reads features of words; expected the file, or the encoder, of them"
            )
        tokens = tokens_of(self.tokenizer)
        read = tokens.word_batch if self.reads_sentences else tokens.batch
        return read(texts, self.max_tokens)

    def pieces(self, text: str) -> list[str]:
        """What the `tokenizer` calls the ids of a query."""
        return tokens_of(self.tokenizer).pieces(text, special=not self.reads_sentences)[: self.max_tokens]

    def _sentence_batch(
        self,
        transcripts: Sequence[Sequence[Sentence]] | None,
        rows: NDArray[np.int64],
        durations: Sequence[float] | None,
        mask: NDArray[np.bool_],
    ) -> SentenceBatch:
        """What is said in videos of so many rows (V,), whose clips have that mask (V, T)."""
        if transcripts is None:
            raise UsageError(
                "this system reads what is said, sentence by sentence; expected the sentences of the videos"
            )
        of_clips = np.full(mask.shape, -1, np.int64)
        for at, sentences in enumerate(transcripts):
            duration = None if durations is None else durations[at]
            clips = self.clips_of(int(rows[at]))
            seconds = self.clip_seconds_of(int(rows[at]), duration) / self.clips_per_cell
            of_clips[at, :clips] = sentence_of_clips(sentences, clips, seconds)
        # Groups of clips where nothing is said are sentences without words.
        count = max(max(map(len, transcripts), default=0), int(of_clips.max(initial=-1)) + 1)
        texts = [sentence.text for sentences in transcripts for sentence in sentences]
        ids = iter(tokens_of(self.tokenizer).words(texts, _MOST_WORDS))
        words = [[next(ids) for _ in sentences] for sentences in transcripts]
        longest = max((len(row) for own in words for row in own), default=0)
        padded = np.zeros((len(words), count, longest), np.int64)
        there = np.zeros(padded.shape, bool)
        for at, own in enumerate(words):
            for number, row in enumerate(own):
                padded[at, number, : len(row)], there[at, number, : len(row)] = row, True
        return SentenceBatch(torch.from_numpy(padded), torch.from_numpy(there), torch.from_numpy(of_clips))

    def to_json(self) -> dict[str, Any]:
        """As it is kept in a checkpoint's `config.json`.

        What came later is left out where it says nothing, so that older systems keep their fingerprints.
        """
        settings = dataclasses.asdict(self)
        return {
            name: value for name, value in settings.items() if name not in _LATER or value != _LATER[name]
        }

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> Inputs:
        """What `to_json` wrote. Raises UsageError for a key that is unknown or missing, or a wrong value."""
        needed = [field.name for field in dataclasses.fields(cls) if field.name not in _LATER]
        check_keys(settings, cls, "inputs", needed=needed)
        streams = settings["streams"]
        if not isinstance(streams, Mapping):
            raise UsageError(f"inputs: streams are {streams!r}; accepted: an object, stream name -> settings")
        query = _stream_of("query", settings["query"])
        read = {name: _stream_of(name, stream) for name, stream in streams.items()}
        return cls(**{**settings, "query": query, "streams": read})

    def _counted(
        self,
        at: int,
        videos: Sequence[Mapping[str, Rows]],
        durations: Sequence[float] | None,
        named: Sequence[str],
    ) -> int:
        """Rows of one video that count, over the streams that are read."""
        lengths = [len(rows) for stream, rows in videos[at].items() if stream in self.streams]
        if not lengths or not max(lengths):
            raise UsageError(
                f"{named[at]}: has no rows; expected some in one of the streams {', '.join(self.streams)}"
            )
        return self.rows_in(max(lengths), None if durations is None else durations[at], named[at])

    def _fitted(self, rows: Rows, count: int, normalise: bool) -> Rows:
        """Rows of one stream of a video that has `count` of them, pooled or cut to `max_clips`."""
        kept = rows[:count]
        if self.is_even:
            kept = unit_rows(kept) if normalise else kept
        elif count <= self.max_clips or self.long_videos == "cut":
            return kept[: self.max_clips]
        if len(kept) < count:
            kept = np.concatenate([kept, np.zeros((count - len(kept), kept.shape[1]), kept.dtype)])
        average: Callable[[Rows, int], Rows] = average_to_length
        if self.long_videos.endswith("as-released"):  # a room above this one, so found by its name
            average = importlib.import_module("whenabouts_systems.released.clips").average_to_length
        return average(kept, self.max_clips)


def endpoint_features(counts: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(V, T, 2) where each clip begins and ends as a share of its video: (i/n, (i+1)/n); 0 in padding.

    "Temporal endpoint features" of paper 001's XML and of ReLoCLNet; n is the number of real clips.
    """
    begins = np.arange(mask.shape[1], dtype=np.float64) / np.maximum(counts, 1)[:, None]
    ends = np.arange(1, mask.shape[1] + 1, dtype=np.float64) / np.maximum(counts, 1)[:, None]
    return np.where(mask[..., None], np.stack([begins, ends], -1), 0).astype(np.float32)


def _bring_to_unit(
    block: NDArray[np.float32], normalise: bool, named: Sequence[str], where: str
) -> NDArray[np.bool_]:
    """Each row x of (N, M, D) becomes x / (|x| + 1e-5) in place where `normalise`; zeros stay.

    Gives (N, M): which rows are not zero.

    Raises UsageError for the first row that is not finite, or too large for its squares to be.
    """
    squares = np.einsum("nmd,nmd->nm", block, block)
    if not np.isfinite(squares).all():
        at, row = np.argwhere(~np.isfinite(squares))[0].tolist()
        raise _not_usable(block[at, row], row, f"{named[at]}{where}")
    if normalise:
        block /= (np.sqrt(squares) + _ADDED)[..., None]
    return np.asarray(squares > 0)


def _named(names: Sequence[str] | None, count: int, kind: str) -> list[str]:
    if names is None:
        return [f"{kind} number {at}" for at in range(count)]
    return [f"{kind} {name!r}" for name in names]


def _check_rows(rows: Rows, width: int, name: str, averaged: bool = False) -> None:
    """Refuse another width; and values that float32 cannot hold, or that would be `averaged` unseen."""
    if rows.ndim != 2 or rows.shape[1] != width:
        raise UsageError(f"{name}: is of shape {rows.shape}; expected (rows, {width})")
    if rows.dtype.itemsize > 4 or averaged:
        # In double precision: the bound itself is beyond what half precision holds.
        largest = np.abs(rows).max(axis=1, initial=0).astype(np.float64)
        if len(wrong := np.flatnonzero(~(largest <= LARGEST_VALUE))):
            raise _not_usable(rows[wrong[0]], int(wrong[0]), name)


def _not_usable(values: NDArray[Any], row: int, name: str) -> UsageError:
    """The error for a row with values that are not finite, or too large."""
    if not np.isfinite(values).all():
        return UsageError(f"{name}: row {row} is not finite; expected finite numbers")
    return UsageError(
        f"{name}: row {row} holds a number as large as {np.abs(values).max():g}; expected numbers up to "
        f"{LARGEST_VALUE:g}, whose squares float32 can add"
    )


def _stream_of(name: str, settings: Any) -> StreamInput:
    if not isinstance(settings, Mapping) or "width" not in settings:
        raise UsageError(f"inputs: {name} is {settings!r}; accepted: an object with width")
    check_keys(settings, StreamInput, f"inputs: {name}")
    return StreamInput(**settings)
