"""Speech models of the package onnx-asr: Parakeet, Canary, GigaAM, Vosk, Whisper.

`--transcribe onnx-asr:MODEL` names a folder, a hub's repository or a model that onnx-asr knows. It runs with
ONNX Runtime; sound without a voice is left out by silero, which comes with faster-whisper.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.video.sound import SAMPLE_RATE

PREFIX = "onnx-asr:"
# These models were trained on sentences and take no longer pieces.
_LONGEST_SECONDS = 20.0
# The last word of a piece has no time at which it ends.
_LONGEST_WORD_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word as faster-whisper has it: seconds of the piece, and its probability."""

    start: float
    end: float
    word: str
    probability: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech as faster-whisper has it, for `speech_guard.Guard` and `speech._sentences`."""

    seek: int
    start: float
    end: float
    text: str
    words: list[SpokenWord] | None
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float = 0.0


@dataclass(frozen=True, slots=True)
class About:
    """What faster-whisper says of a piece. These models do not say which language they hear."""

    duration_after_vad: float = 0.0


class OnnxRecogniser:
    """A model of onnx-asr with the methods of `faster_whisper.WhisperModel` that `speech.transcribe` uses."""

    supported_languages: tuple[str, ...] = ()
    """Empty: the models do not say which languages they know."""

    def __init__(self, folder: Path) -> None:
        from onnx_asr.loader import Manager

        # A folder may hold the small variant alone.
        has_full = any(".int8." not in file.name for file in folder.glob("*.onnx"))
        model = Manager().create_asr(None, folder, offline=True, quantization=None if has_full else "int8")
        self._model: Any = model.with_timestamps()

    def transcribe(
        self, samples: NDArray[np.float32], *, language: str | None = None, vad_filter: bool = True, **_: Any
    ) -> tuple[Iterator[Segment], About]:
        """The speech in samples (N,) at 16 kHz; segments are recognised when they are asked for."""
        return self._segments(samples, language, vad_filter), About()

    def _segments(
        self, samples: NDArray[np.float32], language: str | None, vad_filter: bool
    ) -> Iterator[Segment]:
        for number, (first, last) in enumerate(_spoken(samples, vad_filter)):
            start, end = first / SAMPLE_RATE, last / SAMPLE_RATE
            result = self._model.recognize(samples[first:last], sample_rate=SAMPLE_RATE, language=language)
            if not result.text.strip():
                continue
            sure = list(result.logprobs or ())
            packed = len(zlib.compress(result.text.encode()))
            yield Segment(
                number,
                start,
                end,
                result.text,
                _words(result, start, end),
                sum(sure) / len(sure) if sure else 0.0,
                len(result.text.encode()) / packed,
            )


def _spoken(samples: NDArray[np.float32], vad_filter: bool) -> Iterator[tuple[int, int]]:
    """First and last sample of pieces of speech of at most `_LONGEST_SECONDS`."""
    if not vad_filter:
        longest = int(_LONGEST_SECONDS * SAMPLE_RATE)
        yield from ((at, min(at + longest, len(samples))) for at in range(0, len(samples), longest))
        return
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    options = VadOptions(max_speech_duration_s=_LONGEST_SECONDS)
    for part in get_speech_timestamps(samples, options, sampling_rate=SAMPLE_RATE):
        yield int(part["start"]), int(part["end"])


def _words(result: Any, start: float, end: float) -> list[SpokenWord] | None:
    """The words of a result in [start, end], from its tokens; None if these have no times.

    A token that begins with a space begins a word. A word's probability is the mean of its tokens'
    probabilities.
    """
    if not (result.timestamps and result.tokens):
        return None
    words: list[list[int]] = []
    for number, token in enumerate(result.tokens):
        if token.startswith(" ") or not words:
            words.append([])
        words[-1].append(number)
    begins = [min(start + result.timestamps[word[0]], end) for word in words]
    ends = [*begins[1:], min(end, begins[-1] + _LONGEST_WORD_SECONDS)]
    return [
        SpokenWord(
            begin, max(begin, stop), "".join(result.tokens[n] for n in word), _sure(result.logprobs, word)
        )
        for word, begin, stop in zip(words, begins, ends, strict=True)
    ]


def _sure(logprobs: Sequence[float] | None, tokens: Sequence[int]) -> float:
    if not logprobs:
        return 1.0
    return min(1.0, sum(math.exp(logprobs[token]) for token in tokens) / len(tokens))
