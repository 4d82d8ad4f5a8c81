"""Encode a corpus with a trained system, unit by unit, and read the encodings.

A *unit* is a part of a video that is encoded alone: usually the whole video, or a segment of a long video, or
a window around a proposal (`units.py`). A `MemoryCorpus` holds all units in memory or in a folder. The
`IndexedCorpus` of a corpus's index (`trained_search/indexed_corpus.py`) reads some of its videos into one.

Shapes: U units, V videos, P and N rows.
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
"""Called with (number done, total number)."""
Queries = Callable[[Indices], QueryBatch]
"""Numbers of queries -> the model's batch of them."""

# The most clips, padding included, that are encoded at a time; and about the bytes of encodings in a block.
_BATCH_CLIPS = 6_400
_BLOCK_BYTES = 96 << 20
_GROUPS = ("keys", "key_masks", "parts")
_ENCODED_TOGETHER = 256
_MARKER = "corpus.json"


class System(Protocol):
    """The parts of a trained system that ranking needs; `models.trained.Trained` has them."""

    @property
    def system(self) -> str:
        """The system's name."""

    @property
    def model(self) -> Any:
        """The model, a `torch.nn.Module`."""

    @property
    def decoding(self) -> Decoding:
        """The settings by which spans become moments."""


class Blocks(Protocol):
    """Encoded units in blocks; a block may be read from disk each time it is used."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> VideoEncoding: ...


@dataclass(frozen=True, eq=False)
class MemoryCorpus:
    """U encoded units. Whole videos are sorted by id; a video's row is its place in every total order.

    Unit u is row `row[u]` of block `block[u]`; blocks hold units of similar length. `clip_seconds` (U,) are
    the seconds of a unit's clips, `durations` (U,) its seconds, infinite if unknown. `silent` (U,) bool marks
    units that have only zeros in all of the system's streams, such as no words and no pictures (None: no unit
    does). Their scores mean nothing, so they are not retrieved (`audible`).
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
            raise UsageError(f"video {repeated!r} comes twice in the corpus; list each video once")

    @classmethod
    def of_block(
        cls, ids: Sequence[str], encoding: VideoEncoding, clip_seconds: ArrayLike, durations: ArrayLike
    ) -> MemoryCorpus:
        """The units of a single encoding, in its order."""
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
        """The blocks, each with the corpus rows (N,) of its units."""
        order = np.lexsort((self.row, self.block))
        borders = np.searchsorted(self.block[order], np.arange(len(self.blocks) + 1))
        for number in range(len(self.blocks)):
            yield order[borders[number] : borders[number + 1]], self.blocks[number]

    def take(self, rows: ArrayLike) -> VideoEncoding:
        """The units of `rows` (P,) as one encoding, in this order, padded to the longest."""
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
    """The encoded videos of a corpus, sorted by id.

    `clips_of(rows)` gives the model's batch of these rows of `video_ids`. `clips` (V,) are the numbers of
    clips, `clip_seconds` their seconds ((V,) or one number), and `durations` (V,) the seconds of the videos
    (NaN or infinite if unknown). With a `folder`, encodings are written there and at most one block is in
    memory; otherwise they stay on the model's device. Raises UsageError for no videos, or another folder.

    Batches hold at most `batch_videos` videos of similar length; scores do not depend on this. Without
    `by_length`, batches keep the given order and form one block, padded to the longest video: scores of
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
            f"{place}: exists and is not the folder of an encoded corpus; give a folder that does not exist"
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
    """The encodings of the queries `numbers` (Q,) by a system."""
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
    """A context without gradients and with models in evaluation mode; it restores their modes."""
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
    """The device of a model's weights; the CPU if it has none."""
    weights = next(iter(model.parameters()), None) if isinstance(model, torch.nn.Module) else None
    return torch.device("cpu") if weights is None else weights.device


# Stored units: folders and the index use the same names of tensors ------------------------------------


def packed_tensors(
    encoding: VideoEncoding, groups: Sequence[str] = _GROUPS, row: int | None = None
) -> dict[str, Tensor]:
    """Name in a file -> tensor of an encoding, or of its unit `row`.

    A tensor with two names (keys that are also parts) is copied for each, because files cannot share it.
    """
    named = {f"{group}/{name}": part for group in groups for name, part in getattr(encoding, group).items()}
    tensors = {"mask": encoding.mask, **named}
    if row is not None:
        tensors = {name: part[row] for name, part in tensors.items()}
    return {name: part.to("cpu").contiguous().clone() for name, part in tensors.items()}


def from_tensors(tensors: Mapping[str, Tensor]) -> VideoEncoding:
    """The encoding with the given tensors; the inverse of `packed_tensors`."""
    groups: dict[str, dict[str, Tensor]] = {name: {} for name in _GROUPS}
    for name, tensor in tensors.items():
        group, _, name_in_group = name.partition("/")
        if name_in_group:
            groups[group][name_in_group] = tensor
    return VideoEncoding(tensors["mask"], **groups)


@dataclass(frozen=True)
class _Folder:
    """Blocks in files; each is mapped into memory on use and freed with its encoding."""

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


# Encoding a corpus: batches of similar length are joined to blocks ------------------------------------


@dataclass(eq=False)
class _Places:
    """The block and row of each video, in the given order; `names` are the videos' places sorted by id."""

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
                f"{count} videos, {clips.size} numbers of clips, {lengths.size} durations; give one of each "
                "for every video"
            )
        names = np.empty(count, np.int64)
        names[sorted(range(count), key=video_ids.__getitem__)] = np.arange(count)
        lengths[np.isnan(lengths)] = np.inf
        block, row = np.zeros(count, np.int64), np.zeros(count, np.int64)
        return cls(video_ids, names, seconds, lengths, block, row, np.zeros(count, bool))

    def put(self, rows: Indices, block: int) -> None:
        """Record that the videos `rows` are the rows of a block, in this order."""
        self.block[rows] = block
        self.row[rows] = np.arange(len(rows))

    def corpus(self, blocks: Blocks) -> MemoryCorpus:
        """The corpus, sorted by id."""
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


def _batches(clips: Indices, names: Indices, count: int | None, by_length: bool) -> list[Indices]:
    """The rows of each batch: videos of similar length, or in the given order."""
    order = np.lexsort((names, clips)) if by_length else np.arange(len(clips))
    batches, low = [], 0
    while low < len(order):
        longest = np.maximum.accumulate(clips[order[low : low + _BATCH_CLIPS]])
        padded = longest * np.arange(1, len(longest) + 1)
        size = count or max(1, int((padded <= _BATCH_CLIPS).sum()))
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
    """The rows and the encoding of each batch; fills `silent` (V,) meanwhile."""
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
    """Join batches to blocks of about `_BLOCK_BYTES`, or to a single block."""
    rows: list[Indices] = []
    waiting: list[VideoEncoding] = []
    size = 0
    for of_batch, encoding in batches:
        rows.append(of_batch)
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
