"""The stream of visual similarity: one frame per clip, encoded by an ImageNet network without a download.

A picture or a moment can search it, a sentence cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
from whenabouts.index.records import ClipColumns, StreamInfo
from whenabouts.index.sampling import FrameSettings
from whenabouts.index.stream import Cost, Option, Reads, Setup, Stream, StreamRun
from whenabouts.streams._choices import frame_seconds, made_by, own_encoder
from whenabouts.streams._frame_clips import EncodedFrames, encoded_frames, frame_clips

DEFAULT_SECONDS = 1.0
_NETWORK = "efficientnet-lite2"
# Measured on two cores (benchmarks/likeness.py).
_SECONDS_PER_FRAME = 0.02
_BYTES_PER_FRAME = 2700.0


class Likeness(Stream):
    """Frames that look like a picture or a moment."""

    name = "likeness"
    title = "frames"
    order = 15
    encoder_kind = "pictures"
    has_words = False
    meets = frozenset({"picture", "moment"})
    options = (
        Option("--likeness", None, "find what looks like a picture or a moment (search --like); offline"),
        Option(
            "--likeness-seconds",
            "S",
            "compare one frame every S seconds (default 1; fixed once the corpus has these)",
            float,
        ),
    )
    remedy = "index with --likeness"
    absent = "its frames are not indexed for likeness"
    evidence_label = "the picture"

    def setup(self, setup: Setup) -> StreamRun | None:
        """None if the stream is neither requested nor in the corpus; the option may be an encoder."""
        seconds = frame_seconds(
            setup,
            "--likeness-seconds",
            default=DEFAULT_SECONDS,
            least=0.04,
            done="frames were compared",
            switch="--likeness",
        )
        if (encoder := own_encoder(setup, "likeness", self.open_encoder, _NETWORK)) is None:
            return None
        frames = 3600 / seconds
        return StreamRun(
            self,
            StreamInfo(self.name, *made_by(encoder), {"clip_seconds": seconds}),
            encoder,
            Reads(frames=FrameSettings(seconds, encoder.image_size)),
            Cost(seconds=frames * _SECONDS_PER_FRAME, bytes=frames * _BYTES_PER_FRAME),
        )

    def encode(self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]) -> EncodedFrames:
        return encoded_frames(batch, run)

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        return frame_clips(video, batches, float(run.info.settings["clip_seconds"]))


STREAM = Likeness()
