"""The words of a video by speech recognition, with the extra `speech` (faster-whisper)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whenabouts.types import WhenaboutsError, number_of
from whenabouts.video.cue import Cue, Word
from whenabouts.video.cues import CueTrack
from whenabouts.video.files import printable
from whenabouts.video.objects import refusals
from whenabouts.video.probe import base_language
from whenabouts.video.sound import SAMPLE_RATE, SoundPiece, sound_pieces
from whenabouts.video.speech_guard import Guard
from whenabouts.video.speech_models import cause_of, load_recogniser

# A cue ends at the end of a sentence, at a pause, or at this length.
_SENTENCE_ENDS = tuple(".!?。！？…")
_CLOSING = "\"'”’»)]"
_PAUSE_SECONDS, _LONGEST_SECONDS = 1.0, 20.0
# With a lower probability the language is detected again on the next piece: the first may be music.
_SURE_OF_LANGUAGE = 0.5
# Sampling temperatures, tried in order if the text repeats itself or is unlikely.
_TEMPERATURES = (0.0, 0.2, 0.4)
_GUARD = Guard()
# A lower mean certainty of a transcript gets a note.
_DOUBTFUL = 0.6
# ISO 639-2 codes without a language: undetermined, several, uncoded, no content.
_NO_LANGUAGE = ("und", "mul", "mis", "zxx")


class SpeechFailedError(WhenaboutsError):
    """The speech of one file could not be recognised; the message names it, the cause and the remedy."""


@dataclass(frozen=True, slots=True)
class PartialTranscript:
    """The transcript of a file up to `seconds`, from which recognition can continue.

    `dropped` counts omitted sentences. `language` is None until detected; `guess` is the last uncertain
    guess.
    """

    seconds: float = 0.0
    cues: tuple[Cue, ...] = ()
    dropped: int = 0
    language: str | None = None
    guess: str = ""


def transcribe(
    path: Path,
    model: str,
    *,
    language: str | None = None,
    marked_as: str | None = None,
    guard: Guard = _GUARD,
    progress: Callable[[float], None] | None = None,
    earlier: PartialTranscript | None = None,
    keep: Callable[[PartialTranscript], None] | None = None,
    sound_track: str = "",
) -> CueTrack:
    """The spoken words of a file, one cue a sentence, with the time of each word and the certainty of each
    cue.

    - `model`: PACKAGED, a name that faster-whisper knows ("small", "large-v3"), a Hugging Face repository, or
      a folder with a converted model.
    - `language`: such as "en"; None: detected. `marked_as`: the language that the file states; a model for
      one language skips others.
    - `guard`: filters invented sentences; they are counted in the notes.
    - `progress`: called with the seconds done.
    - `keep`: called with the partial transcript after each piece but the last; `earlier`: one to continue
      from.
    - `sound_track`: its number or language (`sound_pieces`).

    Sound is read in pieces of ten minutes, so memory does not grow with the length of the file. Raises
    SpeechUnavailableError if package or weights are missing, SpeechFailedError if the model fails on this
    file (for example out of memory), MediaError for a file without sound, StoreAway if its store refuses a
    part of it.
    """
    recogniser = load_recogniser(model)
    notes: list[str] = []
    languages = recogniser.supported_languages
    if len(languages) == 1:
        other = language or marked_as
        if other is not None and base_language(other) not in (*languages, *_NO_LANGUAGE):
            notes.append(_another_language(model, languages[0], other))
            return CueTrack((), f"speech:{model}", other, tuple(notes))
        language = languages[0]
    listener = _Listener(recogniser, guard, language, earlier or PartialTranscript())
    before = refusals.count
    for number, piece in enumerate(sound_pieces(path, notes=notes, track=sound_track)):
        refusals.check(before, path)
        if listener.covers(piece):
            continue
        if number and keep is not None:
            keep(listener.until_now)
        try:
            listener.take(piece, progress or _nobody)
        except (MemoryError, RuntimeError) as error:  # CTranslate2's errors of a device
            raise SpeechFailedError(_failure(path, model, error)) from error
    refusals.check(before, path)
    notes += listener.notes()
    return CueTrack(tuple(listener.cues), f"speech:{model}", listener.language, tuple(notes))


def try_out(piece: SoundPiece, model: str) -> None:
    """Recognise a piece of sound as `transcribe` does, to measure the time."""
    recogniser = load_recogniser(model)
    languages = recogniser.supported_languages
    language = languages[0] if len(languages) == 1 else None
    _Listener(recogniser, _GUARD, language, PartialTranscript()).take(piece, _nobody)


class _Listener:
    """Recognises the pieces of a recording and collects sentences."""

    def __init__(
        self, recogniser: Any, guard: Guard, language: str | None, earlier: PartialTranscript
    ) -> None:
        self._recogniser, self._guard = recogniser, guard
        self.language = language or earlier.language
        self.cues = list(earlier.cues)
        self._dropped: list[str] = []
        self._dropped_before, self._seconds = earlier.dropped, earlier.seconds
        self._doubtful_guess = earlier.guess

    @property
    def until_now(self) -> PartialTranscript:
        dropped = self._dropped_before + len(self._dropped)
        return PartialTranscript(
            self._seconds, tuple(self.cues), dropped, self.language, self._doubtful_guess
        )

    def covers(self, piece: SoundPiece) -> bool:
        """Whether a piece was recognised before."""
        return piece.start + len(piece.samples) / SAMPLE_RATE <= self._seconds

    def take(self, piece: SoundPiece, progress: Callable[[float], None]) -> None:
        """Recognise one piece. `progress` is called with seconds of the file."""
        segments, about = self._recogniser.transcribe(
            piece.samples,
            language=self.language,
            word_timestamps=True,
            vad_filter=self._guard.voice,
            temperature=_TEMPERATURES,
            # An invented text would otherwise repeat until the end of the piece.
            condition_on_previous_text=False,
        )
        length = len(piece.samples) / SAMPLE_RATE
        kept = self._guard.segments(_reported(segments, piece.start, progress), self._dropped)
        cues = _shifted(_sentences(kept), piece.start, length)
        self.cues.extend(self._guard.cues(cues, self._dropped))
        self._seconds = piece.start + length
        progress(self._seconds)
        if self.language is None and about.duration_after_vad:
            if about.language_probability >= _SURE_OF_LANGUAGE:
                self.language, self._doubtful_guess = about.language, ""
            else:
                self._doubtful_guess = f"{about.language} at {about.language_probability:.0%}"

    def notes(self) -> list[str]:
        """Notes on the transcript for the user."""
        notes = [] if self.cues else ["no speech was recognised in its sound"]
        if dropped := self.until_now.dropped:
            count = number_of(dropped, "recognised sentence")
            other = f", or in another language than {self.language}" if self.language else ""
            notes.append(f"{count} left out: likely invented over music, noise or silence{other}")
        if self._doubtful_guess:
            notes.append(
                f"its language was not recognised for sure ({self._doubtful_guess}): its words may be wrong"
            )
        sure = mean_confidence(self.cues)
        if sure is not None and sure < _DOUBTFUL:
            notes.append(
                f"the speech model is {sure:.0%} sure of its words on average, so many will be wrong: noise, "
                f"music, or another language than {self.language or 'it knows'}? A larger model may help"
            )
        return notes


def mean_confidence(cues: Iterable[Cue]) -> float | None:
    """Mean certainty of the words of some cues, in [0, 1]; None if unknown."""
    sure = [(cue.confidence, max(1, len(cue.words))) for cue in cues if cue.confidence is not None]
    return sum(share * count for share, count in sure) / sum(n for _, n in sure) if sure else None


def _nobody(seconds: float) -> None:
    """Report nothing."""


def _reported(segments: Iterable[Any], start: float, progress: Callable[[float], None]) -> Iterator[Any]:
    """The segments; each is recognised when it is requested, and then reported."""
    for segment in segments:
        progress(start + float(segment.end))
        yield segment


def _another_language(model: str, model_language: str, language: str) -> str:
    return (
        f"its sound is marked as {language} and {model} knows {model_language} only, so its speech was not "
        "recognised; name a model for many languages, such as --transcribe small"
    )


def _failure(path: Path, model: str, error: Exception) -> str:
    if isinstance(error, MemoryError) or "memory" in str(error).lower() or "bad_alloc" in str(error):
        remedy = "it ran out of memory: name a smaller model, or close other programs"
    else:
        remedy = "try another model"
    return (
        f"{printable(path)}: its speech could not be recognised with {model} ({cause_of(error)}); {remedy}, "
        "then run with --retry"
    )


def _shifted(cues: Iterable[Cue], seconds: float, length: float) -> Iterator[Cue]:
    """Cues of a piece on the clock of the file; cues after the piece's end are dropped."""
    for cue in cues:
        if cue.start < length:
            words = tuple(Word(word.start + seconds, word.end + seconds, word.text) for word in cue.words)
            yield Cue(cue.start + seconds, min(cue.end, length) + seconds, cue.text, words, cue.confidence)


def _sentences(segments: Iterable[Any]) -> Iterator[Cue]:
    """Segments of the recogniser (with or without `words`) as one cue a sentence."""
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
    """The cue of a sentence's words; empty without text."""
    # Whisper's words carry their own spaces, and in Chinese or Japanese none.
    text = "".join(word.word for word in words).strip()
    if not text:
        return
    start, end = float(words[0].start), float(max(word.end for word in words))
    kept = tuple(Word(float(word.start), float(word.end), word.word.strip()) for word in words)
    confidence = sum(float(word.probability) for word in words) / len(words)
    yield Cue(start, max(end, start + 0.01), text, kept, confidence)
