"""From examples to batches: the truth in clips, the order of an epoch, and batches made ahead of the step.

What is drawn anywhere in a training depends on numbers alone (seed, epoch, step; `seed_of`), never on what
was drawn before: a training that goes on after a break draws what the unbroken one would have.

Shapes: N examples of a split, Q examples and V videos of a batch; see `models.protocol.Batch`.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.clips import clip_spans, clip_spans_as_released
from whenabouts.models.protocol import Batch
from whenabouts.research.training.settings import Labels, Order
from whenabouts.types import UsageError

Indices = NDArray[np.int64]

_BATCHES_SORTED = 16
"""As many batches of examples are drawn at random, and sorted by length among themselves."""


def seed_of(*numbers: int) -> int:
    """A seed that changes altogether when one of the numbers does."""
    text = " ".join(map(str, numbers)).encode()
    # PyTorch takes seeds below 2**63 everywhere.
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1


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
    """Batches of whole groups: the members of each group stand together, in their order."""
    members = np.argsort(groups, kind="stable")
    first = np.unique(groups[members], return_index=True)[1]
    parts = np.split(members, first[1:])
    return [
        np.concatenate([parts[group] for group in batch]) for batch in batches_of(lengths[members[first]])
    ]


def ahead(batches: Iterator[Batch], count: int) -> Iterator[Batch]:
    """The same batches in the same order, up to `count` of them made by a thread before they are needed.

    What the thread raises is raised here, in its place. The thread ends when the iterator is closed.
    """
    if count < 1:
        yield from batches
        return
    ready: queue.Queue[Batch | BaseException | None] = queue.Queue(count)
    stop = threading.Event()

    def put(item: Batch | BaseException | None) -> None:
        # Waits with a timeout, so that a thread whose batches nobody takes any more sees `stop`.
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
