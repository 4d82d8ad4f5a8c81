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

from cuepoint.formats._fields import (
    field_of,
    list_at,
    number_at,
    object_at,
    read_json_without_repeats,
    text_at,
)
from cuepoint.formats.columns import Annotations, Collector
from cuepoint.formats.opened import FormatError, Opening

NAME = "2d-tan"
ORDER = 60
SUMMARY = "timestamps and sentences by video (2D-TAN, MMN: Charades-STA, ActivityNet Captions, TACoS)"

_VIDEOS = 'an object, video id -> {"duration", "timestamps", "sentences"}'
_LENGTH = '"duration" with timestamps in seconds, or "fps" and "num_frames" with timestamps in frames'


def recognises(opening: Opening) -> bool:
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
    collector = Collector(str(path))
    for video_id, value in object_at(path, read_json_without_repeats(path), "", _VIDEOS).items():
        record = object_at(path, value, video_id, _VIDEOS)
        text_at(path, video_id, "video id")
        _add_video(collector, path, video_id, record)
    return collector.annotations()


def _add_video(collector: Collector, path: Path, video_id: str, record: dict[str, Any]) -> None:
    length = length_of(path, video_id, record)
    collector.add_video(video_id, length.seconds, **length.metadata)
    sentences = list_at(
        path, field_of(path, record, "sentences", video_id), f"{video_id}.sentences", "a list"
    )
    where = f"{video_id}.timestamps"
    spans = list_at(
        path,
        field_of(path, record, "timestamps", video_id),
        where,
        f"a list of {len(sentences)} [start, end], one for each sentence",
        len(sentences),
    )
    for i, (span, sentence) in enumerate(zip(spans, sentences, strict=True)):
        query_id = f"{video_id}#{i}"
        collector.add_query(query_id, text_at(path, sentence, f"{video_id}.sentences[{i}]"))
        start, end = span_of(path, span, f"{where}[{i}]", length)
        collector.judge(query_id, video_id, start, end)


@dataclass(frozen=True)
class Length:
    """How long a video is, and what its timestamps must be divided by to be seconds."""

    seconds: float
    per_second: float
    metadata: dict[str, Any]


def length_of(path: Path, video_id: str, record: dict[str, Any]) -> Length:
    """A video's length from the fields that its record has; see the head of this module."""
    in_frames = "fps" in record or "num_frames" in record
    if in_frames == ("duration" in record):
        found = ", ".join(key for key in ("duration", "fps", "num_frames") if key in record) or "neither"
        raise FormatError(path, "does not say its unit:", field=video_id, value=found, accepted=_LENGTH)
    if in_frames:
        rate = _positive(path, record, "fps", video_id)
        frames = _positive(path, record, "num_frames", video_id)
        return Length(frames / rate, rate, {"fps": rate, "num_frames": frames})
    # Files hold 104.53999999999999 for 104.54, and 104.54 as the end of a moment; without rounding, that
    # moment would end after its video.
    return Length(round(_positive(path, record, "duration", video_id), 6), 1.0, {})


def span_of(path: Path, span: Any, where: str, length: Length) -> tuple[float, float]:
    """Start and end of a timestamp, in seconds."""
    unit = "seconds" if length.per_second == 1.0 and not length.metadata else "frames"
    accepted = f"[start, end] in {unit}"
    start, end = (number_at(path, time, where, accepted) for time in list_at(path, span, where, accepted, 2))
    return start / length.per_second, end / length.per_second


def _positive(path: Path, record: dict[str, Any], key: str, video_id: str) -> float:
    value = field_of(path, record, key, video_id)
    number = number_at(path, value, f"{video_id}.{key}", "a number above 0", least=0)
    if number == 0:
        raise FormatError(path, "is", field=f"{video_id}.{key}", value=value, accepted="a number above 0")
    return number
