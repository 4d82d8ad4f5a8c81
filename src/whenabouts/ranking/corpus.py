"""The videos of a corpus as a model keeps them: encoded once, in memory or in a folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from whenabouts.formats.files import FormatError, read_json
from whenabouts.models.protocol import ClipBatch, VideoEncoding, joined
from whenabouts.types import UsageError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Progress = Callable[[int, int], None]
"""Is told how many are done, and of how many."""

FORMAT = 1
_ABOUT = "corpus.json"
# Clips that are encoded at once, and bytes of encodings that are kept in one block.
_BATCH_CLIPS = 6_400
_BLOCK_BYTES = 96 << 20
_GROUPS = ("keys", "key_masks", "parts")


class Blocks(Protocol):
    """Encoded videos in blocks; a block may be read from a disk each time it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> VideoEncoding: ...


@dataclass(frozen=True, eq=False)
class CorpusEncoding:
    """V encoded videos, sorted by id: the row of a video is its place in every total order.

    Video v is row `row[v]` of block `block[v]`; `clip_seconds` (V,) is how long its clips are, `durations`
    (V,) its seconds, infinite where they are not known. Blocks hold videos of similar length. `silent` (V,)
    bool tells videos of which the system's streams have nothing, no words and no pictures (None: it is not
    known of any): whatever they score means nothing, and they are not found (`audible`).
    """

    video_ids: tuple[str, ...]
    clip_seconds: Floats
    durations: Floats
    blocks: Blocks
    block: Indices
    row: Indices
    silent: NDArray[np.bool_] | None = None
    _row_of: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_row_of", {name: row for row, name in enumerate(self.video_ids)})
        if len(self._row_of) != len(self.video_ids):
            repeated = next(a for a, b in zip(self.video_ids, self.video_ids[1:], strict=False) if a == b)
            raise UsageError(f"video {repeated!r} comes twice in the corpus; each video must come once")

    def __len__(self) -> int:
        return len(self.video_ids)

    @property
    def audible(self) -> NDArray[np.bool_]:
        """(V,) which videos can be found: those that are not silent."""
        return np.ones(len(self), bool) if self.silent is None else ~self.silent

    def rows_of(self, video_ids: Sequence[str]) -> Indices:
        """The rows of videos, (N,). Raises UsageError for one that is not in the corpus."""
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
        """Some videos as one encoding, in the order of `rows` (P,), padded to the longest."""
        wanted = np.asarray(rows, np.int64)
        if not len(wanted):
            raise UsageError("no videos were asked for")
        order = np.argsort(self.block[wanted], kind="stable")
        numbers = self.block[wanted[order]]
        parts = [
            self.blocks[int(number)].take(torch.from_numpy(self.row[wanted[order[numbers == number]]]))
            for number in np.unique(numbers)
        ]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return joined(parts).take(torch.from_numpy(back))

    def save(self, folder: str | Path, about: dict[str, Any] | None = None) -> Path:
        """Write it as a folder, whole or not at all; `about` is kept beside it (see `open`)."""
        place = Path(folder)
        with _made_whole(place) as aside:
            for number in range(len(self.blocks)):
                _save_block(self.blocks[number], aside, number)
            _save_about(self, aside, about or {})
        return place

    @classmethod
    def open(cls, folder: str | Path) -> CorpusEncoding:
        """One that `save` or `encode_corpus` wrote; blocks are mapped into memory as they are used.

        Raises FormatError for a folder that is no such one, is incomplete, or is of another version.
        """
        place = Path(folder)
        told = _read_about(place)
        return cls(
            tuple(told["video_ids"]),
            np.array(told["clip_seconds"], np.float64),
            np.array([np.inf if one is None else one for one in told["durations"]], np.float64),
            _Folder(place, told["blocks"]),
            np.array(told["block"], np.int64),
            np.array(told["row"], np.int64),
            np.isin(np.arange(len(told["video_ids"])), told.get("silent", [])),
        )

    @staticmethod
    def about(folder: str | Path) -> dict[str, Any]:
        """What `save` was given as `about`: for one who must know what made the folder."""
        return dict(_read_about(Path(folder))["about"])


@dataclass(frozen=True)
class _Folder:
    """Blocks in files; each is mapped when asked for and let go with the encoding."""

    place: Path
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> VideoEncoding:
        path = self.place / _block_name(number)
        try:
            tensors = load_file(path)
        except Exception as error:
            raise FormatError(path, f"cannot be read: {error}") from None
        groups: dict[str, dict[str, Tensor]] = {name: {} for name in _GROUPS}
        for name, tensor in tensors.items():
            group, _, rest = name.partition("/")
            if group in groups:
                groups[group][rest] = tensor
        return VideoEncoding(tensors["mask"], **groups)


def encode_corpus(
    model: Any,
    clips_of: Callable[[Indices], ClipBatch],
    video_ids: Sequence[str],
    *,
    clips: ArrayLike,
    clip_seconds: ArrayLike,
    durations: ArrayLike | None = None,
    folder: str | Path | None = None,
    about: dict[str, Any] | None = None,
    batch_videos: int | None = None,
    by_length: bool = True,
    progress: Progress | None = None,
) -> CorpusEncoding:
    """All videos of a corpus, encoded.

    `clips_of(rows)` gives some of `video_ids` as the model reads them; `clips` (V,) says how many clips each
    has, `clip_seconds` (V,) or one number how long they are, `durations` (V,) in seconds (NaN or infinite
    where unknown). With a `folder` encodings are written there as they are made, and no more than a block of
    them is in memory; else they stay where the model is.

    Batches hold videos of similar length, of at most `batch_videos`; scores do not depend on it. A system
    whose scores do (`as_released`) reproduces its program with `by_length` False: batches are then in the
    order given, and one block is padded to the longest.
    """
    told = np.asarray(clips, np.int64)
    place = _Placing.of(video_ids, told, clip_seconds, durations)
    if not len(video_ids):
        raise UsageError("the corpus has no videos")
    batches = _batches(told, place.names, batch_videos, by_length)
    encoded = _encoded(model, clips_of, batches, len(video_ids), place.silent, progress)
    blocks = _blocks(encoded, joined_all=not by_length)
    if folder is None:
        kept: list[VideoEncoding] = []
        for rows, encoding in blocks:
            place.put(rows, len(kept))
            kept.append(encoding)
        return place.corpus(kept)
    with _made_whole(Path(folder)) as aside:
        count = 0
        for rows, encoding in blocks:
            place.put(rows, count)
            _save_block(encoding, aside, count)
            count += 1
        _save_about(place.corpus(_Folder(aside, count)), aside, about or {})
    return place.corpus(_Folder(Path(folder), count))


@contextmanager
def evaluating(*models: Any) -> Iterator[None]:
    """Models without dropout and without gradients for a while, and then as they were."""
    states = [
        (part, part.training) for one in models if isinstance(one, torch.nn.Module) for part in one.modules()
    ]
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


@dataclass(eq=False)
class _Placing:
    """Where each video comes to lie, in the order given; `names` are its places in the order of ids."""

    video_ids: Sequence[str]
    names: Indices
    clip_seconds: Floats
    durations: Floats
    block: Indices
    row: Indices
    silent: NDArray[np.bool_]

    @classmethod
    def of(
        cls, video_ids: Sequence[str], clips: Indices, clip_seconds: ArrayLike, durations: ArrayLike | None
    ) -> _Placing:
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

    def corpus(self, blocks: Blocks) -> CorpusEncoding:
        """What was placed, sorted by id."""
        order = np.argsort(self.names)
        return CorpusEncoding(
            tuple(self.video_ids[at] for at in order.tolist()),
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
    silent: NDArray[np.bool_],
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
    """Batches joined to blocks of some size (or to one)."""
    rows: list[Indices] = []
    waiting: list[VideoEncoding] = []
    size = 0
    for some, encoding in batches:
        rows.append(some)
        waiting.append(encoding)
        size += _bytes_of(encoding)
        if size >= _BLOCK_BYTES and not joined_all:
            yield np.concatenate(rows), joined(waiting)
            rows, waiting, size = [], [], 0
    if waiting:
        yield np.concatenate(rows), joined(waiting)


def _tensors_of(encoding: VideoEncoding) -> dict[str, Tensor]:
    """Every tensor of an encoding under the name it has in a file."""
    named = {f"{group}/{name}": one for group in _GROUPS for name, one in getattr(encoding, group).items()}
    return {"mask": encoding.mask, **named}


def _bytes_of(encoding: VideoEncoding) -> int:
    return sum(one.numel() * one.element_size() for one in _tensors_of(encoding).values())


def _block_name(number: int) -> str:
    return f"block-{number:05d}.safetensors"


def _save_block(encoding: VideoEncoding, folder: Path, number: int) -> None:
    # One tensor may stand under two names (keys that are parts as well): each name gets its own copy.
    tensors = {name: one.to("cpu").contiguous().clone() for name, one in _tensors_of(encoding).items()}
    save_file(tensors, folder / _block_name(number))


def _save_about(corpus: CorpusEncoding, folder: Path, about: dict[str, Any]) -> None:
    told = {
        "format": FORMAT,
        "about": about,
        "blocks": len(corpus.blocks),
        "video_ids": list(corpus.video_ids),
        "clip_seconds": corpus.clip_seconds.tolist(),
        "durations": [one if np.isfinite(one) else None for one in corpus.durations.tolist()],
        "block": corpus.block.tolist(),
        "row": corpus.row.tolist(),
        "silent": np.flatnonzero(~corpus.audible).tolist(),
    }
    (folder / _ABOUT).write_text(json.dumps(told), encoding="utf-8")


def _read_about(folder: Path) -> dict[str, Any]:
    path = folder / _ABOUT
    told = read_json(path)
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        found = told.get("format") if isinstance(told, dict) else type(told).__name__
        raise FormatError(path, f"is of format {found!r}", accepted=f"an encoded corpus of format {FORMAT}")
    return told


@contextmanager
def _made_whole(folder: Path) -> Iterator[Path]:
    """A folder to fill that takes its name when it is whole; an encoded corpus of that name is replaced."""
    if folder.exists() and not (folder / _ABOUT).is_file():
        raise UsageError(
            f"{folder}: is there and holds no encoded corpus; name a folder that is not there yet"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield aside
        if folder.exists():
            shutil.rmtree(folder)
        aside.chmod(0o755)
        aside.rename(folder)
    finally:
        if aside.exists():
            shutil.rmtree(aside)
