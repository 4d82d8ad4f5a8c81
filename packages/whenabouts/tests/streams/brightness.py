"""A stream of one file: how bright a frame is, as a word and as that word's vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.toy_encoders import Letters

from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
from whenabouts.index.records import ClipColumns, StreamInfo
from whenabouts.index.sampling import FrameSettings, SoundSettings
from whenabouts.index.stream import Cost, Option, Reads, Setup, Stream, StreamRun

SECONDS = 0.5
WORDS = ("black night", "dark evening", "grey morning", "bright noon", "white snow")


class Brightness(Stream):
    """Every half second, in one of five words."""

    name = "brightness"
    title = "shades"
    has_words = True
    options = (Option("--brightness", "MODEL", "search how bright frames are"),)
    remedy = "index with --brightness MODEL"
    absent = "nobody looked how bright it is"
    evidence_label = "the light"

    def open_encoder(self, name: str) -> Letters:
        return Letters()

    def setup(self, setup: Setup) -> StreamRun | None:
        if not setup.options.get("brightness") and setup.info is None:
            return None
        encoder = setup.encoders.adopt(Letters(), setup.info)
        settings = {"clip_seconds": SECONDS}
        info = StreamInfo(self.name, encoder.name, encoder.fingerprint, encoder.dimension, settings)
        return StreamRun(self, info, encoder, Reads(frames=FrameSettings(SECONDS, 16)), Cost(60.0, 1e5))

    def encode(
        self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]
    ) -> list[tuple[int, str]]:
        assert isinstance(batch, FrameBatch)
        shades = [min(int(image.mean() / 256 * len(WORDS)), 4) for image in batch.images]
        return [(clip, WORDS[shade]) for clip, shade in zip(batch.clips, shades, strict=True)]

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        clips = [clip for batch in batches for clip in batch]
        start = np.array([number * SECONDS for number, _ in clips], np.float64)
        texts = [f"{text} {number}" for number, text in clips]
        return ClipColumns(start, start + SECONDS, texts, run.encoder.encode_text(texts) if texts else None)


class Night(Stream):
    """What another stream wrote: where it is dark, without vectors."""

    name = "night"
    title = "nights"
    order = 0
    has_words = True
    reads_clips_of = ("brightness",)

    def setup(self, setup: Setup) -> StreamRun:
        return StreamRun(self, StreamInfo(self.name, "letters", "night@1", 0), None, Reads())

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        source = video.clips["brightness"]
        dark = [row for row, text in enumerate(source.text or ()) if text.startswith(("black", "dark"))]
        return ClipColumns(source.start[dark], source.end[dark], ["it is night"] * len(dark))


class Loudness(Stream):
    """What is heard: how loud each piece of sound is."""

    name = "loudness"
    title = "sound"
    has_words = True

    def setup(self, setup: Setup) -> StreamRun:
        return StreamRun(
            self, StreamInfo(self.name, "letters", "loudness@1", 0), None, Reads(sound=SoundSettings())
        )

    def encode(
        self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]
    ) -> tuple[float, float, str]:
        assert isinstance(batch, SoundBatch)
        assert not kept or batch.start == kept[-1][1], "what was kept before is handed on in order"
        loud = float(np.sqrt(np.mean(batch.samples**2)))
        return batch.start, batch.start + len(batch.samples) / 16_000, "silence" if loud < 1e-4 else "noise"

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        start, end = (np.array([batch[side] for batch in batches], np.float64) for side in (0, 1))
        return ClipColumns(start, end, [text for _, _, text in batches])
