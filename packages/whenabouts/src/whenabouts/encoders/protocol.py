"""What every encoder promises, what every family of encoders declares, and how they say no."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import UsageError, WhenaboutsError

Role = Literal["text", "images", "clips", "sound", "voices"]


class EncoderUnavailable(WhenaboutsError):
    """No such encoder, or it cannot be used here; the message says what to do about it."""


class EncoderOutOfMemory(WhenaboutsError):
    """Not even one item at a time fitted into memory; the message says what to take less of."""


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """How an encoder may use the machine; nothing here changes what its vectors mean.

    `device`: "cpu", "cuda", "cuda:1", "mps", or None for the best one there is.
    `threads`: how many CPU threads, None for as many as this process may use.
    `batch_size`: texts, images, clips or sounds at a time, None for the family's own choice.
    `half_precision`: compute in 16 bit; None means on CUDA only.
    """

    device: str | None = None
    threads: int | None = None
    batch_size: int | None = None
    half_precision: bool | None = None

    def __post_init__(self) -> None:
        for name in ("threads", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name}={value!r}: give a number of at least 1, or None for the default")


@dataclass(frozen=True, slots=True)
class EncoderStatus:
    """One line of `doctor`: a family or a model, whether it works here and offline, and the remedy if not."""

    name: str
    roles: tuple[Role, ...]
    usable: bool
    detail: str


class TextEncoder(Protocol):
    """Sentences to vectors.

    `name` opens the same encoder again. `fingerprint` says what made a vector: two encoders with one
    fingerprint make interchangeable vectors; it is equal for two copies of one model.
    """

    @property
    def name(self) -> str:
        """What to give to the function that opened this encoder to have it again."""

    @property
    def dimension(self) -> int:
        """Width D of a vector."""

    @property
    def fingerprint(self) -> str:
        """Family, model, SHA-256 of the weights, dimension, pooling, normalisation and dtype."""

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) vectors of unit length, in the order of `texts`; what a query is encoded with."""


class PictureEncoder(Protocol):
    """Pictures to vectors; `name` and `fingerprint` as those of a text encoder."""

    @property
    def name(self) -> str:
        """What to give to `open_picture_encoder` or `open_image_encoder` to have this encoder again."""

    @property
    def dimension(self) -> int:
        """Width D of a vector."""

    @property
    def fingerprint(self) -> str:
        """What made a vector: two encoders with one fingerprint make interchangeable vectors."""

    @property
    def image_size(self) -> int:
        """Pixels of the shorter edge that the model looks at; larger frames are a waste."""

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """(N, D) vectors of unit length of RGB pictures (H, W, 3); (H, W) and (H, W, 4) are taken too."""


class ImageEncoder(PictureEncoder, TextEncoder, Protocol):
    """Pictures and sentences to vectors of one space."""


@dataclass(frozen=True, slots=True)
class ClipSettings:
    """How a model watches video: `frames` a clip over `seconds`, a clip every `step_seconds`.

    `size` is the shorter edge of the frames in pixels, `cost_seconds` about what a clip takes here, for
    estimates. Raises UsageError for what is no window.
    """

    frames: int
    seconds: float
    step_seconds: float
    size: int
    cost_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.frames < 1 or not 0 < self.step_seconds <= self.seconds:
            raise UsageError(
                f"{self.frames} frames over {self.seconds:g} s every {self.step_seconds:g} s are no clips; "
                "give 1 frame or more, and a step above 0 that is no longer than the clip"
            )

    def window_of(self, step_seconds: float) -> float:
        """The seconds of a clip where there is one every `step_seconds`: they overlap as much as here."""
        return step_seconds * self.seconds / self.step_seconds


@dataclass(frozen=True, slots=True, eq=False)
class VideoClip:
    """A window of a video: RGB frames (H, W, 3) of one size in order, and when each is shown, in seconds."""

    frames: Sequence[NDArray[np.uint8]]
    times: Sequence[float]


@runtime_checkable
class ClipEncoder(Protocol):
    """An image encoder that also watches clips as video: in which order frames come counts."""

    @property
    def clip_settings(self) -> ClipSettings:
        """How long and how closely it should watch."""

    def encode_clips(self, clips: Sequence[VideoClip]) -> NDArray[np.float32]:
        """(N, D) vectors of unit length, in the space of its texts and images."""


class SoundEncoder(TextEncoder, Protocol):
    """Sounds and sentences to vectors of one space."""

    @property
    def sampling_rate(self) -> int:
        """Samples a second of what it hears."""

    @property
    def longest_seconds(self) -> float:
        """The most that it hears at once; what is longer is cut there."""

    def encode_sounds(self, sounds: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """(N, D) vectors of unit length of mono samples (S,) in [-1, 1] at `sampling_rate`."""


@runtime_checkable
class PassageEncoder(Protocol):
    """A text encoder that reads what is searched otherwise than the query (E5, BGE)."""

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) vectors of unit length, in the order of `texts`; what a corpus is encoded with."""


@runtime_checkable
class TokenEncoder(Protocol):
    """A text encoder that also gives the features of each word piece, which trained systems read."""

    def encode_tokens(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """For each query (L, D): the last hidden state of its word pieces, special ones included.

        They are not of unit length. A text beyond the model's length is cut there; the model's prompt for
        queries, where it has one, is part of the text. D may differ from the width of a sentence's vector.
        """


@runtime_checkable
class WordPieces(Protocol):
    """A token encoder that also names each of its tokens."""

    def word_pieces(self, texts: Sequence[str]) -> list[list[str]]:
        """For each query the word pieces that `encode_tokens` has rows for, in their order."""


class Family(Protocol):
    """What a module of this folder has to declare to be a family of encoders.

    `open_text(name, settings)`, `open_images(name, settings)` (pictures and sentences in one space),
    `open_pictures(name, settings)` (pictures alone), `open_sound(name, settings)` and
    `open_voices(name, settings)` (a `video.voices.VoiceEncoder`) are optional: a family opens what it has
    functions for. What `open_images` opens may be a `ClipEncoder` as well. `ORDER` decides which one opens a
    name that two recognise; a name that starts with `PREFIX:` goes to that family, without the prefix.
    `MODELS`, which may be missing, are `ModelCard`s for `whenabouts models list`.
    """

    PREFIX: str
    ORDER: int

    def recognises(self, name: str) -> bool:
        """True for a name or a path that this family can open."""

    def status(self) -> EncoderStatus:
        """Whether this family works here. Fast: imports nothing heavy."""


def fingerprint(family: str, **parts: object) -> str:
    """One stable line out of what decides about the vectors.

    >>> fingerprint("clip", model="CLIPModel", dimension=512)
    'clip model=CLIPModel dimension=512'
    """
    return " ".join([family, *(f"{key}={value}" for key, value in parts.items())])


def token_fingerprint(encoder: TextEncoder) -> str:
    """What made an encoder's token features: the encoder's own fingerprint, marked as tokens."""
    return f"{encoder.fingerprint}:tokens"


def check_texts(texts: Sequence[str]) -> None:
    """Raise UsageError for one bare string, and for what is not a string, naming where it stands."""
    if isinstance(texts, str):
        raise UsageError(f"texts is one string ({texts[:40]!r}); give a list of strings")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise UsageError(
                f"texts[{place}] is {text!r} ({type(text).__name__}); every text must be a string"
            )


def check_sounds(sounds: Sequence[NDArray[np.float32]]) -> None:
    """Raise UsageError, naming where it stands, for what is no sound."""
    for place, samples in enumerate(sounds):
        array = np.asarray(samples)
        if array.ndim != 1 or not len(array) or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise UsageError(
                f"sounds[{place}] is {array.shape} of {array.dtype}; a sound is a row of finite samples in "
                "[-1, 1]"
            )


def check_clips(clips: Sequence[VideoClip]) -> None:
    """Raise UsageError, naming where it stands, for a clip without frames or with a time too few."""
    for place, clip in enumerate(clips):
        if not len(clip.frames) or len(clip.frames) != len(clip.times):
            raise UsageError(
                f"clips[{place}] has {len(clip.frames)} frames and {len(clip.times)} times; a clip has at "
                "least one frame, and a time for each"
            )


def unit_length(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """(N, D) float32, each row divided by its length; a row of zeros stays as it is."""
    wide = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.maximum(lengths, np.float32(1e-12)), dtype=np.float32)
