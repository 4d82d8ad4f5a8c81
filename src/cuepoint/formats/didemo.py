"""The JSON of DiDeMo: descriptions, and for each the segments that several annotators marked.

A list of objects: `annotation_id`, `description`, `video` (a file name), `num_segments` (5 or 6) and `times`,
one [first, last] pair an annotator, in segments of 5 seconds counted from 0, both inclusive: [0, 2] is 0 s
to 15 s.

**Ground truth: every span that at least two annotators marked alike**, each with relevance 1. The papers:
"we use a timestamp with at least two persons in agreement as the ground truth" (Maeoki et al., after
Escorcia et al.). Where two and two agree there are two true moments, and finding either is right; that is one
of 13 descriptions. Those most annotators marked come first. Which spans all annotators marked stands in the
query's metadata (`annotated`, seconds), for those who read the papers otherwise: only the span most agree on,
or the released program's mean over the three best of four annotators.

A video's id is its file name without the last ending: some videos are named twice, say `.mov` and `.mp4`.
The files hold no durations. A video's is taken as 5 s times its segments: the part of it that was annotated,
cut at 30 s; the last segment may in truth be shorter.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from cuepoint.formats._fields import (
    field_of,
    list_at,
    object_at,
    read_json_without_repeats,
    text_at,
    whole_number_at,
)
from cuepoint.formats.columns import Annotations, Collector
from cuepoint.formats.opened import FormatError, Opening

NAME = "didemo"
ORDER = 45
SUMMARY = "descriptions with the 5-second segments that several annotators marked (DiDeMo)"

SEGMENT_SECONDS = 5.0
LONGEST_SECONDS = 30.0
NO_AGREEMENT = "queries have no span that two annotators agree on"
SEVERAL_NAMES = "videos have two file names"

_RECORD = 'a list of {"annotation_id", "description", "video", "num_segments", "times"}'


def recognises(opening: Opening) -> bool:
    """Whether it is a list of objects with annotation ids and times."""
    return opening.first_line[:1] == "[" and b'"annotation_id"' in opening.head and b'"times"' in opening.head


def read_annotations(path: Path) -> Annotations:
    """Videos, a query for each description, and the moments that at least two annotators agree on."""
    collector = Collector(str(path))
    records = [
        object_at(path, value, f"[{i}]", _RECORD)
        for i, value in enumerate(list_at(path, read_json_without_repeats(path), "", _RECORD))
    ]
    # All videos come first: one that is said to have five segments here and six there has six.
    video_ids = _add_videos(collector, path, records)
    for i, (record, video_id) in enumerate(zip(records, video_ids, strict=True)):
        _add_description(collector, path, record, f"[{i}]", video_id)
    return collector.annotations()


def _add_videos(collector: Collector, path: Path, records: list[dict[str, Any]]) -> list[str]:
    names: dict[str, set[str]] = {}
    segments: dict[str, int] = {}
    video_ids = []
    for i, record in enumerate(records):
        name = text_at(path, field_of(path, record, "video", f"[{i}]"), f"[{i}].video")
        video_id = video_id_of(path, name, f"[{i}].video")
        video_ids.append(video_id)
        names.setdefault(video_id, set()).add(name)
        segments[video_id] = max(_segments(path, record, f"[{i}]"), segments.get(video_id, 0))
    for video_id, count in segments.items():
        # Released features stand under the file names.
        duration = min(SEGMENT_SECONDS * count, LONGEST_SECONDS)
        collector.add_video(video_id, duration, file_names=tuple(sorted(names[video_id])))
    twice = sum(len(found) > 1 for found in names.values())
    if twice:
        collector.count(SEVERAL_NAMES, twice)
    return video_ids


def video_id_of(path: Path, name: str, where: str) -> str:
    """A file name without its last ending.

    >>> video_id_of(Path("x"), "12@N00_34_ab.mov.mp4", "video")
    '12@N00_34_ab.mov'
    """
    stem = name.rpartition(".")[0] if "." in name else name
    if not stem:
        raise FormatError(
            path, "has no name before its ending:", field=where, value=name, accepted="a file name"
        )
    return stem


def _segments(path: Path, record: dict[str, Any], where: str) -> int:
    value = field_of(path, record, "num_segments", where)
    return whole_number_at(path, value, f"{where}.num_segments", "a whole number, 1 or more", least=1)


def _add_description(
    collector: Collector, path: Path, record: dict[str, Any], where: str, video_id: str
) -> None:
    spans = _marked(collector, path, record, where)
    text = text_at(path, field_of(path, record, "description", where), f"{where}.description")
    seconds = [(first * SEGMENT_SECONDS, (last + 1) * SEGMENT_SECONDS) for first, last in spans]
    query_id = _query_id(path, record, where)
    if not collector.add_query(query_id, text, annotated=tuple(seconds)):
        return
    agreed = [span for span, annotators in Counter(seconds).most_common() if annotators >= 2]
    for start, end in agreed:
        collector.judge(query_id, video_id, start, end)
    if not agreed:
        collector.count(NO_AGREEMENT)


def _query_id(path: Path, record: dict[str, Any], where: str) -> str:
    value = field_of(path, record, "annotation_id", where)
    if isinstance(value, str):
        return text_at(path, value, f"{where}.annotation_id")
    return str(whole_number_at(path, value, f"{where}.annotation_id", "a whole number or a text"))


def _marked(collector: Collector, path: Path, record: dict[str, Any], where: str) -> list[tuple[int, int]]:
    """What each annotator marked; a span that ends before it starts is no vote for anything."""
    accepted = "[first, last] in segments of 5 s, whole numbers from 0"
    spans = []
    times = list_at(path, field_of(path, record, "times", where), f"{where}.times", f"a list of {accepted}")
    for k, pair in enumerate(times):
        field = f"{where}.times[{k}]"
        first, last = (
            whole_number_at(path, segment, field, accepted)
            for segment in list_at(path, pair, field, accepted, 2)
        )
        if first > last:
            collector.count(collector.REVERSED)
        else:
            spans.append((first, last))
    return spans
