"""The words of a video by speech recognition, where the extra `speech` (faster-whisper) is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from whenabouts.types import WhenaboutsError
from whenabouts.video.cues import Cue, CueTrack, Word
from whenabouts.video.sound import SAMPLE_RATE, sound_pieces

# A cue ends at the end of a sentence, at a pause, or when it grows longer than a subtitle would.
_SENTENCE_ENDS = tuple(".!?。！？…")
_CLOSING = "\"'”’»)]"
_PAUSE_SECONDS, _LONGEST_SECONDS = 1.0, 20.0
# A guess at the language below this is asked again on the next piece: the first may be music.
_SURE_OF_LANGUAGE = 0.5


class SpeechUnavailableError(WhenaboutsError):
    """Speech recognition cannot run here; the message says what is missing and how to get it."""


def transcribe(path: Path, model: str, *, language: str | None = None) -> CueTrack:
    """The spoken words of a file, one cue a sentence, each word with its time where the model gives it.

    `model` is a name that faster-whisper knows ("small", "large-v3"), a Hugging Face repository, or a
    folder with a converted model. `language` (such as "en") is detected if None. Sound is read in pieces
    of ten minutes: memory does not grow with the length of the file. Silence is left out beforehand.
    Raises SpeechUnavailableError if package or weights are missing, MediaError for a file without sound.
    """
    recogniser = _recogniser(model)
    cues: list[Cue] = []
    guess = language
    for piece in sound_pieces(path):
        segments, about = recogniser.transcribe(
            piece.samples, language=guess, word_timestamps=True, vad_filter=True
        )
        cues.extend(_shifted(_sentences(segments), piece.start, len(piece.samples) / SAMPLE_RATE))
        if guess is None and about.language_probability >= _SURE_OF_LANGUAGE:
            guess = about.language
    notes = () if cues else ("no speech was heard",)
    return CueTrack(tuple(cues), f"speech:{model}", guess, notes)


def check_available(model: str) -> None:
    """Load the model, so that what is missing is told before a run. Raises SpeechUnavailableError."""
    _recogniser(model)


def why_unavailable(model: str | None = None) -> str | None:
    """Why speech recognition (with this model, if one is named) cannot run here, or None if it can.

    Looks without importing or downloading; for reports such as `doctor`.
    """
    if importlib.util.find_spec("faster_whisper") is None:
        return "speech recognition is not installed; `pip install 'whenabouts[speech]'`"
    if model is not None and Path(model).is_dir() and not (Path(model) / "model.bin").is_file():
        return (
            f"{model}: no converted Whisper model in this folder (model.bin is missing); convert one with "
            f"`ct2-transformers-converter --model NAME --output_dir FOLDER --copy_files tokenizer.json "
            "preprocessor_config.json`"
        )
    return None


@lru_cache(maxsize=1)
def _recogniser(model: str) -> Any:
    """The model, loaded once for many files."""
    if (reason := why_unavailable(model)) is not None:
        raise SpeechUnavailableError(reason)
    from faster_whisper import WhisperModel

    try:
        # "auto" takes int8 on a CPU and float16 on a GPU, whatever the weights are stored in.
        return WhisperModel(model, compute_type="auto")
    except Exception as error:  # the hub, the network and CTranslate2 each raise their own kinds
        raise SpeechUnavailableError(_cannot_load(model, error)) from error


def _cannot_load(model: str, error: Exception) -> str:
    cause = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if isinstance(error, ValueError) and "model size" in str(error):
        names = str(error).partition("expected one of: ")[2]
        return (
            f"there is no speech model {model!r}; name a folder, a Hugging Face repository or one of {names}"
        )
    if Path(model).is_dir():
        return (
            f"{model}: the speech model in this folder cannot be loaded ({cause}); convert or copy it again"
        )
    return (
        f"speech model {model!r} is not on this machine and could not be downloaded ({cause}); connect to "
        "the network once, or give the path of a folder with a converted model, such as a copy of "
        "Systran/faster-whisper-small"
    )


def _shifted(cues: Iterable[Cue], seconds: float, length: float) -> Iterator[Cue]:
    """Cues of a piece on the clock of the file; what a model heard behind the piece's end is left out."""
    for cue in cues:
        if cue.start < length:
            words = tuple(Word(word.start + seconds, word.end + seconds, word.text) for word in cue.words)
            yield Cue(cue.start + seconds, min(cue.end, length) + seconds, cue.text, words)


def _sentences(segments: Iterable[Any]) -> Iterator[Cue]:
    """Segments of the recogniser (with `words` or without) as one cue a sentence."""
    open_words: list[Any] = []
    for segment in segments:
        if not segment.words:
            yield from _cue_of(open_words)
            open_words = []
            if segment.text.strip() and segment.end > segment.start:
                yield Cue(float(segment.start), float(segment.end), segment.text.strip())
            continue
        for word in segment.words:
            if open_words and (
                word.start - open_words[-1].end > _PAUSE_SECONDS
                or word.end - open_words[0].start > _LONGEST_SECONDS
            ):
                yield from _cue_of(open_words)
                open_words = []
            open_words.append(word)
            if word.word.strip().rstrip(_CLOSING).endswith(_SENTENCE_ENDS):
                yield from _cue_of(open_words)
                open_words = []
    yield from _cue_of(open_words)


def _cue_of(words: list[Any]) -> Iterator[Cue]:
    """One cue of the words of a sentence; none if there is nothing in it to read."""
    # Whisper's words carry their own spaces, and in Chinese or Japanese none.
    text = "".join(word.word for word in words).strip()
    if not text:
        return
    start, end = float(words[0].start), float(max(word.end for word in words))
    kept = tuple(Word(float(word.start), float(word.end), word.word.strip()) for word in words)
    yield Cue(start, max(end, start + 0.01), text, kept)
