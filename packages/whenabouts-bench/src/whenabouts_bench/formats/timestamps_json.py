"""The JSON of 2D-TAN, MMN and the first ActivityNet Captions release: sentences and times per video.

An object, video id -> {"timestamps": [[start, end], ...], "sentences": [...]} and either "duration"
(Charades-STA, ActivityNet Captions: times are seconds) or "fps" and "num_frames" (TACoS: times are frame
numbers; start = first / fps, end = last / fps, duration = num_frames / fps). Query ids are `video#i`, the
0-based index of the sentence within its video.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from whenabouts.intake.files import Sign, read_json
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.json_records import Origin, Positive, Times, Words, check_length

NAME = "2d-tan"

SIGNS = {"read_annotations": (Sign("*/timestamps */sentences", without="*/pos_moments */retrieval_pool"),)}

_VIDEOS = 'an object, video id -> {"duration", "timestamps", "sentences"}'
LENGTH = '"duration" with timestamps in seconds, or "fps" and "num_frames" with timestamps in frames'


def read_annotations(path: Path) -> Annotations:
    """Videos with durations, a query per sentence, and its moment in seconds.

    Raises FormatError for a duplicate video id (whose first sentences JSON readers would lose), and for a
    record with both kinds of length or neither, whose unit is unknown.
    """
    builder = AnnotationBuilder(str(path))
    whole = Origin(path)
    for video_id, entry in whole.object(read_json(path), _VIDEOS).items():
        origin = whole.at(video_id)
        fields = origin.object(entry, _VIDEOS)
        whole.at("video id").convert(video_id, Words)
        _add_video(builder, video_id, origin, fields)
    return builder.annotations()


class _Video(msgspec.Struct):
    sentences: list[Words]
    timestamps: list[Times]


def _add_video(builder: AnnotationBuilder, video_id: str, origin: Origin, fields: dict[str, Any]) -> None:
    seconds, rate, metadata = _length_of(origin, fields)
    builder.add_video(video_id, seconds, **metadata)
    video = origin.convert(fields, _Video)
    check_length(origin, "timestamps", video.timestamps, "sentences", len(video.sentences))
    for i, ((start, end), sentence) in enumerate(zip(video.timestamps, video.sentences, strict=True)):
        query_id = f"{video_id}#{i}"
        builder.add_query(query_id, sentence.strip())
        builder.judge(query_id, video_id, start / rate, end / rate)


class _InSeconds(msgspec.Struct):
    duration: Positive


class _InFrames(msgspec.Struct):
    fps: Positive
    num_frames: Positive


def _length_of(origin: Origin, fields: dict[str, Any]) -> tuple[float, float, dict[str, Any]]:
    """(seconds of a video, units of its timestamps per second, metadata), from the fields of its record."""
    given = [key for key in ("duration", "fps", "num_frames") if key in fields]
    if given and "duration" not in given:
        frames = origin.convert(fields, _InFrames)
        metadata = {"fps": frames.fps, "num_frames": frames.num_frames}
        return frames.num_frames / frames.fps, frames.fps, metadata
    if given != ["duration"]:
        raise origin.error("does not say its unit:", ", ".join(given) or "neither", LENGTH)
    # Rounded, because files have a duration of 104.53999999999999 and a moment that ends at 104.54.
    return round(origin.convert(fields, _InSeconds).duration, 6), 1.0, {}
