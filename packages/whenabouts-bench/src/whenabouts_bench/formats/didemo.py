"""The JSON of DiDeMo: descriptions with the segments that several annotators marked.

A list of objects: `annotation_id`, `description`, `video` (a file name), `num_segments` (5 or 6) and `times`,
one [first, last] pair per annotator, in 0-based inclusive segments of 5 seconds: [0, 2] is 0 s to 15 s.

**Ground truth: every span that at least two annotators marked**, with relevance 1, most marked first. The
papers: "we use a timestamp with at least two persons in agreement as the ground truth" (Maeoki et al., after
Escorcia et al.). If two pairs of annotators agree on different spans, both are true, as for one description
in 13. The query's metadata (`annotated`, seconds) has all marked spans, for other readings of the papers:
only the most marked span, or the released program's mean over the three best of four annotators.

A video's id is its file name without the last suffix, because some videos have two names, such as `.mov` and
`.mp4`. The files have no durations; 5 s times the number of segments, at most 30 s, is used, which may exceed
the true length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from whenabouts.intake.files import Sign, read_json
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.json_records import Origin, Words

NAME = "didemo"

SIGNS = {"read_annotations": (Sign("*/annotation_id */description"),)}

SEGMENT_SECONDS = 5.0
LONGEST_SECONDS = 30.0
NO_AGREEMENT = "queries have no span that two annotators agree on"
SEVERAL_NAMES = "videos have two file names"

_RECORD = 'a list of {"annotation_id", "description", "video", "num_segments", "times"}'


_Segment = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_Span = Annotated[
    tuple[_Segment, _Segment], msgspec.Meta(title="[first, last] in segments of 5 s, whole numbers from 0")
]


class _Description(msgspec.Struct):
    annotation_id: Annotated[Words | int, msgspec.Meta(title="a whole number or a text")]
    description: Words
    video: Words
    num_segments: Annotated[int, msgspec.Meta(ge=1, le=1_000_000, title="a whole number, 1 or more")]
    times: list[_Span]


def read_annotations(path: Path) -> Annotations:
    """Videos, a query per description, and the moments that at least two annotators marked."""
    builder = AnnotationBuilder(str(path))
    whole = Origin(path)
    records = [
        (origin := whole.at(number), origin.convert(entry, _Description, _RECORD))
        for number, entry in enumerate(whole.array(read_json(path), _RECORD))
    ]
    # Videos come first, because records may give a video five segments or six; it has the maximum.
    video_ids = _add_videos(builder, records)
    for (_, record), video_id in zip(records, video_ids, strict=True):
        _add_description(builder, record, video_id)
    return builder.annotations()


def _add_videos(builder: AnnotationBuilder, records: list[tuple[Origin, _Description]]) -> list[str]:
    names: dict[str, set[str]] = {}
    segments: dict[str, int] = {}
    video_ids = []
    for origin, record in records:
        name = record.video.strip()
        # Without the last suffix: 12@N00_34_ab.mov.mp4 is the video 12@N00_34_ab.mov.
        video_id = name.rpartition(".")[0] if "." in name else name
        if not video_id:
            raise origin.at("video").error("has no name before its ending:", name, "a file name")
        video_ids.append(video_id)
        names.setdefault(video_id, set()).add(name)
        segments[video_id] = max(record.num_segments, segments.get(video_id, 0))
    for video_id, count in segments.items():
        # Released features use the file names as keys.
        duration = min(SEGMENT_SECONDS * count, LONGEST_SECONDS)
        builder.add_video(video_id, duration, file_names=tuple(sorted(names[video_id])))
    twice = sum(len(files) > 1 for files in names.values())
    if twice:
        builder.count(SEVERAL_NAMES, twice)
    return video_ids


def _add_description(builder: AnnotationBuilder, record: _Description, video_id: str) -> None:
    spans = [(first, last) for first, last in record.times if first <= last]
    if len(spans) < len(record.times):
        builder.count(builder.REVERSED, len(record.times) - len(spans))
    seconds = [(first * SEGMENT_SECONDS, (last + 1) * SEGMENT_SECONDS) for first, last in spans]
    query_id = str(record.annotation_id).strip()
    if not builder.add_query(query_id, record.description.strip(), annotated=tuple(seconds)):
        return
    judge_agreed(builder, query_id, video_id, seconds)


def judge_agreed(
    builder: AnnotationBuilder, query_id: str, video_id: str, seconds: Sequence[tuple[float, float]]
) -> None:
    """Judge the spans that at least two annotators marked, most marked first."""
    agreed = [span for span, annotators in Counter(seconds).most_common() if annotators >= 2]
    for start, end in agreed:
        builder.judge(query_id, video_id, start, end)
    if not agreed:
        builder.count(NO_AGREEMENT)
