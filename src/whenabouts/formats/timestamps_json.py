"""The JSON of 2D-TAN, MMN and the first ActivityNet Captions release: sentences and times, video by video.

One object, video id -> {"timestamps": [[start, end], ...], "sentences": [...]} and either "duration"
(Charades-STA, ActivityNet Captions: all times are seconds) or "fps" and "num_frames" (TACoS: timestamps are
frame numbers; start = first / fps, end = last / fps, duration = num_frames / fps).
A query's id is `video#i`, i being the sentence's place in the video's list, from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whenabouts.formats.annotations import AnnotationBuilder, Annotations
from whenabouts.formats.files import FileHead
from whenabouts.formats.json_records import Record, read_document

NAME = "2d-tan"
ORDER = 60
SUMMARY = "timestamps and sentences by video (2D-TAN, MMN: Charades-STA, ActivityNet Captions, TACoS)"

_VIDEOS = 'an object, video id -> {"duration", "timestamps", "sentences"}'
_LENGTH = '"duration" with timestamps in seconds, or "fps" and "num_frames" with timestamps in frames'


def recognises(opening: FileHead) -> bool:
    """Whether it is an object of videos with timestamps and sentences, and without pools (that is MVMR)."""
    return (
        opening.is_json_document
        and b'"timestamps"' in opening.head
        and b'"sentences"' in opening.head
        and b'"retrieval_pool"' not in opening.head
    )


def read_annotations(path: Path) -> Annotations:
    """Videos with durations, a query for each sentence, and its one moment in seconds.

    Raises FormatError for a video id that comes twice (JSON readers would lose its first sentences), and for
    a record that gives its length in both ways or in neither: its unit would be a guess.
    """
    collector = AnnotationBuilder(str(path))
    videos = read_document(path).record("", _VIDEOS)
    for video_id in videos.fields:
        record = videos.record(video_id, _VIDEOS)
        videos.as_words("video id", video_id)
        _add_video(collector, video_id, record)
    return collector.annotations()


def _add_video(collector: AnnotationBuilder, video_id: str, video: Record) -> None:
    length = length_of(video)
    collector.add_video(video_id, length.seconds, **length.metadata)
    sentences, spans = video.array("sentences"), video.array_along("timestamps", "sentences", "[start, end]")
    accepted = "[start, end] in frames" if length.metadata else "[start, end] in seconds"
    for i, (span, sentence) in enumerate(zip(spans, sentences, strict=True)):
        query_id = f"{video_id}#{i}"
        collector.add_query(query_id, video.as_words(f"sentences[{i}]", sentence))
        start, end = video.as_times(f"timestamps[{i}]", span, accepted)
        collector.judge(query_id, video_id, start / length.per_second, end / length.per_second)


@dataclass(frozen=True)
class Length:
    """How long a video is, and what its timestamps must be divided by to be seconds."""

    seconds: float
    per_second: float
    metadata: dict[str, Any]


def length_of(video: Record) -> Length:
    """A video's length from the fields that its record has; see the head of this module."""
    known = [key for key in ("duration", "fps", "num_frames") if key in video.fields]
    if known and "duration" not in known:
        rate, frames = video.positive("fps"), video.positive("num_frames")
        return Length(frames / rate, rate, {"fps": rate, "num_frames": frames})
    if known != ["duration"]:
        raise video.wrong("", "does not say its unit:", ", ".join(known) or "neither", _LENGTH)
    # Files hold 104.53999999999999 for 104.54, and 104.54 as the end of a moment; without rounding, that
    # moment would end after its video.
    return Length(round(video.positive("duration"), 6), 1.0, {})
