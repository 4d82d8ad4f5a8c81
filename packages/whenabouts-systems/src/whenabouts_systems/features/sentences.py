"""Find the sentence that each clip of a video belongs to; `formats.sentences` reads the sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import clip_spans, span_seconds
from whenabouts.overlap import temporal_iou
from whenabouts_bench.formats.sentences import Sentence

_LONG_SECONDS, _CLIPS_OF_LONG = 16.0, 11
_CLIPS_A_GROUP = 5


def shifted(sentences: Iterable[Sentence], seconds: float) -> tuple[Sentence, ...]:
    """Sentences with times relative to `seconds`, where a part of a video begins; drops earlier sentences."""
    moved = (
        Sentence(sentence.start - seconds, sentence.end - seconds, sentence.text) for sentence in sentences
    )
    return tuple(sentence for sentence in moved if sentence.end > 0)


def sentence_of_clips(sentences: Sequence[Sentence], clips: int, clip_seconds: float) -> NDArray[np.int64]:
    """(T,) the sentence that each clip of a video belongs to, -1 for clips without one.

    As HERO's authors do it: of the sentences that share time with a clip, the one with the largest
    intersection over union; of equal ones, the first. So a sentence may be left without a clip. If the last
    sentence has more than 16 seconds, its end is often wrong, so only its first 11 clips count. A video
    without sentences is divided into groups of 5 clips, each with a sentence without words.

    >>> said = [Sentence(0.2, 2.8, "Good morning."), Sentence(2.9, 4.0, "Hello.")]
    >>> sentence_of_clips(said, 5, 1.5).tolist()
    [0, 0, 1, -1, -1]
    """
    place = np.arange(clips)
    if not sentences:
        return np.asarray(place // _CLIPS_A_GROUP, np.int64)
    # Single precision, as in the authors' program: ties depend on it.
    start, end = (
        np.array([getattr(sentence, name) for sentence in sentences], np.float32) / np.float32(clip_seconds)
        for name in ("start", "end")
    )
    low, high = (border.astype(np.float32) for border in span_seconds(place, place, 1.0))
    overlap = temporal_iou(low[:, None], high[:, None], start, end, "hull")
    last = sentences[-1]
    if min(last.end, clips * clip_seconds) - last.start > _LONG_SECONDS:
        first, _ = clip_spans(last.start, last.end, clip_seconds)
        overlap[place >= first + _CLIPS_OF_LONG, -1] = 0
    best = overlap.argmax(1)
    return np.where(overlap[place, best] > 0, best, -1).astype(np.int64)
