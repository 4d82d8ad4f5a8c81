"""The verdict of an answer: match, unsure or no match, and why it is unsure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from whenabouts.confidence.probability import FIXED, PROBABLE, answer_for, stands_out
from whenabouts.index.lookup import query_words
from whenabouts.index.records import unambiguous
from whenabouts.types import Answer, ScoredMoment

if TYPE_CHECKING:
    from whenabouts.search.answer_probability import ProbableMoments

from whenabouts.search.finder import Finder, RankedMoments
from whenabouts.search.moments import StreamAnswer

UNCALIBRATED = "uncalibrated: how sure an answer is has not been measured here; run `whenabouts calibrate`"


UNMEASURED_ALIKE = "how often similar moments are those that were meant has not been measured"


def literal_in(query: str, answers: Iterable[StreamAnswer]) -> StreamAnswer | None:
    """The first stream whose best moment has every word of the query literally."""
    words = set(query_words(query)[0])
    return next(
        (answer for answer in answers if words and len(answer.moments) and answer.says(0, words)), None
    )


def judged_by(ranked: RankedMoments, model: Finder) -> tuple[Answer, str]:
    """The verdict on a trained system's answer, and the doubt if it is "unsure"."""
    confidence = ranked.moments[0].confidence if ranked.moments else None
    thresholds = ranked.thresholds or FIXED
    answer = answer_for(confidence, has_moments=bool(ranked.moments), thresholds=thresholds)
    if answer != "unsure":
        return answer, ""
    name = unambiguous(model.name)
    if confidence is None:
        return answer, f"how sure an answer of {name} is, has not been measured on this corpus"
    return answer, f"{name} is about as sure of queries that have no answer"


def judged(
    query: str,
    probable: ProbableMoments,
    answers: Sequence[StreamAnswer],
    interval: tuple[float, float] | None,
    withheld: str,
) -> tuple[Answer, str]:
    """The verdict on an answer, and the doubt if it is "unsure".

    If a stream's best moment has every word of the query literally, "no match" would mislead. So it would if
    hardly any unrelated sentence scores as high, or if the sentence model does not know the language, so that
    nothing was compared by meaning.
    """
    ranked = probable.moments
    confidence = ranked[0].confidence if ranked else None
    literal = literal_in(query, answers)
    answer = answer_for(
        confidence,
        has_moments=bool(ranked),
        never_no_match=literal is not None
        or probable.is_foreign
        or bool(ranked and stands_out(ranked[0].chance_percentile)),
        is_name=probable.is_name,
        in_five=probable.in_five,
        thresholds=PROBABLE,
    )
    if answer != "unsure":
        return answer, ""
    doubt = doubt_of(confidence, interval, withheld)
    if literal is not None and confidence is not None and confidence < PROBABLE.match_at:
        return answer, f"{_doubt_of_literal(literal, set(query_words(query)[0]))}; {doubt}"
    return answer, doubt


def judged_alike(ranked: Sequence[ScoredMoment]) -> tuple[Answer, str]:
    """The verdict on an answer to an example (does the first moment show the same video?) and the doubt."""
    confidence = ranked[0].confidence if ranked else None
    answer = answer_for(confidence, has_moments=bool(ranked), thresholds=PROBABLE)
    if confidence is None:
        return answer, UNMEASURED_ALIKE
    share = round(100 * confidence)
    why = f"frames this similar come from the same video in {share} of 100 cases"
    return answer, why if answer == "unsure" else ""


def doubt_of(confidence: float | None, interval: tuple[float, float] | None, withheld: str) -> str:
    """Why an answer is "unsure"."""
    if confidence is None or interval is None:
        return withheld or UNCALIBRATED
    low, high = (round(100 * bound) for bound in interval)
    return f"an answer like this is right in {round(100 * confidence)} of 100 cases ({low} to {high})"


def _doubt_of_literal(answer: StreamAnswer, words: Collection[str]) -> str:
    """The doubt if the best moment has all the words, but they prove little."""
    looked_at = len(answer.moments)
    places = sum(answer.says(row, words) for row in range(looked_at))
    count = f"its words are all said in {places} of the {looked_at} places looked at"
    if places > max(2, looked_at / 2):
        return f"{count}, too often to tell places apart"
    return count
