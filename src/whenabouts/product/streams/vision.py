"""Pictures: one frame in each clip, encoded by a CLIP or SigLIP model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
    import numpy as np
    from numpy.typing import NDArray

    from whenabouts.encoders.protocol import ImageEncoder
    from whenabouts.product.index.reading import FrameBatch, ReadVideo, SoundBatch
    from whenabouts.product.index.records import ClipColumns

DEFAULT_CLIP_SECONDS = 1.0
# Measured on two cores (benchmarks/encoders.py).
_FRAMES_PER_SECOND = 12.0
_BYTES_PER_FRAME = 1300.0
# Of a file that ends before its last frame, by what it says itself, that frame lasts so long.
_SHORTEST_CLIP = 0.01


class Vision(Stream):
    """What is seen, a frame a clip."""

    name = "vision"
    title = "pictures"
    order = 10
    encoder_kind = "images"
    has_words = False
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
        from whenabouts.product.index.records import StreamInfo

        seconds = self._clip_seconds(setup)
        if (encoder := self._encoder(setup)) is None:
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

    def _clip_seconds(self, setup: Setup) -> float:
        """The length of a clip: of a corpus that has some, else as it was given."""
        from whenabouts.product.index.records import EncoderMismatch
        from whenabouts.types import UsageError

        given = setup.options.get("clip_seconds")
        if given is not None and not 0.04 <= given <= 600:
            raise UsageError(f"clip seconds {given!r}: give a length between 0.04 and 600 seconds")
        if setup.info is None:
            return DEFAULT_CLIP_SECONDS if given is None else float(given)
        settled = float(setup.info.settings["clip_seconds"])
        if given is not None and given != settled:
            raise EncoderMismatch(
                f"{setup.place}: pictures were taken every {settled:g} s, not every {given:g} s; "
                "leave --clip-seconds out, or index into a new corpus"
            )
        return settled

    def _encoder(self, setup: Setup) -> ImageEncoder | None:
        """The encoder that was named or the corpus's own; None, with a note on what to do, without one."""
        from whenabouts.encoders import open_image_encoder

        choice, info = setup.options.get("vision"), setup.info
        encoder: ImageEncoder
        if choice is not None:
            opened = open_image_encoder(choice) if isinstance(choice, str) else choice
            encoder = setup.encoders.adopt(opened, info)
            return encoder
        if info is not None:
            encoder = setup.encoders.encoder_of(info)  # type: ignore[assignment]
            return encoder
        setup.notes.append(
            "pictures are not searched, only words: no vision model was named. Add it now or later with "
            "--vision MODEL (such as openai/clip-vit-base-patch32, or a folder with its files); "
            "words that are indexed stay as they are"
        )
        return None

    def encode(
        self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]
    ) -> tuple[tuple[int, ...], NDArray[np.float32]]:
        """Numbers of the clips, and their vectors (N, D)."""
        from whenabouts.product.index.reading import FrameBatch

        assert isinstance(batch, FrameBatch)
        return batch.clips, run.encoder.encode_images(batch.images)

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        """One row a clip; where no new frame is shown, the picture is still the one before."""
        import numpy as np

        from whenabouts.clips import ClipGrid
        from whenabouts.product.index.records import ClipColumns

        if not batches:
            return ClipColumns(np.zeros(0), np.zeros(0), [], None)
        taken = [clip for clips, _ in batches for clip in clips]
        vectors = np.concatenate([vectors for _, vectors in batches])
        seconds = float(run.info.settings["clip_seconds"])
        grid = ClipGrid(seconds, max(video.end, taken[-1] * seconds + _SHORTEST_CLIP))
        clips = np.arange(taken[0], len(grid))
        shown = np.searchsorted(np.asarray(taken), clips, side="right") - 1
        starts = grid.bounds(taken[0])[0] + seconds * np.arange(len(clips), dtype=np.float64)
        ends = np.minimum(starts + seconds, grid.bounds(len(grid) - 1)[1])
        return ClipColumns(starts, ends, [""] * len(clips), vectors[shown])


STREAM = Vision()
