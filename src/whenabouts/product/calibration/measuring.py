"""What scores mean on one corpus: measured with questions whose answer is certain, kept with the corpus.

Three quantities are measured. The *scale* of each stream's encoder: which cosines unrelated sentences have
with its clips, so that a cosine can be counted in spreads above chance and added to what full text scores.
Then *chance*: what such sentences, in the language of the corpus, score best in the whole way of a query,
which is the first feature of how probable an answer is. And the *answers*: how often "match" and "no match"
are wrong, measured by unrelated sentences (each judged by a chance that was fitted without it) and by
questions whose answer is known (`questions.py`), with their true video in and taken out. Where people gave
these questions, they also move the probabilities of this corpus (`Adjustment`); made ones do not, because
they are easier than people's. All are measured again once a stream has changed by a tenth.
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

from whenabouts.confidence.chance import Chance, fit_chance, stands_out
from whenabouts.confidence.outcomes import (
    Kind,
    Outcome,
    adjusted_by_halves,
    adjustment_of,
    bins,
    charts,
    rates_of,
    reliability_of,
    risk_coverage,
)
from whenabouts.confidence.probability import PROBABLE, UNADJUSTED, Features, general
from whenabouts.models.fusion import Scale, measure_scale
from whenabouts.product.answer_probability import LISTED, Spoken, features_of, most_spoken, spoken_at
from whenabouts.product.calibration.banks import LEANING, Bank, banks_of
from whenabouts.product.calibration.questions import CalibrationQuestion, made_from, read_questions
from whenabouts.product.index.store import Store
from whenabouts.product.query_language import ALIGNED
from whenabouts.product.ranked_streams import ranked
from whenabouts.product.search import Searcher
from whenabouts.product.stored_calibration import Calibration
from whenabouts.product.stream_answer import EncodedQuery, StreamAnswer
from whenabouts.product.streams import stream as stream_named
from whenabouts.product.streams.protocol import QueryEncoder
from whenabouts.product.verdict import literal_in
from whenabouts.types import Moment, ScoredMoment, UsageError

if TYPE_CHECKING:
    from whenabouts.product.corpus import Corpus

# Share of a stream's clips that may be new before it is measured again.
REMEASURED_AT = 0.1
# A corpus with fewer clips than this is asked fewer sentences: they find the same few again.
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
# Of these, so many of each stream are compared with the question word by word.
_COMPARED = 3
# Scales of chance below this are due to few clips, in which a sentence finds nothing or the same again.
_LEAST_SCALE = 0.5
# Seconds around a moment in which the words of a question are looked for, at most.
_AROUND = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """A calibration and the outcomes behind it.

    `made`: the questions were made of the corpus itself. `notes`: what was done to those that were given.
    """

    calibration: Calibration
    outcomes: tuple[Outcome, ...]
    made: bool
    notes: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """The rates for programs, as they are kept with the corpus."""
        outcomes = self.outcomes
        return {
            **rates_of(outcomes).to_json(),
            "questions": "made of the corpus" if self.made else "given",
            "queries": sum(outcome.kind != "taken_out" for outcome in outcomes),
            "answered_elsewhere": sum(not outcome.counts for outcome in outcomes),
            **PROBABLE.to_json(),
            **reliability_of(outcomes).to_json(),
            "adjustment": self.calibration.adjustment.to_json(),
        }

    def to_json(self) -> dict[str, Any]:
        """For programs: the summary (null where nothing is calibrated), the diagram and the curve."""
        curve = risk_coverage(self.outcomes)
        return {
            "calibration": self.summary() if self.calibration.chances else None,
            "notes": list(self.notes),
            "streams": {
                name: {"clips": clips, "calibrated": name in self.calibration.chances}
                for name, clips in self.calibration.clips.items()
            },
            "reliability": [
                {"from": row.low, "to": row.high, "stated": row.stated, **row.right.to_json()}
                for row in bins(self.outcomes)
            ],
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
        if not self.calibration.chances:
            return [self.calibration.withheld or "uncalibrated: unrelated sentences find nothing here"]
        lines = [*self.notes, *([self.calibration.note] if self.calibration.note else [])]
        if not any(outcome.kind == "known" for outcome in self.outcomes):
            lines.append("no words to make questions of, so misses are not known; give some with --queries")
        lines += [
            f"a match from {PROBABLE.match_at:.0%}, no match below {PROBABLE.no_match_below:.0%}",
            *rates_of(self.outcomes).lines(),
        ]
        return [*lines, "", *charts(self.outcomes)]


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The first moments of each stream for one question, as the stream scores them.

    `spoken` is how much of it is said in those that come first, by stream. `literal`: the best moment of a
    stream has every word of the question. `near`: it or what is said around it has.
    """

    text: str
    moments: tuple[ScoredMoment, ...]
    spoken: Mapping[Moment, Mapping[str, Spoken]]
    literal: bool
    near: bool
    streams: int

    def first(
        self, chances: Mapping[str, Chance], count: int = 1
    ) -> tuple[list[ScoredMoment], list[Features]]:
        """The moments of all streams in order, and the features of the first `count` (none: uncalibrated)."""
        moments = ranked(self.moments, chances, self.streams)
        if not moments or moments[0].chance_percentile is None:
            return moments, []
        return moments, features_of(self.text, moments, self.said_at, count)

    def said_at(self, scored: ScoredMoment) -> Spoken | None:
        """How much of it is said in one of the first moments, by what found that."""
        return most_spoken(self.spoken.get(scored.moment, {}), scored)

    def outcome(
        self, kind: Kind, chances: Mapping[str, Chance], group: str, truth: Moment | None = None
    ) -> Outcome:
        """The outcome, judged by what chance scores; `truth` is where the answer is, if it is there."""
        moments, features = self.first(chances)
        right = bool(moments) and truth is not None and moments[0].moment.overlap(truth) > 0
        there = self.said_at(moments[0]) if moments else None
        confidence = general().of_first(features[0], has_words=there is not None) if features else None
        is_name = there is not None and there.is_name
        literal = self.literal or bool(moments and stands_out(moments[0].chance_percentile))
        return Outcome(kind, confidence, bool(moments), right, literal, self.near, group, is_name)


_Pair = tuple[CalibrationQuestion, QuestionResult, QuestionResult]
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
        questions, notes = read_questions(Path(queries), resolve) if queries else (None, [])
        encoders = corpus.encoders.for_queries()
        report = measure(corpus.store, encoders, progress=progress, questions=questions, made=made)
    return replace(report, notes=tuple(notes))


def is_due(store: Store, calibration: Calibration) -> bool:
    """Whether a stream has changed by more than `REMEASURED_AT` since it was measured, or never was.

    What was measured by a version that had no probabilities is due as well.
    """
    by_words = [name for name in store.streams if "text" in stream_named(name).meets]
    return any(name not in calibration.banks for name in by_words) or any(
        abs(count - calibration.clips.get(name, 0)) > REMEASURED_AT * calibration.clips.get(name, 0)
        for name, count in _counts(store).items()
    )


def measure(
    store: Store,
    encoders: Mapping[str, QueryEncoder],
    sentences: Sequence[str] | None = None,
    progress: Callable[[float], None] = lambda share: None,
    *,
    questions: Sequence[CalibrationQuestion] | None = None,
    made: int = MADE_AT_END_OF_RUN,
) -> Report:
    """Measure all streams of a corpus and keep the result with it; `progress` is called with the share done.

    `sentences` are unrelated to the corpus; None: ours, in its language (`banks.py`). Without `questions`,
    `made` are made of the corpus itself.
    """
    encoders = {name: encoder for name, encoder in encoders.items() if "text" in stream_named(name).meets}
    banks = banks_of(store, encoders)
    if sentences is not None:
        banks = {name: replace(bank, sentences=tuple(sentences)) for name, bank in banks.items()}
    counts = _counts(store)
    if sum(counts.values()) < FEWEST_CLIPS:
        banks = {name: replace(bank, sentences=bank.sentences[:ALIGNED]) for name, bank in banks.items()}
    vectors = {name: encoder.encode_text(banks[name].sentences) for name, encoder in encoders.items()}
    scales = {
        name: scale
        for name, bank in vectors.items()
        if (scale := _scale(store, name, bank, understood=not banks[name].foreign)) is not None
    }
    searcher = Searcher(store, encoders, Calibration(scales))
    to_ask = made_from(store, made) if questions is None else list(questions)
    to_ask = to_ask if any(not bank.withheld for bank in banks.values()) else []
    unrelated: dict[str, QuestionResult] = {}
    to_compare = dict.fromkeys(sentence for bank in banks.values() for sentence in bank.sentences)
    total = len(to_compare) + len(to_ask)
    for row, sentence in enumerate(to_compare):
        progress(row / total)
        unrelated[sentence] = _result(sentence, searcher, searcher.encode(sentence, searcher.streams))
    pairs: list[_Pair] = []
    for row, question in enumerate(to_ask):
        progress((len(to_compare) + row) / total)
        pairs.append((question, *results_with_and_without(searcher, question)))
    progress(1.0)
    report = _report(
        store, Calibration(scales, clips=counts), banks, unrelated, pairs, made=questions is None
    )
    _keep(store, report)
    return report


def _report(
    store: Store,
    measured: Calibration,
    banks: Mapping[str, Bank],
    unrelated: Mapping[str, QuestionResult],
    pairs: Sequence[_Pair],
    *,
    made: bool,
) -> Report:
    """Chance, outcomes and adjustment from the results of questions."""
    own = {
        name: [unrelated[sentence] for sentence in bank.sentences]
        for name, bank in banks.items()
        if not bank.withheld
    }
    chances = _chances(own)
    outcomes: tuple[Outcome, ...] = ()
    adjustment = UNADJUSTED
    if chances:
        several = sum(bool(record.streams) for record in store.videos()) > 1
        outcomes = _outcomes(own, pairs, chances, several=several, made=made)
        if not made:
            adjustment = adjustment_of(outcomes, general())
            outcomes = adjusted_by_halves(outcomes, general())
    calibration = replace(
        measured,
        chances=chances,
        adjustment=adjustment,
        banks={name: bank.languages for name, bank in banks.items()},
        withheld=next((bank.withheld for bank in banks.values() if bank.withheld), ""),
        note=next((bank.note for bank in banks.values() if bank.note), ""),
        foreign=tuple(dict.fromkeys(code for bank in banks.values() for code in bank.foreign)),
    )
    return Report(calibration, outcomes, made)


def results_with_and_without(
    searcher: Searcher, question: CalibrationQuestion
) -> tuple[QuestionResult, QuestionResult]:
    """The results of a question with its true video in the corpus, and without it.

    A clip's score does not hang on other videos' clips, so leaving out the true video's moments is
    taking it out, but for what its words add to how common they are, for one more candidate video, and far
    down the list for moments that get a second look in place of the ones that went.
    """
    encoded = searcher.encode(question.text, searcher.streams)
    answers = [searcher.search_stream(stream, encoded) for stream in searcher.streams]
    others = [_without(answer, question.answer.video_id) for answer in answers]
    around = min(question.answer.duration, _AROUND)
    return _kept(encoded.text, searcher, answers, around), _kept(encoded.text, searcher, others, around)


def _result(text: str, searcher: Searcher, query: EncodedQuery) -> QuestionResult:
    """What all streams find for a question that has no answer."""
    return _kept(text, searcher, [searcher.search_stream(stream, query) for stream in searcher.streams], 0.0)


def _kept(text: str, searcher: Searcher, answers: Sequence[StreamAnswer], around: float) -> QuestionResult:
    """The little of the streams' answers that is needed; `around` is in seconds."""
    moments = tuple(
        answer.scored(row) for answer in answers for row in range(min(LISTED, len(answer.moments)))
    )
    rarity = searcher.rarity([answer.stream for answer in answers])
    first = [answer.scored(row) for answer in answers for row in range(min(_COMPARED, len(answer.moments)))]
    spoken = {scored.moment: spoken_at(text, scored, answers, rarity) for scored in first}
    literal = literal_in(text, answers) is not None
    near = literal or any(answer.says_near(0, text, around) for answer in answers if len(answer.moments))
    return QuestionResult(text, moments, spoken, literal, near, len(answers))


def _without(answer: StreamAnswer, video_id: str) -> StreamAnswer:
    """What a stream found in other videos."""
    others = np.array([name != video_id for name in answer.block.video_ids], bool)
    return replace(answer, moments=answer.moments.take(others[answer.moments.video]))


def _chances(results: Mapping[str, Sequence[QuestionResult]]) -> dict[str, Chance]:
    """What chance scores best in each stream, from the results of the questions that it was asked.

    A sentence that finds nothing scores 0. Streams with too few scores are left out.
    """
    chances = {}
    for name, own in sorted(results.items()):
        best = [max((m.score for m in result.moments if name in m.evidence), default=0.0) for result in own]
        chance = fit_chance(best)
        if chance is not None:
            chances[name] = replace(chance, scale=max(chance.scale, _LEAST_SCALE))
    return chances


def _outcomes(
    unrelated: Mapping[str, Sequence[QuestionResult]],
    pairs: Sequence[_Pair],
    chances: Mapping[str, Chance],
    *,
    several: bool,
    made: bool,
) -> tuple[Outcome, ...]:
    """The outcomes of all questions; no unrelated one is judged by a chance that it took part in."""
    outcomes = []
    # With streams of different languages, those of the first one are counted.
    counted = next(iter(unrelated.values()))
    for part in range(_PARTS):
        others = {
            name: [result for row, result in enumerate(own) if row % _PARTS != part]
            for name, own in unrelated.items()
        }
        fitted = {**chances, **_chances(others)}
        outcomes += [
            result.outcome("unrelated", fitted, f"{row:06d}")
            for row, result in enumerate(counted)
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
        if calibration.banks.get(name) is not None:
            fact["bank"] = calibration.banks[name]
        texts = {"withheld": calibration.withheld, "note": calibration.note}
        fact |= {key: text for key, text in texts.items() if text}
        if calibration.foreign:
            fact["foreign"] = list(calibration.foreign)
        if name in calibration.chances:
            fact["chance"] = calibration.chances[name].to_json()
        if answers is not None:
            fact["answers"] = answers
        store.keep_fact(f"calibration:{name}", fact)


def _counts(store: Store) -> dict[str, int]:
    """Clips of each stream."""
    return {name: stats.clips for name, stats in store.stats().streams.items()}


def _scale(store: Store, stream: str, bank: NDArray[np.float32], *, understood: bool) -> Scale | None:
    """The scale of a stream's encoder, from clips of videos all over the corpus.

    Where it does not know the language, cosines are to count less beside words: the spread is widened.
    """
    ids = [record.video_id for record in store.videos() if stream in record.streams]
    step = max(1, len(ids) // _SAMPLED_VIDEOS)
    vectors = store.clips_of(stream, ids[::step][:_SAMPLED_VIDEOS]).vectors
    if not len(vectors):
        return None
    vectors = vectors[:: max(1, len(vectors) // _SAMPLED_CLIPS)]
    scale = measure_scale(vectors @ bank.T)
    return scale if understood else replace(scale, spread=LEANING * scale.spread)
