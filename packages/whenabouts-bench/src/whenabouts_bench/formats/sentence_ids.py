"""Find query ids for runs that name queries by sentence, as the programs of video language models do."""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath

from whenabouts.types import Video
from whenabouts_bench.formats.annotations import Annotations, judgement_rows
from whenabouts_bench.formats.runs import RunBlock, RunSource, Task

_log = logging.getLogger("whenabouts")

_FILM = re.compile(r"\.(mp4|mkv|webm|avi|mov|m4v|npy|npz)$", re.IGNORECASE)


@dataclass(frozen=True)
class DescribedQuery:
    """What a run states about a query: the true video and moment (in seconds), and the sentence."""

    video_id: str
    sentence: str
    start: float
    end: float


@dataclass
class SentenceRun(ABC):
    """A file with at most one answer for each query, which describes its queries instead of naming ids."""

    path: Path
    name: str
    answered: Mapping[Task, Task]
    tasks: tuple[Task, ...] = ("VCMR",)
    _is_logged: bool = field(default=False, init=False)

    @abstractmethod
    def described(self) -> Mapping[str, DescribedQuery]:
        """The file's name for each query -> its description."""

    @abstractmethod
    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The answers under the file's names for queries; each has the score 1."""

    def warn_once(self, message: str) -> None:
        """Log a warning about the file, unless an earlier reading logged one."""
        if not self._is_logged:
            _log.warning("%s: %s", self.path, message)
        self._is_logged = True


def video_name(path: str) -> str:
    """The path of a video without the suffix of a film or of features.

    >>> video_name("charades/3MSZA.mp4"), video_name("v_QOlSCBRmfWY")
    ('charades/3MSZA', 'v_QOlSCBRmfWY')
    """
    return _FILM.sub("", str(PurePosixPath(path)))


def with_ids_of(run: SentenceRun, annotations: Annotations) -> RunSource:
    """The run with the query and video ids of the judgements.

    A video is found by the longest end of its path that only one judged video has. A query is found by its
    video and its words (case and punctuation are ignored), of several the one whose moment begins and ends
    nearest. Each id is given to one query. Videos and queries that are not found keep the file's name. A
    warning names a video whose path several judged videos end with.
    """
    names: dict[str, str] = {}
    videos, by_sentence = _ids_by_end(annotations.videos), _queries_by_sentence(annotations)
    described = run.described()
    if several := sorted({q.video_id for q in described.values() if _id_by_end(q.video_id, videos) == ""}):
        message = "%s: several videos of %s end with %r, so its queries are not found; name whole paths"
        _log.warning(message, run.path, annotations.name, several[0])
    for name, query in described.items():
        same = by_sentence.get((_id_by_end(query.video_id, videos) or "", _words(query.sentence)), [])
        if free := [judged for judged in same if judged[0] not in names]:
            names[min(free, key=partial(_seconds_between, query))[0]] = name
    return _Renamed(run, {name: query_id for query_id, name in names.items()}, videos)


def _ids_by_end(videos: Sequence[Video]) -> dict[str, str]:
    """End of a path -> the id of the only video with it, "" if there are several; whole paths come first."""
    ids: dict[str, str] = {}
    for video in videos:
        ids |= {end: "" if end in ids else video.id for end in _ends(video.id)}
    return ids | {video_name(video.id): video.id for video in videos}


def _ends(path: str) -> Iterator[str]:
    """The path, then without its first folder, and so on."""
    parts = PurePosixPath(video_name(path)).parts
    return ("/".join(parts[place:]) for place in range(len(parts)))


def _id_by_end(path: str, videos: Mapping[str, str]) -> str | None:
    return next((videos[end] for end in _ends(path) if end in videos), None)


def _queries_by_sentence(annotations: Annotations) -> dict[tuple[str, str], list[tuple[str, float, float]]]:
    """(video id, words) -> [(query id, start, end)] of each query's first positive moment in each video."""
    by_sentence: dict[tuple[str, str], list[tuple[str, float, float]]] = {}
    seen: set[tuple[int, int]] = set()
    for query, video, start, end, grade in judgement_rows(annotations):
        if grade > 0 and (query, video) not in seen:
            seen.add((query, video))
            key = (annotations.videos[video].id, _words(annotations.queries[query].text))
            by_sentence.setdefault(key, []).append((annotations.queries[query].id, start, end))
    return by_sentence


def _seconds_between(query: DescribedQuery, judged: tuple[str, float, float]) -> float:
    _, start, end = judged
    return abs(start - query.start) + abs(end - query.end)


def _words(sentence: str) -> str:
    return " ".join(re.findall(r"\w+", sentence.casefold()))


class _Renamed:
    """A run under other query and video ids."""

    def __init__(self, source: SentenceRun, queries: Mapping[str, str], videos: Mapping[str, str]) -> None:
        self.name, self.tasks, self.answered = source.name, source.tasks, source.answered
        self._source, self._queries, self._videos = source, queries, videos

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        for block in self._source.blocks(task):
            yield replace(
                block,
                query_ids=tuple(self._queries.get(query, query) for query in block.query_ids),
                video_ids=tuple(_id_by_end(video, self._videos) or video for video in block.video_ids),
            )
