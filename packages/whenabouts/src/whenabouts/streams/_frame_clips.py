"""Makes clips of one encoded frame each, on an even grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import ClipGrid
from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
from whenabouts.index.records import ClipColumns
from whenabouts.index.stream import StreamRun

SHORTEST_SECONDS = 0.01
"""Duration of the last frame if the file claims to end before it."""

EncodedFrames = tuple[tuple[int, ...], NDArray[np.float32]]
"""Indices of the clips, and the vectors (N, D) of their frames."""


def encoded_frames(batch: FrameBatch | SoundBatch, run: StreamRun) -> EncodedFrames:
    """Encode the frames of a batch."""
    assert isinstance(batch, FrameBatch)
    return batch.clips, run.encoder.encode_images(batch.images)


def frame_clips(video: ReadVideo, batches: Sequence[EncodedFrames], seconds: float) -> ClipColumns:
    """One row per clip of `seconds`; a clip without a frame repeats the vector before it."""
    if not batches:
        return ClipColumns(np.zeros(0), np.zeros(0), [], None)
    encoded = [clip for clips, _ in batches for clip in clips]
    vectors = np.concatenate([vectors for _, vectors in batches])
    grid = ClipGrid(seconds, max(video.end, encoded[-1] * seconds + SHORTEST_SECONDS))
    clips = np.arange(encoded[0], len(grid))
    shown = np.searchsorted(np.asarray(encoded), clips, side="right") - 1
    starts = grid.bounds(encoded[0])[0] + seconds * np.arange(len(clips), dtype=np.float64)
    ends = np.minimum(starts + seconds, grid.bounds(len(grid) - 1)[1])
    return ClipColumns(starts, ends, [""] * len(clips), vectors[shown])
