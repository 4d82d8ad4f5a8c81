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

from whenabouts.formats.annotations import AnnotationBuilder, Annotations
from whenabouts.formats.files import FileHead
from whenabouts.formats.json_records import Record, read_document

NAME = "didemo"
ORDER = 45
SUMMARY = "descriptions with the 5-second segments that several annotators marked (DiDeMo)"

SEGMENT_SECONDS = 5.0
LONGEST_SECONDS = 30.0
NO_AGREEMENT = "queries have no span that two annotators agree on"
SEVERAL_NAMES = "videos have two file names"

_RECORD = 'a list of {"annotation_id", "description", "video", "num_segments", "times"}'


def recognises(opening: FileHead) -> bool:
    """Whether it is a list of objects with annotation ids and times."""
    return opening.first_line[:1] == "[" and b'"annotation_id"' in opening.head and b'"times"' in opening.head


def read_annotations(path: Path) -> Annotations:
    """Videos, a query for each description, and the moments that at least two annotators agree on."""
    collector = AnnotationBuilder(str(path))
    records = list(read_document(path).records("", _RECORD))
    # All videos come first: one that is said to have five segments here and six there has six.
    video_ids = _add_videos(collector, records)
    for record, video_id in zip(records, video_ids, strict=True):
        _add_description(collector, record, video_id)
    return collector.annotations()


def _add_videos(collector: AnnotationBuilder, records: list[Record]) -> list[str]:
    names: dict[str, set[str]] = {}
    segments: dict[str, int] = {}
    video_ids = []
    for record in records:
        name = record.words("video")
        video_id = _video_id_of(record, name)
        video_ids.append(video_id)
        names.setdefault(video_id, set()).add(name)
        segments[video_id] = max(_segments(record), segments.get(video_id, 0))
    for video_id, count in segments.items():
        # Released features stand under the file names.
        duration = min(SEGMENT_SECONDS * count, LONGEST_SECONDS)
        collector.add_video(video_id, duration, file_names=tuple(sorted(names[video_id])))
    twice = sum(len(found) > 1 for found in names.values())
    if twice:
        collector.count(SEVERAL_NAMES, twice)
    return video_ids


def _video_id_of(record: Record, name: str) -> str:
    """A file name without its last ending: 12@N00_34_ab.mov.mp4 is of the video 12@N00_34_ab.mov."""
    stem = name.rpartition(".")[0] if "." in name else name
    if not stem:
        raise record.wrong("video", "has no name before its ending:", name, "a file name")
    return stem


def _segments(record: Record) -> int:
    accepted = "a whole number, 1 or more"
    return record.as_whole("num_segments", record.value("num_segments", accepted), 1, accepted)


def _add_description(collector: AnnotationBuilder, record: Record, video_id: str) -> None:
    spans = _marked(collector, record)
    text = record.words("description")
    seconds = [(first * SEGMENT_SECONDS, (last + 1) * SEGMENT_SECONDS) for first, last in spans]
    query_id = _query_id(record)
    if not collector.add_query(query_id, text, annotated=tuple(seconds)):
        return
    agreed = [span for span, annotators in Counter(seconds).most_common() if annotators >= 2]
    for start, end in agreed:
        collector.judge(query_id, video_id, start, end)
    if not agreed:
        collector.count(NO_AGREEMENT)


def _query_id(record: Record) -> str:
    accepted = "a whole number or a text"
    value = record.value("annotation_id", accepted)
    if isinstance(value, str):
        return record.as_words("annotation_id", value)
    return str(record.as_whole("annotation_id", value, 0, accepted))


def _marked(collector: AnnotationBuilder, record: Record) -> list[tuple[int, int]]:
    """What each annotator marked; a span that ends before it starts is no vote for anything."""
    accepted = "[first, last] in segments of 5 s, whole numbers from 0"
    spans = []
    for number, pair in enumerate(record.array("times", f"a list of {accepted}")):
        key = f"times[{number}]"
        first, last = (
            record.as_whole(f"{key}[{place}]", segment, 0, accepted)
            for place, segment in enumerate(record.as_pair(key, pair, accepted))
        )
        if first > last:
            collector.count(collector.REVERSED)
        else:
            spans.append((first, last))
    return spans
