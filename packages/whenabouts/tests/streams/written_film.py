"""Films with text, made frame by frame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Picture = NDArray[np.uint8]


def slide(*lines: str, size: tuple[int, int] = (640, 360), seed: int = 0) -> Picture:
    """Lines on light paper, with the noise of a camera."""
    picture = Image.new("RGB", size, (235, 235, 228))
    for number, line in enumerate(lines):
        place = (size[0] // 12, size[1] // 8 + number * size[1] // 5)
        ImageDraw.Draw(picture).text(place, line, (20, 20, 40), ImageFont.load_default(size[1] // 11))
    noise = np.random.default_rng(seed).normal(0, 3, (size[1], size[0], 3))
    return np.asarray(np.clip(np.asarray(picture) + noise, 0, 255), np.uint8)


def write_film(path: Path, frame: Callable[[int], Picture], seconds: int, rate: int = 2) -> Path:
    """A film whose frame number k is `frame(k)`."""
    with av.open(str(path), "w") as container:
        height, width = frame(0).shape[:2]
        stream = container.add_stream("libx264", rate=rate, options={"crf": "26", "preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(seconds * rate):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame(number), format="rgb24")))
        container.mux(stream.encode(None))
    return path
