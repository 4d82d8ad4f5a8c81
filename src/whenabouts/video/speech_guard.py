"""What a speech recogniser invents where nobody speaks: sentences over music, noise and silence, left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from whenabouts.video.cues import Cue


@dataclass(frozen=True, slots=True)
class Guard:
    """What recognised words must hold against to be kept (benchmarks/speech.py measures it).

    `voice`: only stretches where silero hears a voice are recognised. A segment goes whose `no_speech_prob`
    is above `no_speech`, whose `avg_logprob` is below `log_probability`, or whose `compression_ratio` (text
    that repeats itself) is above `compression`. A sentence goes of whose words the recogniser is less than
    `confidence` sure on average. Of the same sentence `repeats` times and more in a row the first stays.
    """

    voice: bool = True
    no_speech: float = 0.6
    log_probability: float = -1.0
    compression: float = 2.4
    confidence: float = 0.2
    repeats: int = 3

    def segments(self, segments: Iterable[Any], dropped: list[str]) -> Iterator[Any]:
        """The segments of `faster_whisper` that are credible; the texts of the others go to `dropped`."""
        for segment in segments:
            if (
                segment.no_speech_prob > self.no_speech
                or segment.avg_logprob < self.log_probability
                or segment.compression_ratio > self.compression
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


UNGUARDED = Guard(False, 1.0, -math.inf, math.inf, 0.0, 1 << 30)
"""Everything that the recogniser says; for measuring what the guard is worth."""


def _letters(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())
