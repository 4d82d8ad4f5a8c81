"""The stream of pictures: encodes the middle frame of each clip (CLIP, SigLIP), or each clip as video."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whenabouts.encoders import open_image_encoder
from whenabouts.encoders.protocol import ClipEncoder
from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
from whenabouts.index.records import ClipColumns, EncoderMismatch, StreamInfo
from whenabouts.index.sampling import FrameSettings
from whenabouts.index.stream import Cost, Option, Reads, Setup, Stream, StreamRun
from whenabouts.streams._choices import frame_seconds, made_by, own_encoder
from whenabouts.streams._frame_clips import encoded_frames, frame_clips
from whenabouts.streams._watched_clips import Watched, Window, watched, watched_clips
from whenabouts.types import UsageError

DEFAULT_CLIP_SECONDS = 1.0
_MIDDLE = 0.5
"""Position of a clip's frame in the clip, in [0, 1), as in released features. Older corpora, whose settings
lack the position, have the first frame."""
_MOST_FRAMES = 64
_NO_MODEL = (
    "pictures are not searched for what they show: no vision model was named. Add one now or later with "
    "--vision MODEL (such as openai/clip-vit-base-patch32, or a folder with its files); "
    "what is indexed stays as it is"
)
# Measured on two cores (benchmarks/encoders.py): frames encoded a second, bytes of a frame in the index.
_FRAMES_PER_SECOND = 12.0
_BYTES_PER_FRAME = 1300.0


class Vision(Stream):
    """Pictures, searched by text or picture: one frame per clip, or clips as video if the model can."""

    name = "vision"
    title = "pictures"
    order = 10
    encoder_kind = "images"
    has_words = False
    meets = frozenset({"text", "picture", "moment"})
    options = (
        Option(
            "--vision",
            "MODEL",
            "search what is seen with this model (name or folder): CLIP and SigLIP look at single frames, "
            "models such as Qwen3-VL-Embedding watch clips as video",
        ),
        Option(
            "--clip-seconds",
            "S",
            "look at one frame every S seconds (default 1), or watch a clip every S seconds (default: as the "
            "model says); fixed once the corpus has pictures",
            float,
        ),
        Option(
            "--clip-frames",
            "N",
            "frames a clip, for a model that watches (default: as it says; 1: single frames)",
            int,
        ),
    )
    unsearched_for = " for what they show"
    remedy = "index with --vision MODEL for pictures"
    absent = "its pictures are not indexed"
    evidence_label = "the picture"

    def setup(self, setup: Setup) -> StreamRun | None:
        encoder = own_encoder(setup, "vision", open_image_encoder)
        frames = 1 if encoder is None else _frames_a_clip(setup, encoder)
        watching = encoder.clip_settings if frames > 1 else None
        seconds = frame_seconds(
            setup,
            "--clip-seconds",
            default=watching.step_seconds if watching else DEFAULT_CLIP_SECONDS,
            least=0.04,
            done="pictures were taken",
            switch="--vision MODEL",
        )
        if encoder is None:
            if setup.options.get("clip_frames") is not None:
                raise UsageError("--clip-frames is for a model that watches; give --vision MODEL as well")
            setup.notes.append(_NO_MODEL)
            return None
        at = _MIDDLE if setup.info is None else float(setup.info.settings.get("frame_at", 0.0))
        settings: dict[str, float] = {"clip_seconds": seconds}
        reads, cost = FrameSettings(seconds, encoder.image_size, at), 1 / _FRAMES_PER_SECOND
        if watching:
            settings |= {"clip_frames": frames, "window_seconds": watching.window_of(seconds)}
            reads = FrameSettings(settings["window_seconds"] / frames, watching.size)
            cost = watching.cost_seconds * frames / watching.frames
        elif at:
            settings["frame_at"] = at
        return StreamRun(
            self,
            StreamInfo(self.name, *made_by(encoder), settings),
            encoder,
            Reads(frames=reads),
            Cost(seconds=3600 / seconds * cost, bytes=3600 / seconds * _BYTES_PER_FRAME),
            made_with=" ".join(f"{key}={value:g}" for key, value in settings.items()) if watching else "",
        )

    def encode(self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]) -> Any:
        if window := _window(run.info.settings):
            return watched(batch, window, run.encoder, kept[-1] if kept else None)
        return encoded_frames(batch, run)

    def settled(self, kept: Any) -> Any:
        return kept.settled() if isinstance(kept, Watched) else kept

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        if window := _window(run.info.settings):
            return watched_clips(video, batches, window, run.encoder)
        return frame_clips(video, batches, float(run.info.settings["clip_seconds"]))


def _window(settings: Mapping[str, Any]) -> Window | None:
    """The windows of clips by a stream's settings; None if single frames are encoded."""
    if settings.get("clip_frames", 1) == 1:
        return None
    return Window(settings["clip_seconds"], settings["window_seconds"], int(settings["clip_frames"]))


def _frames_a_clip(setup: Setup, encoder: Any) -> int:
    """Frames per clip: the corpus's, else the given number, else the model's; 1 for single frames."""
    given = setup.options.get("clip_frames")
    if given is not None and not (1 <= given <= _MOST_FRAMES and given == int(given)):
        raise UsageError(f"--clip-frames {given}: give a whole number from 1 to {_MOST_FRAMES}")
    if given is not None and given > 1 and not isinstance(encoder, ClipEncoder):
        raise UsageError(
            f"--clip-frames {given}: {encoder.name} looks at single frames; leave it out, or name a model "
            "that takes video with --vision"
        )
    if setup.info is not None:
        settled = int(setup.info.settings.get("clip_frames", 1))
        if given not in (None, settled):
            raise EncoderMismatch(
                f"{setup.place}: was indexed with {settled} frames a clip, not {given}; leave --clip-frames "
                "out, or index into a new corpus"
            )
        return settled
    default = encoder.clip_settings.frames if isinstance(encoder, ClipEncoder) else 1
    return default if given is None else int(given)


STREAM = Vision()
