"""What a stream says of itself: what it reads of a file, its clips, its encoder, its moments, its evidence.

Only the standard library is imported before a stream is used, so that `--help` stays quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from whenabouts.encoders.protocol import TextEncoder
    from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
    from whenabouts.index.records import ClipBlock, ClipColumns, StreamInfo, VideoRecord
    from whenabouts.moments.zero_shot import Moments
    from whenabouts.types import Evidence

    ShotBorders = Callable[[], tuple[NDArray[np.float64], NDArray[np.int64]]]
    """Where shots of a block's videos begin: seconds (B,), and the offset of each video in these (V + 1,)."""

QueryKind = Literal["text", "picture", "moment"]
"""What a query can be made of: words, a picture, a moment of the corpus."""


@dataclass(frozen=True, slots=True)
class FrameSettings:
    """Which frames a stream reads: one in each clip of `clip_seconds`, short side of `size` pixels.

    It is the one nearest to the share `at` of the clip: 0 its beginning, 0.5 its middle.
    """

    clip_seconds: float
    size: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class SoundSettings:
    """Which sound a stream reads: mono, so many samples a second."""

    rate: int = 16_000


@dataclass(frozen=True, slots=True)
class Reads:
    """What a stream reads of a file.

    `frames`: sampled in the one pass that decodes them for all streams. `sound`: mono, in pieces.
    `cues`: subtitles, or else recognised speech. What other streams wrote is `Stream.reads_clips_of`.
    """

    frames: FrameSettings | None = None
    sound: SoundSettings | None = None
    cues: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """What an hour of what a stream reads costs: processor seconds of encoding, bytes on disk. For estimates.

    `varies`: it hangs on what is said or shown, so that a plan times a sample of the files.
    """

    seconds: float = 0.0
    bytes: float = 0.0
    varies: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """Something that `index` can be given for a stream: `--FLAG` on the command line, a keyword in Python.

    Without a `metavar` it takes no value: it is given (True) or not. Of one in brackets, such as "[MODEL]",
    the value may be left out: then it is True.
    """

    flag: str
    metavar: str | None
    help: str
    type: Callable[[str], Any] = str

    @property
    def is_optional(self) -> bool:
        """Whether it may be given without a value."""
        return self.metavar is not None and self.metavar.startswith("[")

    @property
    def keyword(self) -> str:
        """Its name in Python."""
        return self.flag.lstrip("-").replace("-", "_")


class QueryEncoder(Protocol):
    """What the words of queries are encoded with. One for pictures has `encode_images` as well, or alone."""

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors."""
        ...


class Encoders(Protocol):
    """The encoders of a corpus (`encoder_registry.EncoderRegistry`)."""

    def encoder_of(self, info: StreamInfo) -> TextEncoder:
        """The encoder that a stream was made with. Raises EncoderUnavailable, EncoderMismatch."""
        ...

    def adopt(self, encoder: Any, info: StreamInfo | None) -> Any:
        """Keep an encoder; EncoderMismatch where the corpus's stream was made with another one."""
        ...


@dataclass(frozen=True, slots=True)
class Setup:
    """What a stream is made with in one index run, as far as the corpus and the user say.

    `info` is how the corpus made the stream so far, None where it has none. `options` are by keyword; one
    that was not given is missing. `notes` takes what the user should know.
    """

    place: str
    info: StreamInfo | None
    options: Mapping[str, Any]
    encoders: Encoders
    notes: list[str]


@dataclass(frozen=True, slots=True)
class StreamRun:
    """A stream as one index run makes it. `encoder` is None where clips get no vectors.

    `reader` is what the stream reads frames or sound with beside an encoder; `made_with` names that and its
    settings, so that clips are made anew where it differs.
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
        """The stream's name."""
        return self.info.name

    @property
    def fingerprint(self) -> str:
        """What its clips are made with; clips of another fingerprint are made anew."""
        return " ".join(filter(None, (self.info.fingerprint, self.made_with)))


class Stream:
    """One modality of a corpus. A file of this folder derives from it and sets `name`.

    `title` is what people call its clips: a plan says "words added". `order`: streams are made and listed
    by it. `encoder_kind` says which encoders open its vectors: of sentences, of images and sentences in one
    space, of pictures alone. `has_words`: its clips have text that
    full-text search looks at; None: as its clips show. `transcript`: that text is what is said in the
    video. `parts_of_words`: words of it are also found by parts of them (its `StreamInfo.settings` say so
    too). `meets`: the kinds of query that its clips can be compared with; "text" by words or by an encoder
    of sentences, "picture" by an encoder of images, "moment" by the vectors of the clips themselves.
    `reads_clips_of`: names of streams whose clips it reads. `filter_key`: the text of its clips is a label
    that says who is there, and a condition KEY=NAME narrows a search to their times. `is_personal`: its
    vectors tell people apart, so what is taken out leaves the disk at once. `remedy` says how to get it,
    `unsearched_for` (" for …") what is not searched for without it where others look at the same, `absent`
    why a moment may have none of its clips, `letters_only` what to do where its clips have words and no
    vectors.

    As it stands, it serves a stream that is not installed here: nothing can be indexed, all can be searched.
    """

    name: str = ""
    title: ClassVar[str] = "clips"
    order: ClassVar[int] = 100
    encoder_kind: ClassVar[Literal["text", "images", "pictures", "sound"]] = "text"
    has_words: ClassVar[bool | None] = None
    transcript: ClassVar[bool] = False
    parts_of_words: ClassVar[bool] = False
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
        """Whether it has clips of a video: it is finished there, and a video without words has no words."""
        return self.name in record.streams and (bool(record.words) or not self.transcript)

    def could_hold(self, record: VideoRecord) -> bool:
        """Whether a video surely has what the stream reads, so that a search without it leaves that out."""
        return "picture" in self.meets and record.has_picture

    # Into the corpus -----------------------------------------------------------------------------

    def setup(self, setup: Setup) -> StreamRun | None:
        """What an index run makes this stream with, its encoder opened; None where it is not made.

        Raises EncoderUnavailable, EncoderMismatch, UsageError before anything is read: what the user named
        stops the run then, and of what the corpus has by itself this stream alone is left out.
        """
        return None

    def encode(self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]) -> Any:
        """What is kept of some frames or a piece of sound until the file is read: vectors, not pixels.

        `kept` is what was kept of this file's batches before, in order of time.
        """
        raise NotImplementedError(f"stream {self.name} reads frames or sound and does not say what it keeps")

    def settled(self, kept: Any) -> Any:
        """What stays of a batch once the next one is encoded: all that `encode` kept, or less."""
        return kept

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        """The clips of one video; `batches` are what `encode` kept of it, in order of time."""
        raise NotImplementedError(f"stream {self.name} does not say how its clips are made")

    # Out of the corpus ---------------------------------------------------------------------------

    def open_encoder(self, name: str) -> Any:
        """The encoder of that name or folder. Raises EncoderUnavailable."""
        from whenabouts import encoders

        opening: dict[str, Callable[[str], Any]] = {
            "text": encoders.open_text_encoder,
            "images": encoders.open_image_encoder,
            "pictures": encoders.open_picture_encoder,
            "sound": encoders.open_sound_encoder,
        }
        return opening[self.encoder_kind](name)

    def open_reader(self) -> Any:
        """What the stream reads with beside an encoder (`StreamRun.reader`); None where there is none."""
        return None

    def query_vectors(self, texts: Sequence[str], encoder: QueryEncoder) -> NDArray[np.float32]:
        """(Q, D): queries as they are compared with the clips' vectors; streams of one encoder share them."""
        return encoder.encode_text(texts)

    def picture_vector(self, picture: NDArray[np.uint8], encoder: Any) -> NDArray[np.float32]:
        """(D,): a picture (H, W, 3) as it is compared with the vectors of the clips."""
        vector: NDArray[np.float32] = encoder.encode_images([picture])[0]
        return vector

    def shows_words(self, block: ClipBlock) -> bool:
        """Whether clips of this stream have text that full-text search looks at."""
        return bool(block.text and block.text[0]) if self.has_words is None else self.has_words

    def moments(self, block: ClipBlock, scores: NDArray[np.float64], shots: ShotBorders) -> Moments:
        """Moments on the curve of each video of a block, best first; `scores` (n,) has one per clip.

        Of words at peaks: what a passage scores already counts the minute around it, and moments keep apart.
        Else on segments, snapped to shots: a frame is one glance, so moments gain by lasting.
        """
        if self.shows_words(block):
            return moments_at_peaks(block, scores)
        return moments_on_segments(block, scores, shots)

    def evidence_text(self, piece: Evidence) -> str:
        """What a person is shown as evidence: the text of the clip, else where it is."""
        from whenabouts.times import format_time

        return piece.text or " ".join(
            [*([self.evidence_label] if self.evidence_label else []), "at", format_time(piece.start)]
        )


def label_in(label: str, video_id: str) -> str:
    """A label that tells the people of one video apart, as one of the whole corpus."""
    return f"{label} ({video_id})"


def moments_at_peaks(block: ClipBlock, scores: NDArray[np.float64]) -> Moments:
    """Moments around the peaks of smooth curves, best first; a moment scores what its peak scores."""
    import numpy as np

    from whenabouts.moments.peaks import find_peaks
    from whenabouts.moments.zero_shot import Moments

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
    """Maximal segments of noisy curves, best first; borders move to shots that are close.

    No segment reaches over a stretch without clips that is longer than `max_gap_seconds`.
    """
    from whenabouts.moments.fusion import COSINE_WEIGHT
    from whenabouts.moments.zero_shot import Config, Curves, ZeroShotLocalizer, snap

    config = Config(max_gap_seconds=max_gap_seconds)
    curves = Curves(scores, block.start, block.end, block.offsets, level=0.0, spread=COSINE_WEIGHT)
    moments = ZeroShotLocalizer(config).localize(curves)
    return snap(moments, *shots(), config.snap_seconds) if len(moments) and shots else moments
