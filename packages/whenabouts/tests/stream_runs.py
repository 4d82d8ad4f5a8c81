"""Streams as an index run makes them, without opening an encoder."""

from __future__ import annotations

from typing import Any

from whenabouts.index.records import StreamInfo
from whenabouts.index.sampling import FrameSettings
from whenabouts.index.stream import Reads, StreamRun
from whenabouts.streams import stream


def words_run(fingerprint: str = "mini@1", encoder: Any = None) -> StreamRun:
    """The run of the stream of words, encoded by `encoder` (None: without vectors)."""
    name, width = (encoder.name, encoder.dimension) if encoder else (fingerprint, 0)
    return StreamRun(
        stream("subtitle"), StreamInfo("subtitle", name, fingerprint, width), encoder, Reads(cues=True)
    )


def pictures_run(
    fingerprint: str = "clip@1", encoder: Any = None, seconds: float = 1.0, size: int = 64
) -> StreamRun:
    """The run of the stream of pictures, one picture every some seconds."""
    name, width = (encoder.name, encoder.dimension) if encoder else ("clip", 4)
    info = StreamInfo("vision", name, fingerprint, width, {"clip_seconds": seconds})
    return StreamRun(stream("vision"), info, encoder, Reads(frames=FrameSettings(seconds, size)))
