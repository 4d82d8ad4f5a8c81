"""Turn arrays of features into a model's input tensors, in the same way for training, runs and search.

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
from whenabouts_systems.features.resample import average_to_length, unit_rows
from whenabouts_systems.features.sentences import sentence_of_clips
from whenabouts_systems.features.source import refuse_surplus
from whenabouts_systems.models.parts.text_encoder import tokens_of
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch, SentenceBatch
from whenabouts_systems.models.settings import Positive, Size, check_fields, check_keys

Rows = NDArray[np.floating[Any]]

LongVideos = Literal["pool", "cut", "pool-as-released", "even", "even-as-released"]

_ADDED = np.float32(1e-5)
"""Added to a row's norm before the row is divided by it (XML, ReLoCLNet, TVR-Ranking, CONQUER, MS-SL)."""

_MAX_WORDS = 256
"""At most this many token ids are kept of each sentence of a video."""

_LATER = {"clips_per_cell": 1, "tokenizer": "", "reads_sentences": False}
"""Settings added after the first checkpoints; at these defaults they are left out of `config.json`."""


@dataclass(frozen=True, slots=True)
class StreamInput:
    """One stream of features: `width` values a row, each row scaled to unit length if `normalise`.

    `encoder` and `fingerprint` name the encoder of the features ("" if the feature file does not).
    """

    width: Size
    normalise: bool = True
    encoder: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        check_fields(self, "inputs of a stream")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The features that a system was trained on, and how they are prepared.

    - `query`: token features. Queries keep their first `max_tokens` tokens.
    - `streams`: features of videos, on one grid of `clip_seconds`.
    - `long_videos`: what happens to videos with more than `max_clips` clips; "even" applies to every video.

      - "pool": rows are averaged into `max_clips` longer clips (`clip_seconds_of`); every row counts once.
      - "cut": later clips are dropped, as XML does.
      - "pool-as-released": as ReLoCLNet's program, which usually drops the last row. Times still use
        `clip_seconds`, although pooled clips are longer.
      - "even": every video, short or long, has `max_clips` clips of equal time, as the map of 2D-TAN and MMN
        needs. Rows with `normalise` are scaled to unit length before they are averaged.
      - "even-as-released": the program of 2D-TAN and MMN, which usually drops the last row, too.

    - `tef`: append two columns to each stream, the clip's begin and end as shares of the video (temporal
      endpoint features).
    - `clips_per_cell`: how many clips make one cell of the grid on which the system answers.
    - `tokenizer`: queries are token ids of this tokenizer (a folder, or a hub's repository), for a text
      encoder inside the system; `query` is then unused.
    - `reads_sentences`: the same tokenizer also reads the speech of videos, sentence by sentence, with the
      clips that each sentence covers. The tokenizer then adds no special tokens to queries or sentences; the
      system does.
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
                'inputs: reads_sentences needs a tokenizer; in an experiment write query = "tokenizer:NAME"'
            )

        if self.is_even and self.max_clips % self.clips_per_cell:
            raise UsageError(
                f"inputs: max_clips is {self.max_clips}; accepted with {self.long_videos!r}: a multiple of "
                f"clips_per_cell ({self.clips_per_cell})"
            )

    @property
    def widths(self) -> dict[str, int]:
        """The number of values a row of each stream, with the two columns of `tef`."""
        return {name: stream.width + 2 * self.tef for name, stream in self.streams.items()}

    @property
    def is_even(self) -> bool:
        """Whether every video has the same number of clips, each an equal share of the video."""
        return self.long_videos in ("even", "even-as-released")

    def clips_of(self, rows: int) -> int:
        """The number of clips that the model sees of a video with `rows` rows."""
        return self.max_clips if self.is_even else min(rows, self.max_clips)

    def cells_of(self, rows: int) -> int:
        """The number of cells of the answer grid for a video with `rows` rows."""
        return -(-self.clips_of(rows) // self.clips_per_cell)

    def clip_seconds_of(self, rows: int, duration: float | None = None) -> float:
        """Seconds of a cell of the answer grid, in a video with `rows` rows before pooling.

        A cell is `clips_per_cell` clips. With "even" it is an equal share of `duration` or, if that is None,
        of the time that the rows cover.

        >>> Inputs(StreamInput(4), clip_seconds=1.5, max_clips=100).clip_seconds_of(200)
        3.0
        """
        if self.is_even:
            return (rows * self.clip_seconds if duration is None else duration) / self.cells_of(rows)
        if self.long_videos == "pool" and rows > self.max_clips:
            return rows * self.clip_seconds / self.max_clips * self.clips_per_cell
        return self.clip_seconds * self.clips_per_cell

    def rows_in(self, rows: int, duration: float | None, name: str) -> int:
        """The number of a video's rows, `rows` in its longest stream, without rows after `duration`.

        With "even" all rows count, because they are spread over the duration. Raises UsageError if there are
        many more rows than clips in `duration`: the clip length, or the video, is wrong.
        """
        return self._rows_in(rows, duration, f"video {name!r}")

    def clips(
        self,
        videos: Sequence[Mapping[str, Rows]],
        durations: Sequence[float] | None = None,
        names: Sequence[str] | None = None,
        transcripts: Sequence[Sequence[Sentence]] | None = None,
    ) -> ClipBatch:
        """A batch of videos: stream -> (V, T, D) padded with zeros, the mask, and which videos are silent.

        A silent video has only zeros as features, and no words that are read.

        Each of `videos` is stream name -> (rows, D). A stream that ends early, or that a video lacks, is
        filled with zeros. With `durations` (seconds), rows after a video's end are dropped, but not with
        "even": released features often have one row too many. Errors use `names` for the videos.
        `transcripts` are the sentences of each video, for a system that reads them (`reads_sentences`).

        Raises UsageError, naming video and stream, for rows of a wrong width, values that are not finite or
        too large, many surplus rows, a video without rows, and missing transcripts.
        """
        named = _named(names, len(videos), "video")
        ends = [None] * len(videos) if durations is None else durations
        rows = np.array([self._counted(*video) for video in zip(videos, ends, named, strict=True)], np.int64)
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
            # Evenly pooled rows were scaled before they were averaged.
            normalise = settings.normalise and not self.is_even
            not_zero = _bring_to_unit(block[..., :width], normalise, named, f", stream {stream!r}")
            silent &= ~not_zero.any(1)
            if self.tef:
                block[..., width:] = endpoint_features(counts, mask)
            streams[stream] = torch.from_numpy(block)
        sentences = None
        if self.reads_sentences:
            sentences = self._sentence_batch(transcripts, rows, ends, mask)
            silent &= ~sentences.mask.any((1, 2)).numpy()
        return ClipBatch(streams, torch.from_numpy(mask), torch.from_numpy(silent), sentences)

    def queries(self, tokens: Sequence[Rows], names: Sequence[str] | None = None) -> QueryBatch:
        """A batch of queries: (Q, L, D) padded with zeros to the longest, and the mask.

        Each of `tokens` is (L, D). Raises UsageError, naming the query, as `clips` does.
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
        """Queries as token ids (Q, L), and the mask. Raises UsageError without a `tokenizer`."""
        if not self.tokenizer:
            raise UsageError(
                "this system reads features of words, not text; give the features' file or encoder"
            )
        tokens = tokens_of(self.tokenizer)
        read = tokens.word_batch if self.reads_sentences else tokens.batch
        return read(texts, self.max_tokens)

    def pieces(self, text: str) -> list[str]:
        """The tokens of a query as text, by the `tokenizer`."""
        return tokens_of(self.tokenizer).pieces(text, special=not self.reads_sentences)[: self.max_tokens]

    def _sentence_batch(
        self,
        transcripts: Sequence[Sequence[Sentence]] | None,
        rows: NDArray[np.int64],
        durations: Sequence[float | None],
        mask: NDArray[np.bool_],
    ) -> SentenceBatch:
        """The sentences of videos with `rows` (V,) rows and the clip mask `mask` (V, T)."""
        if transcripts is None:
            raise UsageError(
                "this system reads the speech of videos sentence by sentence; give the videos' sentences"
            )
        of_clips = np.full(mask.shape, -1, np.int64)
        for at, (sentences, count, duration) in enumerate(
            zip(transcripts, rows.tolist(), durations, strict=True)
        ):
            clips = self.clips_of(count)
            seconds = self.clip_seconds_of(count, duration) / self.clips_per_cell
            of_clips[at, :clips] = sentence_of_clips(sentences, clips, seconds)
        # Groups of clips without speech have numbers beyond the transcript's sentences: rows without words.
        count = max(max(map(len, transcripts), default=0), int(of_clips.max(initial=-1)) + 1)
        texts = [sentence.text for sentences in transcripts for sentence in sentences]
        ids = iter(tokens_of(self.tokenizer).words(texts, _MAX_WORDS))
        words = [[next(ids) for _ in sentences] for sentences in transcripts]
        longest = max((len(sentence) for video in words for sentence in video), default=0)
        padded = np.zeros((len(words), count, longest), np.int64)
        is_word = np.zeros(padded.shape, bool)
        for at, video in enumerate(words):
            for number, row in enumerate(video):
                padded[at, number, : len(row)], is_word[at, number, : len(row)] = row, True
        return SentenceBatch(torch.from_numpy(padded), torch.from_numpy(is_word), torch.from_numpy(of_clips))

    def to_json(self) -> dict[str, Any]:
        """The settings for a checkpoint's `config.json`.

        Later settings are left out at their defaults, so that older systems keep their fingerprints.
        """
        facts = dataclasses.asdict(self).items()
        return {name: value for name, value in facts if name not in _LATER or value != _LATER[name]}

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> Inputs:
        """The settings that `to_json` wrote. Raises UsageError for unknown or missing keys, wrong values."""
        needed = [field.name for field in dataclasses.fields(cls) if field.name not in _LATER]
        check_keys(settings, cls, "inputs", needed=needed)
        streams = settings["streams"]
        if not isinstance(streams, Mapping):
            raise UsageError(f"inputs: streams are {streams!r}; accepted: an object, stream name -> settings")
        query = _stream_of("query", settings["query"])
        read = {name: _stream_of(name, stream) for name, stream in streams.items()}
        return cls(**{**settings, "query": query, "streams": read})

    def _counted(self, video: Mapping[str, Rows], duration: float | None, name: str) -> int:
        """The number of rows of a video, over the streams that the model reads."""
        longest = max((len(rows) for stream, rows in video.items() if stream in self.streams), default=0)
        if not longest:
            raise UsageError(
                f"{name}: has no rows; expected some in one of the streams {', '.join(self.streams)}"
            )
        return self._rows_in(longest, duration, name)

    def _rows_in(self, rows: int, duration: float | None, name: str) -> int:
        if duration is None or self.is_even:
            return rows
        grid = ClipGrid(self.clip_seconds, duration)
        refuse_surplus(rows, grid, name)
        return max(1, min(rows, len(grid)))

    def _fitted(self, rows: Rows, count: int, normalise: bool) -> Rows:
        """The rows of one stream of a video with `count` rows, pooled or cut to `max_clips`."""
        kept = rows[:count]
        if self.is_even:
            kept = unit_rows(kept) if normalise else kept
        elif count <= self.max_clips or self.long_videos == "cut":
            return kept[: self.max_clips]
        if len(kept) < count:
            kept = np.concatenate([kept, np.zeros((count - len(kept), kept.shape[1]), kept.dtype)])
        average: Callable[[Rows, int], Rows] = average_to_length
        if self.long_videos.endswith("as-released"):  # a higher layer, so imported only when needed
            average = importlib.import_module("whenabouts_systems.released.clips").average_to_length
        return average(kept, self.max_clips)


def endpoint_features(counts: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(V, T, 2): each clip's begin and end as shares of its video, (i/n, (i+1)/n); 0 in padding.

    "Temporal endpoint features" of XML (Lei et al., 2020) and of ReLoCLNet; n is the number of real clips.
    """
    borders = np.arange(mask.shape[1] + 1, dtype=np.float64) / np.maximum(counts, 1)[:, None]
    return np.where(mask[..., None], np.stack([borders[:, :-1], borders[:, 1:]], -1), 0).astype(np.float32)


def _bring_to_unit(
    block: NDArray[np.float32], normalise: bool, named: Sequence[str], where: str
) -> NDArray[np.bool_]:
    """(N, M): which rows of `block` (N, M, D) are not zero.

    With `normalise` each row is divided in place by its norm + 1e-5.

    Raises UsageError for the first row whose values, or the sum of their squares, are not finite.
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
    """Raise UsageError for a wrong width and for values that are not finite or above `LARGEST_VALUE`.

    Values of float32 and smaller types are checked here only if the rows will be `averaged`, which can hide
    a bad one; else `_bring_to_unit` checks them.
    """
    if rows.ndim != 2 or rows.shape[1] != width:
        raise UsageError(f"{name}: is of shape {rows.shape}; expected (rows, {width})")
    if rows.dtype.itemsize > 4 or averaged:
        # In double precision: the bound itself is beyond what half precision holds.
        largest = np.abs(rows).max(axis=1, initial=0).astype(np.float64)
        if len(wrong := np.flatnonzero(~(largest <= LARGEST_VALUE))):
            raise _not_usable(rows[wrong[0]], int(wrong[0]), name)


def _not_usable(values: NDArray[Any], row: int, name: str) -> UsageError:
    """The error for a row with values that are not finite or too large."""
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
