"""Opens encoders of sentences, pictures, sounds and voices by name; one module per family of models.

A family is a module of this folder with an `ORDER`, or a plugin (`protocol.Family`). A new one is a new file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from whenabouts import plugins
from whenabouts.encoders import weight_files
from whenabouts.encoders.protocol import (
    ClipEncoder,
    EncoderSettings,
    EncoderStatus,
    EncoderUnavailable,
    ImageEncoder,
    PassageEncoder,
    PictureEncoder,
    SoundEncoder,
    TextEncoder,
    TokenEncoder,
    WordPieces,
    token_fingerprint,
)
from whenabouts.intake.hub import ModelCard
from whenabouts.video.voices import Diarizer, VoiceEncoder

__all__ = [
    "DEFAULT_TEXT_ENCODER",
    "ClipEncoder",
    "EncoderSettings",
    "EncoderStatus",
    "EncoderUnavailable",
    "ImageEncoder",
    "PictureEncoder",
    "SoundEncoder",
    "TextEncoder",
    "TokenEncoder",
    "WordPieces",
    "encode_passages",
    "encode_tokens",
    "encoder_report",
    "known_models",
    "open_image_encoder",
    "open_picture_encoder",
    "open_sound_encoder",
    "open_text_encoder",
    "open_voice_encoder",
    "token_fingerprint",
]

DEFAULT_TEXT_ENCODER = "minilm"


def open_text_encoder(name: str | None = None, settings: EncoderSettings | None = None) -> TextEncoder:
    """The text encoder of that name or path; None: the offline default. Raises EncoderUnavailable."""
    return cast("TextEncoder", _open("open_text", DEFAULT_TEXT_ENCODER if name is None else name, settings))


def open_image_encoder(name: str, settings: EncoderSettings | None = None) -> ImageEncoder:
    """The picture encoder of that hub name (`owner/name@revision`), local path or `prefix:name`.

    If it also reads video clips, it is a `ClipEncoder`. Raises EncoderUnavailable.
    """
    return cast("ImageEncoder", _open("open_images", name, settings))


def open_sound_encoder(name: str, settings: EncoderSettings | None = None) -> SoundEncoder:
    """The sound encoder of that hub name, local path or `prefix:name`. Raises EncoderUnavailable."""
    return cast("SoundEncoder", _open("open_sound", name, settings))


def open_picture_encoder(name: str, settings: EncoderSettings | None = None) -> PictureEncoder:
    """The encoder of that name, of pictures without text. Raises EncoderUnavailable."""
    return cast("PictureEncoder", _open("open_pictures", name, settings))


def open_voice_encoder(name: str, settings: EncoderSettings | None = None) -> VoiceEncoder | Diarizer:
    """The voice encoder or diarizer of that hub name, ONNX file or folder. Raises EncoderUnavailable."""
    return cast("VoiceEncoder | Diarizer", _open("open_voices", name, settings))


def encode_passages(encoder: TextEncoder, texts: Sequence[str]) -> NDArray[np.float32]:
    """(N, D) unit vectors of texts to be searched; uses the encoder's passage side if there is one."""
    if isinstance(encoder, PassageEncoder):
        return encoder.encode_passages(texts)
    return encoder.encode_text(texts)


def encode_tokens(encoder: TextEncoder, texts: Sequence[str]) -> list[NDArray[np.float32]]:
    """For each query (L, D) features of its word pieces (see `TokenEncoder`).

    Raises EncoderUnavailable if the encoder encodes whole sentences only.
    """
    if not isinstance(encoder, TokenEncoder):
        raise EncoderUnavailable(
            f"{encoder.name} encodes whole sentences only, and a trained system reads word by word; give "
            f"{DEFAULT_TEXT_ENCODER}, a BERT by folder, or sentence-transformers:NAME"
        )
    return encoder.encode_tokens(texts)


def encoder_report() -> list[EncoderStatus]:
    """The status of each family, in order of precedence, for `doctor`."""
    return [_status_of(family) for family in _families()]


def _status_of(family: Any) -> EncoderStatus:
    """The status of a family; one without roles if the family cannot say it."""
    try:
        if isinstance(status := family.status(), EncoderStatus):
            return status
        fault = f"returns {status!r:.60}"
    except Exception as error:  # what a plugin does is not known
        fault = f"raises {type(error).__name__}: {error}"
    name = getattr(family, "__name__", family.PREFIX)
    return EncoderStatus(family.PREFIX, (), False, f"status() of {name} {fault}; fix or uninstall it")


def known_models() -> list[ModelCard]:
    """The models for `whenabouts models list`; others of their kinds work as well."""
    return [model for family in _families() for model in getattr(family, "MODELS", ())]


def _families() -> list[Any]:
    """The families of this folder and of plugins, in order of precedence."""
    modules = plugins.modules_declaring(__name__, "ORDER", "encoders")
    return sorted(modules, key=lambda module: getattr(module, "ORDER", 0))


def _open(way: str, name: str, settings: EncoderSettings | None) -> Any:
    """Open a name with the function `way` of the family of its prefix, or the first that recognises it."""
    if not name.strip() or not name.isprintable():
        raise EncoderUnavailable(f"{name!r} is not an encoder's name; give a name, a hub name or a folder")
    able = [family for family in _families() if hasattr(family, way)]
    prefix, _, unprefixed = name.partition(":")
    by_prefix = [(family, unprefixed) for family in able if unprefixed and prefix == family.PREFIX]
    for family, model in by_prefix or ((family, name) for family in able if family.recognises(name)):
        return getattr(family, way)(model, settings or EncoderSettings())
    is_folder = weight_files.local_folder(name) is not None
    other = "the model in this folder is of another kind" if is_folder else "no such encoder"
    raise EncoderUnavailable(
        f"{name!r}: {other}. Give a hub name (owner/name), the path of a folder that holds "
        f"a model, or one of the prefixes {', '.join(f'{family.PREFIX}:' for family in able)}"
    )
