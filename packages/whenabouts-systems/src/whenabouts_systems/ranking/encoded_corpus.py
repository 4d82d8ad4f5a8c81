"""A corpus as a trained system keeps it: its units encoded once, and what one asks of them.

A *unit* is a stretch of a video that is encoded by itself: (video, start, end). The whole video is the usual
unit; a segment of a long video and a window around a proposal are others (`units.py`). All that ranks asks an
`EncodedCorpus`, of which there are two: `MemoryCorpus` here, all units in memory or in a folder, and
`IndexedCorpus`, one's own videos in the index (`indexed_corpus.py`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from whenabouts.intake.files import FormatError, folder_aside
from whenabouts.intake.opening import regular_name
from whenabouts.types import UsageError
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch, QueryEncoding, VideoEncoding, joined

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
Progress = Callable[[int, int], None]
"""Is called with the number done and the number of all."""
Queries = Callable[[Indices], QueryBatch]
"""Gives some queries, by their numbers, as the model reads them."""

# Clips that are encoded at once, and bytes of encodings that are kept in one block.
_BATCH_CLIPS = 6_400
_BLOCK_BYTES = 96 << 20
_GROUPS = ("keys", "key_masks", "parts")
_ENCODED_TOGETHER = 256
_MARKER = "corpus.json"


class System(Protocol):
    """What is needed of a trained system: `models.trained.Trained` is one."""

    @property
    def system(self) -> str:
        """Its name."""

    @property
    def model(self) -> Any:
        """The module."""

    @property
    def decoding(self) -> Decoding:
        """How spans become moments."""


class EncodedCorpus(Protocol):
    """Units of a corpus as a trained system keeps them; a row is a unit, its place in every order."""

    @property
    def ids(self) -> Sequence[str]:
        """(U,) the video of each unit."""

    def take(self, rows: ArrayLike) -> VideoEncoding:
        """Some units as one encoding, in the order of `rows` (P,), padded to the longest."""

    def nearest(
        self, vectors: Mapping[str, NDArray[np.float32]], k: int, allowed: Mask | None = None
    ) -> tuple[Indices, Floats]:
        """The k units whose best keys are nearest to a query's search vectors (by stream), best first.

        Rows and scores (N,): the mean over streams of the best key. `allowed` (U,) leaves only some.
        """


class Blocks(Protocol):
    """Encoded units in blocks; a block may be read from a disk each time it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> VideoEncoding: ...


@dataclass(frozen=True, eq=False)
class MemoryCorpus:
    """U encoded units. Whole videos are sorted by id: the row of a video is its place in every total order.

    Unit u is row `row[u]` of block `block[u]`; `clip_seconds` (U,) is how long its clips are, `durations`
    (U,) its seconds, infinite where they are not known. Blocks hold units of similar length. `silent` (U,)
    bool marks units of which the system's streams have nothing, no words and no pictures (None: there is no
    such unit): whatever they score means nothing, and they are not retrieved (`audible`).
    """

    ids: tuple[str, ...]
    clip_seconds: Floats
    durations: Floats
    blocks: Blocks
    block: Indices
    row: Indices
    silent: Mask | None = None
    _row_of: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_row_of", {name: row for row, name in enumerate(self.ids)})
        if len(self._row_of) != len(self.ids):
            repeated = next(a for a, b in zip(self.ids, self.ids[1:], strict=False) if a == b)
            raise UsageError(f"video {repeated!r} comes twice in the corpus; each video must come once")

    @classmethod
    def of_block(
        cls, ids: Sequence[str], encoding: VideoEncoding, clip_seconds: ArrayLike, durations: ArrayLike
    ) -> MemoryCorpus:
        """Units of one encoding, in its order."""
        seconds, lengths = np.asarray(clip_seconds, np.float64), np.asarray(durations, np.float64)
        block, row = np.zeros(len(ids), np.int64), np.arange(len(ids))
        return cls(tuple(ids), seconds, lengths, [encoding], block, row)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def audible(self) -> Mask:
        """(U,) which units can be retrieved: those that are not silent."""
        return np.ones(len(self), bool) if self.silent is None else ~self.silent

    def rows_of(self, video_ids: Sequence[str]) -> Indices:
        """The rows of videos, (N,). Raises UsageError for a video that is not in the corpus."""
        try:
            return np.array([self._row_of[name] for name in video_ids], np.int64)
        except KeyError as error:
            raise UsageError(
                f"video {error.args[0]!r} is not among the {len(self)} videos of the corpus"
            ) from None

    def each_block(self) -> Iterator[tuple[Indices, VideoEncoding]]:
        """The blocks, one at a time, with the corpus rows (N,) of each of their rows."""
        order = np.lexsort((self.row, self.block))
        borders = np.searchsorted(self.block[order], np.arange(len(self.blocks) + 1))
        for number in range(len(self.blocks)):
            yield order[borders[number] : borders[number + 1]], self.blocks[number]

    def take(self, rows: ArrayLike) -> VideoEncoding:
        """Some units as one encoding, in the order of `rows` (P,), padded to the longest."""
        numbers = np.asarray(rows, np.int64)
        if not len(numbers):
            raise UsageError("no videos were asked for")
        order = np.argsort(self.block[numbers], kind="stable")
        blocks = self.block[numbers[order]]
        parts = [
            self.blocks[int(number)].take(torch.from_numpy(self.row[numbers[order[blocks == number]]]))
            for number in np.unique(blocks)
        ]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return joined(parts).take(torch.from_numpy(back))

    def nearest(
        self, vectors: Mapping[str, NDArray[np.float32]], k: int, allowed: Mask | None = None
    ) -> tuple[Indices, Floats]:
        """The k units whose best keys are nearest, by trying all of them; a unit without keys is none."""
        scores = np.full(len(self), -np.inf)
        for rows, encoding in self.each_block():
            best = [
                (encoding.keys[stream].float().cpu() @ torch.from_numpy(vector))
                .masked_fill(~encoding.key_masks[stream].cpu(), -torch.inf)
                .amax(1)
                for stream, vector in vectors.items()
            ]
            scores[rows] = torch.stack(best).double().mean(0).numpy()
        scores[~self.audible if allowed is None else ~(self.audible & allowed)] = -np.inf
        order = np.argsort(-scores, kind="stable")[:k]
        order = order[scores[order] > -np.inf]
        return order, scores[order]


def encode_corpus(
    model: Any,
    clips_of: Callable[[Indices], ClipBatch],
    video_ids: Sequence[str],
    *,
    clips: ArrayLike,
    clip_seconds: ArrayLike,
    durations: ArrayLike | None = None,
    folder: str | Path | None = None,
    batch_videos: int | None = None,
    by_length: bool = True,
    progress: Progress | None = None,
) -> MemoryCorpus:
    """All videos of a corpus, encoded.

    `clips_of(rows)` gives some of `video_ids` as the model reads them; `clips` (V,) says how many clips each
    has, `clip_seconds` (V,) or one number how long they are, `durations` (V,) in seconds (NaN or infinite
    where unknown). With a `folder` encodings are written there as they are made, and no more than a block of
    them is in memory; else they stay where the model is.

    Batches hold videos of similar length, at most `batch_videos` of them; scores do not depend on it. With
    `by_length` False batches are in the order given, and one block is padded to the longest: scores of
    released programs depend on both.
    """
    counts = np.asarray(clips, np.int64)
    places = _Places.of(video_ids, counts, clip_seconds, durations)
    if not len(video_ids):
        raise UsageError("the corpus has no videos")
    batches = _batches(counts, places.names, batch_videos, by_length)
    encoded = _encoded(model, clips_of, batches, len(video_ids), places.silent, progress)
    blocks = _blocks(encoded, joined_all=not by_length)
    if folder is None:
        kept: list[VideoEncoding] = []
        for rows, encoding in blocks:
            places.put(rows, len(kept))
            kept.append(encoding)
        return places.corpus(kept)
    place = Path(folder)
    if place.exists() and not (place / _MARKER).is_file():
        raise UsageError(
            f"{place}: is there and holds no encoded corpus; name a folder that is not there yet"
        )
    with folder_aside(place) as aside:
        count = 0
        for rows, encoding in blocks:
            places.put(rows, count)
            save_file(packed_tensors(encoding), aside / _block_name(count))
            count += 1
        (aside / _MARKER).write_text(json.dumps({"format": 1, "blocks": count, "videos": len(video_ids)}))
        if place.exists():
            shutil.rmtree(place)
    return places.corpus(_Folder(place, count))


def encode_queries(trained: System, queries: Queries, numbers: Indices) -> QueryEncoding:
    """Some queries as a system has them, encoded some hundreds at a time."""
    model = trained.model
    device = device_of(model)
    with evaluating(model):
        parts: list[QueryEncoding] = [
            model.encode_queries(queries(numbers[low : low + _ENCODED_TOGETHER]).to(device))
            for low in range(0, len(numbers), _ENCODED_TOGETHER)
        ]
        return joined(parts)


@contextmanager
def evaluating(*models: Any) -> Iterator[None]:
    """Models without dropout and without gradients for a while, and then as they were."""
    modules = [model for model in models if isinstance(model, torch.nn.Module)]
    states = [(part, part.training) for model in modules for part in model.modules()]
    try:
        for part, _ in states:
            part.training = False
        with torch.no_grad():
            yield
    finally:
        for part, state in states:
            part.training = state


def device_of(model: Any) -> torch.device:
    """Where a model's weights are."""
    weights = next(iter(model.parameters()), None) if isinstance(model, torch.nn.Module) else None
    return torch.device("cpu") if weights is None else weights.device


# What is kept of units on a disk: the same names of tensors in a folder and in the index --------------


def packed_tensors(
    encoding: VideoEncoding, groups: Sequence[str] = _GROUPS, row: int | None = None
) -> dict[str, Tensor]:
    """The tensors of an encoding (or of one unit of it) by the names that they have in a file.

    One tensor may stand under two names (keys that are parts as well): each name has a copy of its own.
    """
    named = {f"{group}/{name}": part for group in groups for name, part in getattr(encoding, group).items()}
    tensors = {"mask": encoding.mask, **named}
    if row is not None:
        tensors = {name: part[row] for name, part in tensors.items()}
    return {name: part.to("cpu").contiguous().clone() for name, part in tensors.items()}


def from_tensors(tensors: Mapping[str, Tensor]) -> VideoEncoding:
    """The encoding whose tensors have these names (`packed_tensors`)."""
    groups: dict[str, dict[str, Tensor]] = {name: {} for name in _GROUPS}
    for name, tensor in tensors.items():
        group, _, rest = name.partition("/")
        if rest:
            groups[group][rest] = tensor
    return VideoEncoding(tensors["mask"], **groups)


@dataclass(frozen=True)
class _Folder:
    """Blocks in files; each is mapped into memory when asked for and let go with the encoding."""

    place: Path
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> VideoEncoding:
        path = self.place / _block_name(number)
        try:
            with regular_name(path) as name:
                return from_tensors(load_file(name))
        except Exception as error:
            raise FormatError(path, f"cannot be read: {error}") from None


def _block_name(number: int) -> str:
    return f"block-{number:05d}.safetensors"


# How a corpus is encoded: batches of similar length, joined to blocks of some size --------------------


@dataclass(eq=False)
class _Places:
    """Where each video comes to lie, in the order given; `names` are its places in the order of ids."""

    video_ids: Sequence[str]
    names: Indices
    clip_seconds: Floats
    durations: Floats
    block: Indices
    row: Indices
    silent: Mask

    @classmethod
    def of(
        cls, video_ids: Sequence[str], clips: Indices, clip_seconds: ArrayLike, durations: ArrayLike | None
    ) -> _Places:
        count = len(video_ids)
        seconds = np.broadcast_to(np.asarray(clip_seconds, np.float64), (count,))
        lengths = np.full(count, np.inf) if durations is None else np.array(durations, np.float64)
        if clips.shape != (count,) or lengths.shape != (count,):
            raise UsageError(
                f"{count} videos, {clips.size} numbers of clips, {lengths.size} durations; one each is needed"
            )
        names = np.empty(count, np.int64)
        names[sorted(range(count), key=video_ids.__getitem__)] = np.arange(count)
        lengths[np.isnan(lengths)] = np.inf
        block, row = np.zeros(count, np.int64), np.zeros(count, np.int64)
        return cls(video_ids, names, seconds, lengths, block, row, np.zeros(count, bool))

    def put(self, rows: Indices, block: int) -> None:
        """Note that some videos became the rows of a block, in that order."""
        self.block[rows] = block
        self.row[rows] = np.arange(len(rows))

    def corpus(self, blocks: Blocks) -> MemoryCorpus:
        """What was placed, sorted by id."""
        order = np.argsort(self.names)
        ids = tuple(self.video_ids[at] for at in order.tolist())
        return MemoryCorpus(
            ids,
            self.clip_seconds[order],
            self.durations[order],
            blocks,
            self.block[order],
            self.row[order],
            self.silent[order],
        )


def _batches(clips: Indices, names: Indices, most: int | None, by_length: bool) -> list[Indices]:
    """Rows of the videos in batches: of similar length, or as given."""
    order = np.lexsort((names, clips)) if by_length else np.arange(len(clips))
    batches, low = [], 0
    while low < len(order):
        size = most or max(1, _BATCH_CLIPS // max(1, int(clips[order[low]])))
        batches.append(order[low : low + size])
        low += size
    return batches


def _encoded(
    model: Any,
    clips_of: Callable[[Indices], ClipBatch],
    batches: Sequence[Indices],
    count: int,
    silent: Mask,
    progress: Progress | None,
) -> Iterator[tuple[Indices, VideoEncoding]]:
    """Batches encoded, with their rows; `silent` (V,) is filled as they are."""
    device, done = device_of(model), 0
    for rows in batches:
        clips = clips_of(rows)
        if clips.silent is not None:
            silent[rows] = clips.silent.cpu().numpy()
        with evaluating(model):
            encoding = model.encode_videos(clips.to(device))
        yield rows, encoding
        done += len(rows)
        if progress is not None:
            progress(done, count)


def _blocks(
    batches: Iterator[tuple[Indices, VideoEncoding]], *, joined_all: bool
) -> Iterator[tuple[Indices, VideoEncoding]]:
    """Batches joined to blocks of some size (or to a single block)."""
    rows: list[Indices] = []
    waiting: list[VideoEncoding] = []
    size = 0
    for some, encoding in batches:
        rows.append(some)
        waiting.append(encoding)
        size += bytes_of(encoding)
        if size >= _BLOCK_BYTES and not joined_all:
            yield np.concatenate(rows), joined(waiting)
            rows, waiting, size = [], [], 0
    if waiting:
        yield np.concatenate(rows), joined(waiting)


def bytes_of(encoding: VideoEncoding) -> int:
    """Bytes of all tensors of an encoding."""
    tensors = [encoding.mask, *(part for group in _GROUPS for part in getattr(encoding, group).values())]
    return sum([part.nbytes for part in tensors])
