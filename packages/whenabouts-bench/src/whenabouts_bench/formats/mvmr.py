"""MVMR pool files: a moment of its own video, moments of other videos that fit too, and a pool to search.

`{video: {"duration", "timestamps": [[start, end], ...], "sentences": [...], "pos_moments": [[[video,
its sentence, [start, end]], ...], ...], "retrieval_pool": [[video, ...], ...]}}`, entry i of each list for
sentence i. A row of `pos_moments` may have a fourth value, a similarity, which is passed over. Files made
from TACoS have `fps` and `num_frames` in place of `duration`, and all their times are frame numbers.

There is no released format of answers; a run for these files is in one of the other formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from whenabouts.intake.files import FormatError, Losses, Sign, read_json, write_atomically
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations, judgement_rows
from whenabouts_bench.formats.json_records import Id, NotNegative, Origin, Positive, Text, Times, check_length
from whenabouts_bench.formats.json_writing import write_json_value

NAME = "mvmr"
SUMMARY = "MVMR pool files: own moment, pos_moments and retrieval_pool a sentence"
KEEPS = frozenset({"texts", "durations", "pools", "unjudged videos"})

SIGNS = {"read_annotations": (Sign("*/pos_moments"), Sign("*/retrieval_pool"))}

# The lists by which a file is recognised come first, because the first video may have many sentences.
_LISTS = ("pos_moments", "retrieval_pool", "timestamps", "sentences")
_ACCEPTED = "an object, video -> {timestamps, sentences, pos_moments, retrieval_pool}"


class _Positive(msgspec.Struct, array_like=True):
    """[video, sentence, [start, end]]; a fourth value, a similarity, is ignored."""

    video: Id
    sentence: Any
    times: Times


_PositiveRow = Annotated[_Positive, msgspec.Meta(title="[video, sentence, [start, end]]")]


class _Video(msgspec.Struct):
    timestamps: list[Times]
    sentences: list[Text]
    pos_moments: list[list[_PositiveRow] | None] | None = None
    retrieval_pool: list[list[Id] | None] | None = None
    duration: NotNegative | None = None
    fps: Positive | None = None
    num_frames: NotNegative | None = None

    @property
    def rate(self) -> float:
        """Frames per second if times are frames, else 1."""
        return self.fps or 1.0

    @property
    def seconds(self) -> float | None:
        """Its length, if known."""
        if self.duration is not None or self.num_frames is None:
            return self.duration
        return self.num_frames / self.rate


def read_annotations(path: Path, as_released: bool = False) -> Annotations:
    """Queries `video#i` with their own moment first, then those of other videos, and the pools. Seconds.

    Frame numbers become seconds with the rate of the video in which a moment lies. With `as_released`
    `pos_moments` stay as they are and are not cut at the end of their video: the released evaluation takes
    the frame numbers of the TACoS file for seconds.
    """
    whole = Origin(path)
    document = whole.object(read_json(path), _ACCEPTED)
    if not document:
        raise FormatError(path, "holds no videos", accepted=_ACCEPTED)
    videos = {}
    for key, fields in document.items():
        videos[whole.at("video").as_id(key)] = whole.at(key).convert(fields, _Video)
    builder = AnnotationBuilder(str(path), cut=not as_released)
    for video_id, video in videos.items():
        builder.add_video(video_id, video.seconds)
    for video_id in videos:
        _read_video(builder, whole.at(video_id), videos, video_id, as_released)
    return builder.annotations()


def read_annotations_as_released(path: Path) -> Annotations:
    """The same, with the released reader's fault: times of `pos_moments` are taken as they stand."""
    return read_annotations(path, as_released=True)


def _read_video(
    builder: AnnotationBuilder, origin: Origin, videos: Mapping[str, _Video], video_id: str, as_released: bool
) -> None:
    video = videos[video_id]
    count = len(video.sentences)
    positives = [None] * count if video.pos_moments is None else video.pos_moments
    pools = [None] * count if video.retrieval_pool is None else video.retrieval_pool
    check_length(origin, "timestamps", video.timestamps, "sentences", count)
    check_length(origin, "pos_moments", positives, "sentences", count)
    check_length(origin, "retrieval_pool", pools, "sentences", count)
    for number, sentence in enumerate(video.sentences):
        query_id = f"{video_id}#{number}"
        builder.add_query(query_id, sentence.strip())
        start, end = (time / video.rate for time in video.timestamps[number])
        if as_released and video.seconds is not None:
            end = min(end, video.seconds)  # the released program cuts a sentence's own moment, and no other
        builder.judge(query_id, video_id, start, end)
        for positive in positives[number] or []:
            other = str(positive.video)
            rate = 1.0 if as_released else videos.get(other, video).rate
            builder.judge(query_id, other, *(time / rate for time in positive.times))
        if pool := pools[number]:
            builder.set_pool(query_id, [str(name) for name in pool])


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write a pool file in seconds; the first judgement of a query is its own moment.

    Query ids become `video#i`, as readers of this format count them.
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
    further = sum(len(moments) - 1 for moments in judged.values())
    losses.count("sentences of a query's further moments are left empty", further)
    with write_atomically(path) as stream:
        write_json_value(stream, document)
    losses.log()
