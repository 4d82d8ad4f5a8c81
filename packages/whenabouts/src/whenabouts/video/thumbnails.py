"""A small picture of one instant of a video, as JPEG."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from whenabouts.types import UsageError
from whenabouts.video.frames import Frame, sample_frames
from whenabouts.video.probe import MediaError, probe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# How far before an instant to look for the last picture, if none comes after it.
_LOOK_BACK = (1.0, 10.0, 60.0)
_AT_ONCE = 1000.0
# Of the mjpeg encoder: 2 is best, 31 worst.
_QUANTIZER = 5


def thumbnail(path: Path, at: float, width: int) -> bytes:
    """The picture at or after `at` seconds, or the last one, at most `width` pixels wide.

    Raises MediaError for a file without pictures.
    """
    picture = probe(path).picture
    if picture is None:
        raise MediaError(f"{path.name}: holds no pictures")
    short = max(1, round(min(picture.width, picture.height) * min(1.0, width / picture.width)))
    frame = _frame_from(path, at, short, picture.rate or 25.0)
    if frame is None:
        raise MediaError(f"{path.name}: no picture can be read at {at:g} s")
    return encode_jpeg(frame.image)


def _frame_from(path: Path, at: float, short_side: int, frame_rate: float) -> Frame | None:
    """The first frame at or after an instant, else the last frame."""
    frame, pictures_end = _first_from(path, at, short_side)
    if frame is None and pictures_end > 0:
        frame, _ = _first_from(path, max(0.0, pictures_end - 1 / frame_rate - 5e-3), short_side)
    for back in _LOOK_BACK:
        if frame is not None:
            break
        with sample_frames(path, _AT_ONCE, size=short_side, start=max(0.0, at - back)) as reader:
            for last in reader:
                frame = last
    return frame


def _first_from(path: Path, at: float, short_side: int) -> tuple[Frame | None, float]:
    """The first frame at or after an instant or None, and the end of the pictures in seconds."""
    with sample_frames(path, _AT_ONCE, size=short_side, start=max(0.0, at - 5e-4)) as reader:
        frame = next(iter(reader), None)
        return frame, reader.last_time


def encode_jpeg(image: NDArray[np.uint8]) -> bytes:
    """An RGB picture (height, width, 3) as JPEG."""
    import av
    from av.codec import CodecContext
    from av.video.reformatter import ColorRange

    if image.ndim != 3 or image.shape[2] != 3:
        raise UsageError(f"a picture has shape {image.shape}; (height, width, 3) is needed")
    height, width = image.shape[:2]
    # FFmpeg's JPEG subsamples colours over 2 x 2 pixels.
    even = image[: max(2, height // 2 * 2), : max(2, width // 2 * 2)]
    frame = av.VideoFrame.from_ndarray(even, format="rgb24").reformat(
        format="yuvj420p", dst_color_range=ColorRange.JPEG
    )
    encoder = CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height = frame.width, frame.height
    encoder.pix_fmt, encoder.time_base = "yuvj420p", Fraction(1, 25)
    encoder.options = {"qmin": str(_QUANTIZER), "qmax": str(_QUANTIZER)}
    frame.pts = 0
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
