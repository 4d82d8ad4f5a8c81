"""Pictures: one frame in each clip, encoded by a CLIP or SigLIP model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from whenabouts.product.streams._frame_clips import encoded_frames, frame_clips
from whenabouts.product.streams._frame_seconds import frame_seconds
from whenabouts.product.streams._own_encoder import own_encoder
from whenabouts.product.streams.protocol import (
    Cost,
    FrameSettings,
    Option,
    Reads,
    Setup,
    Stream,
    StreamRun,
)

if TYPE_CHECKING:
    from whenabouts.product.index.reading import FrameBatch, ReadVideo, SoundBatch
    from whenabouts.product.index.records import ClipColumns
    from whenabouts.product.streams._frame_clips import EncodedFrames

DEFAULT_CLIP_SECONDS = 1.0
_NO_MODEL = (
    "pictures are not searched, only words: no vision model was named. Add it now or later with "
    "--vision MODEL (such as openai/clip-vit-base-patch32, or a folder with its files); "
    "words that are indexed stay as they are"
)
# Measured on two cores (benchmarks/encoders.py).
_FRAMES_PER_SECOND = 12.0
_BYTES_PER_FRAME = 1300.0


class Vision(Stream):
    """What is seen, a frame a clip."""

    name = "vision"
    title = "pictures"
    order = 10
    encoder_kind = "images"
    has_words = False
    meets = frozenset({"text", "picture", "moment"})
    options = (
        Option("--vision", "MODEL", "search frames with this CLIP or SigLIP model (name or folder)"),
        Option(
            "--clip-seconds",
            "S",
            "look at one frame every S seconds (default 1; fixed once the corpus has frames)",
            float,
        ),
    )
    remedy = "index with --vision MODEL for pictures"
    absent = "its pictures are not indexed"
    evidence_label = "the picture"

    def setup(self, setup: Setup) -> StreamRun | None:
        """Made where a model was named or the corpus has one that can be used."""
        from whenabouts.encoders import open_image_encoder
        from whenabouts.product.index.records import StreamInfo

        seconds = frame_seconds(
            setup,
            "--clip-seconds",
            setting="clip_seconds",
            default=DEFAULT_CLIP_SECONDS,
            least=0.04,
            done="pictures were taken",
        )
        if (encoder := own_encoder(setup, "vision", open_image_encoder)) is None:
            setup.notes.append(_NO_MODEL)
            return None
        settings = {"clip_seconds": seconds}
        frames = 3600 / seconds
        return StreamRun(
            self,
            StreamInfo(self.name, encoder.name, encoder.fingerprint, encoder.dimension, settings),
            encoder,
            Reads(frames=FrameSettings(seconds, encoder.image_size)),
            Cost(seconds=frames / _FRAMES_PER_SECOND, bytes=frames * _BYTES_PER_FRAME),
        )

    def encode(self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]) -> EncodedFrames:
        """Numbers of the clips, and their vectors (N, D)."""
        return encoded_frames(batch, run)

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        """One row a clip."""
        return frame_clips(video, batches, float(run.info.settings["clip_seconds"]))


STREAM = Vision()
