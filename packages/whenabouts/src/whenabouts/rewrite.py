"""Rewriting: a model, or `sound`, gives other queries; each is searched, and the answers are fused.

Fusion is by reciprocal ranks (Cormack, Clarke and Büttcher, SIGIR 2009). The given query has the weight 1,
and the other queries share the weight 1. A moment keeps its probability for the given query; a moment that
only other queries find has no probability, so a `min_confidence` above 0 drops it.
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
# IoU from which two moments count as the same.
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
    """An answer fused with the answers to a rewriter's queries, and cut to `count` moments.

    `search` must not interpret a query. Queries that rules interpreted, or with a quotation mark, are not
    rewritten. Failures of the rewriter become notes, those of `search` are raised.
    """
    if result.understood or MARK.search(result.query):
        why = "rules interpreted it" if result.understood else "a quotation mark asks for exact words"
        return replace(
            result,
            moments=result.moments[:count],
            notes=(*result.notes, f"the query was not rewritten by {rewriter.name}: {why}"),
        )
    try:
        queries = rewriter.rewritten(result.query, seconds)
    except CheckerError as error:
        note = f"searched with your words alone: {error}"
        return replace(result, moments=result.moments[:count], notes=(*result.notes, note))
    answers = [search(query) for query in queries]
    moments = _fused(result, answers)
    moments = [scored for scored in moments if (scored.confidence or 0.0) >= min_confidence][:count]
    videos = {name: record for each in (result, *answers) for name, record in each.videos.items()}
    report = RewriteReport(rewriter.name, tuple(queries))
    if result.answer == "no_match" and any(answer.answer != "no_match" for answer in answers) and moments:
        result = replace(result, answer="unsure", doubt="only other words find an answer")
    result = replace(result, videos=videos, rewrite=report)
    return reordered(result, moments, "other words find another moment first")


def _fused(result: SearchResult, answers: Sequence[SearchResult]) -> list[ScoredMoment]:
    """The moments of all answers, best first; those of `result` keep their borders and probabilities."""
    fused = list(result.moments)
    scores = [1 / (_RANK_CONSTANT + rank) for rank in range(1, len(fused) + 1)]
    for answer in answers:
        for rank, scored in enumerate(answer.moments, 1):
            gain = 1 / (_RANK_CONSTANT + rank) / len(answers)
            overlaps = (old.moment.iou(scored.moment) for old in fused)
            same = next((at for at, overlap in enumerate(overlaps) if overlap >= _SAME_MOMENT), None)
            if same is None:
                fused.append(replace(scored, confidence=None, chance_percentile=None, says_query=False))
                scores.append(gain)
            else:
                scores[same] += gain
    order = sorted(range(len(fused)), key=lambda at: (-scores[at], fused[at].moment))
    return [fused[at] for at in order]
