"""What scores mean on one corpus: measured with questions whose answer is certain, kept with the corpus.

Three quantities are measured. The *scale* of each stream's encoder: which cosines unrelated sentences have
with its clips, so that a cosine can be counted in spreads above chance and added to what full text scores.
Then *chance*: what such sentences score best in the whole way of a query, so that a score can become a
confidence. And the *answers*: how often "match" and "no match" are wrong, measured by unrelated sentences
(each judged by a chance that was fitted without it) and by questions whose answer is known
(`questions.py`), with their true video in and taken out. All are measured again once a stream has changed
by a tenth.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.background import SENTENCES
from whenabouts.confidence.chance import Chance, fit_chance
from whenabouts.confidence.outcomes import (
    Kind,
    Outcome,
    bins,
    charts,
    claims,
    rates_of,
    risk_coverage,
    thresholds_of,
)
from whenabouts.models.fusion import Scale, measure_scale
from whenabouts.product.calibration.questions import CalibrationQuestion, made_from, read_questions
from whenabouts.product.index.store import Store
from whenabouts.product.search import Calibration, EncodedQuery, Searcher, StreamAnswer, literal_in, ranked
from whenabouts.product.streams.protocol import QueryEncoder
from whenabouts.types import Moment, ScoredMoment, UsageError, number_of

if TYPE_CHECKING:
    from whenabouts.product.corpus import Corpus

# Share of a stream's clips that may be new before it is measured again.
REMEASURED_AT = 0.1
# A corpus with fewer clips than this is not calibrated: what is best in it hangs on a few sentences.
FEWEST_CLIPS = 10
# Questions that are made of the corpus at the end of an index run; `whenabouts calibrate` asks more:
MADE_AT_END_OF_RUN = 80
# enough for intervals of some 5 points either way.
MADE_ON_REQUEST = 400
# Clips that unrelated sentences are compared with; more change the second digit no more.
_SAMPLED_CLIPS = 20_000
_SAMPLED_VIDEOS = 100
# Each unrelated sentence is judged by a chance that was fitted to the others, in so many parts.
_PARTS = 5
# Moments of each stream that are kept of a question: streams agree on one of the first, or on none.
_KEPT = 20
# Seconds around a moment in which the words of a question are looked for, at most.
_AROUND = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """A calibration and the outcomes behind it. `made`: the questions were made of the corpus itself."""

    calibration: Calibration
    outcomes: tuple[Outcome, ...]
    made: bool

    def summary(self) -> dict[str, Any]:
        """The rates for programs, as they are kept with the corpus."""
        outcomes = self.outcomes
        return {
            **rates_of(outcomes).to_json(),
            "questions": "made of the corpus" if self.made else "given",
            "queries": sum(outcome.kind != "taken_out" for outcome in outcomes),
            "answered_elsewhere": sum(not outcome.counts for outcome in outcomes),
            **self.calibration.thresholds.to_json(),
        }

    def to_json(self) -> dict[str, Any]:
        """For programs: the summary (null where nothing is calibrated), the diagram and the curve."""
        curve = risk_coverage(self.outcomes)
        return {
            "calibration": self.summary() if self.calibration.chances else None,
            "streams": {
                name: {"clips": clips, "calibrated": name in self.calibration.chances}
                for name, clips in self.calibration.clips.items()
            },
            "reliability": [
                {
                    "confidence": held.claimed,
                    "unrelated": held.unrelated.to_json(),
                    "taken_out": held.taken_out.to_json(),
                }
                for held in claims(self.outcomes)
            ],
            "right": [{"from": b.low, "to": b.high, **b.right.to_json()} for b in bins(self.outcomes)],
            "risk_coverage": None if curve is None else curve.to_json(),
        }

    def write(self, folder: Path) -> list[Path]:
        """The figures and `calibration.json` in a folder; what was written. Raises UsageError."""
        from whenabouts.figures.confidence import write_figures

        written = write_figures(self.outcomes, folder) if self.outcomes else []
        target, aside = folder / "calibration.json", folder / f".calibration.{os.getpid()}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            aside.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
            aside.replace(target)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be written: {error.strerror or error}; name another"
            ) from error
        return [*written, target]

    def lines(self) -> list[str]:
        """For people: the rates, the reliability diagram and the risk-coverage curve."""
        missing = sorted(set(self.calibration.clips) - set(self.calibration.chances))
        lines = [
            f"uncalibrated: stream {name} has {number_of(self.calibration.clips[name], 'clip')}; in a corpus "
            f"with fewer than {FEWEST_CLIPS}, or where unrelated sentences find nothing, answers stay unsure"
            for name in missing
        ]
        if not self.calibration.chances:
            return lines
        if not any(outcome.kind == "known" for outcome in self.outcomes):
            lines.append("no words to make questions of, so misses are not known; give some with --queries")
        chosen = self.calibration.thresholds
        lines += [
            f"a match from {chosen.match_at:.1%}, no match below {chosen.no_match_below:.1%}",
            *rates_of(self.outcomes).lines(),
        ]
        return [*lines, "", *charts(self.outcomes)]


@dataclass(frozen=True, slots=True)
class _Result:
    """The first moments of each stream for one question, as the stream scores them.

    `literal`: the best moment of a stream has every word of the question. `near`: it or what is said around
    it has.
    """

    moments: tuple[ScoredMoment, ...]
    literal: bool
    near: bool
    streams: int

    def outcome(
        self, kind: Kind, chances: Mapping[str, Chance], group: str, truth: Moment | None = None
    ) -> Outcome:
        """The outcome, judged by what chance scores; `truth` is where the answer is, if it is there."""
        first = next(iter(ranked(self.moments, chances, self.streams)), None)
        right = first is not None and truth is not None and first.moment.overlap(truth) > 0
        confidence = first.confidence if first else None
        return Outcome(kind, confidence, first is not None, right, self.literal, self.near, group)


_Pair = tuple[CalibrationQuestion, _Result, _Result]
"""A question, and its results with its true video in and without it."""


def calibrate(
    corpus: Corpus,
    queries: str | os.PathLike[str] | None = None,
    *,
    made: int = MADE_ON_REQUEST,
    wait: bool = False,
    progress: Callable[[float], None] = lambda share: None,
) -> Report:
    """Measure anew how often the three answers are wrong, and keep it with the corpus.

    `queries` is a file of JSON lines with `query`, `video`, `start` and `end`; without one, at most
    `made` questions are made of what is said. `progress` is called with the share that is done.
    Raises UsageError for a corpus that is empty and for a file that is not as it should be.
    """
    if made < 0:
        raise UsageError(f"{made} questions: give 0 or more")

    def resolve(name: str) -> tuple[str, float | None]:
        record = corpus.resolve(name)
        return record.video_id, record.duration

    with corpus.writing(wait=wait):
        corpus.check_filled()
        questions = read_questions(Path(queries), resolve) if queries else None
        encoders = corpus.encoders.for_queries()
        return measure(corpus.store, encoders, progress=progress, questions=questions, made=made)


def is_due(store: Store, calibration: Calibration) -> bool:
    """Whether a stream has changed by more than `REMEASURED_AT` since it was measured, or never was."""
    return any(
        abs(count - calibration.clips.get(name, 0)) > REMEASURED_AT * calibration.clips.get(name, 0)
        for name, count in _counts(store).items()
    )


def measure(
    store: Store,
    encoders: Mapping[str, QueryEncoder],
    sentences: Sequence[str] = SENTENCES,
    progress: Callable[[float], None] = lambda share: None,
    *,
    questions: Sequence[CalibrationQuestion] | None = None,
    made: int = MADE_AT_END_OF_RUN,
) -> Report:
    """Measure all streams of a corpus and keep the result with it; `progress` is called with the share done.

    `sentences` are unrelated to any corpus. Without `questions`, `made` are made of the corpus itself.
    """
    banks = {name: encoder.encode_text(sentences) for name, encoder in encoders.items()}
    scales = {name: scale for name, bank in banks.items() if (scale := _scale(store, name, bank)) is not None}
    unrelated: list[_Result] = []
    pairs: list[_Pair] = []
    if sum(_counts(store).values()) >= FEWEST_CLIPS:  # of a smaller corpus nothing can be said
        searcher = Searcher(store, encoders, scales, {})
        to_ask = made_from(store, made) if questions is None else list(questions)
        total = len(sentences) + len(to_ask)
        for row, sentence in enumerate(sentences):
            progress(row / total)
            query = EncodedQuery(sentence, {name: bank[row] for name, bank in banks.items()})
            unrelated.append(_result(sentence, _answers(searcher, query), 0.0))
        for row, question in enumerate(to_ask):
            progress((len(sentences) + row) / total)
            pairs.append((question, *results_with_and_without(searcher, question)))
    progress(1.0)
    report = _report(store, scales, unrelated, pairs, made=questions is None)
    _keep(store, report)
    return report


def _report(
    store: Store,
    scales: Mapping[str, Scale],
    unrelated: Sequence[_Result],
    pairs: Sequence[_Pair],
    *,
    made: bool,
) -> Report:
    """Chance, outcomes and thresholds from the results of questions."""
    counts = _counts(store)
    chances = _chances(unrelated, set(counts))
    outcomes: tuple[Outcome, ...] = ()
    if chances:
        several = sum(bool(record.streams) for record in store.videos()) > 1
        outcomes = _outcomes(unrelated, pairs, chances, several=several, made=made)
    answers = thresholds_of(outcomes)
    return Report(Calibration(scales, chances, counts, answers), outcomes, made)


def results_with_and_without(searcher: Searcher, question: CalibrationQuestion) -> tuple[_Result, _Result]:
    """The results of a question with its true video in the corpus, and without it.

    A clip's score does not hang on other videos' clips, so leaving out the true video's moments is
    taking it out, but for what its words add to how common they are and for one more candidate video.
    """
    answers = _answers(searcher, searcher.encode(question.text, searcher.streams))
    others = [_without(answer, question.answer.video_id) for answer in answers]
    around = min(question.answer.duration, _AROUND)
    return _result(question.text, answers, around), _result(question.text, others, around)


def _answers(searcher: Searcher, query: EncodedQuery) -> list[StreamAnswer]:
    return [searcher.search_stream(stream, query) for stream in searcher.streams]


def _result(text: str, answers: Sequence[StreamAnswer], around: float) -> _Result:
    """The little of the streams' answers that is needed; `around` is in seconds."""
    moments = tuple(
        answer.scored(row) for answer in answers for row in range(min(_KEPT, len(answer.moments)))
    )
    literal = literal_in(text, answers) is not None
    near = literal or any(answer.says_near(0, text, around) for answer in answers if len(answer.moments))
    return _Result(moments, literal, near, len(answers))


def _without(answer: StreamAnswer, video_id: str) -> StreamAnswer:
    """What a stream found in other videos."""
    others = np.array([name != video_id for name in answer.block.video_ids], bool)
    return replace(answer, moments=answer.moments.take(others[answer.moments.video]))


def _chances(results: Sequence[_Result], streams: set[str]) -> dict[str, Chance]:
    """What chance scores best in each of some streams; streams with too few scores are left out."""
    best: dict[str, list[float]] = {name: [] for name in sorted(streams)}
    for result in results:
        top: dict[str, float] = {}
        for moment in result.moments:
            stream = next(iter(moment.evidence))
            top[stream] = max(moment.score, top.get(stream, moment.score))
        for name in best.keys() & top.keys():
            best[name].append(top[name])
    return {name: chance for name, scores in best.items() if (chance := fit_chance(scores)) is not None}


def _outcomes(
    unrelated: Sequence[_Result],
    pairs: Sequence[_Pair],
    chances: Mapping[str, Chance],
    *,
    several: bool,
    made: bool,
) -> tuple[Outcome, ...]:
    """The outcomes of all questions; no unrelated one is judged by a chance that it took part in."""
    outcomes = []
    for part in range(_PARTS):
        others = [result for row, result in enumerate(unrelated) if row % _PARTS != part]
        fitted = {**chances, **_chances(others, set(chances))}
        outcomes += [
            result.outcome("unrelated", fitted, f"{row:06d}")
            for row, result in enumerate(unrelated)
            if row % _PARTS == part
        ]
    for question, result, without in pairs:
        video_id = question.answer.video_id
        outcome = result.outcome("known", chances, video_id, question.answer)
        # Words that were taken from a passage are as true wherever they are said (a copy of the video).
        outcomes.append(replace(outcome, right=outcome.right or (made and outcome.near)))
        if several:
            outcomes.append(without.outcome("taken_out", chances, video_id))
    return tuple(outcomes)


def _keep(store: Store, report: Report) -> None:
    calibration = report.calibration
    answers = report.summary() if calibration.chances else None
    for name, count in calibration.clips.items():
        fact: dict[str, Any] = {"clips": count}
        if name in calibration.scales:
            fact["scale"] = calibration.scales[name].to_json()
        if name in calibration.chances:
            fact["chance"] = calibration.chances[name].to_json()
        if answers is not None:
            fact["answers"] = answers
        store.put_fact(f"calibration:{name}", fact)


def _counts(store: Store) -> dict[str, int]:
    """Clips of each stream."""
    return {name: stats.clips for name, stats in store.stats().streams.items()}


def _scale(store: Store, stream: str, bank: NDArray[np.float32]) -> Scale | None:
    """The scale of a stream's encoder, from clips of videos all over the corpus."""
    ids = [record.video_id for record in store.videos() if stream in record.streams]
    step = max(1, len(ids) // _SAMPLED_VIDEOS)
    vectors = store.clips_of(stream, ids[::step][:_SAMPLED_VIDEOS]).vectors
    if not len(vectors):
        return None
    vectors = vectors[:: max(1, len(vectors) // _SAMPLED_CLIPS)]
    return measure_scale(vectors @ bank.T)
