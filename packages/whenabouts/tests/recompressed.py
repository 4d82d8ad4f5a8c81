"""Re-encodes a film: the same pictures in other bytes."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

from whenabouts.video.frames import sample_frames


def recompressed(source: Path, target: Path, size: int = 240, start: float = 0.0) -> None:
    """A small silent copy, ten frames a second, from `start` seconds on; `size` is its short side."""
    with sample_frames(source, 10.0, size=size, start=start) as reader:
        images = [frame.image for frame in reader]
    with av.open(str(target), "w") as out:
        stream = out.add_stream("mpeg4", rate=10)
        assert isinstance(stream, av.VideoStream)
        stream.pix_fmt, stream.bit_rate = "yuv420p", 2_000_000
        stream.height, stream.width = (side // 2 * 2 for side in images[0].shape[:2])
        for image in images:
            even = np.ascontiguousarray(image[: stream.height, : stream.width])
            out.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        out.mux(stream.encode(None))
