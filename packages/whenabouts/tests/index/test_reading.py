"""One pass over a file: which frame stands for a clip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from whenabouts.index.reading import FrameBatch, ReadTask, read_file
from whenabouts.index.sampling import FrameSettings
from whenabouts.video.frames import sample_frames


@pytest.mark.parametrize("at", [0.0, 0.5], ids=["beginning", "middle"])
def test_a_clip_has_the_frame_nearest_to_where_it_is_wanted_also_where_it_is_cut_off(
    samples: Path, at: float
) -> None:
    """Also of clips behind a full batch, and of the last, which the file's end cuts off."""
    path, seconds = samples / "friday.mp4", 0.28
    settings = FrameSettings(seconds, 16, at)
    task = ReadTask(0, path, "media", frames=(settings,), cues=False)
    batches = [batch for batch in read_file(task) if isinstance(batch, FrameBatch)]
    clips = [clip for batch in batches for clip in batch.clips]
    images = [image for batch in batches for image in batch.images]
    assert len(batches) > 1 and clips == list(range(len(clips)))
    with sample_frames(path, 2 / seconds, size=16) as every:
        frames = list(every)
    for clip, image in zip(clips, images, strict=True):
        own = [frame for frame in frames if int(frame.seconds / seconds + 1e-6) == clip]
        wanted = (clip + at) * seconds
        assert np.array_equal(image, min(own, key=lambda frame: abs(frame.seconds - wanted)).image), clip
