"""Explain one or two systems' answers to a query of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import Moment, Query, UsageError, did_you_mean
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.runs import RunBlock
from whenabouts_bench.relevance.units import comparable
from whenabouts_systems.explain.explained import Explained, Explanation, Ranked, TokenWeights, overlap_with
from whenabouts_systems.explain.readout import borders, pieces_for, similar_clips, token_weights
from whenabouts_systems.models.protocol import QueryBatch, QueryEncoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.encoded_corpus import MemoryCorpus, Progress, device_of, evaluating
from whenabouts_systems.ranking.rank import NMS
from whenabouts_systems.ranking.ranker import Ranker
from whenabouts_systems.ranking.split import Split, encode_split

_BEFORE_NMS = 2000


@dataclass(frozen=True, eq=False)
class InSplit:
    """A system and the split that it reads; `name` is shown to users.

    `retriever`, if given, chooses the videos that this system searches.
    """

    name: str
    trained: Trained
    split: Split
    retriever: InSplit | None = None


def query_row(split: Split, query_id: str | None, text: str | None) -> int:
    """The row of a query, by its id, or else by its words.

    Raises UsageError for a query that is not in the split, and for words that several queries have.
    """
    queries = split.queries
    if query_id is not None:
        rows = [row for row, query in enumerate(queries) if query.id == query_id]
        if not rows:
            names = [query.id for query in queries]
            like = did_you_mean(query_id, names) or (
                f"; it has {len(names):,}, such as {names[0]!r}" if names else ""
            )
            raise UsageError(f"{split.name} has no query {query_id!r}{like}")
        if text is not None and comparable(queries[rows[0]].text) != comparable(text):
            raise UsageError(
                f"query {query_id!r} of {split.name} is {queries[rows[0]].text!r}, not {text!r}; "
                "leave out one of the two"
            )
        return rows[0]
    if text is None:
        raise UsageError("no query is given: give --query-id ID, or the words of a query of the split")
    rows = [row for row, query in enumerate(queries) if comparable(query.text) == comparable(text)]
    if not rows:
        raise UsageError(
            f"{split.name} has no query with the words {text!r}, and there are features only for its queries"
            + did_you_mean(text, [query.text for query in queries])
        )
    if len(rows) > 1:
        ids = ", ".join(queries[row].id for row in rows[:5])
        raise UsageError(f"{len(rows)} queries of {split.name} have these words: {ids}; give --query-id")
    return rows[0]


def truth_of(annotations: Annotations, row: int) -> tuple[Moment, ...]:
    """The moments of a query with a relevance above 0 and a length, in the order of the file."""
    judged = annotations.qrels[annotations.queries[row].id]
    return tuple(judgement.moment for judgement in judged if judgement.relevance > 0)


def explain(
    systems: Sequence[InSplit],
    *,
    query_id: str | None = None,
    text: str | None = None,
    video_id: str | None = None,
    k: int = 5,
    progress: Progress | None = None,
) -> Explanation:
    """Explain the systems' answers to a query of a split; all systems must read the same annotations.

    Borders are shown for `video_id`: by default the first right video, or without one the video of the first
    answer. A system that cannot choose videos searches only this video. Raises UsageError for an unknown
    query or video, without a query, and for an id whose query has other words.
    """
    if k < 1:
        raise UsageError(f"k is {k}; ask for one moment or more")
    first = systems[0].split
    row = query_row(first, query_id, text)
    query, truth = first.queries[row], truth_of(first.annotations, row)
    encoded = [_QuerySystem.of(system, row, query, progress) for system in systems]
    given = video_id or (truth[0].video_id if truth else None)
    answers = [query_system.moments(k, truth, given) for query_system in encoded]
    if given is None and not any(answers):
        raise UsageError(
            f"query {query.id!r} has no answer and no judged video; give the video to show with --video"
        )
    video = given or next(ranked.moment.video_id for moments in answers for ranked in moments)
    pairs = zip(encoded, answers, strict=True)
    explained = tuple(query_system.explained(video, moments, truth) for query_system, moments in pairs)
    return Explanation(query.text, query.id, video, encoded[0].duration(video), truth, explained)


@dataclass(frozen=True, eq=False)
class _QuerySystem:
    """A system with the encoded videos of a split and one encoded query."""

    system: InSplit
    row: int
    query: Query
    corpus: MemoryCorpus
    encoded: QueryEncoding
    chooser: _QuerySystem | None = None

    @classmethod
    def of(cls, system: InSplit, row: int, query: Query, progress: Progress | None) -> _QuerySystem:
        split, model = system.split, system.trained.model
        if row >= len(split.queries) or split.queries[row] != query:
            raise UsageError(
                f"{system.name} reads other annotations: its {split.name} does not have query {query.id!r} "
                f"at position {row + 1}; all systems must read the same"
            )
        with evaluating(model):
            encoded: QueryEncoding = model.encode_queries(
                split.query_batch(np.array([row], np.int64)).to(device_of(model))
            )
        chooser = None if system.retriever is None else cls.of(system.retriever, row, query, progress)
        corpus = encode_split(system.trained, split, progress=progress)
        return cls(system, row, query, corpus, encoded, chooser)

    def duration(self, video_id: str) -> float | None:
        """Seconds of a video. Raises UsageError for one that is not in the split."""
        seconds = float(self.corpus.durations[self.corpus.rows_of([video_id])[0]])
        return seconds if np.isfinite(seconds) else None

    def moments(self, k: int, truth: Sequence[Moment], given: str | None) -> list[Ranked]:
        """The k best moments in all videos, or in `given` if the system cannot choose videos.

        For a system without moments, the k best videos. Overlapping moments are suppressed even where the
        system's decoding does not, because neighbours of the first answer explain nothing new.
        """
        decoding = self.system.trained.decoding
        if decoding.nms is None:
            before = max(_BEFORE_NMS, k)
            decoding = replace(decoding, nms=NMS, spans_before_nms=before)
        decoding, chooser = replace(decoding, spans_per_query=k), self.chooser
        retriever = None if chooser is None else Ranker(chooser.system.trained, chooser.corpus)
        ranker = Ranker(self.system.trained, self.corpus, decoding=decoding, retriever=retriever)
        task = ranker.tasks[0]
        lists = ranker.answers(
            [self.query.id],
            self._read,
            (task,),
            given={} if given is None else {self.query.id: given},
            pools=self.system.split.annotations.search_pools or None,
            retrieval_queries=None if chooser is None else chooser._read,
        )
        return self._ranked(next(iter(lists))[task], k, truth)

    def _read(self, rows: NDArray[np.int64]) -> QueryBatch:
        """The query, repeated for each row."""
        return self.system.split.query_batch(np.full(len(rows), self.row, np.int64))

    def _ranked(self, block: RunBlock, k: int, truth: Sequence[Moment]) -> list[Ranked]:
        ranked: list[Ranked] = []
        # Windows after the end of their video are empty; a list of videos has no times (NaN).
        for at in np.flatnonzero(~(block.start >= block.end))[:k].tolist():
            name = block.video_ids[int(block.video[at])]
            start, end, score = (float(column[at]) for column in (block.start, block.end, block.score))
            is_video = np.isnan(start)
            moment = Moment(name, 0.0, self._length(name)) if is_video else Moment(name, start, end)
            iou = None if is_video else overlap_with(truth, moment)
            ranked.append(Ranked(len(ranked) + 1, moment, score, self.duration(name), iou))
        return ranked

    def _length(self, video_id: str) -> float:
        """A video's duration in seconds; if unknown, the length of its clips together."""
        row = int(self.corpus.rows_of([video_id])[0])
        clips = int(self.corpus.take([row]).mask.sum())
        return self.duration(video_id) or clips * float(self.corpus.clip_seconds[row])

    def explained(self, video_id: str, moments: Sequence[Ranked], truth: Sequence[Moment]) -> Explained:
        trained, chooser = self.system.trained, self.chooser
        first = None if chooser is None else chooser._token_weights()
        along, by = borders(trained, self.encoded, self.corpus, video_id), chooser or self
        return Explained(
            self.system.name,
            trained.system if chooser is None else f"{chooser.system.trained.system} + {trained.system}",
            first or self._token_weights(),
            along,
            tuple(moments),
            similar_clips=similar_clips(by.system.trained, by.encoded, by.corpus, video_id, truth, along),
        )

    def _token_weights(self) -> TokenWeights | None:
        """The weights of the query's words; None if the system gives none."""
        trained, text = self.system.trained, self.query.text
        return token_weights(
            trained, self.encoded, text, pieces_for(trained, text, trained.inputs.query.encoder)
        )
