"""The base class of streams, and the types they use: reads of a file, costs, options, clips and moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from whenabouts import encoders
from whenabouts.encoders.protocol import TextEncoder
from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
from whenabouts.index.records import ClipBlock, ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.sampling import FrameSettings, SoundSettings
from whenabouts.moments.fusion import COSINE_WEIGHT
from whenabouts.moments.peaks import find_peaks
from whenabouts.moments.zero_shot import Config, Curves, Moments, ZeroShotLocalizer, snap
from whenabouts.times import format_time
from whenabouts.types import Evidence

ShotBorders = Callable[[], tuple[NDArray[np.float64], NDArray[np.int64]]]
"""Returns the starts of the shots of a block's videos: seconds (B,), and offsets of the videos (V + 1,)."""

QueryKind = Literal["text", "picture", "moment"]
"""The kinds of query: words, a picture, a moment of the corpus."""


@dataclass(frozen=True, slots=True)
class Reads:
    """The parts of a file that a stream reads.

    `frames` are sampled in one pass for all streams. `sound` is mono, in pieces. `cues` are subtitles, or
    else recognised speech. For clips of other streams see `Stream.reads_clips_of`.
    """

    frames: FrameSettings | None = None
    sound: SoundSettings | None = None
    cues: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds and bytes on disk for an hour of input, for estimates.

    `varies`: the cost depends on the content, so a plan times a sample of the files.
    """

    seconds: float = 0.0
    bytes: float = 0.0
    varies: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """An option of `index` for a stream: `--FLAG` on the command line, a keyword in Python.

    Without a `metavar` it is a switch (True). With one in brackets, such as "[MODEL]", the value may be left
    out, which also gives True.
    """

    flag: str
    metavar: str | None
    help: str
    type: Callable[[str], Any] = str

    @property
    def is_optional(self) -> bool:
        """Whether the value may be left out."""
        return self.metavar is not None and self.metavar.startswith("[")

    @property
    def keyword(self) -> str:
        return self.flag.lstrip("-").replace("-", "_")


class QueryEncoder(Protocol):
    """Encodes the words of queries. An encoder of pictures also has `encode_images`, or only that."""

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors."""


class Encoders(Protocol):
    """The encoders of a corpus (`encoder_registry.EncoderRegistry`)."""

    def encoder_of(self, info: StreamInfo) -> TextEncoder:
        """The encoder that made a stream. Raises EncoderUnavailable, EncoderMismatch."""

    def adopt(self, encoder: Any, info: StreamInfo | None) -> Any:
        """Register an encoder. Raises EncoderMismatch if another one made the corpus's stream."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The corpus's and the user's settings of a stream for one index run.

    `place` names the corpus. `info` describes the stream in the corpus, None for a new one. `options` holds
    the given options by keyword. `notes` collects messages for the user.
    """

    place: str
    info: StreamInfo | None
    options: Mapping[str, Any]
    encoders: Encoders
    notes: list[str]


@dataclass(frozen=True, slots=True)
class StreamRun:
    """A stream as one index run makes it. `encoder` is None if clips get no vectors.

    `reader` reads frames or sound beside an encoder. `made_with` names further settings (such as those of the
    reader), so that clips are made again if they differ.
    """

    stream: Stream
    info: StreamInfo
    encoder: Any
    reads: Reads
    cost: Cost = field(default_factory=Cost)
    reader: Any = None
    made_with: str = ""

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def fingerprint(self) -> str:
        """Identifies encoder and settings; clips with another fingerprint are made again."""
        return " ".join(filter(None, (self.info.fingerprint, self.made_with)))


class Stream:
    """One modality of a corpus. A stream's module derives from it and sets `name`.

    - `title`: display name of its clips, as in "words added". `order`: position in lists and in an index run.
    - `encoder_kind`: the kind of encoder that made its vectors: of sentences ("text"), of images and
      sentences in one space ("images"), of pictures alone ("pictures"), of sound ("sound").
    - `has_words`: its clips have text for full-text search; None: decided by the clips.
    - `transcript`: the text is what is said in the video.
    - `parts_of_words`: words are also found by parts of them (its `StreamInfo.settings` say so too).
    - `is_in_pictures`: a video with pictures that it has not read may have content for it.
    - `meets`: the kinds of query that its clips can be compared with: "text" by words or an encoder of
      sentences, "picture" by an encoder of images, "moment" by the vectors of clips.
    - `reads_clips_of`: names of streams whose clips it reads.
    - `filter_key`: the text of its clips is a person's label, and a condition KEY=NAME narrows a search to
      the person's times. `is_personal`: its vectors identify people, so removed ones leave the disk at once.
    - `remedy`: for messages, how to get the stream. `unsearched_for`: " for …", its content.
    - `absent`: why a moment may lack its clips. `letters_only`: the remedy if its clips have no vectors.

    The base class serves streams that are not installed: these can be searched, but not indexed.
    """

    name: str = ""
    title: ClassVar[str] = "clips"
    order: ClassVar[int] = 100
    encoder_kind: ClassVar[Literal["text", "images", "pictures", "sound"]] = "text"
    has_words: ClassVar[bool | None] = None
    transcript: ClassVar[bool] = False
    parts_of_words: ClassVar[bool] = False
    is_in_pictures: ClassVar[bool] = False
    meets: ClassVar[frozenset[QueryKind]] = frozenset({"text", "moment"})
    reads_clips_of: ClassVar[tuple[str, ...]] = ()
    filter_key: ClassVar[str] = ""
    is_personal: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = ()
    unsearched_for: ClassVar[str] = ""
    remedy: ClassVar[str] = "index with the options of that stream"
    absent: ClassVar[str] = "the stream has no clips there"
    letters_only: ClassVar[str] = "index again with an encoder"
    evidence_label: ClassVar[str] = ""

    def __init__(self, name: str = "") -> None:
        self.name = name or self.name

    def holds(self, record: VideoRecord) -> bool:
        """Whether the stream was made of a video; a transcript also needs words in the video."""
        return self.name in record.streams and (bool(record.words) or not self.transcript)

    def could_hold(self, record: VideoRecord) -> bool:
        """Whether a video surely has content for the stream, so that a search without it is incomplete."""
        return "picture" in self.meets and record.has_picture

    def setup(self, setup: Setup) -> StreamRun | None:
        """The stream's settings for an index run, with its encoder open; None if the run leaves it out.

        Raises EncoderUnavailable, EncoderMismatch, UsageError before anything is read. The run then stops if
        the user asked for the stream; else it leaves out only this stream.
        """
        return None

    def encode(self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]) -> Any:
        """Encode some frames or a piece of sound; the result is kept until the file is read.

        `kept` are the results for earlier batches of this file, in order of time.
        """
        raise NotImplementedError(f"stream {self.name} reads frames or sound and has no encode()")

    def settled(self, kept: Any) -> Any:
        """The part of a batch's result to keep once the next batch is encoded."""
        return kept

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        """The clips of one video; `batches` are the results of `encode`, in order of time."""
        raise NotImplementedError(f"stream {self.name} has no clips()")

    def open_encoder(self, name: str) -> Any:
        """The encoder of that name or folder. Raises EncoderUnavailable."""
        opening: dict[str, Callable[[str], Any]] = {
            "text": encoders.open_text_encoder,
            "images": encoders.open_image_encoder,
            "pictures": encoders.open_picture_encoder,
            "sound": encoders.open_sound_encoder,
        }
        return opening[self.encoder_kind](name)

    def open_reader(self) -> Any:
        """The stream's reader beside an encoder (`StreamRun.reader`), or None."""
        return None

    def query_vectors(self, texts: Sequence[str], encoder: QueryEncoder) -> NDArray[np.float32]:
        """(Q, D) query vectors to compare with the clips' vectors; streams with one encoder share them."""
        return encoder.encode_text(texts)

    def picture_vector(self, picture: NDArray[np.uint8], encoder: Any) -> NDArray[np.float32]:
        """The vector (D,) of a picture (H, W, 3) to compare with the clips' vectors."""
        vector: NDArray[np.float32] = encoder.encode_images([picture])[0]
        return vector

    def shows_words(self, block: ClipBlock) -> bool:
        """Whether clips of this stream have text for full-text search."""
        return bool(block.text and block.text[0]) if self.has_words is None else self.has_words

    def moments(self, block: ClipBlock, scores: NDArray[np.float64], shots: ShotBorders) -> Moments:
        """Moments on the curve of each video of a block, best first; `scores` (n,) has one per clip.

        Words use peaks, because the score of a passage already includes the minute around it. Other streams
        use segments snapped to shots: a single frame says little, so longer moments score more.
        """
        if self.shows_words(block):
            return moments_at_peaks(block, scores)
        return moments_on_segments(block, scores, shots)

    def evidence_text(self, piece: Evidence) -> str:
        """The evidence to show: the text of the clip, or else its time."""
        return piece.text or f"{self.evidence_label} at {format_time(piece.start)}".lstrip()


def label_in(label: str, video_id: str) -> str:
    """A label that is unique in one video, with the video's id, so that it is unique in the corpus."""
    return f"{label} ({video_id})"


def moments_at_peaks(block: ClipBlock, scores: NDArray[np.float64]) -> Moments:
    """Moments around the peaks of smooth curves, best first; a moment has the score of its peak."""
    peaks = find_peaks(scores, block.start, block.end, block.offsets)
    edges = np.stack([peaks.first, peaks.last + 1], axis=1).ravel()
    ends = np.maximum.reduceat(np.append(block.end, -np.inf), edges)[::2] if len(peaks) else np.zeros(0)
    video = np.searchsorted(block.offsets, peaks.peak, side="right") - 1
    first = block.offsets[video]
    return Moments(
        video, block.start[peaks.first], ends, scores[peaks.peak], peaks.first - first, peaks.last - first
    )


def moments_on_segments(
    block: ClipBlock,
    scores: NDArray[np.float64],
    shots: ShotBorders | None,
    *,
    max_gap_seconds: float = 30.0,
) -> Moments:
    """Maximal segments of noisy curves, best first; borders are snapped to close shots.

    No segment spans a gap without clips of more than `max_gap_seconds`.
    """
    config = Config(max_gap_seconds=max_gap_seconds)
    curves = Curves(scores, block.start, block.end, block.offsets, level=0.0, spread=COSINE_WEIGHT)
    moments = ZeroShotLocalizer(config).localize(curves)
    return snap(moments, *shots(), config.snap_seconds) if len(moments) and shots else moments
