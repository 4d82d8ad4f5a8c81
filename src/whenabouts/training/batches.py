"""From examples to batches: the truth in clips, the order of an epoch, and batches made ahead of the step.

Shapes: N examples of a split, Q examples and V videos of a batch; see `models.protocol.Batch`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.clips import clip_spans, clip_spans_as_released
from whenabouts.models.protocol import Batch
from whenabouts.types import UsageError

Indices = NDArray[np.int64]
Labels = Literal["inclusive", "as-released"]
Order = Literal["random", "by-length"]

_BATCHES_SORTED = 16
"""As many batches of examples are drawn at random, and sorted by length among themselves."""


def spans_in_clips(
    start: ArrayLike, end: ArrayLike, clip_seconds: ArrayLike, clips: ArrayLike, labels: Labels
) -> Indices:
    """(N, 2) first and last clip of moments [start, end) in seconds, in videos of `clips` clips.

    "inclusive": the clips that hold the first and the last instant, as `clips.clip_spans` says; what lies
    behind the last clip falls into it. "as-released": min(floor(start / clip), n - 1) and
    min(ceil(end / clip), n - 1), as XML, ReLoCLNet and TVR-Ranking train: the end is exclusive, except
    where it is held at the last clip.

    >>> spans_in_clips([1.9], [4.0], 2.0, 5, "inclusive").tolist()
    [[0, 1]]
    >>> spans_in_clips([1.9], [4.0], 2.0, 5, "as-released").tolist()
    [[0, 2]]
    """
    rule = clip_spans_as_released if labels == "as-released" else clip_spans
    spans = np.stack(rule(start, end, clip_seconds), -1)
    return np.clip(spans, 0, np.asarray(clips, np.int64)[..., None] - 1)


def epoch_batches(
    lengths: Indices, size: int, seed: int, epoch: int, order: Order, groups: Indices | None = None
) -> list[Indices]:
    """The examples of each batch of an epoch; `lengths` (N,) are the clips of their videos.

    Every example comes once. Batches have `size` examples, the last one what is left; where that is a single
    example, which has no negatives, it joins the batch before. "by-length" draws 16 batches at random, sorts
    their examples by length, and hands out all batches in random order: a batch is padded to its longest.
    With `groups` (N,), the number of an example's video, a batch has `size` videos with all their examples.
    The same for the same seed and epoch.
    """
    if groups is not None:
        return _group_batches(lengths, groups, lambda units: epoch_batches(units, size, seed, epoch, order))
    if size < 2:
        raise UsageError(f"training.batch_size is {size}: one has no negatives; accepted: 2 or more")
    random = np.random.default_rng([epoch, seed])
    examples = random.permutation(len(lengths))
    if order == "by-length":
        stretch = _BATCHES_SORTED * size
        numbers = np.arange(len(examples)) // stretch
        examples = examples[np.lexsort((lengths[examples], numbers))]
    borders = list(range(0, len(examples), size))
    if len(borders) > 1 and len(examples) - borders[-1] == 1:
        borders.pop()
    batches = np.split(examples, borders[1:])
    if order == "by-length":
        return [batches[number] for number in random.permutation(len(batches))]
    return batches


def _group_batches(
    lengths: Indices, groups: Indices, batches_of: Callable[[Indices], list[Indices]]
) -> list[Indices]:
    """Batches of whole groups: the members of each group stand together, in their order."""
    members = np.argsort(groups, kind="stable")
    first = np.unique(groups[members], return_index=True)[1]
    parts = np.split(members, first[1:])
    return [
        np.concatenate([parts[group] for group in batch]) for batch in batches_of(lengths[members[first]])
    ]


def joined_by(left: tuple[Indices, Indices], right: tuple[Indices, Indices]) -> tuple[Indices, Indices]:
    """All (a, c) for which (a, b) is in `left` and (b, c) in `right`; each is two columns of equal length.

    >>> [column.tolist() for column in joined_by((np.array([7, 8]), np.array([1, 2])),
    ...                                          (np.array([2, 1, 1]), np.array([5, 6, 9])))]
    [[7, 7, 8], [6, 9, 5]]
    """
    order = np.argsort(right[0], kind="stable")
    keys = right[0][order]
    begins = np.searchsorted(keys, left[1])
    counts = np.searchsorted(keys, left[1], side="right") - begins
    steps = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
    return np.repeat(left[0], counts), right[1][order][np.repeat(begins, counts) + steps]


class KnownPairs:
    """Pairs of a query and a video that are known to be true, looked up a batch at a time."""

    def __init__(self, query: Indices, video: Indices, videos: int) -> None:
        self._videos = videos
        self._keys = np.unique(query * videos + video)

    @property
    def rows(self) -> tuple[Indices, Indices]:
        """The queries and the videos (K,) of all pairs, sorted by query, then by video."""
        return self._keys // self._videos, self._keys % self._videos

    def block(self, query: Indices, video: Indices) -> NDArray[np.bool_]:
        """(Q, V): which of these queries and videos belong together."""
        wanted = query[:, None] * self._videos + video
        places = np.searchsorted(self._keys, wanted).clip(max=max(0, len(self._keys) - 1))
        if not len(self._keys):
            return np.zeros(wanted.shape, bool)
        return np.asarray(self._keys[places] == wanted)


def ahead(batches: Iterator[Batch], count: int) -> Iterator[Batch]:
    """The same batches in the same order, up to `count` of them made by a thread before they are asked for.

    What the thread raises is raised here, in its place. The thread ends when the iterator is closed.
    """
    if count < 1:
        yield from batches
        return
    made: queue.Queue[Batch | BaseException | None] = queue.Queue(count)
    stop = threading.Event()
    thread = threading.Thread(target=_make, args=(batches, made, stop), name="batches", daemon=True)
    thread.start()
    try:
        while (found := made.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        stop.set()
        thread.join()


def _make(
    batches: Iterator[Batch], made: queue.Queue[Batch | BaseException | None], stop: threading.Event
) -> None:
    try:
        for batch in batches:
            if not _put(batch, made, stop):
                return
        _put(None, made, stop)
    except BaseException as error:
        _put(error, made, stop)


def _put(
    one: Batch | BaseException | None,
    made: queue.Queue[Batch | BaseException | None],
    stop: threading.Event,
) -> bool:
    """Whether it was put before nobody wanted it any more."""
    while not stop.is_set():
        try:
            made.put(one, timeout=0.05)
        except queue.Full:
            continue
        return True
    return False
