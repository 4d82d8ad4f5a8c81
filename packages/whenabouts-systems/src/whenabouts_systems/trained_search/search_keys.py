"""Encode a corpus with a trained system, and store the encodings and search keys in the index.

Only equally long videos are encoded together, so that there is no padding. Encodings are stored as
safetensors in half precision, or in full precision if a number is too large. For videos cut into segments
(`ranking/units.py`) only keys are stored.
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
"""The most segments of a corpus: 11,000 hours in segments of 4 seconds."""
# The most videos that are read, encoded and written together; a killed program loses at most these.
_VIDEOS_AT_A_TIME = 512
# The videos that are encoded at a time to find out the width and norm of a system's keys.
_PROBED_VIDEOS = 16
_CLIPS_AT_ONCE = 6_400
_LARGEST_HALF = 60_000.0
# Keys whose norms are within this of 1 count as unit vectors, which the index compares by direction.
_UNIT_WITHIN = 0.01


def stale_videos(store: Store, keys: Keys) -> tuple[list[VideoRecord], list[str]]:
    """Videos whose encoding is missing or outdated, and ids of encodings whose video was removed."""
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
    """The keys of a system for a corpus, after new and changed videos are encoded and removed ones dropped.

    `segment_clips` is the number of clips of a segment, 0 for whole videos. Keys of an earlier system from
    the same place, or in an earlier layout, are removed. Raises CorpusBusy if another writer holds the corpus
    for `wait` seconds. Raises UsageError for a corpus without videos, too many segments, or segments without
    keys.
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
    """Raise UsageError if segments of `seconds` seconds would be more than `MOST_SEGMENTS`."""
    lengths = np.array([record.duration or 0.0 for record in records])
    count, hours = int(clip_counts(lengths, seconds).sum()), lengths.sum() / 3600
    if count > MOST_SEGMENTS:
        enough = int(np.ceil(seconds * count / MOST_SEGMENTS))
        raise UsageError(
            f"segments of {seconds:g} s would be {count:,} in the {hours:,.0f} hours of {place}, more than "
            f"{MOST_SEGMENTS:,}; give {enough} s or more"
        )


def _new_keys(store: Store, trained: Trained, name: str, place: str, segment_clips: int) -> Keys:
    """Create the tables of a system's keys; the first video with features shows their width and norm."""
    records = [record for record in store.videos() if record.streams]
    probe: EncodedVideo | None = None
    for videos in _encoded(store, trained, records, segment_clips, _PROBED_VIDEOS):
        probe = next((video for video in videos if video.rows), videos[0])
        if probe.rows:
            break
    if probe is None:
        raise UsageError(f"{store.place} has no videos that {name} could read; index some first")
    if segment_clips and not probe.keys:
        raise UsageError(
            f"{name} ({trained.system}) has no keys to find segments by; name a retriever that has, or leave "
            "out the segments"
        )
    lengths = [np.linalg.norm(rows, axis=1) for rows in probe.keys.values() if len(rows)]
    unit = all(np.abs(length - 1).max() < _UNIT_WITHIN for length in lengths)
    info = SystemKeys(
        system_of(trained.fingerprint, segment_clips),
        name,
        place,
        {stream: rows.shape[1] for stream, rows in probe.keys.items()},
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
    """The encoded videos, at most `videos` at a time; those with neither duration nor clips are skipped."""
    inputs = trained.inputs
    rows = rows_about(records, inputs.clip_seconds)
    if segment_clips:  # the system may resample a segment to more clips than it has rows
        rows = [count * max(1.0, inputs.clips_of(segment_clips) / segment_clips) for count in rows]
    for part in in_parts(records, rows, ROWS_AT_A_TIME, videos or _VIDEOS_AT_A_TIME):
        grids = videos_on_grid(
            store, list(inputs.streams), inputs.clip_seconds, part, transcript_of(store, inputs)
        )
        encoded = (
            encoded_segments(trained, list(grids), segment_clips) if segment_clips else _whole(trained, grids)
        )
        if encoded:
            yield encoded


def _whole(trained: Trained, grids: Iterable[GridVideo]) -> list[EncodedVideo]:
    """Encode whole videos, equally long ones together."""
    groups: defaultdict[int, list[GridVideo]] = defaultdict(list)
    for video in grids:
        groups[trained.inputs.clips_of(_rows_of(video))].append(video)
    encoded: list[EncodedVideo] = []
    for clips, videos in sorted(groups.items()):
        size = max(1, _CLIPS_AT_ONCE // clips)
        for low in range(0, len(videos), size):
            encoded += _encode(trained, videos[low : low + size])
    return encoded


def _rows_of(video: GridVideo) -> int:
    return max(map(len, video.streams.values()))


def _encode(trained: Trained, videos: Sequence[GridVideo]) -> Iterator[EncodedVideo]:
    """Encode equally long videos; a video without features for the system has no keys and 0 rows."""
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
    """Start and end in seconds of the keys at `places`; `counts` are a video's numbers of keys and of cells.

    If keys are not one for each cell (proposals of many lengths), each key covers the whole video.
    """
    keys, cells = counts
    if keys != cells:
        return np.zeros(len(places)), np.full(len(places), video.duration)
    seconds = key_seconds(trained, cells, _rows_of(video), video.duration)
    start = np.asarray(places * seconds, np.float64)
    return start, np.minimum(start + seconds, max(video.duration, seconds))


@dataclass(frozen=True, eq=False)
class _ReadVideos:
    """Videos in memory as footage for a system (`units.Footage`)."""

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
    """Videos with a system's keys of their segments, which have `clips` clips each.

    A segment without features for the system has no keys; a video with only such segments has 0 rows.
    """
    footage = _ReadVideos(trained.inputs, grids)
    segments = Units.cut(footage, clips * trained.inputs.clip_seconds)
    keys = _keys_of(trained, segments)
    start, end = segments.start, segments.end
    borders = np.searchsorted(segments.video, np.arange(len(grids) + 1))
    encoded = []
    for at, grid in enumerate(grids):
        # The keys of the video's segments, which are sorted by segment.
        part_of = {
            name: slice(*np.searchsorted(owner, borders[at : at + 2])) for name, (owner, _) in keys.items()
        }
        number = {name: keys[name][0][part] for name, part in part_of.items()}
        encoded.append(
            EncodedVideo(
                grid.record.video_id,
                mark_of(grid.record),
                int(footage.row_counts[at]) if any(map(len, number.values())) else 0,
                grid.duration,
                {name: keys[name][1][part] for name, part in part_of.items()},
                {name: start[numbers] for name, numbers in number.items()},
                {name: end[numbers] for name, numbers in number.items()},
                b"",
                index={name: numbers - borders[at] for name, numbers in number.items()},
            )
        )
    return encoded


def _keys_of(trained: Trained, segments: Units) -> dict[str, tuple[Indices, NDArray[np.float32]]]:
    """Stream -> (the ascending segment numbers (K,) of the keys, the keys (K, D))."""
    model = trained.model
    owners: defaultdict[str, list[Indices]] = defaultdict(list)
    vectors: defaultdict[str, list[NDArray[np.float32]]] = defaultdict(list)
    lengths = segments.stop - segments.first
    order = np.argsort(lengths, kind="stable")
    for equal in np.split(
        order, np.flatnonzero(np.diff(lengths[order])) + 1
    ):  # equal lengths need no padding
        size = max(1, _CLIPS_AT_ONCE // trained.inputs.clips_of(int(lengths[equal[0]])))
        for low in range(0, len(equal), size):
            numbers = equal[low : low + size]
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
    """The given groups of one video's encoding as bytes."""
    tensors = packed_tensors(encoding, groups, row)
    packed: bytes = safetensors.torch.save({name: _half(tensor) for name, tensor in tensors.items()})
    return packed


def _half(tensor: Tensor) -> Tensor:
    """The tensor in half precision, unless a number is too large for it."""
    if tensor.dtype != torch.float32:
        return tensor
    return tensor.to(torch.float16) if float(tensor.abs().max()) < _LARGEST_HALF else tensor
