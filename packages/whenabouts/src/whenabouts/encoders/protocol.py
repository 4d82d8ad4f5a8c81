"""Interfaces of encoders and of families of encoders, with their errors and checks of what is encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.lacks import MachineLack
from whenabouts.types import UsageError, WhenaboutsError

Role = Literal["text", "images", "clips", "sound", "voices"]


class EncoderUnavailable(WhenaboutsError):
    """There is no such encoder, or it cannot be used here; the message has a remedy."""


class EncoderLack(EncoderUnavailable, MachineLack):
    """The machine lacks what is needed to load an encoder."""


class EncoderOutOfMemory(WhenaboutsError):
    """Not even a single item fits into memory; the message has a remedy."""


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """How an encoder uses the machine; vectors made with other settings remain comparable.

    - `device`: "cpu", "cuda", "cuda:1", "mps", or None for the best available one.
    - `threads`: CPU threads, None for as many as this process may use.
    - `batch_size`: texts, images, clips or sounds at a time, None for the family's default.
    - `half_precision`: compute in 16 bit; None: on CUDA only.
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
    """A line of `doctor`: a family or a model, whether it works here and offline, and the remedy if not."""

    name: str
    roles: tuple[Role, ...]
    usable: bool
    detail: str


class Encoder(Protocol):
    """The facts of any encoder.

    Encoders with equal fingerprints make interchangeable vectors, as two copies of one model do.
    """

    @property
    def name(self) -> str:
        """The name that opens this encoder again."""

    @property
    def dimension(self) -> int:
        """Width D of a vector."""

    @property
    def fingerprint(self) -> str:
        """Family, model, SHA-256 of the weights, dimension, pooling, normalisation and dtype."""


class TextEncoder(Encoder, Protocol):
    """An encoder of sentences."""

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors of queries, in the order of `texts`."""


class PictureEncoder(Encoder, Protocol):
    """An encoder of pictures."""

    @property
    def image_size(self) -> int:
        """Shorter edge of the model's input in pixels; frames need not be larger."""

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """(N, D) unit vectors of RGB pictures (H, W, 3); (H, W) and (H, W, 4) are accepted too."""


class ImageEncoder(PictureEncoder, TextEncoder, Protocol):
    """An encoder of pictures and sentences in one space."""


@dataclass(frozen=True, slots=True)
class ClipSettings:
    """How a model reads video: `frames` per clip over `seconds`, a clip every `step_seconds`.

    `size` is the shorter edge of the frames in pixels, `cost_seconds` the estimated seconds to encode a clip
    on this machine. Raises UsageError for no frames, and for a step that is not above 0 or exceeds the clip.
    """

    frames: int
    seconds: float
    step_seconds: float
    size: int
    cost_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.frames < 1 or not 0 < self.step_seconds <= self.seconds:
            raise UsageError(
                f"{self.frames} frames over {self.seconds:g} s every {self.step_seconds:g} s are not clips; "
                "give 1 frame or more, and a step above 0 that is no longer than the clip"
            )

    def window_of(self, step_seconds: float) -> float:
        """The seconds of a clip for another step, with the same share of overlap."""
        return step_seconds * self.seconds / self.step_seconds


@dataclass(frozen=True, slots=True, eq=False)
class VideoClip:
    """A window of a video: RGB frames (H, W, 3) of one size in order, and their times in seconds."""

    frames: Sequence[NDArray[np.uint8]]
    times: Sequence[float]


@runtime_checkable
class ClipEncoder(Protocol):
    """An image encoder that also encodes video clips, in which the order of frames matters."""

    @property
    def clip_settings(self) -> ClipSettings:
        """The recommended clips."""

    def encode_clips(self, clips: Sequence[VideoClip]) -> NDArray[np.float32]:
        """(N, D) unit vectors, in the space of the encoder's texts and images."""


class SoundEncoder(TextEncoder, Protocol):
    """An encoder of sounds and sentences in one space."""

    @property
    def sampling_rate(self) -> int:
        """Samples a second that `encode_sounds` expects."""

    @property
    def longest_seconds(self) -> float:
        """Length in seconds to which longer sounds are truncated."""

    def encode_sounds(self, sounds: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """(N, D) unit vectors of mono samples (S,) in [-1, 1] at `sampling_rate`."""


@runtime_checkable
class PassageEncoder(Protocol):
    """A text encoder with a separate side for passages (E5, BGE)."""

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors of passages, in the order of `texts`."""


@runtime_checkable
class TokenEncoder(Protocol):
    """A text encoder that also gives the features of each word piece, for trained systems."""

    def encode_tokens(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """For each query (L, D): the last hidden state of its word pieces, special ones included.

        The rows are not normalised. Texts are truncated to the model's length and begin with the model's
        prompt for queries, if any. D may differ from the width of a sentence's vector.
        """


@runtime_checkable
class WordPieces(Protocol):
    """A token encoder that also names its tokens."""

    def word_pieces(self, texts: Sequence[str]) -> list[list[str]]:
        """For each query its word pieces, one for each row of `encode_tokens`."""


class Family(Protocol):
    """The declarations of a module that is a family of encoders.

    A family has some of these functions: `open_text(name, settings)`, `open_images(name, settings)` (pictures
    and sentences in one space, possibly a `ClipEncoder`), `open_pictures(name, settings)` (pictures alone),
    `open_sound(name, settings)` and `open_voices(name, settings)` (`video.voices.VoiceEncoder | Diarizer`).

    Of the families that recognise a name, that with the lowest `ORDER` opens it; a plugin without one has 0.
    sentence-transformers (50) takes every hub name. A name after `PREFIX:` goes to that family. `MODELS`
    (optional) are `ModelCard`s for `whenabouts models list`.
    """

    PREFIX: str
    ORDER: int

    def recognises(self, name: str) -> bool:
        """True for a name or a path that this family can open."""

    def status(self) -> EncoderStatus:
        """Whether this family works here. Fast: imports nothing heavy."""


def fingerprint(family: str, **parts: object) -> str:
    """One line of everything that determines an encoder's vectors.

    >>> fingerprint("clip", model="CLIPModel", dimension=512)
    'clip model=CLIPModel dimension=512'
    """
    return " ".join([family, *(f"{key}={value}" for key, value in parts.items())])


def token_fingerprint(encoder: TextEncoder) -> str:
    """The fingerprint of an encoder's token features."""
    return f"{encoder.fingerprint}:tokens"


def check_texts(texts: Sequence[str]) -> None:
    """Raise UsageError for a bare string, and for an item that is not a string, with its position."""
    if isinstance(texts, str):
        raise UsageError(f"texts is one string ({texts[:40]!r}); give a list of strings")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise UsageError(
                f"texts[{index}] is {text!r} ({type(text).__name__}); every text must be a string"
            )


def check_sounds(sounds: Sequence[NDArray[np.float32]]) -> None:
    """Raise UsageError, with the position, for an item that is not a row of finite floats, or is empty."""
    for index, samples in enumerate(sounds):
        array = np.asarray(samples)
        if array.ndim != 1 or not len(array) or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise UsageError(
                f"sounds[{index}] has the shape {array.shape} and the type {array.dtype}; a sound is one row "
                "of at least one sample, finite floating-point numbers in [-1, 1]"
            )


def check_clips(clips: Sequence[VideoClip]) -> None:
    """Raise UsageError for a clip without frames or with a wrong number of times, with its position."""
    for index, clip in enumerate(clips):
        if not len(clip.frames) or len(clip.frames) != len(clip.times):
            raise UsageError(
                f"clips[{index}] has {len(clip.frames)} frames and {len(clip.times)} times; a clip has at "
                "least one frame, and a time for each"
            )


def unit_length(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """(N, D) float32, each row normalised; a row of zeros stays."""
    wide = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.maximum(lengths, np.float32(1e-12)), dtype=np.float32)
