"""Sentences that are said in videos: their times and words, and which clips each of them covers.

The file has a JSON object a line, `{"video_id", "sentences": [{"start", "end", "text"}, …]}`; TVR's released
subtitles (`{"vid_name", "sub": […]}`) are read as they are. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import clip_spans, span_seconds
from whenabouts.formats.json_records import Finite, Id, Text, read_records
from whenabouts.overlap import temporal_iou

_LONG_SECONDS, _CLIPS_OF_LONG = 16.0, 11
_CLIPS_A_GROUP = 5


class Sentence(msgspec.Struct, frozen=True):
    """Words that are said from `start` to `end`, seconds."""

    start: Finite
    end: Finite
    text: Text


class _Ours(msgspec.Struct):
    video_id: Id
    sentences: list[Sentence]


class _Released(msgspec.Struct):
    vid_name: Id
    sub: list[Sentence]


Transcripts = Mapping[str, Sequence[Sentence]]
"""Video id -> its sentences in the order in which they begin."""


def read_sentences(path: Path) -> dict[str, tuple[Sentence, ...]]:
    """The sentences of each video of a file, in the order in which they begin.

    Raises FormatError, naming file, line, field and value, for what is no such line, a video that comes
    twice, and a sentence that ends before it begins.
    """
    transcripts: dict[str, tuple[Sentence, ...]] = {}
    for origin, record in read_records(path, "a line for each video"):
        if "vid_name" in record:
            released = origin.convert(record, _Released)
            name, sentences = str(released.vid_name), released.sub
        else:
            ours = origin.convert(record, _Ours)
            name, sentences = str(ours.video_id), ours.sentences
        if name in transcripts:
            raise origin.error("comes twice: video", name, "each video once")
        for number, sentence in enumerate(sentences):
            if sentence.start > sentence.end:
                raise origin.at(number).error("ends before it begins:", sentence, "start <= end")
        transcripts[name] = in_order(sentences)
    return transcripts


def in_order(sentences: Iterable[Sentence]) -> tuple[Sentence, ...]:
    """Sentences in the order in which they begin; those that begin together stay as they were."""
    return tuple(sorted(sentences, key=lambda sentence: sentence.start))


def shifted(sentences: Iterable[Sentence], seconds: float) -> tuple[Sentence, ...]:
    """The same so many seconds earlier, for a stretch of a video that begins there; earlier ones are out."""
    moved = (
        Sentence(sentence.start - seconds, sentence.end - seconds, sentence.text) for sentence in sentences
    )
    return tuple(sentence for sentence in moved if sentence.end > 0)


def sentence_of_clips(sentences: Sequence[Sentence], clips: int, clip_seconds: float) -> NDArray[np.int64]:
    """(T,) the sentence that each clip of a video belongs to, -1 where nobody speaks.

    As HERO's authors make it: of the sentences that share time with a clip the one with the largest overlap,
    measured by intersection over union; the first of equals. So a sentence may be left without a clip. Of a
    last sentence of more than 16 seconds, whose end is often wrong, the first 11 clips count. A video without
    sentences is divided into groups of 5 clips, to each of which a sentence without words belongs.

    >>> said = [Sentence(0.2, 2.8, "Good morning."), Sentence(2.9, 4.0, "Hello.")]
    >>> sentence_of_clips(said, 5, 1.5).tolist()
    [0, 0, 1, -1, -1]
    """
    place = np.arange(clips)
    if not sentences:
        return np.asarray(place // _CLIPS_A_GROUP, np.int64)
    # Single precision, as theirs: ties depend on it.
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
