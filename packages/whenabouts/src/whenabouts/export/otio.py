"""OpenTimelineIO: the interchange format of editors, as JSON. Times are rational, at each source's rate.

A format of `export`, chosen by name. Schema versions are those that OpenTimelineIO has read since 0.15 (its
documentation: "Serialized schema"); the package itself is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import IO, Any

from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.export.text import marker_name, marker_note
from whenabouts.export.timeline import Event, Timeline, make_timeline
from whenabouts.lines import one_line

NAME = "otio"
SUFFIXES = (".otio",)
MEDIA_TYPE = "application/json"


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write a time line with a video track if there are pictures, and an audio track if there is sound.

    Each moment has one marker over its whole length, on its picture or else on its sound.
    """
    timeline = make_timeline(moments, options, rates="own")
    tracks = []
    if any(event.source.times is not None for event in timeline.events):
        tracks.append(_track("Video", timeline))
    if any(event.source.channels for event in timeline.events):
        tracks.append(_track("Audio", timeline))
    document = {
        "OTIO_SCHEMA": "Timeline.1",
        "metadata": {"whenabouts": {"drop_frame": timeline.drop}},
        "name": one_line(timeline.title),
        "global_start_time": _time(timeline.start, timeline.rate),
        "tracks": _item("Stack.1", "tracks") | {"children": tracks},
    }
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    out.write(text.encode("utf-8", "backslashreplace") + b"\n")
    return list(timeline.notes)


def _track(kind: str, timeline: Timeline) -> dict[str, Any]:
    children = []
    for event in timeline.events:
        has = event.source.times is not None if kind == "Video" else event.source.channels > 0
        if not has:
            children.append(_item("Gap.1", "", _range(0, event.length, timeline.rate)))
            continue
        clip = _clip(event)
        if kind == "Video" or event.source.times is None:
            clip["markers"] = [_marker(event.moment, clip["source_range"])]
        children.append(clip)
    return _item("Track.1", kind) | {"children": children, "kind": kind}


def _item(schema: str, name: str, source_range: dict[str, Any] | None = None) -> dict[str, Any]:
    """The fields of every item on a time line."""
    return {
        "OTIO_SCHEMA": schema,
        "metadata": {},
        "name": name,
        "source_range": source_range,
        "effects": [],
        "markers": [],
        "enabled": True,
    }


def _clip(event: Event) -> dict[str, Any]:
    moment, source = event.moment, event.source
    offset = source.start_frame(event.rate)
    facts = {
        "rank": moment.rank,
        "video_id": one_line(moment.video_id),
        "query": one_line(moment.query),
        "text": one_line(moment.text),
        "note": one_line(moment.note),
        "tags": [one_line(tag) for tag in moment.tags],
        "score": moment.score,
        "confidence": moment.confidence,
        "start": moment.start,
        "end": moment.end,
    }
    media = {
        "OTIO_SCHEMA": "ExternalReference.1",
        "metadata": {},
        "name": one_line(moment.name),
        "available_range": _range(offset, source.frames(event.rate), event.rate),
        "available_image_bounds": None,
        "target_url": source.url,
    }
    counted = _range(event.first + offset, event.last - event.first, event.rate)
    return _item("Clip.2", one_line(moment.name), counted) | {
        "metadata": {"whenabouts": facts},
        "media_references": {"DEFAULT_MEDIA": media},
        "active_media_reference_key": "DEFAULT_MEDIA",
    }


def _marker(moment: FileMoment, marked: dict[str, Any]) -> dict[str, Any]:
    facts = {"note": one_line(moment.note), "tags": [one_line(tag) for tag in moment.tags]}
    return {
        "OTIO_SCHEMA": "Marker.2",
        "metadata": {"whenabouts": facts},
        "name": marker_name(moment),
        "color": "GREEN",
        "marked_range": marked,
        "comment": marker_note(moment),
    }


def _range(first: int, frames: int, rate: Fraction) -> dict[str, Any]:
    return {"OTIO_SCHEMA": "TimeRange.1", "duration": _time(frames, rate), "start_time": _time(first, rate)}


def _time(frames: int, rate: Fraction) -> dict[str, Any]:
    return {"OTIO_SCHEMA": "RationalTime.1", "rate": float(rate), "value": float(frames)}
