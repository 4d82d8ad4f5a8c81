"""MVMR pool files: a moment of its own video, moments of other videos that fit too, and a pool to search.

`{video: {"duration", "timestamps": [[start, end], ...], "sentences": [...], "pos_moments": [[[video,
its sentence, [start, end]], ...], ...], "retrieval_pool": [[video, ...], ...]}}`, entry i of each list for
sentence i. A row of `pos_moments` may have a fourth value, a similarity, which is passed over. Files made
from TACoS have `fps` and `num_frames` in place of `duration`, and all their times are frame numbers.

There is no released format of answers; a run for these files is in one of the other formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from whenabouts.formats._json_writing import write_json_value
from whenabouts.formats._losses import Losses
from whenabouts.formats.annotations import AnnotationBuilder, Annotations, judgement_rows
from whenabouts.formats.files import FileHead, FormatError, first_entry, write_atomically
from whenabouts.formats.json_records import Record, read_document

NAME = "mvmr"
ORDER = 30
SUMMARY = "MVMR pool files: own moment, pos_moments and retrieval_pool a sentence"
KEEPS = frozenset({"texts", "durations", "pools", "unjudged videos"})

# The lists by which a file is recognised are written first: a first video may have very many sentences.
_LISTS = ("pos_moments", "retrieval_pool", "timestamps", "sentences")
_ACCEPTED = "an object, video -> {timestamps, sentences, pos_moments, retrieval_pool}"


def holds(opening: FileHead) -> Literal["annotations"] | None:
    """Judgements where the first video has pools or positive moments of other videos."""
    entry = first_entry(opening.first_object)
    known = {"pos_moments", "retrieval_pool"}
    return "annotations" if isinstance(entry, dict) and known & entry.keys() else None


def recognises(opening: FileHead) -> bool:
    """Whether the first video has pools or positive moments of other videos."""
    return holds(opening) is not None


def read_annotations(path: Path, as_released: bool = False) -> Annotations:
    """Queries `video#i` with their own moment first, then those of other videos, and the pools. Seconds.

    Frame numbers become seconds with the rate of the video in which a moment lies. With `as_released`
    `pos_moments` stay as they are and are not cut at the end of their video: the released evaluation takes
    the frame numbers of the TACoS file for seconds.
    """
    document = read_document(path).record("", _ACCEPTED)
    if not document.fields:
        raise FormatError(path, "holds no videos", accepted=_ACCEPTED)
    videos = {document.as_id("video", key): document.record(key) for key in document.fields}
    collector = AnnotationBuilder(str(path), cut=not as_released)
    rates = {video_id: _rate(video) for video_id, video in videos.items()}
    for video_id, video in videos.items():
        collector.add_video(video_id, _duration(video))
    for video_id, video in videos.items():
        _read_video(collector, video_id, video, rates, as_released)
    return collector.annotations()


def read_annotations_as_released(path: Path) -> Annotations:
    """The same, with the released reader's fault: times of `pos_moments` are taken as they stand."""
    return read_annotations(path, as_released=True)


def _rate(video: Record) -> float:
    """Frames a second where times are frames, else 1."""
    return video.positive("fps") if video.has("fps") else 1.0


def _duration(video: Record) -> float | None:
    if video.has("duration"):
        return video.number("duration", 0)
    return video.number("num_frames", 0) / _rate(video) if video.has("num_frames") else None


def _read_video(
    collector: AnnotationBuilder, video_id: str, video: Record, rates: dict[str, float], as_released: bool
) -> None:
    sentences = video.array("sentences")
    lists = [_list(video, key, len(sentences)) for key in ("timestamps", "pos_moments", "retrieval_pool")]
    duration = _duration(video)
    for number, (sentence, times, positives, pool) in enumerate(zip(sentences, *lists, strict=True)):
        query_id = f"{video_id}#{number}"
        collector.add_query(query_id, video.as_text(f"sentences[{number}]", sentence).strip())
        start, end = (t / rates[video_id] for t in video.as_times(f"timestamps[{number}]", times))
        if as_released and duration is not None:
            end = min(end, duration)  # the released program cuts a sentence's own moment, and no other
        collector.judge(query_id, video_id, start, end)
        for other_id, begin, finish in _positives(video, f"pos_moments[{number}]", positives):
            rate = 1.0 if as_released else rates.get(other_id, rates[video_id])
            collector.judge(query_id, other_id, begin / rate, finish / rate)
        if pool:
            key = f"retrieval_pool[{number}]"
            ids = video.as_array(key, pool, "a list of video ids")
            collector.set_pool(query_id, [video.as_id(f"{key}[{i}]", v) for i, v in enumerate(ids)])


def _list(video: Record, key: str, length: int) -> list[Any]:
    if key != "timestamps" and not video.has(key):
        return [None] * length
    return video.array_along(key, "sentences")


def _positives(video: Record, key: str, rows: Any) -> Iterator[tuple[str, float, float]]:
    accepted = "[video, sentence, [start, end]]"
    for number, row in enumerate(video.as_array(key, rows or [])):
        place = f"{key}[{number}]"
        if len(video.as_array(place, row, accepted)) not in (3, 4):
            raise video.wrong(place, "does not have three values:", row, accepted)
        start, end = video.as_times(f"{place}[2]", row[2])
        yield video.as_id(f"{place}[0]", row[0]), start, end


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write a pool file, in seconds: the first judgement of a query is its own moment.

    Query ids become `video#i`, as a reader of this format counts them.
    """
    losses = Losses(path)
    judged: dict[int, list[tuple[str, float, float]]] = {}
    for number, video, start, end, _ in judgement_rows(annotations):
        judged.setdefault(number, []).append((annotations.videos[video].id, start, end))
    document: dict[str, dict[str, Any]] = {}
    for video_ in annotations.videos:
        duration = {} if video_.duration is None else {"duration": video_.duration}
        document[video_.id] = {**duration, **{key: [] for key in _LISTS}}
    for number, query in enumerate(annotations.queries):
        if number not in judged:
            continue
        (video_id, *times), *others = judged[number]
        entry = document[video_id]
        losses.count("query ids become video#i", query.id != f"{video_id}#{len(entry['sentences'])}")
        entry["timestamps"].append(times)
        entry["sentences"].append(query.text)
        entry["pos_moments"].append([[other, "", [start, end]] for other, start, end in others])
        entry["retrieval_pool"].append(list(annotations.pools.get(query.id, ())))
    further = sum(len(own) - 1 for own in judged.values())
    losses.count("sentences of a query's further moments are left empty", further)
    with write_atomically(path) as stream:
        write_json_value(stream, document)
    losses.tell()
