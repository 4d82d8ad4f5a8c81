"""Add frames of the video's file and words of the index to an explanation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from whenabouts.index.lookup import words_of
from whenabouts.index.records import VideoRecord
from whenabouts.streams import stream as stream_named
from whenabouts.types import Moment, WhenaboutsError
from whenabouts.video.objects import source_path
from whenabouts.video.thumbnails import thumbnail
from whenabouts_systems.explain.explained import Explanation, Film, Frame, Ranked, SimilarClip

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus

Box = tuple[float, float, float, float]
Shown = TypeVar("Shown", Ranked, SimilarClip)
# Shorter words ("the", "of") occur in every second text.
_LEAST_LETTERS = 4
MOST_FRAMES = 8
"""Frames across a picture; two systems side by side have half of them each."""
_PIXELS_WIDE = 320


def with_film(corpus: Corpus, explanation: Explanation, *, frames: bool = True) -> Explanation:
    """An explanation of a corpus's answer, extended by the words and frames of its video.

    Each of the best moments and most similar clips gets a frame. If no system tells anything along the video,
    nothing else is added. Without `frames` no video is opened. Missing frames are skipped; a note says why
    those of the shown video are missing: its file is gone, changed or damaged, or has no picture.
    """
    if frames:
        systems = (
            replace(
                system,
                moments=tuple(_with_frame(corpus, ranked) for ranked in system.moments),
                similar_clips=tuple(_with_frame(corpus, clip) for clip in system.similar_clips),
            )
            for system in explanation.systems
        )
        explanation = replace(explanation, systems=tuple(systems))
    if not any(system.tells_along for system in explanation.systems):
        return explanation
    record = corpus.resolve(explanation.video_id)
    ends = [float(system.borders.high[-1]) for system in explanation.systems if system.borders is not None]
    seconds = record.duration or max(ends, default=0.0)
    film = Film(words=corpus.words(record))
    if frames and seconds:
        answered = [system.borders.answered for system in explanation.systems if system.borders is not None]
        marked = [*explanation.truth_here, *(moment for moment in answered if moment is not None)]
        count = MOST_FRAMES // len(explanation.systems)
        pictures, notes = frames_of(record, instants(seconds, count, marked))
        texts = texts_on_screen(corpus, record, explanation.query)
        shown = [[box for start, end, box in texts if start <= frame.seconds < end] for frame in pictures]
        boxed = (replace(frame, boxes=tuple(here)) for frame, here in zip(pictures, shown, strict=True))
        film = replace(film, frames=tuple(boxed), notes=notes)
    return replace(explanation, film=film)


def _with_frame(corpus: Corpus, shown: Shown) -> Shown:
    """The moment or clip with the frame of its middle, if its video has one."""
    record = corpus.resolve(shown.moment.video_id)
    pictures, _ = frames_of(record, [shown.moment.middle])
    return replace(shown, frame=next(iter(pictures), None))


def texts_on_screen(corpus: Corpus, record: VideoRecord, query: str) -> list[tuple[float, float, Box]]:
    """(start, end, box) of texts on the screen that contain a word of the query."""
    words = {word for word in words_of(query) if len(word) >= _LEAST_LETTERS}
    texts: list[tuple[float, float, Box]] = []
    for name in sorted(record.streams.keys() & corpus.store.streams.keys()):
        if not stream_named(name).has_words:
            continue
        block = corpus.store.clips_of(name, [record.video_id], vectors=False)
        places = () if block.box is None else block.box.tolist()
        for start, end, text, box in zip(
            block.start.tolist(), block.end.tolist(), block.text, places, strict=False
        ):
            if words.intersection(words_of(text)) and not math.isnan(box[0]):
                texts.append((start, end, (box[0], box[1], box[2], box[3])))
    return texts


def instants(seconds: float, count: int, marked: Sequence[Moment]) -> list[float]:
    """`count` instants spread evenly over a video: the middle of each equal part.

    If a marked moment contains none of them, its middle replaces the instant of its part, so that a short
    moment of a long video is seen. If several moments lie in one part, the first of `marked` wins.
    """
    part = seconds / count
    chosen = [(number + 0.5) * part for number in range(count)]
    for moment in reversed(marked):
        if moment.middle < seconds and not any(moment.start <= at < moment.end for at in chosen):
            chosen[min(int(moment.middle / part), count - 1)] = moment.middle
    return chosen


def frames_of(record: VideoRecord, seconds: Sequence[float]) -> tuple[tuple[Frame, ...], tuple[str, ...]]:
    """The frames of a video at the given seconds, and a note on the first missing one."""
    if reason := _unreadable(record):
        return (), (f"no frames: {reason}",)
    pictures, notes = [], []
    for at in seconds:
        try:
            pictures.append(Frame(at, thumbnail(source_path(record.path), at, _PIXELS_WIDE)))
        except (WhenaboutsError, OSError) as error:
            notes.append(f"no frame at {at:.1f} s: {error}")
    return tuple(pictures), tuple(notes[:1])


def _unreadable(record: VideoRecord) -> str:
    """Why the file of a video cannot give frames; "" if it can and is unchanged since it was indexed."""
    if record.kind == "transcript":
        return f"{record.video_id} is a transcript without a recording"
    if not record.has_picture:
        return f"{record.video_id} has no picture"
    try:
        stat = source_path(record.path).stat()
    except OSError:
        return f"the file of {record.video_id} is gone or cannot be read; put it back, or index its new place"
    if (stat.st_size, stat.st_mtime_ns) != (record.size, record.modified_ns):
        return f"the file of {record.video_id} has changed since it was indexed; `whenabouts index` it again"
    return ""
