"""Filters out sentences that a speech recogniser invents over music, noise and silence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from whenabouts.video.cue import Cue

_PHRASES = "thankyou thankyouverymuch thankyouforwatching thanksforwatching pleasesubscribe bye you"
STOCK_PHRASES = frozenset(_PHRASES.split())
"""Frequent hallucinations of Whisper (https://arxiv.org/abs/2501.11378), as `_letters` returns them."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Thresholds for recognised words (measured by benchmarks/speech.py).

    - `voice`: recognise only where the voice detector silero finds speech.
    - A segment is dropped if its `avg_logprob` is below `log_probability`, or its `compression_ratio`
      (repetitive text) above `compression`.
    - A window is the sound that the model reads at once. If the mean probability of its words is below
      `window`, all its segments are dropped. If it is below `stock`, its stock phrases are dropped, and its
      segments whose `no_speech_prob` is above `no_speech`; that alone was 0.8 for clear speech behind music.
    - A sentence is dropped if its words' mean probability is below `confidence`.
    - Of `repeats` or more sentences in a row with equal letters and digits, only the first is kept.
    """

    voice: bool = True
    no_speech: float = 0.6
    log_probability: float = -1.0
    compression: float = 2.4
    window: float = 0.55
    stock: float = 0.75
    confidence: float = 0.2
    repeats: int = 3

    def segments(self, segments: Iterable[Any], dropped: list[str]) -> Iterator[Any]:
        """The credible segments of `faster_whisper`; texts of the others are added to `dropped`."""
        for _, segments_of_window in groupby(segments, key=lambda segment: segment.seek):
            in_window = list(segments_of_window)
            mean = _mean_probability(in_window)
            for segment in in_window:
                is_stock = _letters(segment.text) in STOCK_PHRASES
                if (
                    segment.avg_logprob < self.log_probability
                    or segment.compression_ratio > self.compression
                    or mean < self.window
                    or (mean < self.stock and (is_stock or segment.no_speech_prob > self.no_speech))
                ):
                    dropped.append(segment.text.strip())
                else:
                    yield segment

    def cues(self, cues: Iterable[Cue], dropped: list[str]) -> Iterator[Cue]:
        """The credible sentences, in order; texts of the others are added to `dropped`."""
        for _, run in groupby(cues, key=lambda cue: _letters(cue.text)):
            same = list(run)
            if len(same) >= self.repeats:
                dropped += [cue.text for cue in same[1:]]
                same = same[:1]
            for cue in same:
                if cue.confidence is not None and cue.confidence < self.confidence:
                    dropped.append(cue.text)
                else:
                    yield cue


UNGUARDED = Guard(False, 1.0, -math.inf, math.inf, 0.0, 0.0, 0.0, 1 << 30)
"""Drops nothing; for measuring the effect of the guard."""


def _mean_probability(window: Iterable[Any]) -> float:
    """Mean probability of a window's words; 1 if unknown."""
    sure = [float(word.probability) for segment in window for word in segment.words or ()]
    return sum(sure) / len(sure) if sure else 1.0


def _letters(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())
