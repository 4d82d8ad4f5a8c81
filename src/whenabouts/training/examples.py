"""The examples of one split: a query, a video and the clips that answer, handed out in batches.

Shapes: N examples, Q queries, V videos; see `models.protocol`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from whenabouts.clips import INSTANT
from whenabouts.features.cache import CachedRows
from whenabouts.features.source import Rows
from whenabouts.formats.annotations import Annotations
from whenabouts.models.inputs import Inputs
from whenabouts.models.protocol import Batch, ClipBatch, QueryBatch
from whenabouts.relevance.pairs import RelevantPairs
from whenabouts.training.batches import (
    Indices,
    KnownPairs,
    Labels,
    Order,
    ahead,
    epoch_batches,
    joined_by,
    spans_in_clips,
)
from whenabouts.training.checks import SplitSummary
from whenabouts.training.similar import similar_captions
from whenabouts.types import Query, UsageError, Video

if TYPE_CHECKING:
    from whenabouts.training.hard_negatives import Drawn

Positives = Literal["judged", "sentence", "similar", "own"]
BatchOf = Literal["queries", "videos"]


class Negatives(Protocol):
    """What chooses negatives for a batch: `negatives.HardNegatives`, `retrieved.RetrievedNegatives`."""

    def drawn(self, query: Indices, videos: Indices, epoch: int) -> Drawn:
        """What a batch of queries (Q,) and their videos (V,) is given in an epoch."""
        ...


@dataclass(frozen=True)
class Placed:
    """Rows of the items of a split: item i is number `numbers[i]` of `gathered`, -1 if absent.

    All may be: what is told of an absent one stands behind those that are there, where -1 looks.
    """

    gathered: CachedRows
    numbers: Indices

    @property
    def lengths(self) -> Indices:
        """Rows of each item; 0 of those that are absent."""
        return np.append(self.gathered.lengths, 0)[self.numbers]

    @property
    def is_zero(self) -> NDArray[np.bool_]:
        """Whether an item has no value but 0, or is absent."""
        return np.append(self.gathered.is_zero, True)[self.numbers]

    def rows(self, item: int) -> Rows | None:
        """(T, D) rows of an item of the split."""
        number = int(self.numbers[item])
        return None if number < 0 else self.gathered[number]


@dataclass(frozen=True)
class Rules:
    """How judgements become examples; see `material.DataSettings`."""

    labels: Labels = "inclusive"
    positives: Positives = "judged"
    weights: Literal["none", "relevance"] = "none"
    order: Order = "random"
    batch_of: BatchOf = "queries"


class Examples:
    """One split: queries, videos, their truth in clips, and batches of them.

    Example i is `queries[query[i]]` with one of its moments, clips `spans[i]` of `videos[video[i]]`. `spans`
    (N, 2) int64; `shares` (N, 2) float32 the moment's start and end as shares of its video; `weight` (N,)
    float32 or None. Of each video: `durations` (V,) seconds, `clips` (V,) how many steps the system's grid of
    answers has (clips after pooling or cutting, or cells of some clips), `clip_seconds` (V,) how long they
    are. `tokens` is None where queries are ids of a tokenizer. `summary` says what was left out, and how
    often each rule applied.
    """

    def __init__(
        self,
        name: str,
        annotations: Annotations,
        inputs: Inputs,
        tokens: Placed | None,
        streams: Mapping[str, Placed],
        rules: Rules = Rules(),
        pairs: RelevantPairs | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        self.name, self.annotations, self.inputs = name, annotations, inputs
        self._tokens, self._streams, self._rules, self._pairs = tokens, streams, rules, pairs
        self._video_ids = tuple(video.id for video in annotations.videos)
        rows = np.max([one.lengths for one in streams.values()], axis=0)
        self.durations = _durations(annotations.videos, rows, inputs.clip_seconds)
        self._rows = self._counted_rows(rows)
        told = list(zip(self._rows.tolist(), self.durations.tolist(), strict=True))
        self.clips: Indices = np.array([inputs.cells_of(count) for count, _ in told], np.int64)
        self.clip_seconds = np.array([inputs.clip_seconds_of(*one) for one in told])
        self._counts = {**annotations.counts, **(counts or {})}
        chosen = self._usable()
        self.query, self.video = annotations.query[chosen], annotations.video[chosen]
        self.spans = spans_in_clips(
            annotations.start[chosen],
            np.minimum(annotations.end, self._ends())[chosen],
            self.clip_seconds[self.video],
            self.clips[self.video],
            rules.labels,
        )
        self.shares = self._shares(chosen)
        relevance = annotations.relevance[chosen].astype(np.float32)
        self.weight: NDArray[np.float32] | None = relevance if rules.weights == "relevance" else None
        self._pair_rows = None if pairs is None else self._rows_of_pairs(pairs)
        self._groups = self._groups_of_queries()
        self._known = self._known_pairs()
        self._negatives: Negatives | None = None

    def choose_negatives(self, negatives: Negatives) -> None:
        """Let every batch have the hard negatives that are chosen for it."""
        self._negatives = negatives

    def note(self, counts: Mapping[str, int]) -> None:
        """Have the summary say how often some more rules applied."""
        self._counts |= counts

    def leave_out(self, examples: NDArray[np.bool_], why: str) -> None:
        """Train without some of the examples (N,); the summary counts them under `why`."""
        kept = ~examples
        self.query, self.video, self.spans = self.query[kept], self.video[kept], self.spans[kept]
        self.shares = self.shares[kept]
        self.weight = None if self.weight is None else self.weight[kept]
        self.note({why: int(examples.sum())})

    @property
    def known(self) -> tuple[Indices, Indices]:
        """Rows of queries and of videos (K,) of all pairs that are no negatives, one's own among them."""
        own = self.query, self.video
        if self._known is None:
            return own
        found = joined_by((np.arange(len(self.queries)), self._groups), self._known.rows)
        return np.concatenate([own[0], found[0]]), np.concatenate([own[1], found[1]])

    @property
    def row_counts(self) -> Indices:
        """(V,) rows of each video that count, before any are pooled or cut off."""
        return self._rows

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
        """What there is, and which rules for odd data applied how often."""
        return SplitSummary(
            self.name,
            len(self),
            len(self.queries),
            len(self.videos),
            int(self.clips.sum()),
            {what: times for what, times in self._counts.items() if times},
        )

    def __len__(self) -> int:
        return len(self.query)

    def batch_count(self, size: int) -> int:
        """How many batches an epoch has."""
        return len(self.plan(size, 0, 0))

    def batches(
        self, *, size: int, epoch: int = 0, seed: int = 0, epochs: int = 1, first: int = 0, ahead_by: int = 2
    ) -> Iterator[Batch]:
        """The batches of an epoch from the one numbered `first`; the same for the same seed and epoch.

        `epochs` is how many the training has: `Batch.progress` is (epoch + batch / batches) / epochs.
        `ahead_by` batches are made by a thread while the step runs; 0 for none. Close the iterator where it
        is not read to its end (a `for` that ends by an exception does).
        """
        plan = self.plan(size, seed, epoch)
        made = (
            self.batch(plan[at], epoch, (epoch + at / len(plan)) / max(epochs, 1))
            for at in range(first, len(plan))
        )
        return ahead(made, ahead_by)

    def batch(self, examples: Indices, epoch: int = 0, progress: float = 0.0) -> Batch:
        """Some examples as a model reads them; a video that several of them share comes once."""
        query, video = self.query[examples], self.video[examples]
        videos, video_of = _in_order(video)
        drawn = None if self._negatives is None else self._negatives.drawn(query, videos, epoch)
        if drawn is not None:
            videos = drawn.videos
        own = video_of[:, None] == np.arange(len(videos))
        known = own if self._known is None else own | self._known.block(self._groups[query], videos)
        return Batch(
            queries=self.query_batch(query),
            videos=self.video_batch(videos),
            video_of=torch.from_numpy(video_of),
            spans=torch.from_numpy(self.spans[examples]),
            positives=torch.from_numpy(known),
            confidence=self._confidence(query),
            weight=None if self.weight is None else torch.from_numpy(self.weight[examples]),
            epoch=epoch,
            progress=progress,
            labels={"moments": torch.from_numpy(self.shares[examples])},
            **({} if drawn is None else self._chosen(drawn)),
        )

    def _chosen(self, drawn: Drawn) -> dict[str, Any]:
        """Fields of a batch that has hard negatives."""
        others = self.query_batch(drawn.queries) if len(drawn.queries) else None
        return {
            "negatives": torch.from_numpy(drawn.negatives),
            "other_queries": others,
            "negative_queries": None if others is None else torch.from_numpy(drawn.negative_queries),
        }

    def query_batch(self, rows: Indices | Sequence[int]) -> QueryBatch:
        """Some of `queries`, as a model reads them."""
        numbers = [int(row) for row in rows]
        if self._tokens is None:
            return self.inputs.sentences([self.queries[row].text for row in numbers])
        tokens = [self._tokens.rows(row) for row in numbers]
        return self.inputs.queries(
            [found for found in tokens if found is not None], [self.queries[row].id for row in numbers]
        )

    def video_batch(self, rows: Indices | Sequence[int]) -> ClipBatch:
        """Some of `videos`, as a model reads them."""
        numbers = [int(row) for row in rows]
        videos = [self.rows_of_video(row) for row in numbers]
        return self.inputs.clips(videos, names=[self._video_ids[row] for row in numbers])

    def rows_of_video(self, row: int) -> dict[str, Rows]:
        """Stream -> (T, D) the rows of one of `videos` that count, as they lie in the files."""
        count = int(self._rows[row])
        found = {name: one.rows(row) for name, one in self._streams.items()}
        return {name: rows[:count] for name, rows in found.items() if rows is not None}

    def plan(self, size: int, seed: int, epoch: int) -> list[Indices]:
        """The numbers of the examples in each batch of an epoch."""
        if not len(self):
            raise UsageError(f"{self.name}: has no example; expected judgements with a moment in their video")
        groups = self.video if self._rules.batch_of == "videos" else None
        return epoch_batches(self.clips[self.video], size, seed, epoch, self._rules.order, groups)

    def _counted_rows(self, rows: Indices) -> Indices:
        """(V,) rows that count: none behind the video's end, unless the labels are the released ones."""
        if self._rules.labels == "as-released":
            return rows
        told = zip(rows.tolist(), self.durations.tolist(), self._video_ids, strict=True)
        return np.array([self.inputs.rows_in(*one) for one in told], np.int64)

    def _shares(self, chosen: Indices) -> NDArray[np.float32]:
        """(N, 2) start and end of the examples' moments as shares of their videos, in [0, 1]."""
        judged = self.annotations
        seconds = np.stack([judged.start[chosen], judged.end[chosen]], 1)
        return (seconds / self._ends()[chosen][:, None]).clip(0, 1).astype(np.float32)

    def _ends(self) -> NDArray[np.float64]:
        """(M,) the ends of the videos of all judgements."""
        return self.durations[self.annotations.video]

    def _usable(self) -> Indices:
        """The judgements that are examples; what is left out is counted."""
        judged, inclusive = self.annotations, self._rules.labels == "inclusive"
        relevant, has_span = judged.relevance > 0, judged.start < judged.end
        inside = judged.start < self._ends()
        kept = judged.start < (self.clips * self.clip_seconds)[judged.video] if inclusive else inside
        usable = relevant & has_span & inside & kept
        answered = np.zeros(len(judged.queries), bool)
        answered[judged.query[usable]] = True
        self._counts |= {
            "judgements of relevance 0 are no examples": int((~relevant).sum()),
            "judgements without a usable moment are no examples": int((relevant & ~has_span).sum()),
            "moments begin after their video's end and are no examples": int(
                (relevant & has_span & ~inside).sum()
            ),
            "moments end after their video and are cut there": int(
                (usable & (judged.end > self._ends() + INSTANT)).sum()
            ),
            "moments begin behind the clips that are kept and are no examples": int(
                (relevant & has_span & inside & ~kept).sum()
            ),
            "queries have no positive among the videos": int((~answered).sum()),
        }
        return np.flatnonzero(usable)

    def _known_pairs(self) -> KnownPairs | None:
        if self._rules.positives == "own":
            return None
        judged = self.annotations
        relevant = judged.relevance > 0
        rows, video = self._groups[judged.query[relevant]], judged.video[relevant]
        if self._rules.positives == "similar" and self._pairs is not None:
            near = joined_by(similar_captions(self._pairs), (rows, video))
            rows, video = np.concatenate([rows, near[0]]), np.concatenate([video, near[1]])
        return KnownPairs(rows, video, len(self.videos))

    def _groups_of_queries(self) -> Indices:
        """(Q,) a number that queries share where they mean the same: of their words, or their own."""
        by_caption = self._rules.positives == "similar" and self._pairs is not None
        if not by_caption:
            return _groups(self.queries, by_text=self._rules.positives == "sentence")
        assert self._pairs is not None
        assert self._pair_rows is not None
        alone = np.arange(len(self.queries)) + len(self._pairs.captions)
        captions = self._pairs.caption_of[np.maximum(self._pair_rows, 0)].astype(np.int64)
        return np.where(self._pair_rows < 0, alone, captions)

    def _rows_of_pairs(self, pairs: RelevantPairs) -> Indices:
        """(Q,) rows of the relevant pairs; -1 for queries without an example that are not among them."""
        found = np.full(len(self.queries), -1, np.int64)
        asked = np.unique(self.query)
        pairs.check(self.queries[row] for row in asked.tolist())
        found[asked] = pairs.rows(self.queries[row].id for row in asked.tolist())
        return found

    def _confidence(self, query: Indices) -> torch.Tensor | None:
        if self._pairs is None or self._pair_rows is None:
            return None
        return torch.from_numpy(self._pairs.block(self._pair_rows[query]))


def _durations(videos: Sequence[Video], rows: Indices, clip_seconds: float) -> NDArray[np.float64]:
    """(V,) seconds; what its rows cover where a video's duration is not known."""
    covered = (rows * clip_seconds).tolist()
    told = [video.duration for video in videos]
    return np.array([covered[at] if one is None else one for at, one in enumerate(told)], np.float64)


def _groups(queries: Sequence[Query], by_text: bool) -> Indices:
    """(Q,) a number that queries share where they mean the same: their own, or that of their words."""
    if not by_text:
        return np.arange(len(queries), dtype=np.int64)
    codes: dict[str, int] = {}
    words = [" ".join(query.text.lower().split()).rstrip(" .") for query in queries]
    # A query without words is like no other.
    return np.array(
        [
            codes.setdefault(text or f"\0{query.id}", len(codes))
            for text, query in zip(words, queries, strict=True)
        ],
        np.int64,
    )


def _in_order(video: Indices) -> tuple[Indices, Indices]:
    """Different videos in the order they first come, and where each example's is among them."""
    values, first, inverse = np.unique(video, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return values[order], places[inverse]
