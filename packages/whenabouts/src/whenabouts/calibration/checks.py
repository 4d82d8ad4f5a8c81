"""Measures how often a checker is wrong on a corpus, on moments known to be right or wrong.

For each question the checker sees the first right and the first wrong moment of the search's list. In use it
must distinguish these; wrong moments drawn at random would be too easy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from whenabouts.calibration.questions import CalibrationQuestion, made_from, read_questions
from whenabouts.checkers.protocol import Checker, CheckerError, CheckerUnavailable, look
from whenabouts.checking import CheckRates, keep_rates, moments_by_truth, view_of
from whenabouts.confidence.rates import rate_of
from whenabouts.index.lookup import query_words, says
from whenabouts.types import Moment, UsageError, Verdict, number_of

if TYPE_CHECKING:
    from whenabouts.opened_corpus import OpenedCorpus
    from whenabouts.search.search_result import SearchResult

    class SearchedCorpus(OpenedCorpus, Protocol):
        """A corpus with a search."""

        def search(self, query: str = "", *, k: int | None = None, literal: str = "") -> SearchResult:
            """The moments that answer a query; `literal="all"` turns off the rules that read questions."""


QUESTIONS = 60
"""Default number of questions; each shows the checker two moments."""

_LISTED = 10
_SECONDS = 120.0
# Moved borders count as better if their mean gain in IoU over at least this many matches has a 95 % interval
# above zero.
_FEWEST_MOVED = 10


@dataclass(slots=True)
class _Looks:
    """Whether the checker called right and wrong moments a match, with the videos of the questions."""

    right: list[tuple[bool, str]] = field(default_factory=list)
    wrong: list[tuple[bool, str]] = field(default_factory=list)
    overlaps: list[tuple[float, float]] = field(default_factory=list)
    unread: int = 0


def calibrate_checker(
    corpus: SearchedCorpus,
    checker: Checker,
    queries: str | os.PathLike[str] | None = None,
    *,
    count: int = QUESTIONS,
    wait: bool = False,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[CheckRates, list[str]]:
    """Measure how often a checker is wrong, and store it with the corpus; returns the rates and notes.

    `queries` is a file of questions as for `calibrate`; without one at most `count` are made from the words
    of the corpus. Raises CorpusBusy while another process writes to the corpus, unless `wait`; one that
    begins later is waited for. Raises CheckerUnavailable if the checker stops answering (then nothing is
    stored), and UsageError for several corpora, a malformed file, without questions, or if no right or no
    wrong moment could be checked.
    """
    if count < 1:
        raise UsageError(f"{count} questions: give 1 or more")
    with corpus.writing(wait=wait):  # what cannot be stored is not measured
        corpus.check_filled()
    if queries is None:
        questions = made_from(corpus.store, count)
        notes = [
            "the questions are words of passages in another order, which measure how well the checker reads; "
            "give real questions with --queries to measure how well it sees"
        ]
    else:
        questions, notes = read_questions(Path(queries), corpus.resolve)
    if not questions:
        raise UsageError("nothing is said in this corpus to make questions of; give some with --queries")
    looks = _Looks()
    for number, question in enumerate(questions):
        progress(number / len(questions))
        _ask(corpus, checker, question, looks, is_made=queries is None)
    progress(1.0)
    rates = CheckRates(
        rate_of([hit for hit, _ in looks.right], [video for _, video in looks.right]),
        rate_of([hit for hit, _ in looks.wrong], [video for _, video in looks.wrong]),
        "made of the corpus" if queries is None else "given",
        looks.unread,
    )
    if queries is not None:
        rates = _with_borders(rates, looks.overlaps)
    if not rates.right.of or not rates.wrong.of:
        raise UsageError(
            "no right or no wrong moment could be checked for these questions ("
            f"{number_of(looks.unread, 'answer')} could not be read); give others, or choose another checker"
        )
    with corpus.writing(wait=True):
        keep_rates(corpus.store, checker, rates)
    return rates, notes


def _ask(
    corpus: SearchedCorpus, checker: Checker, question: CalibrationQuestion, looks: _Looks, *, is_made: bool
) -> None:
    """Show a checker the first right and the first wrong moment of a question, and add its verdicts."""
    result = corpus.search(question.text, k=_LISTED, literal="all")
    right, wrong = moments_by_truth(result.moments, question.answer)
    words = set(query_words(question.text)[0])
    if is_made and wrong is not None and says(wrong.text, words):
        wrong = None  # the words are said there too, so it may be right
    for scored, hits in ((right, looks.right), (wrong, looks.wrong)):
        if scored is None:
            continue
        verdict = _verdict(corpus, checker, question.text, scored.moment, looks)
        if verdict is None:
            continue
        hits.append((verdict.matches, question.answer.video_id))
        if scored is right and verdict.matches and verdict.start is not None and verdict.end is not None:
            moved = Moment(scored.video_id, verdict.start, verdict.end)
            looks.overlaps.append((scored.moment.iou(question.answer), moved.iou(question.answer)))


def _verdict(
    corpus: OpenedCorpus, checker: Checker, text: str, moment: Moment, looks: _Looks
) -> Verdict | None:
    view = view_of(corpus, corpus.resolve(moment.video_id), moment)
    if view is None:
        return None
    try:
        return look(checker, text, view, _SECONDS)
    except CheckerUnavailable:
        raise
    except CheckerError:
        looks.unread += 1
        return None


def _with_borders(rates: CheckRates, overlaps: Sequence[tuple[float, float]]) -> CheckRates:
    """The rates, with whether moved borders were nearer to the truth."""
    if not overlaps:
        return rates
    pairs = np.array(overlaps)
    gains = pairs[:, 1] - pairs[:, 0]
    least = gains.mean() - 1.96 * gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
    before, after = pairs.mean(axis=0).tolist()
    return replace(rates, moves=bool(len(gains) >= _FEWEST_MOVED and least > 0), overlap=(before, after))


def lines_of(checker: Checker, rates: CheckRates) -> Iterator[str]:
    """The rates as lines of text."""
    yield f"{checker.name}, on questions {rates.questions}"
    yield f"right moments called a match  {rates.right}"
    yield f"wrong moments called a match  {rates.wrong}"
    yield (
        f"its match multiplies the odds of a moment by {rates.likelihood_ratio(matches=True):.2f}, its no "
        f"match by {rates.likelihood_ratio(matches=False):.2f}"
        if rates.is_enough
        else "too few moments: its verdicts are shown, but change no confidence"
    )
    if rates.unread:
        yield f"{rates.unread} answers could not be read"
    if rates.overlap is not None:
        before, after = rates.overlap
        better = "so its borders are used" if rates.moves else "so its borders are only shown"
        yield f"borders that it moved: mean IoU {before:.2f} before, {after:.2f} after, {better}"
