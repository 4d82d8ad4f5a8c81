"""The stream of text on the screen.

Reads the frames whose picture changed, and joins their lines into texts, each with a time range and a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import ClipGrid
from whenabouts.encoders import encode_passages
from whenabouts.encoders.protocol import EncoderUnavailable, unit_length
from whenabouts.index.lookup import search_words
from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
from whenabouts.index.records import ClipBlock, ClipColumns, StreamInfo
from whenabouts.index.sampling import FrameSettings
from whenabouts.index.stream import Cost, Option, Reads, Setup, ShotBorders, Stream, StreamRun
from whenabouts.index.workers import available_cores
from whenabouts.moments.zero_shot import Moments
from whenabouts.overlap import suppress
from whenabouts.streams._choices import frame_seconds, made_by, text_encoder
from whenabouts.streams._frame_clips import SHORTEST_SECONDS
from whenabouts.streams._picture_changes import Strip, cell_means, changed_strip
from whenabouts.streams._screen_lines import Reading, ScreenText, screen_texts
from whenabouts.types import Evidence
from whenabouts.video.text_reader import TextLine, TextReader, TextReaderUnavailableError

DEFAULT_SECONDS = 2.0
"""Seconds between frames. Most captions are shown for at least two seconds, so few are missed."""

_FRAME_SIZE = 720
# Measured on one core (benchmarks/screen_text.py): most films take 320 to 520 s an hour.
_SECONDS_PER_FRAME = 0.25
_BYTES_PER_HOUR = 2e6
# Most moments of a query, over all videos.
_MOST_MOMENTS = 60
# A text is suppressed if it overlaps a better one by more than this IoU.
_SAME_TIME = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """The state after a batch.

    `read`: the frames read in it, each with its picture's lines. `lines`: those at its end. `last`: the
    number of its last frame. `cells`: the means of the picture's cells, for the next comparison.
    """

    read: tuple[tuple[int, tuple[TextLine, ...]], ...]
    lines: tuple[TextLine, ...]
    last: int
    cells: NDArray[np.float32]


class ScreenTextStream(Stream):
    """Text in the picture: slides, captions, signs."""

    name = "screen_text"
    title = "texts on the screen"
    order = 20
    has_words = True
    parts_of_words = True
    is_in_pictures = True
    options = (
        Option("--screen-text", None, "read the text on the screen: slides, captions, signs"),
        Option(
            "--screen-seconds",
            "S",
            "look for text every S seconds (default 2; fixed once the corpus has texts)",
            float,
        ),
    )
    remedy = "index with --screen-text"
    absent = "no text was read on the screen there"
    letters_only = "install one of the text encoders that this report names, and index again"
    evidence_label = "on the screen"

    def setup(self, setup: Setup) -> StreamRun | None:
        seconds = frame_seconds(
            setup,
            "--screen-seconds",
            setting="frame_seconds",
            default=DEFAULT_SECONDS,
            least=0.1,
            done="text on the screen is looked for",
            switch="--screen-text",
        )
        if setup.info is None and not setup.options.get("screen_text"):
            return None
        reader = self.open_reader()
        encoder = text_encoder(setup, self.title)
        settings = {"frame_seconds": seconds, "parts_of_words": self.parts_of_words}
        return StreamRun(
            self,
            StreamInfo(self.name, *made_by(encoder), settings),
            encoder,
            Reads(frames=FrameSettings(seconds, _FRAME_SIZE)),
            Cost(seconds=3600 / seconds * _SECONDS_PER_FRAME, bytes=_BYTES_PER_HOUR, varies=True),
            reader=reader,
            made_with=f"{reader.fingerprint} every={seconds:g} s",
        )

    def open_reader(self) -> TextReader:
        """The reader of text in pictures. Raises EncoderUnavailable."""
        try:
            return TextReader(available_cores())
        except TextReaderUnavailableError as error:
            raise EncoderUnavailable(str(error)) from error

    def encode(self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]) -> _Kept:
        """Read the frames that changed. The last of `kept` is the state before this batch."""
        assert isinstance(batch, FrameBatch)
        cells = kept[-1].cells if kept else None
        lines: tuple[TextLine, ...] = kept[-1].lines if kept else ()
        changed: list[tuple[int, Strip]] = []
        for place, image in enumerate(batch.images):
            now = cell_means(image)
            if (strip := changed_strip(cells, now)) is not None:
                changed.append((place, strip))
                cells = strip.renewed_cells(cells, now)
        assert cells is not None
        read = run.reader.read([strip.of(batch.images[place]) for place, strip in changed])
        frames = []
        for (place, strip), seen in zip(changed, read, strict=True):
            lines = strip.renewed_lines(lines, seen)
            frames.append((batch.clips[place], lines))
        return _Kept(tuple(frames), lines, batch.clips[-1], cells)

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        """A clip per text, from half of `frame_seconds` before its first frame to half after its last."""
        seconds = float(run.info.settings["frame_seconds"])
        read = [frame for batch in batches for frame in batch.read]
        if not read:
            return ClipColumns(np.zeros(0), np.zeros(0), [], None)
        end = max(video.end, batches[-1].last * seconds + SHORTEST_SECONDS)
        until = [number for number, _ in read[1:]] + [len(ClipGrid(seconds, end))]
        readings = [
            Reading(at, following - 1, lines) for (at, lines), following in zip(read, until, strict=True)
        ]
        texts = screen_texts(readings)
        start = np.array([text.first * seconds for text in texts], np.float64)
        last = np.array([text.last * seconds for text in texts], np.float64)
        return ClipColumns(
            np.maximum(start - seconds / 2, 0.0),
            np.minimum(last + seconds / 2, end),
            [text.text for text in texts],
            None if run.encoder is None else _vectors(texts, run.encoder),
            # A text's own words count twice, so that it ranks before the texts seen together with it.
            [search_words(f"{text.text}\n{text.text}\n{text.others}\n{text.around}") for text in texts],
            np.array([text.box for text in texts], np.float32).reshape(-1, 4),
            np.array([text.sure for text in texts], np.float32),
        )

    def evidence_text(self, piece: Evidence) -> str:
        return super().evidence_text(piece).replace("\n", " / ")

    def moments(self, block: ClipBlock, scores: NDArray[np.float64], shots: ShotBorders) -> Moments:
        """Each text is a moment, because its start and end are known."""
        video = np.repeat(np.arange(len(block.video_ids)), np.diff(block.offsets))
        best = suppress(video, block.start, block.end, scores, _SAME_TIME)[:_MOST_MOMENTS]
        clip = best - block.offsets[video[best]]
        return Moments(video[best], block.start[best], block.end[best], scores[best], clip, clip)


def _vectors(texts: Sequence[ScreenText], encoder: Any) -> NDArray[np.float32]:
    """(N, D): for each text, the normalised sum of the vectors of it alone and with the texts around it."""
    alone = encode_passages(encoder, [text.text for text in texts])
    summed = alone + encode_passages(encoder, [f"{text.text}\n{text.around}".strip() for text in texts])
    return unit_length(summed)


STREAM = ScreenTextStream()
