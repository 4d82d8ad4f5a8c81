"""A corpus's videos through a trained system: clips on its grid -> encoding -> keys in the index.

A video is encoded alone or with others of exactly its length, so that nothing of it is padding. Encodings
are kept as safetensors of half-precision numbers (full precision where a number is too large for that). Of
videos in segments (`units.py`) keys alone are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.clips import clip_counts
from whenabouts.index.keys import (
    EncodedVideo,
    Keys,
    SystemKeys,
    add_keys,
    known_systems,
    mark_of,
    open_keys,
    remove_keys,
    system_of,
)
from whenabouts.index.lock import uninterrupted
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.types import UsageError, Video
from whenabouts_bench.formats.sentences import Sentence
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.protocol import VideoEncoding
from whenabouts_systems.ranking.encoded_corpus import (
    Floats,
    Indices,
    Progress,
    device_of,
    evaluating,
    packed_tensors,
)
from whenabouts_systems.ranking.units import Units
from whenabouts_systems.trained_search.even_grid import GridVideo, videos_on_grid
from whenabouts_systems.trained_search.indexed_corpus import key_seconds
from whenabouts_systems.trained_search.stored_footage import (
    ROWS_AT_A_TIME,
    in_parts,
    rows_about,
    transcript_of,
)

if TYPE_CHECKING:
    from whenabouts_systems.models.trained import Trained


MOST_SEGMENTS = 10_000_000
"""A corpus is not cut into more: 11,000 hours in segments of 4 seconds."""
# Videos that are read, encoded and written together: a kill loses no more than these.
_VIDEOS_AT_A_TIME = 512
# Videos that are looked at to see what keys are like.
_LOOKED_AT = 16
_CLIPS_AT_ONCE = 6_400
_LARGEST_HALF = 60_000.0
# A key whose length is farther from 1 is not found by its direction alone.
_UNIT_WITHIN = 0.01


def stale_videos(store: Store, keys: Keys) -> tuple[list[VideoRecord], list[str]]:
    """Videos whose encoding is missing or old, and ids of encodings whose video is gone."""
    marks = keys.marks()
    records = {record.video_id: record for record in store.videos() if record.streams}
    stale = [record for name, record in records.items() if marks.get(name) != mark_of(record)]
    return stale, [name for name in marks if name not in records]


def bring_up_to_date(
    store: Store,
    trained: Trained,
    name: str,
    place: str,
    *,
    segment_clips: int = 0,
    wait: float = 0.0,
    progress: Progress | None = None,
) -> Keys:
    """Encode what is new or changed, drop what is gone; the keys afterwards.

    `segment_clips`: of segments of so many clips, 0 of whole videos. What the corpus kept of an earlier
    system from the same place, or in an earlier layout, is dropped. Raises CorpusBusy after `wait` seconds
    while another writer is at work, UsageError for a corpus without videos, and for segments that are too
    many or would have no keys.
    """
    with store.writing(wait=wait):
        for info in known_systems(store):
            if not info.is_current or (info.place == place and info.trained != trained.fingerprint):
                remove_keys(store, info)
        if segment_clips:
            check_count(store.videos(), segment_clips * trained.inputs.clip_seconds, store.place)
        keys = open_keys(store, system_of(trained.fingerprint, segment_clips))
        keys = keys or _new_keys(store, trained, name, place, segment_clips)
        stale, gone = stale_videos(store, keys)
        keys.forget(gone)
        done = 0
        for videos in _encoded(store, trained, stale, segment_clips):
            with uninterrupted():
                keys.put(videos)
            done += len(videos)
            if progress is not None:
                progress(done, len(stale))
        store.optimize()
        keys.describe(replace(keys.info, name=name, place=place, ledger=store.version))
    return keys


def check_count(records: Sequence[VideoRecord], seconds: float, place: str) -> None:
    """Refuse to cut a corpus into more segments (of so many seconds) than an index should hold."""
    lengths = np.array([record.duration or 0.0 for record in records])
    count, hours = int(clip_counts(lengths, seconds).sum()), lengths.sum() / 3600
    if count > MOST_SEGMENTS:
        enough = int(np.ceil(seconds * count / MOST_SEGMENTS))
        raise UsageError(
            f"segments of {seconds:g} s would be {count:,} in the {hours:,.0f} hours of {place}, more than "
            f"{MOST_SEGMENTS:,}; give {enough} s or more"
        )


def _new_keys(store: Store, trained: Trained, name: str, place: str, segment_clips: int) -> Keys:
    """Room for a system's keys; what they look like is seen from the first video that has some."""
    records = [record for record in store.videos() if record.streams]
    seen: EncodedVideo | None = None
    for videos in _encoded(store, trained, records, segment_clips, _LOOKED_AT):
        seen = next((video for video in videos if video.rows), videos[0])
        if seen.rows:
            break
    if seen is None:
        raise UsageError(f"{store.place} has no videos that {name} could read; index some first")
    if segment_clips and not seen.keys:
        raise UsageError(
            f"{name} ({trained.system}) keeps no keys by which segments could be found; name a retriever "
            "that does, or leave out the segments"
        )
    lengths = [np.linalg.norm(rows, axis=1) for rows in seen.keys.values() if len(rows)]
    unit = all(np.abs(length - 1).max() < _UNIT_WITHIN for length in lengths)
    info = SystemKeys(
        system_of(trained.fingerprint, segment_clips),
        name,
        place,
        {stream: rows.shape[1] for stream, rows in seen.keys.items()},
        "l2" if unit else "dot",
        weights=trained.fingerprint if segment_clips else "",
        segment_clips=segment_clips,
    )
    return add_keys(store, info)


def _encoded(
    store: Store,
    trained: Trained,
    records: Sequence[VideoRecord],
    segment_clips: int,
    videos: int | None = None,
) -> Iterator[list[EncodedVideo]]:
    """Videos through the system, at most so many at a time; those without any time are left out."""
    inputs = trained.inputs
    rows = rows_about(records, inputs.clip_seconds)
    if segment_clips:  # a segment may have more clips for the system than it has rows
        rows = [count * max(1.0, inputs.clips_of(segment_clips) / segment_clips) for count in rows]
    for part in in_parts(records, rows, ROWS_AT_A_TIME, videos or _VIDEOS_AT_A_TIME):
        grids = videos_on_grid(
            store, list(inputs.streams), inputs.clip_seconds, part, transcript_of(store, inputs)
        )
        made = (
            encoded_segments(trained, list(grids), segment_clips) if segment_clips else _whole(trained, grids)
        )
        if made:
            yield made


def _whole(trained: Trained, grids: Iterable[GridVideo]) -> list[EncodedVideo]:
    """Whole videos through the system, those of one length together."""
    groups: defaultdict[int, list[GridVideo]] = defaultdict(list)
    for video in grids:
        groups[trained.inputs.clips_of(_rows_of(video))].append(video)
    made: list[EncodedVideo] = []
    for clips, videos in sorted(groups.items()):
        most = max(1, _CLIPS_AT_ONCE // clips)
        for low in range(0, len(videos), most):
            made += _encode(trained, videos[low : low + most])
    return made


def _rows_of(video: GridVideo) -> int:
    return max(map(len, video.streams.values()))


def _encode(trained: Trained, videos: Sequence[GridVideo]) -> Iterator[EncodedVideo]:
    """Videos of one length through the system; one in which it reads nothing has no keys and 0 rows."""
    names = [video.record.video_id for video in videos]
    clips = trained.inputs.clips(
        [video.streams for video in videos],
        [video.duration for video in videos],
        names,
        [video.sentences for video in videos],
    )
    with evaluating(trained.model):
        encoding = trained.model.encode_videos(clips.to(device_of(trained.model))).to("cpu")
    silent = [False] * len(videos) if clips.silent is None else clips.silent.tolist()
    for row, video in enumerate(videos):
        rows = 0 if silent[row] else _rows_of(video)
        real = {stream: mask[row].bool() & (rows > 0) for stream, mask in encoding.key_masks.items()}
        keys = {
            stream: vectors[row][real[stream]].float().numpy() for stream, vectors in encoding.keys.items()
        }
        start: dict[str, NDArray[np.float64]] = {}
        end: dict[str, NDArray[np.float64]] = {}
        for stream in keys:
            places = np.flatnonzero(real[stream].numpy())
            start[stream], end[stream] = _times(
                trained, (len(real[stream]), encoding.mask.shape[1]), places, video
            )
        yield EncodedVideo(
            video.record.video_id,
            mark_of(video.record),
            rows,
            video.duration,
            keys,
            start,
            end,
            _packed(encoding, row, ("parts",)),
            _packed(encoding, row, ("keys", "key_masks")),
        )


def _times(
    trained: Trained, counts: tuple[int, int], places: NDArray[np.int64], video: GridVideo
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds that keys at some places stand for; `counts` are how many keys and how many cells a video has.

    Where there is not one key for each cell (proposals of many lengths) a key stands for the whole video.
    """
    keys, cells = counts
    if keys != cells:
        return np.zeros(len(places)), np.full(len(places), video.duration)
    seconds = key_seconds(trained, cells, _rows_of(video), video.duration)
    start = np.asarray(places * seconds, np.float64)
    return start, np.minimum(start + seconds, max(video.duration, seconds))


@dataclass(frozen=True, eq=False)
class _ReadVideos:
    """Videos that were read, as footage of a system (`units.Footage`)."""

    inputs: Inputs
    grids: Sequence[GridVideo]

    @cached_property
    def videos(self) -> list[Video]:
        return [Video(grid.record.video_id, grid.duration) for grid in self.grids]

    @cached_property
    def durations(self) -> Floats:
        return np.array([grid.duration for grid in self.grids], np.float64)

    @cached_property
    def row_counts(self) -> Indices:
        return np.array([_rows_of(grid) for grid in self.grids], np.int64)

    def rows_of_video(self, row: int) -> Mapping[str, NDArray[np.float32]]:
        return self.grids[row].streams

    def sentences_of_video(self, row: int) -> Sequence[Sentence]:
        return self.grids[row].sentences


def encoded_segments(trained: Trained, grids: Sequence[GridVideo], clips: int) -> list[EncodedVideo]:
    """Videos (at least one) with a system's keys of their segments, of so many clips each.

    A segment in which the system reads nothing has no keys, and a video of such segments has 0 rows.
    """
    footage = _ReadVideos(trained.inputs, grids)
    segments = Units.cut(footage, clips * trained.inputs.clip_seconds)
    keys = _keys_of(trained, segments)
    start, end = segments.start, segments.end
    borders = np.searchsorted(segments.video, np.arange(len(grids) + 1))
    encoded = []
    for at, grid in enumerate(grids):
        mine = {name: _between(owner, borders[at], borders[at + 1]) for name, (owner, _) in keys.items()}
        number = {name: keys[name][0][part] for name, part in mine.items()}
        encoded.append(
            EncodedVideo(
                grid.record.video_id,
                mark_of(grid.record),
                int(footage.row_counts[at]) if any(map(len, number.values())) else 0,
                grid.duration,
                {name: keys[name][1][part] for name, part in mine.items()},
                {name: start[numbers] for name, numbers in number.items()},
                {name: end[numbers] for name, numbers in number.items()},
                b"",
                index={name: numbers - borders[at] for name, numbers in number.items()},
            )
        )
    return encoded


def _between(owner: Indices, low: int, high: int) -> slice:
    """Where the keys of the segments from `low` to `high` - 1 lie; `owner` (K,) is sorted."""
    first, stop = np.searchsorted(owner, [low, high])
    return slice(int(first), int(stop))


def _keys_of(trained: Trained, segments: Units) -> dict[str, tuple[Indices, NDArray[np.float32]]]:
    """By stream: the segment (K,) of each key, in order, and the keys (K, D)."""
    model = trained.model
    owners: defaultdict[str, list[Indices]] = defaultdict(list)
    vectors: defaultdict[str, list[NDArray[np.float32]]] = defaultdict(list)
    lengths = segments.stop - segments.first
    order = np.argsort(lengths, kind="stable")
    for alike in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):  # so that nothing is padding
        most = max(1, _CLIPS_AT_ONCE // trained.inputs.clips_of(int(lengths[alike[0]])))
        for low in range(0, len(alike), most):
            numbers = alike[low : low + most]
            clips = segments.clip_batch(numbers)
            with evaluating(model):
                encoding = model.encode_videos(clips.to(device_of(model))).to("cpu")
            for stream, keys in encoding.keys.items():
                real = encoding.key_masks[stream].bool()
                real = real if clips.silent is None else real & ~clips.silent.cpu()[:, None]
                owners[stream].append(numbers[real.nonzero()[:, 0].numpy()])
                vectors[stream].append(keys[real].float().numpy())
    joined_keys = {}
    for stream, parts in owners.items():
        owner = np.concatenate(parts)
        by_segment = np.argsort(owner, kind="stable")
        joined_keys[stream] = owner[by_segment], np.concatenate(vectors[stream])[by_segment]
    return joined_keys


def _packed(encoding: VideoEncoding, row: int, groups: Sequence[str]) -> bytes:
    """Some of one video's encoding as bytes."""
    tensors = packed_tensors(encoding, groups, row)
    packed: bytes = safetensors.torch.save({name: _half(tensor) for name, tensor in tensors.items()})
    return packed


def _half(tensor: Tensor) -> Tensor:
    """In half precision, where no number is too large for that."""
    if tensor.dtype != torch.float32:
        return tensor
    return tensor.to(torch.float16) if float(tensor.abs().max()) < _LARGEST_HALF else tensor
