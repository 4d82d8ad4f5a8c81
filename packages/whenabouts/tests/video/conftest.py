"""Small real media files, made when they are needed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

Image = NDArray[np.uint8]


class Studio:
    """Makes videos whose frames carry their number, so that a test can tell which frame it was given."""

    width, height = 160, 96

    def picture(self, number: int) -> Image:
        """Eight columns, dark or bright: the bits of a number, highest first."""
        bits = np.array([(number >> bit) & 1 for bit in range(7, -1, -1)], np.uint8)
        row = (bits * 215 + 20).repeat(self.width // 8)
        return np.broadcast_to(row[None, :, None], (self.height, self.width, 3)).copy()

    def number(self, image: Image) -> int:
        """The number that a picture carries, whatever its size."""
        columns = np.array_split(image[:, :, 0].mean(axis=0), 8)
        return int("".join("1" if column.mean() > 127 else "0" for column in columns), 2)

    def video(
        self,
        path: Path,
        ticks: Sequence[int],
        *,
        codec: str = "libx264",
        rate: int = 25,
        time_base: Fraction = Fraction(1, 1000),
        picture: Callable[[int], Image] | None = None,
        options: dict[str, str] | None = None,
        sound_seconds: float = 0.0,
        form: str | None = None,
        aspect: Fraction | None = None,
    ) -> Path:
        """A file with one frame at each of `ticks` (of `time_base`), with a tone where seconds are asked."""
        draw = picture or self.picture
        with av.open(str(path), "w", format=form) as container:
            stream: Any = container.add_stream(codec, rate=rate)
            first = draw(0)
            stream.height, stream.width = first.shape[:2]
            stream.pix_fmt = "yuv420p"
            stream.codec_context.time_base = time_base
            if aspect is not None:
                stream.codec_context.sample_aspect_ratio = aspect
            stream.options = options or {}
            audio: Any = container.add_stream("aac", rate=16000) if sound_seconds else None
            if audio is not None:
                self._tone(container, audio, sound_seconds)
            for number, tick in enumerate(ticks):
                frame = av.VideoFrame.from_ndarray(draw(number), format="rgb24")
                frame.pts, frame.time_base = tick, time_base
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        return path

    def sound(self, path: Path, seconds: float, codec: str = "pcm_s16le", volume: float = 0.3) -> Path:
        with av.open(str(path), "w") as container:
            self._tone(container, container.add_stream(codec, rate=16000), seconds, volume)
        return path

    def _tone(self, container: Any, stream: Any, seconds: float, volume: float = 0.3) -> None:
        wave = (np.sin(np.arange(int(seconds * 16000)) / 16000 * 440 * 2 * np.pi) * volume * 32767).astype(
            np.int16
        )
        for start in range(0, len(wave), 1024):
            block = wave[None, start : start + 1024]
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(block), format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 16000, start, Fraction(1, 16000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))

    def turn(self, path: Path, a: int, b: int, c: int, d: int) -> Path:
        """Write a display matrix into the first track of an MP4."""
        data = bytearray(path.read_bytes())
        place = data.index(b"tkhd") + 4 + 40
        one = 1 << 16
        data[place : place + 36] = struct.pack(">9i", a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30)
        path.write_bytes(data)
        return path


@pytest.fixture(scope="session")
def studio() -> Studio:
    return Studio()


@pytest.fixture(scope="session")
def real_video(shared_data: Path) -> Path:
    """The folder of real recordings."""
    return shared_data / "real_video"
