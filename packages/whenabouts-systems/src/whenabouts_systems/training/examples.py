"""Make batches of the training examples of one split: each is a query, a video, and the clips that answer it.

Every random draw of a training depends only on numbers (seed, epoch, step; `seed_of`) and not on earlier
draws. So a resumed training draws the same as an uninterrupted one.

Shapes: N examples of a split, Q queries and V videos of a split or a batch; see `models.protocol.Batch`.
"""

from __future__ import annotations

import hashlib
import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from whenabouts.clips import INSTANT, clip_spans
from whenabouts.types import Query, UsageError, Video, number_of
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.sentences import Sentence, Transcripts
from whenabouts_bench.relevance.pairs import RelevantPairs
from whenabouts_systems.features.cache import CachedRows
from whenabouts_systems.features.source import Rows
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch
from whenabouts_systems.released import clips as released
from whenabouts_systems.training.experiment import DataSettings, Labels, Order
from whenabouts_systems.training.labels import Pairs, PositivePairs, WindowLabels

Indices = NDArray[np.int64]

_BATCHES_SORTED = 16
"""The number of batches of examples that are drawn at random, then sorted by length (`epoch_batches`)."""


def seed_of(*numbers: int) -> int:
    """A seed that depends on every number, such as (seed, step); below 2**63, as PyTorch requires."""
    text = " ".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1


@dataclass(frozen=True)
class DrawnNegatives:
    """The negatives of a batch of Q queries with W distinct own videos; -1 fills rows that have fewer.

    `videos` (V,): rows of all videos of the batch, the own ones first. `negatives` (Q, N): indices into
    `videos`. `queries` (E,): rows of queries that are negatives only. `negative_queries` (W, M): indices into
    `queries`.
    """

    videos: Indices
    negatives: Indices
    queries: Indices
    negative_queries: Indices

    @classmethod
    def of(cls, own: Indices, for_queries: Indices, for_videos: Indices) -> DrawnNegatives:
        """The record of rows of negative videos by query (Q, N), and of queries by own video (W, M)."""
        videos = np.concatenate([own, np.setdiff1d(for_queries[for_queries >= 0], own)])
        queries = np.unique(for_videos[for_videos >= 0])
        return cls(videos, _places(for_queries, videos), queries, _places(for_videos, queries))


class Negatives(Protocol):
    """Draws negatives for a batch: `HardNegatives`, `RetrievalNegatives`."""

    def drawn(self, query: Indices, own: Indices, videos: Indices, epoch: int) -> DrawnNegatives:
        """An epoch's negatives for queries (Q,), with their own videos (Q,), and these videos once (W,)."""


@dataclass(frozen=True)
class ItemRows:
    """Feature rows of the items of a split: item i is number `numbers[i]` of `cached`, -1 if absent.

    Its arrays append an entry for absent items, which index -1 reads.
    """

    cached: CachedRows
    numbers: Indices

    @property
    def lengths(self) -> Indices:
        """The number of rows of each item; 0 for absent items."""
        return np.append(self.cached.lengths, 0)[self.numbers]

    @property
    def is_zero(self) -> NDArray[np.bool_]:
        """Whether each item has only zeros or is absent."""
        return np.append(self.cached.is_zero, True)[self.numbers]

    def rows(self, item: int) -> Rows | None:
        """(T, D) rows of an item of the split; None if it is absent."""
        number = int(self.numbers[item])
        return None if number < 0 else self.cached[number]


@dataclass(frozen=True)
class SplitSummary:
    """The sizes of a split, and `counts`: rule for odd data, in words -> the number of times it applied."""

    split: str
    examples: int
    queries: int
    videos: int
    clips: int
    counts: Mapping[str, int]

    def lines(self) -> list[str]:
        """The summary as lines of text."""
        head = (
            f"{self.split:12}{number_of(self.examples, 'example')} of {number_of(self.queries, 'query')} in "
            f"{number_of(self.videos, 'video')}, {number_of(self.clips, 'clip')}"
        )
        return [head, *(f"{'':12}{rule}: {times:,}" for rule, times in self.counts.items())]


class Examples:
    """One split: queries, videos, their right moments in clips, and batches of them.

    Example i is `queries[query[i]]` with one of its moments, the clips `spans[i]` of `videos[video[i]]`.

    - `spans` (N, 2) int64; `shares` (N, 2) float32, the moment's start and end as shares of its video;
      `weight` (N,) float32 or None.
    - `durations` (V,) in seconds, if unknown the time that the rows cover; `clips` (V,), the cells of each
      video's answer grid after pooling or cutting; `clip_seconds` (V,), the seconds of a cell.
    - `tokens` is None if queries are token ids.
    - `summary` counts what was skipped, and how often each rule applied.
    """

    def __init__(
        self,
        name: str,
        annotations: Annotations,
        inputs: Inputs,
        tokens: ItemRows | None,
        streams: Mapping[str, ItemRows],
        settings: DataSettings,
        pairs: RelevantPairs | None = None,
        counts: Mapping[str, int] | None = None,
        transcripts: Transcripts | None = None,
    ) -> None:
        self._transcripts = transcripts or {}
        self.name, self.annotations, self.inputs = name, annotations, inputs
        self._tokens, self._streams, self._settings, self._pairs = tokens, streams, settings, pairs
        self._video_ids = tuple(video.id for video in annotations.videos)
        rows = np.max([items.lengths for items in streams.values()], axis=0)
        seconds = np.array([video.duration for video in annotations.videos], np.float64)  # None becomes NaN
        self.durations = np.where(np.isnan(seconds), rows * inputs.clip_seconds, seconds)
        self.row_counts = self._rows_that_count(rows)
        lengths = list(zip(self.row_counts.tolist(), self.durations.tolist(), strict=True))
        self.clips: Indices = np.array([inputs.cells_of(count) for count, _ in lengths], np.int64)
        self.clip_seconds = np.array([inputs.clip_seconds_of(*length) for length in lengths])
        self._counts = {**annotations.counts, **(counts or {})}
        usable = self._usable()
        self.query, self.video = annotations.query[usable], annotations.video[usable]
        self.spans = spans_in_clips(
            annotations.start[usable],
            np.minimum(annotations.end, self._ends())[usable],
            self.clip_seconds[self.video],
            self.clips[self.video],
            settings.labels,
        )
        self.shares = self._shares(usable)
        self.weight = self._weights(usable)
        self._captions = None if pairs is None else self._captions_of_queries(pairs)
        self._positives: PositivePairs | None = None
        if settings.positives != "own":
            self._positives = PositivePairs(annotations, settings.positives, pairs, self._captions)
        self._negatives: Negatives | None = None

    def choose_negatives(self, negatives: Negatives) -> None:
        """Give every batch hard negatives from this source."""
        self._negatives = negatives

    def note(self, counts: Mapping[str, int]) -> None:
        """Add counts of further rules to the summary."""
        self._counts |= counts

    def leave_out(self, examples: NDArray[np.bool_], why: str) -> None:
        """Drop the chosen examples (N,) bool; the summary counts them under `why`."""
        kept = ~examples
        self.query, self.video, self.spans = self.query[kept], self.video[kept], self.spans[kept]
        self.shares = self.shares[kept]
        self.weight = None if self.weight is None else self.weight[kept]
        self.note({why: int(examples.sum())})

    @property
    def positive_pairs(self) -> Pairs:
        """Query rows and video rows (K,) of all pairs that are never negatives, the examples' own first."""
        if self._positives is None:
            return self.query, self.video
        others = self._positives.all
        return np.concatenate([self.query, others[0]]), np.concatenate([self.video, others[1]])

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries of the split."""
        return self.annotations.queries

    @property
    def videos(self) -> tuple[Video, ...]:
        """The videos of the split: the corpus of a validation."""
        return self.annotations.videos

    @property
    def summary(self) -> SplitSummary:
        """The sizes of the split, and how often each rule for odd data applied."""
        return SplitSummary(
            self.name,
            len(self),
            len(self.queries),
            len(self.videos),
            int(self.clips.sum()),
            {rule: times for rule, times in self._counts.items() if times},
        )

    @property
    def digest(self) -> str:
        """A hash of the judgements, the videos' lengths, and the features of the first query and video."""
        judged = self.annotations
        names = [[query.id, query.text] for query in judged.queries], self._video_ids
        features = [self._tokens.rows(row) for row in range(len(names[0]))[:1]] if self._tokens else []
        features += [rows for row in range(len(names[1]))[:1] for rows in self.rows_of_video(row).values()]
        columns = (judged.query, judged.video, judged.start, judged.end, judged.relevance)
        hashed = hashlib.sha256(json.dumps(names).encode())
        for numbers in (*columns, self.durations, self.row_counts, *features):
            hashed.update(np.asarray(numbers, np.float64).tobytes())
        return hashed.hexdigest()

    def __len__(self) -> int:
        return len(self.query)

    def batch_count(self, size: int) -> int:
        """The number of batches in an epoch."""
        return len(self.plan(size, 0, 0))

    def batches(
        self, *, size: int, epoch: int = 0, seed: int = 0, epochs: int = 1, first: int = 0, ahead_by: int = 2
    ) -> Iterator[Batch]:
        """The batches of an epoch, from batch `first` on; equal for equal seed and epoch.

        `epochs` is the number of epochs of the training, for `Batch.progress` = (epoch + batch / batches) /
        epochs. A thread makes `ahead_by` batches while a step runs (0: no thread). Close the iterator if you
        do not read it to its end (a `for` that ends by an exception does).
        """
        plan = self.plan(size, seed, epoch)
        made = (
            self.batch(plan[at], epoch, (epoch + at / len(plan)) / max(epochs, 1))
            for at in range(first, len(plan))
        )
        return ahead(made, ahead_by)

    def batch(self, examples: Indices, epoch: int = 0, progress: float = 0.0) -> Batch:
        """The given examples as a model's batch; a video that several of them share comes once."""
        query, video = self.query[examples], self.video[examples]
        videos, video_of = _in_order(video)
        drawn = None if self._negatives is None else self._negatives.drawn(query, video, videos, epoch)
        if drawn is not None:
            videos = drawn.videos
        is_own = video_of[:, None] == np.arange(len(videos))
        positives = is_own if self._positives is None else is_own | self._positives.block(query, videos)
        read = self.video_batch(videos)
        return Batch(
            queries=self.query_batch(query),
            videos=read,
            video_of=torch.from_numpy(video_of),
            spans=torch.from_numpy(self.spans[examples]),
            positives=torch.from_numpy(positives),
            confidence=self._confidence(query),
            weight=None if self.weight is None else torch.from_numpy(self.weight[examples]),
            epoch=epoch,
            progress=progress,
            labels={
                "moments": torch.from_numpy(self.shares[examples]),
                **self._windows.of(examples, read.mask.shape[1], epoch),
            },
            **({} if drawn is None else self._negative_fields(drawn)),
        )

    @cached_property
    def _windows(self) -> WindowLabels:
        """The windows of the examples; made with the first batch, after all `leave_out`."""
        steps = (self.durations / self.clip_seconds)[self.video][:, None]
        borders = np.minimum(self.shares * steps, self.clips[self.video][:, None])
        borders = borders.astype(np.float32)
        limit = self._settings.max_windows or None
        return WindowLabels(self.query, self.video, borders, self.queries, self._video_ids, limit)

    def _negative_fields(self, drawn: DrawnNegatives) -> dict[str, Any]:
        """The fields of a batch that hold its hard negatives."""
        others = self.query_batch(drawn.queries) if len(drawn.queries) else None
        return {
            "negatives": torch.from_numpy(drawn.negatives),
            "other_queries": others,
            "negative_queries": None if others is None else torch.from_numpy(drawn.negative_queries),
        }

    def query_batch(self, rows: Indices | Sequence[int]) -> QueryBatch:
        """The given rows of `queries` as a model's batch."""
        numbers = [int(row) for row in rows]
        if self._tokens is None:
            return self.inputs.sentences([self.queries[row].text for row in numbers])
        tokens = [self._tokens.rows(row) for row in numbers]
        return self.inputs.queries(
            [rows for rows in tokens if rows is not None], [self.queries[row].id for row in numbers]
        )

    def video_batch(self, rows: Indices | Sequence[int]) -> ClipBatch:
        """The given rows of `videos` as a model's batch."""
        numbers = [int(row) for row in rows]
        videos = [self.rows_of_video(row) for row in numbers]
        return self.inputs.clips(
            videos,
            names=[self._video_ids[row] for row in numbers],
            transcripts=[self.sentences_of_video(row) for row in numbers],
        )

    def sentences_of_video(self, row: int) -> Sequence[Sentence]:
        """The sentences of one of `videos`; empty if unknown."""
        return self._transcripts.get(self._video_ids[row], ())

    def rows_of_video(self, row: int) -> dict[str, Rows]:
        """Stream -> (T, D): the used rows of one of `videos`, unchanged from the files."""
        count = int(self.row_counts[row])
        streams = {name: items.rows(row) for name, items in self._streams.items()}
        return {name: rows[:count] for name, rows in streams.items() if rows is not None}

    def plan(self, size: int, seed: int, epoch: int) -> list[Indices]:
        """The numbers of the examples in each batch of an epoch."""
        if not len(self):
            raise UsageError(f"{self.name}: has no example; give judgements with a moment in their video")
        rows, groups = np.arange(len(self)), None
        if self._settings.batch_of == "videos":
            groups = self.video
        elif self._settings.batch_of == "windows":
            # The first example of a query in a video stands for the others: it has the windows of all.
            rows = np.sort(np.unique(np.stack([self.query, self.video]), axis=1, return_index=True)[1])
        lengths = self.clips[self.video[rows]]
        return [
            rows[batch] for batch in epoch_batches(lengths, size, seed, epoch, self._settings.order, groups)
        ]

    def _weights(self, usable: Indices) -> NDArray[np.float32] | None:
        """(N,) the weight of each example, 0 or more; None if all are equal.

        Raises UsageError if the judgements lack what `weights` names.
        """
        judged, by = self.annotations, self._settings.weights
        if by == "relevance":
            relevance = judged.relevance[usable]
            if judged.similarity is not None and len(relevance) and (relevance == 1).all():
                raise UsageError(
                    f"{judged.name}: weights is 'relevance', but every relevance is 1 and there are "
                    "similarities; give weights = 'similarity'"
                )
            return relevance.astype(np.float32)
        if by == "none" or self.name != "train":
            return None
        similarity = np.full(len(judged.query), np.nan) if judged.similarity is None else judged.similarity
        lacking = usable[np.isnan(similarity[usable])]
        if len(lacking):
            query = judged.queries[int(judged.query[lacking[0]])]
            raise UsageError(
                f"{judged.name}: weights is 'similarity', but {len(lacking)} judgements, such as of query "
                f"{query.id!r}, have no similarity; give weights = 'relevance' or 'none', or make the set "
                "with `whenabouts relevance ranked`"
            )
        return similarity[usable].clip(min=0).astype(np.float32)

    def _rows_that_count(self, rows: Indices) -> Indices:
        """(V,) the number of used rows: none after the video's end, unless labels are "as-released"."""
        if self._settings.labels == "as-released":
            return rows
        videos = zip(rows.tolist(), self.durations.tolist(), self._video_ids, strict=True)
        return np.array([self.inputs.rows_in(*video) for video in videos], np.int64)

    def _shares(self, usable: Indices) -> NDArray[np.float32]:
        """(N, 2) start and end of the examples' moments as shares of their videos, in [0, 1]."""
        judged = self.annotations
        seconds = np.stack([judged.start[usable], judged.end[usable]], 1)
        return (seconds / self._ends()[usable][:, None]).clip(0, 1).astype(np.float32)

    def _ends(self) -> NDArray[np.float64]:
        """(M,) for all judgements, the end of their video in seconds."""
        return self.durations[self.annotations.video]

    def _usable(self) -> Indices:
        """The judgements that become examples; skipped ones are counted."""
        judged, inclusive = self.annotations, self._settings.labels == "inclusive"
        relevant, has_span = judged.relevance > 0, judged.start < judged.end
        inside = judged.start < self._ends()
        kept = judged.start < (self.clips * self.clip_seconds)[judged.video] if inclusive else inside
        usable = relevant & has_span & inside & kept
        answered = np.zeros(len(judged.queries), bool)
        answered[judged.query[usable]] = True
        spans = relevant & has_span
        rules = {
            "judgements of relevance 0 are skipped": ~relevant,
            "judgements without a usable moment are skipped": relevant & ~has_span,
            "moments begin after their video's end and are skipped": spans & ~inside,
            "moments end after their video and are cut there": usable & (judged.end > self._ends() + INSTANT),
            "moments begin after their video's last clip and are skipped": spans & inside & ~kept,
            "queries have no positive among the videos": ~answered,
        }
        self._counts |= {rule: int(applies.sum()) for rule, applies in rules.items()}
        return np.flatnonzero(usable)

    def _captions_of_queries(self, pairs: RelevantPairs) -> Indices:
        """(Q,) the queries' rows in the relevant pairs; -1 for queries without an example."""
        captions = np.full(len(self.queries), -1, np.int64)
        rows = np.unique(self.query)
        pairs.check(self.queries[row] for row in rows.tolist())
        captions[rows] = pairs.rows(self.queries[row].id for row in rows.tolist())
        return captions

    def _confidence(self, query: Indices) -> torch.Tensor | None:
        if self._pairs is None or self._captions is None:
            return None
        return torch.from_numpy(self._pairs.block(self._captions[query]))


def _places(rows: Indices, places: Indices) -> Indices:
    """The index of each row in `places`, whose values are distinct; -1 stays -1."""
    if not len(places):
        return np.full(rows.shape, -1, np.int64)
    order = np.argsort(places)
    at = np.searchsorted(places[order], rows).clip(max=len(order) - 1)
    return np.where(rows < 0, -1, order[at])


def _in_order(video: Indices) -> tuple[Indices, Indices]:
    """Distinct videos in order of first occurrence, and the index of each example's video among them."""
    values, first, inverse = np.unique(video, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return values[order], places[inverse]


def spans_in_clips(
    start: ArrayLike, end: ArrayLike, clip_seconds: ArrayLike, clips: ArrayLike, labels: Labels
) -> Indices:
    """(N, 2) first and last clip of moments [start, end) in seconds, in videos of `clips` clips.

    "inclusive": the clips of the first and the last instant (`clips.clip_spans`); times after the last clip
    belong to it. "as-released": min(floor(start / clip), n - 1) and min(ceil(end / clip), n - 1), as XML,
    ReLoCLNet and TVR-Ranking train. There the end is exclusive, except when it is limited to the last clip.

    >>> spans_in_clips([1.9], [4.0], 2.0, 5, "inclusive").tolist()
    [[0, 1]]
    >>> spans_in_clips([1.9], [4.0], 2.0, 5, "as-released").tolist()
    [[0, 2]]
    """
    rule = released.clip_spans if labels == "as-released" else clip_spans
    spans = np.stack(rule(start, end, clip_seconds), -1)
    return np.clip(spans, 0, np.asarray(clips, np.int64)[..., None] - 1)


def epoch_batches(
    lengths: Indices, size: int, seed: int, epoch: int, order: Order, groups: Indices | None = None
) -> list[Indices]:
    """The examples of each batch of an epoch; `lengths` (N,) are the clips of their videos.

    Every example comes once; equal seeds and epochs give equal batches. A batch has `size` examples, the last
    one the remainder. If that is a single example, which would have no negatives, it joins the batch before.

    "by-length" reduces padding: it draws 16 batches at random, sorts their examples by length, and finally
    shuffles all batches. With `groups` (N,), the number of each example's video, a batch has `size` videos
    with all their examples.
    """
    if groups is not None:
        return _group_batches(lengths, groups, lambda units: epoch_batches(units, size, seed, epoch, order))
    if size < 2:
        raise UsageError(f"training.batch_size is {size}: one example has no negatives; accepted: 2 or more")
    random = np.random.default_rng([epoch, seed])
    examples = random.permutation(len(lengths))
    if order == "by-length":
        stretch = _BATCHES_SORTED * size
        numbers = np.arange(len(examples)) // stretch
        examples = examples[np.lexsort((lengths[examples], numbers))]
    starts = list(range(0, len(examples), size))
    if len(starts) > 1 and len(examples) - starts[-1] == 1:
        starts.pop()
    batches = np.split(examples, starts[1:])
    if order == "by-length":
        return [batches[number] for number in random.permutation(len(batches))]
    return batches


def _group_batches(
    lengths: Indices, groups: Indices, batches_of: Callable[[Indices], list[Indices]]
) -> list[Indices]:
    """Batches of whole groups, with the members of each group together and in order."""
    members = np.argsort(groups, kind="stable")
    first = np.unique(groups[members], return_index=True)[1]
    parts = np.split(members, first[1:])
    return [
        np.concatenate([parts[group] for group in batch]) for batch in batches_of(lengths[members[first]])
    ]


def ahead(batches: Iterator[Batch], count: int) -> Iterator[Batch]:
    """The batches of an iterator, in order; a thread makes up to `count` of them in advance.

    An exception of the thread is raised here, at its batch. The thread ends when the iterator is closed.
    """
    if count < 1:
        yield from batches
        return
    ready: queue.Queue[Batch | BaseException | None] = queue.Queue(count)
    stop = threading.Event()

    def put(item: Batch | BaseException | None) -> None:
        # The timeout lets the thread notice `stop` when nobody takes batches any more.
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.05)
            except queue.Full:
                continue
            return

    def make() -> None:
        try:
            for batch in batches:
                put(batch)
                if stop.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=make, name="batches", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()
