"""Films with text, made frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
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


def write_film(
    path: Path,
    frame: Callable[[int], Picture],
    seconds: int,
    rate: int = 2,
    chapters: Sequence[tuple[float, float, str]] = (),
    begins: int = 0,
) -> Path:
    """A film whose frame number k is `frame(k)`, on a clock that shows `begins` seconds at its start.

    Chapters are (start, end, title) on that clock.
    """
    with av.open(str(path), "w") as container:
        height, width = frame(0).shape[:2]
        stream = container.add_stream("libx264", rate=rate, options={"crf": "26", "preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        container.set_chapters(
            [
                {
                    "id": number,
                    "start": round(1000 * start),
                    "end": round(1000 * end),
                    "time_base": Fraction(1, 1000),
                    "metadata": {"title": title} if title else {},
                }
                for number, (start, end, title) in enumerate(chapters)
            ]
        )
        for number in range(seconds * rate):
            picture = av.VideoFrame.from_ndarray(frame(number), format="rgb24")
            picture.pts, picture.time_base = number + begins * rate, Fraction(1, rate)
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return path
