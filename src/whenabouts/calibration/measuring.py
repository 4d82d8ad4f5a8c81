"""What scores mean on one corpus: measured by asking it questions whose truth is known, kept with it.

Three things are measured. The *scale* of each stream's encoder: which cosines unrelated sentences have
with its clips, so that a cosine can be told in spreads above chance and added to what full text scores.
Then *chance*: what such sentences score best in the whole way of a query, so that a score can be told as a
confidence. And the *answers*: how often "match" and "no match" are wrong, told by unrelated sentences (each
judged by a chance that was fitted without it) and by questions whose answer is known (`questions.py`), with
their true video in and taken out. All are measured again once a stream has changed by a tenth.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.calibration.questions import CalibrationQuestion, made_from
from whenabouts.confidence.background import SENTENCES
from whenabouts.confidence.chance import FIXED, Chance, Thresholds, fit_chance
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
from whenabouts.index.store import Store
from whenabouts.models.fusion import Scale, measure_scale
from whenabouts.search import EncodedQuery, Encodes, Searcher, StreamAnswer, ranked, said_in
from whenabouts.types import Moment, ScoredMoment, UsageError

# Share of a stream's clips that may be new before it is measured again.
REMEASURED_AT = 0.1
# A corpus with fewer clips than this is not calibrated: what is best in it hangs on a few sentences.
FEWEST_CLIPS = 10
# Questions that are made of the corpus at the end of an index run; `whenabouts calibrate` asks more.
MADE_AT_END_OF_RUN = 80
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
class Calibration:
    """Scales and chances of the streams that have been measured, and how often answers are wrong.

    `clips` is how many clips each stream had then, also where they were too few to say anything. `rates` is
    what a search hands on (`Report.summary`), None where no stream is calibrated.
    """

    scales: Mapping[str, Scale] = field(default_factory=dict)
    chances: Mapping[str, Chance] = field(default_factory=dict)
    clips: Mapping[str, int] = field(default_factory=dict)
    thresholds: Thresholds = FIXED
    rates: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A calibration and what it was told by. `made`: the known questions were made of the corpus itself."""

    calibration: Calibration
    outcomes: tuple[Outcome, ...]
    made: bool

    def summary(self) -> dict[str, Any]:
        """The rates for programs, as they are kept with the corpus."""
        outcomes = self.outcomes
        return {
            **rates_of(outcomes).to_json(),
            "questions": "made of the corpus" if self.made else "given",
            "queries": sum(one.kind != "taken_out" for one in outcomes),
            "answered_elsewhere": sum(not one.counts for one in outcomes),
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
            f"uncalibrated: stream {name} has {self.calibration.clips[name]} clips; in a corpus with fewer "
            f"than {FEWEST_CLIPS}, or where unrelated sentences find nothing, answers stay unsure"
            for name in missing
        ]
        if not self.calibration.chances:
            return lines
        if not any(one.kind == "known" for one in self.outcomes):
            lines.append("no words to make questions of, so misses are not known; give some with --queries")
        chosen = self.calibration.thresholds
        lines += [
            f"a match from {chosen.match_at:.1%}, no match below {chosen.no_match_below:.1%}",
            *rates_of(self.outcomes).lines(),
        ]
        return [*lines, "", *charts(self.outcomes)]


@dataclass(frozen=True, slots=True)
class _Trial:
    """The first moments that each stream found, as it scores them.

    `said`: the best of a stream has every word of the question. `near`: it or what is said around it has.
    """

    found: tuple[ScoredMoment, ...]
    said: bool
    near: bool
    streams: int

    def outcome(
        self, kind: Kind, chances: Mapping[str, Chance], group: str, truth: Moment | None = None
    ) -> Outcome:
        """What came of it, judged by what chance scores; `truth` is where the answer is, if it is there."""
        first = next(iter(ranked(self.found, chances, self.streams)), None)
        right = first is not None and truth is not None and first.moment.overlap(truth) > 0
        confidence = first.confidence if first else None
        return Outcome(kind, confidence, first is not None, right, self.said, self.near, group)


_Pair = tuple[CalibrationQuestion, _Trial, _Trial]
"""A question, and what it found with its true video in and without it."""


def load(store: Store) -> Calibration:
    """What has been measured on a corpus so far."""
    facts = {name: store.fact(f"calibration:{name}") or {} for name in store.streams}
    # The same with each stream, so that a search reads no further row for it.
    answers = next((fact["answers"] for fact in facts.values() if "answers" in fact), None)
    return Calibration(
        {name: Scale.from_json(fact["scale"]) for name, fact in facts.items() if "scale" in fact},
        {name: Chance.from_json(fact["chance"]) for name, fact in facts.items() if "chance" in fact},
        {name: fact["clips"] for name, fact in facts.items() if "clips" in fact},
        FIXED if answers is None else Thresholds.from_json(answers),
        answers,
    )


def is_due(store: Store, known: Calibration) -> bool:
    """Whether a stream has changed by more than `REMEASURED_AT` since it was measured, or never was."""
    return any(
        abs(count - known.clips.get(name, 0)) > REMEASURED_AT * known.clips.get(name, 0)
        for name, count in _counts(store).items()
    )


def measure(
    store: Store,
    encoders: Mapping[str, Encodes],
    sentences: Sequence[str] = SENTENCES,
    told: Callable[[float], None] = lambda share: None,
    *,
    known: Sequence[CalibrationQuestion] | None = None,
    made: int = MADE_AT_END_OF_RUN,
) -> Report:
    """Measure all streams of a corpus and keep the result with it; `told` hears which share is done.

    `known` are questions and their answers; without any, `made` are made of the corpus itself.
    """
    questions = made_from(store, made) if known is None else list(known)
    banks = {name: encoder.encode_text(sentences) for name, encoder in encoders.items()}
    scales = {name: scale for name, bank in banks.items() if (scale := _scale(store, name, bank)) is not None}
    asker = _Asker(store, Searcher(store, encoders, scales, {}))
    total = len(sentences) + len(questions)
    unrelated: list[_Trial] = []
    for row, sentence in enumerate(sentences):
        told(row / total)
        unrelated.append(asker.ask(EncodedQuery(sentence, {name: bank[row] for name, bank in banks.items()})))
    pairs: list[_Pair] = []
    for row, one in enumerate(questions):
        told((len(sentences) + row) / total)
        pairs.append((one, *asker.ask_both(one)))
    told(1.0)
    report = _report(store, scales, unrelated, pairs, made=known is None)
    _keep(store, report)
    return report


def _report(
    store: Store,
    scales: Mapping[str, Scale],
    unrelated: Sequence[_Trial],
    pairs: Sequence[_Pair],
    *,
    made: bool,
) -> Report:
    """Chance, outcomes and thresholds from what questions found."""
    counts = _counts(store)
    chances = _chances(unrelated, set(counts)) if sum(counts.values()) >= FEWEST_CLIPS else {}
    outcomes: tuple[Outcome, ...] = ()
    if chances:
        several = sum(bool(record.streams) for record in store.videos()) > 1
        outcomes = _outcomes(unrelated, pairs, chances, several=several, made=made)
    answers = thresholds_of(outcomes)
    return Report(Calibration(scales, chances, counts, answers), outcomes, made)


class _Asker:
    """Asks questions of all streams and keeps the little of the answers that is needed."""

    def __init__(self, store: Store, searcher: Searcher) -> None:
        self._searcher = searcher
        self._streams = tuple(store.streams)

    def ask(self, query: EncodedQuery) -> _Trial:
        """What an unrelated question finds."""
        return self._trial(query.text, self._answers(query), 0.0)

    def ask_both(self, known: CalibrationQuestion) -> tuple[_Trial, _Trial]:
        """What a known question finds with its true video in, and without it.

        A clip's score does not hang on other videos' clips, so leaving out the true video's moments is
        taking it out, but for what its words add to how common they are and for one more candidate video.
        """
        answers = self._answers(self._searcher.encode(known.text, self._streams))
        without = [_without(one, known.answer.video_id) for one in answers]
        around = min(known.answer.duration, _AROUND)
        return self._trial(known.text, answers, around), self._trial(known.text, without, around)

    def _answers(self, query: EncodedQuery) -> list[StreamAnswer]:
        return [self._searcher.search_stream(stream, query) for stream in self._streams]

    def _trial(self, text: str, answers: Sequence[StreamAnswer], around: float) -> _Trial:
        found = tuple(one.scored(row) for one in answers for row in range(min(_KEPT, len(one.moments))))
        said = said_in(text, answers) is not None
        near = said or any(one.says_near(0, text, around) for one in answers if len(one.moments))
        return _Trial(found, said, near, len(answers))


def _without(answer: StreamAnswer, video_id: str) -> StreamAnswer:
    """What a stream found in other videos."""
    others = np.array([name != video_id for name in answer.block.video_ids], bool)
    return replace(answer, moments=answer.moments.take(others[answer.moments.video]))


def _chances(trials: Sequence[_Trial], streams: set[str]) -> dict[str, Chance]:
    """What chance scores best in each of some streams; streams with too few scores are left out."""
    best: dict[str, list[float]] = {name: [] for name in sorted(streams)}
    for trial in trials:
        top: dict[str, float] = {}
        for one in trial.found:
            stream = next(iter(one.evidence))
            top[stream] = max(one.score, top.get(stream, one.score))
        for name in best.keys() & top.keys():
            best[name].append(top[name])
    return {name: chance for name, scores in best.items() if (chance := fit_chance(scores)) is not None}


def _outcomes(
    unrelated: Sequence[_Trial],
    pairs: Sequence[_Pair],
    chances: Mapping[str, Chance],
    *,
    several: bool,
    made: bool,
) -> tuple[Outcome, ...]:
    """What came of all questions; no unrelated one is judged by a chance that it took part in."""
    outcomes = []
    for part in range(_PARTS):
        others = [trial for row, trial in enumerate(unrelated) if row % _PARTS != part]
        fitted = {**chances, **_chances(others, set(chances))}
        outcomes += [
            trial.outcome("unrelated", fitted, f"{row:06d}")
            for row, trial in enumerate(unrelated)
            if row % _PARTS == part
        ]
    for known, trial, without in pairs:
        video_id = known.answer.video_id
        outcome = trial.outcome("known", chances, video_id, known.answer)
        # Words that were taken from a passage are as true wherever they are said (a copy of the video).
        outcomes.append(replace(outcome, right=outcome.right or (made and outcome.near)))
        if several:
            outcomes.append(without.outcome("taken_out", chances, video_id))
    return tuple(outcomes)


def _keep(store: Store, report: Report) -> None:
    known = report.calibration
    answers = report.summary() if known.chances else None
    for name, count in known.clips.items():
        fact: dict[str, Any] = {"clips": count}
        if name in known.scales:
            fact["scale"] = known.scales[name].to_json()
        if name in known.chances:
            fact["chance"] = known.chances[name].to_json()
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
