"""What a speech recogniser invents where nobody speaks: sentences over music, noise and silence, left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from whenabouts.video.cues import Cue

STOCK_PHRASES = frozenset(
    (
        "thankyou",
        "thankyouverymuch",
        "thankyouforwatching",
        "thanksforwatching",
        "pleasesubscribe",
        "bye",
        "you",
    )
)
"""What Whisper likes to hear in nothing (https://arxiv.org/abs/2501.11378): letters alone."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What recognised words must hold against to be kept (benchmarks/speech.py measures it).

    `voice`: only stretches where silero hears a voice are recognised. A segment goes whose `no_speech_prob`
    is above `no_speech`, whose `avg_logprob` is below `log_probability`, or whose `compression_ratio` (text
    that repeats itself) is above `compression`. A window (what the model hears at a time) goes of whose words
    the recogniser is less than `window` sure on average, and below `stock` its stock phrases. A sentence goes
    of whose words it is less than `confidence` sure. Of the same sentence `repeats` times and more in a row
    the first stays.
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
        """The segments of `faster_whisper` that are credible; the texts of the others go to `dropped`."""
        for _, segments_of_window in groupby(segments, key=lambda segment: segment.seek):
            window = list(segments_of_window)
            sure = _mean_probability(window)
            for segment in window:
                if (
                    segment.no_speech_prob > self.no_speech
                    or segment.avg_logprob < self.log_probability
                    or segment.compression_ratio > self.compression
                    or sure < self.window
                    or (sure < self.stock and _letters(segment.text) in STOCK_PHRASES)
                ):
                    dropped.append(segment.text.strip())
                else:
                    yield segment

    def cues(self, cues: Iterable[Cue], dropped: list[str]) -> Iterator[Cue]:
        """The sentences that are credible, in order; the texts of the others go to `dropped`."""
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
"""Everything that the recogniser says; for measuring what the guard is worth."""


def _mean_probability(window: Iterable[Any]) -> float:
    """How sure the recogniser is of the words of a window on average; 1 where it does not say."""
    sure = [float(word.probability) for segment in window for word in segment.words or ()]
    return sum(sure) / len(sure) if sure else 1.0


def _letters(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())
