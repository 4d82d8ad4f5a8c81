"""MVMR pool files: each sentence with its moment, matching moments of other videos, and videos to search.

`{video: {"duration", "timestamps": [[start, end], ...], "sentences": [...], "pos_moments": [[[video,
sentence, [start, end]], ...], ...], "retrieval_pool": [[video, ...], ...]}}`. Entry i of each list belongs to
sentence i. A fourth value in a row of `pos_moments`, a similarity, is ignored. Files made from TACoS have
`fps` and `num_frames` instead of `duration`, and their times are frame numbers.

No format of runs was released with these files: runs for them use the other formats.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from whenabouts.intake.files import FormatError, Losses, Sign, read_json, write_atomically
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations, judgement_rows
from whenabouts_bench.formats.json_records import Id, NotNegative, Origin, Positive, Text, Times, check_length
from whenabouts_bench.formats.json_writing import write_json_value
from whenabouts_bench.formats.timestamps_json import LENGTH

NAME = "mvmr"
KEEPS = frozenset({"texts", "durations", "pools", "unjudged videos"})

SIGNS = {"read_annotations": (Sign("*/pos_moments"), Sign("*/retrieval_pool"))}

LISTS = ("pos_moments", "retrieval_pool", "timestamps", "sentences")
"""Written in this order: `SIGNS` are sought at the beginning of a file, and sentences may take much space."""
_ACCEPTED = "an object, video -> {timestamps, sentences, pos_moments, retrieval_pool}"


class _Positive(msgspec.Struct, array_like=True):
    """[video, sentence, [start, end]]: a matching moment. A fourth value, a similarity, is ignored."""

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
        """Units of time per second: frames if times are frame numbers, else 1."""
        return self.fps or 1.0

    @property
    def seconds(self) -> float | None:
        if self.duration is not None or self.num_frames is None:
            return self.duration
        return self.num_frames / self.rate


class PoolFile:
    """A pool file. Each query `video#i` has a pool, and is judged in its own video first, then in others.

    Frame numbers are divided by the frame rate of the video that the moment lies in.
    """

    cut: ClassVar[bool] = True
    """Whether a moment that ends after its video is cut there."""

    def __init__(self, path: Path) -> None:
        self.path, self._whole = path, Origin(path)
        document = self._whole.object(read_json(path), _ACCEPTED)
        if not document:
            raise FormatError(path, "holds no videos", accepted=_ACCEPTED)
        self.videos = {
            self._whole.at("video").as_id(key): self._whole.at(key).convert(fields, _Video)
            for key, fields in document.items()
        }

    def own(self, video_id: str, times: tuple[float, float]) -> tuple[float, float]:
        """(start, end) in seconds of a query's moment in its own video, given the `times` in the file."""
        rate = self.videos[video_id].rate
        return times[0] / rate, times[1] / rate

    def other(self, video_id: str, other: str, times: tuple[float, float]) -> tuple[float, float]:
        """(start, end) in seconds of a moment in video `other`; if unknown, by the rate of `video_id`."""
        return self.own(other if other in self.videos else video_id, times)

    def annotations(self) -> Annotations:
        """Videos, queries, judgements in seconds, and pools. Raises FormatError with file, video, field."""
        builder = AnnotationBuilder(str(self.path), cut=self.cut)
        for video_id, video in self.videos.items():
            builder.add_video(video_id, video.seconds)
        for video_id in self.videos:
            self._add_queries(builder, video_id)
        return builder.annotations()

    def _add_queries(self, builder: AnnotationBuilder, video_id: str) -> None:
        video, origin = self.videos[video_id], self._whole.at(video_id)
        if [video.fps, video.num_frames].count(None) == 1 or (video.fps and video.duration is not None):
            raise origin.error("does not say its unit", accepted=LENGTH)
        count = len(video.sentences)
        positives = [None] * count if video.pos_moments is None else video.pos_moments
        pools = [None] * count if video.retrieval_pool is None else video.retrieval_pool
        check_length(origin, "timestamps", video.timestamps, "sentences", count)
        check_length(origin, "pos_moments", positives, "sentences", count)
        check_length(origin, "retrieval_pool", pools, "sentences", count)
        for number, sentence in enumerate(video.sentences):
            query_id = f"{video_id}#{number}"
            builder.add_query(query_id, sentence.strip())
            builder.judge(query_id, video_id, *self.own(video_id, video.timestamps[number]))
            for positive in positives[number] or []:
                other = str(positive.video)
                builder.judge(query_id, other, *self.other(video_id, other, positive.times))
            if pool := pools[number]:
                builder.set_pool(query_id, [str(name) for name in pool])


def read_annotations(path: Path) -> Annotations:
    """The videos, queries, judgements in seconds, and pools of a pool file. Raises FormatError."""
    return PoolFile(path).annotations()


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write the judged queries in seconds, as `video#i`, each with its first judgement as its own moment."""
    losses = Losses(path)
    judged: dict[int, list[tuple[str, float, float]]] = {}
    for number, row, start, end, _ in judgement_rows(annotations):
        judged.setdefault(number, []).append((annotations.videos[row].id, start, end))
    document: dict[str, dict[str, Any]] = {}
    for video in annotations.videos:
        duration = {} if video.duration is None else {"duration": video.duration}
        document[video.id] = {**duration, **{key: [] for key in LISTS}}
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
