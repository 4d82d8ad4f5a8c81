"""Checking: a model looks at the best moments of an answer; its verdicts change their probabilities.

Published models are right in only 30 to 63 % of their verdicts. So a verdict is treated as a test with known
error rates. `calibrate --check` measures how often the model calls right and wrong moments of the corpus a
match. By Bayes' rule a match multiplies the odds of a moment by the ratio of these two shares, and "no match"
by the ratio of their complements. Without a measurement the verdict is shown, but does not count: it changes
neither order nor confidence.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.budget import check_budget
from whenabouts.checkers.protocol import Checker, CheckerError, CheckerUnavailable, View, look
from whenabouts.confidence.probability import PROBABLE, answer_for
from whenabouts.confidence.rates import Rate
from whenabouts.index.lookup import query_words, says
from whenabouts.index.records import VideoRecord
from whenabouts.search.rank import doubt_of
from whenabouts.search.search_result import CheckReport, SearchResult
from whenabouts.shown import show
from whenabouts.types import Moment, ScoredMoment, UsageError, Verdict, WhenaboutsError, number_of
from whenabouts.video.objects import source_path
from whenabouts.video.thumbnails import thumbnail

if TYPE_CHECKING:
    from whenabouts.index.store import Store
    from whenabouts.opened_corpus import OpenedCorpus

FEWEST = 15
"""The fewest right moments, and the fewest wrong ones, of a measurement (effective number of questions)."""

_FRAMES_INSIDE = 6
PIXELS_WIDE = 448
"""Width of the frames for a checker."""
# Seconds before and after a moment that a checker sees, and into which it may move borders.
_LEAST_AROUND, _MOST_AROUND = 2.0, 10.0
# Pseudo-count: no measured share counts as certain.
_DOUBT = 0.5

Picture = Callable[[VideoRecord, float], bytes]
"""(video, seconds) -> JPEG."""


@dataclass(frozen=True, slots=True)
class CheckRates:
    """Measured errors of a checker on a corpus.

    - `right`, `wrong`: the shares of right and of wrong moments that it called a match.
    - `questions`: where the questions came from, "given" or "made of the corpus".
    - `unread`: the number of unusable answers.
    - `overlap`: mean IoU of the search's and of the checker's borders with the truth (given questions only).
    - `moves`: whether the checker's borders are better.
    """

    right: Rate
    wrong: Rate
    questions: str
    unread: int = 0
    moves: bool = False
    overlap: tuple[float, float] | None = None

    @property
    def is_enough(self) -> bool:
        """Whether enough right and wrong moments were measured for the verdicts to count."""
        return min(self.right.effective, self.wrong.effective) >= FEWEST

    def likelihood_ratio(self, *, matches: bool) -> float:
        """The factor for the odds of a moment; 1 if its verdicts do not distinguish right from wrong.

        Shares are smoothed by half a moment towards a half, so that no verdict counts as certain.
        """
        if not self.is_enough:
            return 1.0
        at_right, at_wrong = _share(self.right), _share(self.wrong)
        if at_right <= at_wrong:
            return 1.0
        return at_right / at_wrong if matches else (1 - at_right) / (1 - at_wrong)

    @property
    def line(self) -> str:
        """The error rates in one line."""
        text = f"of right moments it called {self.right} a match, of wrong ones {self.wrong}"
        return text if self.is_enough else f"{text}: too few to count on"

    def to_json(self) -> dict[str, Any]:
        return {
            "right": self.right.to_json(),
            "wrong": self.wrong.to_json(),
            "questions": self.questions,
            "unread": self.unread,
            "moves": self.moves,
            "overlap": None if self.overlap is None else list(self.overlap),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CheckRates:
        overlap = value["overlap"]
        return cls(
            Rate.from_json(value["right"]),
            Rate.from_json(value["wrong"]),
            str(value["questions"]),
            int(value["unread"]),
            bool(value["moves"]),
            None if overlap is None else (float(overlap[0]), float(overlap[1])),
        )


def _share(rate: Rate) -> float:
    """A measured share, smoothed by Jeffreys' prior at the effective number of questions."""
    hits = rate.effective * rate.count / rate.of
    return (hits + _DOUBT) / (rate.effective + 2 * _DOUBT)


def rates_of(store: Store, checker: Checker) -> CheckRates | None:
    """The measured errors of a checker with this fingerprint on a corpus; None if unmeasured."""
    fact = store.fact(_key(checker))
    return None if fact is None else CheckRates.from_json(fact["rates"])


def keep_rates(store: Store, checker: Checker, rates: CheckRates) -> None:
    """Store measured errors with the corpus."""
    store.put_fact(_key(checker), {"model": checker.name, "rates": rates.to_json()})


def _key(checker: Checker) -> str:
    return f"check:{blake2b(checker.fingerprint.encode(), digest_size=12).hexdigest()}"


def picture_of(record: VideoRecord, at: float) -> bytes:
    """The frame at a time in seconds, as JPEG. Raises UsageError if the file has changed since indexing."""
    status = source_path(record.path).stat()
    if (status.st_size, status.st_mtime_ns) != (record.size, record.modified_ns):
        raise UsageError(f"{Path(record.path).name} has changed since it was indexed")
    return thumbnail(source_path(record.path), at, PIXELS_WIDE)


def view_of(
    corpus: OpenedCorpus, record: VideoRecord, moment: Moment, picture: Picture = picture_of
) -> View | None:
    """A checker's view of a moment: frames inside, one before and one after, and the words in it.

    It has no frames if one of them cannot be read. None without frames and words.
    """
    around = min(_MOST_AROUND, max(_LEAST_AROUND, moment.duration / 2))
    low = max(0.0, moment.start - around)
    high = max(moment.end, min(record.duration or moment.end, moment.end + around))
    frames: list[tuple[float, bytes]] = []
    if record.has_picture:
        with contextlib.suppress(WhenaboutsError, OSError):
            frames = [(at, picture(record, at)) for at in _instants(moment, low, high)]
    words = " ".join(line.text for line in show(corpus.store, record, moment).words)
    return View(moment, frames, words, low, high) if frames or words else None


def _instants(moment: Moment, low: float, high: float) -> list[float]:
    """Times of the frames: evenly inside, and in the middle of the surroundings before and after."""
    step = moment.duration / _FRAMES_INSIDE
    inside = [moment.start + step * (number + 0.5) for number in range(_FRAMES_INSIDE)]
    before = [(low + moment.start) / 2] if low < moment.start else []
    after = [(high + moment.end) / 2] if high > moment.end else []
    return [*before, *inside, *after]


def checked(
    corpus: OpenedCorpus,
    result: SearchResult,
    checker: Checker,
    *,
    best: int,
    seconds: float,
    min_confidence: float = 0.0,
    by_streams: bool = True,
    picture: Picture = picture_of,
) -> SearchResult:
    """An answer after a checker has looked at its first `best` moments, within about `seconds`.

    The verdicts change confidence, order and answer if the checker's errors were measured on enough moments
    of this corpus (`CheckRates.is_enough`). They are only shown for moments in order of time, for moments of
    other origin than the measured ones (`by_streams` false: a trained system or a reranker chose them), and
    if a video's pictures could not be read. Failures of the checker become notes.
    """
    verdicts, unseen, notes = _verdicts(corpus, result, checker, best, seconds, picture)
    rates = rates_of(corpus.store, checker)
    shown = tuple(replace(scored, verdict=verdicts.get(row)) for row, scored in enumerate(result.moments))
    obstacle = _obstacle(result, by_streams)
    counts = rates is not None and rates.is_enough and not obstacle and len(verdicts) > len(unseen)
    line = _line(checker, rates, obstacle)
    report = CheckReport(checker.name, len(verdicts), counts, line, rates.to_json() if rates else None)
    result = replace(result, moments=shown, notes=(*result.notes, *notes), check=report)
    return _combined(result, rates, unseen, min_confidence) if rates is not None and counts else result


def _obstacle(result: SearchResult, by_streams: bool) -> str:
    """Why verdicts on this answer cannot count, "" if they can."""
    if not by_streams:
        return "it was measured on moments of the streams"
    if result.is_in_order:
        return "the moments stay in order of time"
    return "" if all(scored.confidence is not None for scored in result.moments) else "confidence is unknown"


def _line(checker: Checker, rates: CheckRates | None, obstacle: str) -> str:
    """A checker's error rates for users, and why its verdicts do not count."""
    if rates is None:
        return (
            f"how often {checker.name} is wrong has not been measured on this corpus (`whenabouts "
            "calibrate --check`), so its verdict changes neither order nor confidence"
        )
    return f"{checker.name}{f', only shown, because {obstacle}' if obstacle else ''}: {rates.line}"


def _verdicts(
    corpus: OpenedCorpus, result: SearchResult, checker: Checker, best: int, seconds: float, picture: Picture
) -> tuple[dict[int, Verdict], set[int], list[str]]:
    """The verdicts on the first moments by row, the rows whose frames could not be read, and notes."""
    verdicts: dict[int, Verdict] = {}
    unseen, notes = set[int](), list[str]()
    # The words searched for: a moment alone does not show its order, its video's name or another event.
    words = result.words or result.query
    until = time.monotonic() + seconds
    for row, scored in enumerate(result.moments[:best]):
        check_budget()
        left = until - time.monotonic()
        if left <= 0:
            count = number_of(min(best, len(result.moments)), "moment")
            notes.append(f"{checker.name} looked at {len(verdicts)} of {count} within {seconds:g} s")
            break
        record = result.videos[scored.video_id]
        view = view_of(corpus, record, scored.moment, picture)
        if view is None:
            notes.append(f"moment {row + 1} was not checked: it has neither pictures nor words here")
            continue
        try:
            verdicts[row] = look(checker, words, view, left)
            if record.has_picture and not view.frames:
                unseen.add(row)
                notes.append(f"the verdict on moment {row + 1} is only shown: its pictures could not be read")
        except CheckerUnavailable as error:
            notes.append(
                f"the moments were not checked: {error}" if not verdicts else f"not all checked: {error}"
            )
            break
        except CheckerError as error:
            notes.append(f"moment {row + 1} was not checked: {checker.name}: {error}")
    return verdicts, unseen, notes


def _combined(
    result: SearchResult, rates: CheckRates, unseen: Collection[int], min_confidence: float
) -> SearchResult:
    """The answer sorted by the probabilities after the verdicts; those of the `unseen` rows stay."""
    before = result.moments
    after = [scored if row in unseen else _updated(scored, rates) for row, scored in enumerate(before)]
    order = sorted(range(len(after)), key=lambda row: -(after[row].confidence or 0.0))
    # Scores must follow the order, so they are reassigned; the streams' scores are in the evidence.
    scores = sorted((scored.score for scored in before), reverse=True)
    ranked = [replace(after[row], score=score) for row, score in zip(order, scores, strict=True)]
    kept = tuple(scored for scored in ranked if (scored.confidence or 0.0) >= min_confidence)
    if not kept:
        return replace(result, moments=(), answer="no_match", doubt="", interval=None)
    first, old = kept[0], before[0]
    interval = _shifted(result.interval, old.confidence or 0.0, first.confidence or 0.0)
    is_name = result.answer == "match" and (old.confidence or 0.0) < PROBABLE.match_at and order[0] == 0
    answer = answer_for(
        first.confidence,
        has_moments=True,
        never_no_match=_is_literal(result),
        is_name=is_name,
        thresholds=PROBABLE,
    )
    doubt = doubt_of(first.confidence, interval, "") if answer == "unsure" else ""
    return replace(result, moments=kept, answer=answer, doubt=doubt, interval=interval)


def _is_literal(result: SearchResult) -> bool:
    """Whether "no match" is ruled out: the words are said, or the search has ruled it out already."""
    first = result.moments[0]
    was_spared = result.answer == "unsure" and (first.confidence or 0.0) < PROBABLE.no_match_below
    words = set(query_words(result.words or result.query)[0])
    return was_spared or (bool(words) and says(first.text, words))


def _updated(scored: ScoredMoment, rates: CheckRates) -> ScoredMoment:
    """A moment after its verdict: its probability by Bayes' rule, and its borders if they count."""
    verdict = scored.verdict
    if verdict is None or scored.confidence is None:
        return scored
    odds = _log_odds(scored.confidence) + math.log(rates.likelihood_ratio(matches=verdict.matches))
    moved = replace(scored, confidence=_probability(odds))
    if not rates.moves or verdict.start is None or verdict.end is None:
        return moved
    return replace(moved, moment=Moment(scored.video_id, verdict.start, verdict.end))


def _log_odds(probability: float) -> float:
    inside = min(max(probability, 1e-6), 1 - 1e-6)
    return math.log(inside / (1 - inside))


def _probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


def _shifted(interval: tuple[float, float] | None, before: float, after: float) -> tuple[float, float] | None:
    """An interval shifted, in log odds, by as much as its probability."""
    if interval is None:
        return None
    shift = _log_odds(after) - _log_odds(before)
    low, high = (_probability(_log_odds(bound) + shift) for bound in interval)
    return low, high


def moments_by_truth(
    moments: Sequence[ScoredMoment], truth: Moment
) -> tuple[ScoredMoment | None, ScoredMoment | None]:
    """The first moment that overlaps the truth, and the first that does not.

    A moment with the same text as the right one is a copy of its recording and does not count as wrong.
    """
    right = next((scored for scored in moments if scored.moment.overlap(truth) > 0), None)
    text = right.text if right is not None else ""
    elsewhere = (scored for scored in moments if scored.moment.overlap(truth) == 0)
    return right, next((scored for scored in elsewhere if not text or scored.text != text), None)
