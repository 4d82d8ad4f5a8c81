"""Rewriting: a query is also searched in the words of a model, and the answers are fused.

The query as it was given counts as much as all others together: reciprocal rank fusion (Cormack, Clarke and
Büttcher, SIGIR 2009), with the weight 1 divided among the others. A moment keeps the probability that it has
for the given query; one that only other words find has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from whenabouts.checkers.protocol import CheckerError
from whenabouts.checkers.rewriter import Rewriter
from whenabouts.rerank import reordered
from whenabouts.search.phrases import MARK
from whenabouts.search.search_result import RewriteReport, SearchResult
from whenabouts.types import ScoredMoment

_RANK_CONSTANT = 60
# Moments that share this much (IoU) are one.
_SAME_MOMENT = 0.5


def with_rewrites(
    result: SearchResult,
    rewriter: Rewriter,
    search: Callable[[str], SearchResult],
    *,
    count: int,
    seconds: float,
    min_confidence: float = 0.0,
) -> SearchResult:
    """The `count` first moments of an answer, fused with those of the queries that a model writes.

    `search` answers such a query as it stands. Queries that rules read, or that ask for exact words, are not
    rewritten. Failures of the model become notes.
    """
    if result.understood or MARK.search(result.query):
        kept = "rules read it" if result.understood else "it asks for exact words"
        return replace(
            result,
            moments=result.moments[:count],
            notes=(*result.notes, f"the query was not sent to {rewriter.name}: {kept}"),
        )
    try:
        queries = rewriter.rewritten(result.query, seconds)
    except CheckerError as error:
        note = f"searched with your words alone: {error}"
        return replace(result, moments=result.moments[:count], notes=(*result.notes, note))
    answers = [search(query) for query in queries]
    moments = _fused(result, answers)
    moments = [scored for scored in moments if (scored.confidence or 0.0) >= min_confidence][:count]
    videos = dict(result.videos)
    for answer in answers:
        videos |= answer.videos
    report = RewriteReport(rewriter.name, tuple(queries))
    doubt = f"words of {rewriter.name} find another moment first"
    if result.answer == "no_match" and any(answer.answer != "no_match" for answer in answers) and moments:
        result = replace(result, answer="unsure", doubt=doubt)
    return reordered(replace(result, videos=videos, rewrite=report), moments, doubt)


def _fused(result: SearchResult, answers: Sequence[SearchResult]) -> list[ScoredMoment]:
    """The moments of all answers, best first; those of `result` keep their borders and probabilities."""
    fused = list(result.moments)
    scores = [1 / (_RANK_CONSTANT + rank) for rank in range(1, len(fused) + 1)]
    for answer in answers:
        for rank, scored in enumerate(answer.moments, 1):
            gain = 1 / (_RANK_CONSTANT + rank) / len(answers)
            same = next((at for at, old in enumerate(fused) if _is_same(old, scored)), None)
            if same is None:
                fused.append(replace(scored, confidence=None, chance_percentile=None, says_query=False))
                scores.append(gain)
            else:
                scores[same] += gain
    order = sorted(range(len(fused)), key=lambda at: (-scores[at], fused[at].moment))
    return [fused[at] for at in order]


def _is_same(first: ScoredMoment, second: ScoredMoment) -> bool:
    return first.video_id == second.video_id and first.moment.iou(second.moment) >= _SAME_MOMENT
