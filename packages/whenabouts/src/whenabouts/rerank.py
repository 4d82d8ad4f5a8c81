"""Reranking: a model puts the first moments of an answer in order.

A reranker says which of two moments fits better, but not how probable either is. So a moment keeps the
probability that the search gave it. If the new first moment is too improbable for a match, the answer becomes
"unsure", because the model's error rate is unknown.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from whenabouts.budget import check_budget
from whenabouts.checkers.protocol import CheckerError
from whenabouts.checkers.reranker import Document, Reranker
from whenabouts.checking import Picture, picture_of
from whenabouts.confidence.probability import PROBABLE
from whenabouts.index.records import VideoRecord
from whenabouts.search.search_result import RerankReport, SearchResult
from whenabouts.shown import Line, lines_of
from whenabouts.types import Moment, Reranked, ScoredMoment, WhenaboutsError, number_of

if TYPE_CHECKING:
    from whenabouts.opened_corpus import OpenedCorpus

MOST_RERANKED = 40
"""The most moments that a reranker scores."""
_TOGETHER = 8
"""Moments per call of the model; the time limit is checked between calls."""
_MOST_CHARACTERS = 2000
"""Most characters of a moment's words: about the 512 tokens that most models read."""


def reranked(
    corpus: OpenedCorpus,
    result: SearchResult,
    reranker: Reranker,
    *,
    count: int,
    seconds: float,
    picture: Picture = picture_of,
) -> SearchResult:
    """An answer cut to `count` moments, after a model has put its first `MOST_RERANKED` in order.

    Moments without words or a frame that the model can read, and those not scored within `seconds`, keep
    their rank. An answer in order of time is only cut. Failures of the model become notes.
    """
    if result.is_in_order:
        note = f"{reranker.name} was not asked: the moments are in order of time"
        return replace(result, moments=result.moments[:count], notes=(*result.notes, note))
    scores, notes = _scores(result, reranker, seconds, _Reader(corpus, result, reranker, picture))
    line = (
        f"{number_of(len(scores), 'moment')} put in order by {reranker.name}; confidence values come from "
        "the search"
    )
    result = replace(
        result,
        notes=(*result.notes, *notes),
        rerank=RerankReport(reranker.name, len(scores), line),
    )
    doubt = f"{reranker.name} puts a moment first that the search finds too improbable for a match"
    return reordered(result, _in_order(result.moments, scores)[:count], doubt)


def reordered(result: SearchResult, moments: Sequence[ScoredMoment], doubt: str) -> SearchResult:
    """An answer with its moments in the order that a model chose.

    The scores are sorted and reassigned, so that they still decrease with the rank. If the first moment
    changes, `interval` is dropped, and a "match" whose new first moment is too improbable becomes "unsure",
    with `doubt` as the reason.
    """
    scores = sorted((scored.score for scored in moments), reverse=True)
    kept = tuple(replace(scored, score=score) for scored, score in zip(moments, scores, strict=True))
    result, before = replace(result, moments=kept), result.moments
    if not kept or (before and kept[0].moment == before[0].moment):
        return result
    if result.answer != "match" or (kept[0].confidence or 0.0) >= PROBABLE.match_at:
        return replace(result, interval=None)
    return replace(result, answer="unsure", doubt=doubt, interval=None)


def _scores(
    result: SearchResult, reranker: Reranker, seconds: float, reader: _Reader
) -> tuple[dict[int, float], list[str]]:
    """The model's scores of the first moments, by their place in the list, and notes on the others."""
    query, first = result.words or result.query, result.moments[:MOST_RERANKED]
    scores: dict[int, float] = {}
    until = time.monotonic() + seconds
    for start in range(0, len(first), _TOGETHER):
        check_budget()
        if start and time.monotonic() >= until:
            note = f"{reranker.name} read {start} of {number_of(len(first), 'moment')} within {seconds:g} s"
            return scores, [note]
        read_now = {
            start + at: reader.read(scored) for at, scored in enumerate(first[start : start + _TOGETHER])
        }
        legible = {place: document for place, document in read_now.items() if document is not None}
        try:
            scored = reranker.score(query, list(legible.values())) if legible else []
        except CheckerError as error:
            which = f"moments from rank {start + 1} on" if scores else "the moments"
            return scores, [f"{which} keep their order: {error}"]
        scores |= zip(legible, scored, strict=True)
    return scores, []


def _in_order(moments: Sequence[ScoredMoment], scores: Mapping[int, float]) -> list[ScoredMoment]:
    """Scored moments sorted among the ranks that they held; others stay, and ties keep their order."""
    ranked = list(moments)
    for place, old in zip(scores, sorted(scores, key=lambda old: (-scores[old], old)), strict=True):
        ranked[place] = replace(moments[old], reranked=Reranked(scores[old], old + 1))
    return ranked


class _Reader:
    """Reads moments for a reranker: the words in them, and the frame that shows each best.

    The words of each video are read once.
    """

    def __init__(
        self, corpus: OpenedCorpus, result: SearchResult, reranker: Reranker, picture: Picture
    ) -> None:
        self._corpus, self._result, self._reranker, self._picture = corpus, result, reranker, picture
        self._lines: dict[str, tuple[Line, ...]] = {}

    def read(self, scored: ScoredMoment) -> Document | None:
        """The words and the frame of a moment, as far as the model reads them; None if both are missing."""
        record = self._result.videos[scored.video_id]
        words = self._words(record, scored.moment) if self._reranker.reads_words else ""
        frame = None
        if self._reranker.sees and record.has_picture:
            with contextlib.suppress(WhenaboutsError, OSError):  # a missing or damaged file has no frames
                frame = self._picture(record, self._result.instant(scored))
        return Document(words, frame) if words or frame else None

    def _words(self, record: VideoRecord, moment: Moment) -> str:
        if record.video_id not in self._lines:
            both = (lines_of(self._corpus.store, record, None, spoken=spoken) for spoken in (True, False))
            self._lines[record.video_id] = tuple(chain(*(chain(*lines.values()) for lines in both)))
        lines = self._lines[record.video_id]
        inside = (line.text for line in lines if line.start < moment.end and line.end > moment.start)
        return " ".join(inside)[:_MOST_CHARACTERS].strip()
