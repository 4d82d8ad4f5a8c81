"""Measures what scores mean on a corpus, with unrelated sentences and questions, and stores the result.

Three quantities are measured. The first two are measured separately for the videos of each language (a group
of a stream, `banks.py`), so that translations do not change what is measured of their originals.

- The *scale* of the encoder: the cosines of unrelated sentences with its clips. With their
  mean and spread a cosine is standardised and added to the score of full text (`moments/fusion.py`).
- *Chance*: the best scores of such sentences, in the language of the group, in a whole search. It is the
  first feature of the probability of an answer.
- The *answers*: how often "match" and "no match" are wrong. This is measured with unrelated sentences, each
  judged by a chance that was fitted without it, and with questions whose answer is known (`questions.py`),
  with their true video in and taken out. Questions from users also move the probabilities of this
  corpus (`Adjustment`); made ones do not, because they are easier than real ones.

All are due again once a stream has changed by more than a tenth, or has words in a new language (`is_due`).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.calibration.banks import LEANING, Bank, Banks, banks_of, note_of
from whenabouts.calibration.questions import CalibrationQuestion, made_from, read_questions
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
from whenabouts.confidence.probability import (
    LEAST_IN_FIVE,
    PROBABLE,
    Features,
    fit_chance,
    general,
    stands_out,
)
from whenabouts.index.store import Store
from whenabouts.index.stream import QueryEncoder
from whenabouts.intake.files import write_atomically
from whenabouts.moments.fusion import Scale, measure_scale
from whenabouts.search.answer_probability import LISTED, Spoken, Unsaid, features_of, most_spoken, spoken_at
from whenabouts.search.moments import StreamAnswer
from whenabouts.search.query_language import ALIGNED
from whenabouts.search.rank import literal_in, ranked
from whenabouts.search.searcher import Searcher
from whenabouts.search.stored_calibration import Calibration, GroupMeasures, MeasuredCorpus, StreamMeasures
from whenabouts.streams import stream as stream_named
from whenabouts.types import Moment, ScoredMoment, UsageError

if TYPE_CHECKING:
    from whenabouts.opened_corpus import OpenedCorpus

# Share of a stream's clips that may be new or lost before it is measured again.
REMEASURED_AT = 0.1
# In a corpus with fewer clips only the first `ALIGNED` sentences are searched, because all find the same
# clips.
FEWEST_CLIPS = 10
# Questions made from the corpus at the end of an index run; `whenabouts calibrate` makes more.
MADE_AT_END_OF_RUN = 80
# Enough for intervals of some 5 points either way.
MADE_ON_REQUEST = 400
# Clips that unrelated sentences are compared with; more do not change the second digit.
_SAMPLED_CLIPS = 20_000
_SAMPLED_VIDEOS = 100
# Folds: each unrelated sentence is judged by a chance that was fitted to the other folds.
_PARTS = 5
# Moments of each stream that are listed for a question: some may be copies or translations of others.
_LISTED = 2 * LISTED
# Number of these, per stream, that are compared with the question word by word.
_COMPARED = 3
# Least `scale` of a chance. Few clips give smaller ones, because sentences find nothing or the same clip.
_LEAST_SCALE = 0.5
# Words of a question are searched at most this many seconds around a moment.
_AROUND = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """A calibration and the outcomes behind it.

    `made`: the questions were made from the corpus itself. `notes` are on given questions, for users.
    """

    calibration: Calibration
    outcomes: tuple[Outcome, ...]
    made: bool
    notes: tuple[str, ...] = ()

    @property
    def not_measured(self) -> str:
        """Why the calibration, its misses or its error could not be measured; "" if all were."""
        calibration = self.calibration
        if not calibration.calibrated:
            return calibration.withheld or "unrelated sentences find nothing here"
        if not any(outcome.kind == "known" for outcome in self.outcomes):
            return "no words to make questions of, so misses are not known; give questions with --queries"
        if reliability_of(self.outcomes).error is not None:
            return ""
        why = calibration.withheld or "the scores of unrelated sentences in that language are not known"
        return f"no answer to a known question has a confidence: {why}"

    def summary(self) -> dict[str, Any]:
        """The rates as they are stored with the corpus."""
        outcomes = self.outcomes
        return {
            **rates_of(outcomes).to_json(),
            "questions": "made of the corpus" if self.made else "given",
            "queries": sum(outcome.kind != "taken_out" for outcome in outcomes),
            "answered_elsewhere": sum(not outcome.counts for outcome in outcomes),
            **PROBABLE.to_json(),
            "no_match_below_in_five": LEAST_IN_FIVE,
            **reliability_of(outcomes).to_json(),
            "not_measured": self.not_measured or None,
            "adjustment": self.calibration.adjustment.to_json(),
        }

    def to_json(self) -> dict[str, Any]:
        curve = risk_coverage(self.outcomes)
        return {
            "calibration": self.summary() if self.calibration.calibrated else None,
            "not_measured": self.not_measured or None,
            "notes": list(self.notes),
            "streams": {
                name: {"clips": stream.clips, "calibrated": name in self.calibration.calibrated}
                for name, stream in self.calibration.streams.items()
            },
            "reliability": [
                {"from": row.low, "to": row.high, "stated": row.stated, **row.right.to_json()}
                for row in bins(self.outcomes)
            ],
            "risk_coverage": None if curve is None else curve.to_json(),
        }

    def write(self, folder: Path) -> list[Path]:
        """Write the figures and `calibration.json`; returns the paths. Raises as `write_figures`."""
        from whenabouts.calibration.figures import write_figures

        written = write_figures(self.outcomes, folder) if self.outcomes else []
        target = folder / "calibration.json"
        with write_atomically(target) as stream:
            stream.write(json.dumps(self.to_json(), indent=1).encode() + b"\n")
        return [*written, target]

    def lines(self) -> list[str]:
        lines = [*self.notes, *([self.calibration.note] if self.calibration.note else [])]
        if self.not_measured:
            lines.append(f"calibration error and AUROC: - ({self.not_measured})")
        if not self.calibration.calibrated:
            return lines
        lines += [
            f"a match from {PROBABLE.match_at:.0%} on, or a name that is said",
            f"no match if the probability that one of the first five is right is below {LEAST_IN_FIVE:.0%}",
            *rates_of(self.outcomes).lines(),
        ]
        return [*lines, "", *charts(self.outcomes)]


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The first moments of each stream for one question, as the stream scores them.

    `spoken`: how much of the question is said in the first few moments, by moment and stream. `literal`: a
    stream's best moment has every word of the question. `near`: so have that moment and its surroundings.
    """

    text: str
    moments: tuple[ScoredMoment, ...]
    spoken: Mapping[Moment, Mapping[str, Spoken]]
    literal: bool
    near: bool
    streams: int
    unsaid: Unsaid

    def first(self, measured: MeasuredCorpus) -> tuple[list[ScoredMoment], list[Features]]:
        """All streams' moments, best first, and the features of the first ([] if uncalibrated)."""
        moments = ranked(self.moments, measured.chance, self.streams, self.unsaid)
        if not moments or moments[0].chance_percentile is None:
            return moments, []
        return moments, features_of(self.text, moments, [self.said_at(moments[0])], measured.languages)

    def said_at(self, scored: ScoredMoment) -> Spoken | None:
        """How much of the question is said in a moment; None if it was not compared or has no words."""
        return most_spoken(self.spoken.get(scored.moment, {}), scored)

    def outcome(
        self, kind: Kind, measured: MeasuredCorpus, group: str, truth: Moment | None = None
    ) -> Outcome:
        """The outcome, given what was measured; `truth` is the true moment, if it is in the corpus."""
        moments, features = self.first(measured)
        right = bool(moments) and truth is not None and moments[0].moment.overlap(truth) > 0
        spoken = self.said_at(moments[0]) if moments else None
        confidence = general().of_first(features[0], has_words=spoken is not None) if features else None
        in_five = general().of_five(features[0], has_words=spoken is not None) if features else None
        is_name = spoken is not None and spoken.is_name
        literal = self.literal
        if moments:
            language = measured.languages.get(moments[0].video_id, "")
            is_foreign = measured.calibration.is_foreign(moments[0], language)
            literal |= is_foreign or stands_out(moments[0].chance_percentile)
        return Outcome(kind, confidence, bool(moments), right, literal, self.near, group, is_name, in_five)


_Pair = tuple[CalibrationQuestion, QuestionResult, QuestionResult]
"""A question, and its results with and without its true video."""


def calibrate(
    corpus: OpenedCorpus,
    queries: str | os.PathLike[str] | None = None,
    *,
    made: int = MADE_ON_REQUEST,
    wait: bool = False,
    progress: Callable[[float], None] = lambda share: None,
) -> Report:
    """Measure how often the answers (match, unsure, no match) are wrong, and store it with the corpus.

    `queries` is a file of JSON lines with `query`, `video`, `start` and `end` (seconds); without one, at most
    `made` questions are made from the words of the corpus. `progress` is called with the share done, in
    [0, 1]. Raises UsageError for an empty corpus or a malformed file.
    """
    if made < 0:
        raise UsageError(f"{made} questions: give 0 or more")
    with corpus.writing(wait=wait):
        corpus.check_filled()
        questions, notes = read_questions(Path(queries), corpus.resolve) if queries else (None, [])
        encoders = corpus.encoders.for_queries()
        report = measure(corpus.store, encoders, progress=progress, questions=questions, made=made)
    return replace(report, notes=tuple(notes))


def is_due(store: Store, calibration: Calibration) -> bool:
    """Whether a stream has changed by more than `REMEASURED_AT` since it was measured, or has a new language.

    So are streams that were never measured, or only by versions without groups of languages.
    """
    by_words = [name for name in store.streams if "text" in stream_named(name).meets]
    measured = calibration.streams
    if any(name not in measured or "" in measured[name].groups for name in by_words):
        return True
    with_words = {name for name in by_words if stream_named(name).has_words is not False}
    spoken = {
        (name, record.language) for record in store.videos() for name in with_words & set(record.streams)
    }
    if any(language not in measured[name].of_language for name, language in spoken):
        return True
    return any(
        abs(count - measured[name].clips) > REMEASURED_AT * measured[name].clips
        for name, count in _counts(store).items()
        if name in measured
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
    """Measure all streams of a corpus and store the result; `progress` is called with the share done.

    `sentences` are unrelated to the corpus; None: the bundled ones, in its languages (`banks.py`). Without
    `questions`, at most `made` are made from the corpus itself.
    """
    encoders = {name: encoder for name, encoder in encoders.items() if "text" in stream_named(name).meets}
    counts = _counts(store)
    most = ALIGNED if sum(counts.values()) < FEWEST_CLIPS else None
    banks = _shortened(banks_of(store, encoders), most, sentences)
    streams = {
        name: StreamMeasures(
            counts.get(name, 0),
            _scales(store, name, of_stream, encoders.get(name)),
            of_stream.of_language,
            of_stream.main,
        )
        for name, of_stream in banks.items()
    }
    note, foreign = note_of(banks)
    measured = Calibration(streams, note=note, foreign=foreign)
    searcher = Searcher(store, encoders, measured)
    groups = [bank for of_stream in banks.values() for bank in of_stream.groups.values()]
    to_ask = made_from(store, made) if questions is None else list(questions)
    to_ask = to_ask if any(not bank.withheld for bank in groups) else []
    unrelated: dict[str, QuestionResult] = {}
    to_compare = dict.fromkeys(sentence for bank in groups for sentence in bank.sentences)
    total = len(to_compare) + len(to_ask)
    for row, sentence in enumerate(to_compare):
        progress(row / total)
        query = searcher.understanding.encode(sentence, searcher.streams)
        answers = [searcher.search_stream(stream, query) for stream in searcher.streams]
        unrelated[sentence] = _kept(sentence, searcher, answers, 0.0)
    pairs: list[_Pair] = []
    for row, question in enumerate(to_ask):
        progress((len(to_compare) + row) / total)
        pairs.append((question, *results_with_and_without(searcher, question)))
    progress(1.0)
    report = _report(store, measured, banks, unrelated, pairs, made=questions is None)
    _keep(store, report)
    return report


def _shortened(
    banks: Mapping[str, Banks], most: int | None, sentences: Sequence[str] | None
) -> dict[str, Banks]:
    """The banks with their first `most` sentences (None: all), or with those of `sentences` if given."""

    def shortened(bank: Bank) -> Bank:
        return replace(bank, sentences=tuple((bank.sentences if sentences is None else sentences)[:most]))

    return {
        name: replace(each, groups={group: shortened(bank) for group, bank in each.groups.items()})
        for name, each in banks.items()
    }


def _report(
    store: Store,
    measured: Calibration,
    banks: Mapping[str, Banks],
    unrelated: Mapping[str, QuestionResult],
    pairs: Sequence[_Pair],
    *,
    made: bool,
) -> Report:
    """The report from the results of questions: with chances, outcomes and an adjustment."""
    languages = store.ledger().language_of
    results = {
        (name, group): [unrelated[sentence] for sentence in bank.sentences]
        for name, of_stream in banks.items()
        for group, bank in of_stream.groups.items()
        if not bank.withheld
    }
    # False alarms are counted for the sentences of the first stream's main group.
    counted = next(((name, banks[name].main) for name in banks if (name, banks[name].main) in results), None)
    calibration = _with_chances(measured, results, languages)
    outcomes: tuple[Outcome, ...] = ()
    if counted is not None:
        several = sum(bool(record.streams) for record in store.videos()) > 1
        outcomes = (
            *_unrelated_outcomes(calibration, results, languages, counted),
            *_known_outcomes(pairs, MeasuredCorpus(calibration, languages), several=several, made=made),
        )
        if not made:
            calibration = replace(calibration, adjustment=adjustment_of(outcomes, general()))
            outcomes = adjusted_by_halves(outcomes, general())
    return Report(calibration, outcomes, made)


def results_with_and_without(
    searcher: Searcher, question: CalibrationQuestion
) -> tuple[QuestionResult, QuestionResult]:
    """The results of a question with its true video in the corpus, and without it.

    A clip's score does not depend on other videos' clips, so dropping the true video's moments is nearly the
    same as removing the video. Three effects are missing: word counts without the video, one more candidate
    video, and the rescoring of moments further down the list.
    """
    encoded = searcher.understanding.encode(question.text, searcher.streams)
    answers = [searcher.search_stream(stream, encoded) for stream in searcher.streams]
    others = [_without(answer, question.answer.video_id) for answer in answers]
    around = min(question.answer.duration, _AROUND)
    return _kept(encoded.text, searcher, answers, around), _kept(encoded.text, searcher, others, around)


def _kept(text: str, searcher: Searcher, answers: Sequence[StreamAnswer], around: float) -> QuestionResult:
    """The parts of the streams' answers that `QuestionResult` keeps; `around` is in seconds."""
    moments = tuple(
        answer.scored(row) for answer in answers for row in range(min(_LISTED, len(answer.moments)))
    )
    rarity = searcher.localization.rarity([answer.stream for answer in answers])
    first = [answer.scored(row) for answer in answers for row in range(min(_COMPARED, len(answer.moments)))]
    by_moment = spoken_at(text, first, answers, rarity)
    spoken = {scored.moment: by_stream for scored, by_stream in zip(first, by_moment, strict=True)}
    literal = literal_in(text, answers) is not None
    near = literal or any(answer.says_near(0, text, around) for answer in answers if len(answer.moments))
    unsaid = searcher.ranking.unsaid(text, answers)
    return QuestionResult(text, moments, spoken, literal, near, len(answers), unsaid)


def _without(answer: StreamAnswer, video_id: str) -> StreamAnswer:
    """A stream's answer without one video."""
    others = np.array([name != video_id for name in answer.block.video_ids], bool)
    return replace(answer, moments=answer.moments.take(others[answer.moments.video]))


_Results = Mapping[tuple[str, str], Sequence[QuestionResult]]
"""Results of the unrelated sentences by stream and group."""


def _with_chances(calibration: Calibration, results: _Results, languages: Mapping[str, str]) -> Calibration:
    """The calibration with the chance of each stream and group, fitted to its sentences' best scores.

    A sentence that finds nothing in a group scores 0 there.
    """
    streams = dict(calibration.streams)
    for (name, group), of_group in results.items():
        stream = streams[name]

        def is_inside(scored: ScoredMoment, name: str = name, group: str = group) -> bool:
            return (
                name in scored.evidence
                and streams[name].group_of(languages.get(scored.video_id, "")) == group
            )

        best = [max((m.score for m in result.moments if is_inside(m)), default=0.0) for result in of_group]
        chance = fit_chance(best)
        if chance is not None:
            chance = replace(chance, scale=max(chance.scale, _LEAST_SCALE))
            groups = {**stream.groups, group: replace(stream.groups[group], chance=chance)}
            streams[name] = replace(stream, groups=groups)
    return replace(calibration, streams=streams)


def _unrelated_outcomes(
    calibration: Calibration, results: _Results, languages: Mapping[str, str], counted: tuple[str, str]
) -> Iterator[Outcome]:
    """Outcomes of one group's unrelated sentences, each judged by a chance fitted without it."""
    for part in range(_PARTS):
        others = {
            key: [result for row, result in enumerate(of_group) if row % _PARTS != part]
            for key, of_group in results.items()
        }
        measured = MeasuredCorpus(_with_chances(calibration, others, languages), languages)
        for row, result in enumerate(results[counted]):
            if row % _PARTS == part:
                yield result.outcome("unrelated", measured, f"{row:06d}")


def _known_outcomes(
    pairs: Sequence[_Pair], measured: MeasuredCorpus, *, several: bool, made: bool
) -> Iterator[Outcome]:
    """Outcomes of questions with known answers; if there are `several` videos, also with the true one out."""
    for question, result, without in pairs:
        video_id = question.answer.video_id
        outcome = result.outcome("known", measured, video_id, question.answer)
        # A made question is also answered by any other passage with its words (a copy of the video).
        yield replace(outcome, right=outcome.right or (made and outcome.near))
        if several:
            yield without.outcome("taken_out", measured, video_id)


def _keep(store: Store, report: Report) -> None:
    calibration = report.calibration
    shared: dict[str, Any] = {"note": calibration.note} if calibration.note else {}
    shared |= {"foreign": list(calibration.foreign)} if calibration.foreign else {}
    shared |= {"answers": report.summary()} if calibration.calibrated else {}
    for name, stream in calibration.streams.items():
        store.keep_fact(f"calibration:{name}", stream.to_json() | shared)


def _counts(store: Store) -> dict[str, int]:
    """Number of clips by stream."""
    return {name: stats.clips for name, stats in store.stats().streams.items()}


def _scales(
    store: Store, stream: str, banks: Banks, encoder: QueryEncoder | None
) -> dict[str, GroupMeasures]:
    """The measures of each group of a stream, without chances."""
    ids: dict[str, list[str]] = {group: [] for group in banks.groups}
    for record in store.videos():
        if stream in record.streams:
            ids[banks.of_language.get(record.language, banks.main)].append(record.video_id)
    if encoder is None:
        return {group: GroupMeasures(None, withheld=bank.withheld) for group, bank in banks.groups.items()}
    encoded = {group: encoder.encode_text(bank.sentences) for group, bank in banks.groups.items()}
    # Sentences in a language that the encoder does not know, or that stand in for another, say nothing here.
    apt = [group for group, bank in banks.groups.items() if not (bank.foreign or bank.withheld)]
    measures = {}
    for group, bank in banks.groups.items():
        clips = _sampled(store, stream, ids[group])
        others = [] if bank.foreign or not len(clips) else [each for each in apt if each != group]
        measures[group] = GroupMeasures(
            _scale(clips, encoded[group], is_foreign=bank.foreign),
            withheld=bank.withheld,
            foreign=bank.foreign,
            across={language: measure_scale(clips @ encoded[language].T) for language in others},
        )
    return measures


def _sampled(store: Store, stream: str, ids: Sequence[str]) -> NDArray[np.float32]:
    """(n, D) the vectors of clips sampled over some videos."""
    vectors = store.clips_of(stream, ids[:: math.ceil(len(ids) / _SAMPLED_VIDEOS) or 1]).vectors
    return vectors[:: math.ceil(len(vectors) / _SAMPLED_CLIPS) or 1]


def _scale(clips: NDArray[np.float32], sentences: NDArray[np.float32], *, is_foreign: bool) -> Scale | None:
    """The scale of unrelated sentences (m, D) and clips (n, D) of a group; None without clips.

    If the encoder does not know the language, the spread is widened, so that cosines count less beside words.
    """
    if not len(clips):
        return None
    scale = measure_scale(clips @ sentences.T)
    return replace(scale, spread=LEANING * scale.spread) if is_foreign else scale
