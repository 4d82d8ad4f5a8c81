"""Find query ids for runs that name queries by sentence, as the programs of video language models do."""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath

from whenabouts_bench.formats.annotations import Annotations, judgement_rows
from whenabouts_bench.formats.runs import RunBlock, RunSource, Task

_log = logging.getLogger("whenabouts")

_FILM = re.compile(r"\.(mp4|mkv|webm|avi|mov|m4v|npy|npz)$", re.IGNORECASE)


@dataclass(frozen=True)
class DescribedQuery:
    """A query of a run, as the run describes it: true video id, sentence, and the true moment in seconds."""

    video_id: str
    sentence: str
    start: float
    end: float


@dataclass
class SentenceRun(ABC):
    """A file of answers, at most one for each query, that describes its queries in place of ids."""

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
        """Log a warning about the file the first time that it is read."""
        if not self._is_logged:
            _log.warning("%s: %s", self.path, message)
        self._is_logged = True


def video_name(path: str) -> str:
    """The video id in a path: without folders and the suffix of a film or of features.

    >>> video_name("charades/3MSZA.mp4"), video_name("v_QOlSCBRmfWY")
    ('3MSZA', 'v_QOlSCBRmfWY')
    """
    return _FILM.sub("", PurePosixPath(path).name)


def with_ids_of(run: SentenceRun, annotations: Annotations) -> RunSource:
    """The run with the query and video ids of the judgements.

    A query is found by its video and its words (case and punctuation are ignored). Where several queries of a
    video have the same words, the one whose moment begins and ends nearest is taken. Queries that the
    judgements lack keep the file's name.
    """
    ids: dict[str, str] = {}
    free = _queries_by_sentence(annotations)
    for name, query in run.described().items():
        same = free.get((query.video_id, _words(query.sentence)), [])
        if same:
            nearest = min(same, key=partial(_seconds_between, query))
            same.remove(nearest)
            ids[name] = nearest[0]
    return _Renamed(run, ids, {video_name(video.id): video.id for video in annotations.videos})


def _queries_by_sentence(annotations: Annotations) -> dict[tuple[str, str], list[tuple[str, float, float]]]:
    """(video name, words) -> [(query id, start, end)] of each query's first positive moment in each video."""
    by_sentence: dict[tuple[str, str], list[tuple[str, float, float]]] = {}
    seen: set[tuple[int, int]] = set()
    for query, video, start, end, grade in judgement_rows(annotations):
        if grade > 0 and (query, video) not in seen:
            seen.add((query, video))
            key = (video_name(annotations.videos[video].id), _words(annotations.queries[query].text))
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
                video_ids=tuple(self._videos.get(video, video) for video in block.video_ids),
            )
