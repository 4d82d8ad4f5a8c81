"""The measurements of a small store, compared with values computed from its clips and its searches."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.two_languages import NAME, PASSAGES, PICTURES, SEEN, OnlyEnglish, Polyglot, fill, video

from whenabouts.calibration import measuring
from whenabouts.calibration.banks import LEANING, banks_of
from whenabouts.calibration.measuring import Report, is_due, measure, results_with_and_without
from whenabouts.calibration.questions import CalibrationQuestion, made_from
from whenabouts.confidence.background import SENTENCES, languages
from whenabouts.confidence.outcomes import Outcome
from whenabouts.confidence.probability import PROBABLE, fit_chance
from whenabouts.index.records import StreamInfo
from whenabouts.index.store import Store
from whenabouts.moments.fusion import measure_scale
from whenabouts.search.searcher import Searcher
from whenabouts.search.stored_calibration import Calibration, MeasuredCorpus, StreamMeasures, load_calibration
from whenabouts.types import Moment

UNRELATED, MADE = SENTENCES[:40], 10
VIDEOS = {"en": 4, "fr": 2}
CLIPS = {"subtitle": 6 * PASSAGES, "vision": 7 * PICTURES}


@dataclass(frozen=True)
class Small:
    """A measured store: its encoders, the report, and the reported shares of progress."""

    store: Store
    encoders: Mapping[str, Any]
    report: Report
    shares: Sequence[float]

    @property
    def known(self) -> Calibration:
        return load_calibration(self.store)

    @property
    def searcher(self) -> Searcher:
        return Searcher(self.store, self.encoders, self.known)

    def of_kind(self, kind: str) -> list[Outcome]:
        return [outcome for outcome in self.report.outcomes if outcome.kind == kind]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    store = Store.open(tmp_path_factory.mktemp("measures") / "small.corpus", create=True)
    encoders, shares = fill(store, VIDEOS), list[float]()
    report = measure(store, encoders, UNRELATED, shares.append, made=MADE)
    return Small(store, encoders, report, shares)


@pytest.mark.slow
def test_each_group_has_the_scale_of_its_own_clips(small: Small) -> None:
    groups = small.known.streams["subtitle"].groups
    assert list(groups) == ["en", "fr"] and not groups["en"].foreign and groups["fr"].foreign
    for stream, language, widened in (
        ("subtitle", "en", 1.0),
        ("subtitle", "fr", LEANING),
        ("vision", "en", 1.0),
    ):
        ids = [f"{language}{number}" for number in range(VIDEOS[language])]
        chosen = ids if stream == "subtitle" else [record.video_id for record in small.store.videos()]
        cosines = (
            small.store.clips_of(stream, chosen).vectors @ small.encoders[stream].encode_text(UNRELATED).T
        )
        expected, scale = measure_scale(cosines), small.known.streams[stream].groups[language].scale
        assert scale is not None
        assert (scale.level, scale.spread) == pytest.approx(
            (expected.level, widened * expected.spread), abs=1e-4
        )


def test_sampled_videos_are_spread_over_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_SAMPLED_VIDEOS", 2)
    sampled: list[str] = []

    class Recorder:
        def clips_of(self, stream: str, ids: list[str]) -> Any:
            sampled.extend(ids)
            return SimpleNamespace(vectors=np.zeros((0, 4)))

    store: Any = Recorder()
    assert not len(measuring._sampled(store, "subtitle", ["a", "b", "c"]))
    assert sampled == ["a", "c"]


@pytest.fixture(scope="module")
def best_scores(small: Small) -> dict[tuple[str, str], list[float]]:
    """The best score of each sentence in the videos of each stream and group."""
    searcher = small.searcher
    best: dict[tuple[str, str], list[float]] = {
        ("subtitle", "en"): [],
        ("subtitle", "fr"): [],
        ("vision", "en"): [],
    }
    for sentence in UNRELATED:
        query = searcher.understanding.encode(sentence, searcher.streams)
        found = {stream: searcher.search_stream(stream, query) for stream in searcher.streams}
        for (stream, language), scores in best.items():
            answer = found[stream]
            inside = [
                score
                for score, video in zip(answer.moments.score, answer.moments.video, strict=True)
                if stream == "vision" or answer.block.video_ids[video].startswith(language)
            ]
            scores.append(float(max(inside, default=0.0)))
    return best


def test_chance_is_fitted_to_the_best_scores_in_each_group(
    small: Small, best_scores: dict[tuple[str, str], list[float]]
) -> None:
    for (stream, language), best in best_scores.items():
        expected = fit_chance(best)
        chance = small.known.streams[stream].groups[language].chance
        assert expected is not None and chance is not None
        assert chance.place == pytest.approx(expected.place, abs=1e-3)
        assert chance.scale == pytest.approx(max(expected.scale, 0.5), abs=1e-3)


def test_an_unrelated_sentence_is_judged_without_its_own_score(
    small: Small, best_scores: dict[tuple[str, str], list[float]]
) -> None:
    outcomes, known = small.of_kind("unrelated"), small.known
    assert sorted(outcome.group for outcome in outcomes) == [f"{row:06d}" for row in range(len(UNRELATED))]
    by_row = {int(outcome.group): outcome for outcome in outcomes}
    for row in (0, 7, 28):
        streams = dict(known.streams)
        for (stream, language), best in best_scores.items():
            chance = fit_chance([score for each, score in enumerate(best) if each % 5 != row % 5])
            assert chance is not None
            chance = replace(chance, scale=max(chance.scale, 0.5))
            groups = dict(streams[stream].groups)
            groups[language] = replace(groups[language], chance=chance)
            streams[stream] = replace(streams[stream], groups=groups)
        searcher = Searcher(small.store, small.encoders, replace(known, streams=streams))
        result = searcher.search(UNRELATED[row], k=1)
        assert by_row[row].answer(PROBABLE) == result.answer
        assert by_row[row].confidence == pytest.approx(result.moments[0].confidence)


@pytest.mark.slow
def test_a_made_question_has_the_outcome_of_a_search(small: Small) -> None:
    made, searcher = made_from(small.store, MADE), small.searcher
    assert small.report.made and len(made) == MADE
    for question, outcome in zip(made, small.of_kind("known"), strict=True):
        result = searcher.search(question.text, k=1)
        first = result.moments[0]
        assert outcome.answer(PROBABLE) == result.answer
        assert outcome.confidence == pytest.approx(first.confidence)
        assert outcome.group == question.answer.video_id
        assert outcome.right or first.moment.overlap(question.answer) == 0
    assert sum(outcome.right for outcome in small.of_kind("known")) >= MADE - 2
    taken_out = small.of_kind("taken_out")
    assert [outcome.group for outcome in taken_out] == [question.answer.video_id for question in made]
    assert not any(outcome.right for outcome in taken_out)


@pytest.mark.parametrize(
    ("text", "video_id", "is_name", "is_literal"),
    [
        (NAME, "en0", True, True),
        (SEEN, "silent", False, True),
        ("la vapeur chauffe les tuyaux", "fr1", False, True),
        (UNRELATED[10], "en1", False, False),
    ],
)
def test_what_an_outcome_says_of_a_question_is_what_a_search_says(
    small: Small, text: str, video_id: str, is_name: bool, is_literal: bool
) -> None:
    searcher = small.searcher
    question = CalibrationQuestion(text, Moment(video_id, 0.0, 120.0))
    result, without = results_with_and_without(searcher, question)
    measured = MeasuredCorpus(small.known, small.store.ledger().language_of)
    outcome = result.outcome("known", measured, video_id, question.answer)
    found = searcher.search(text, k=1)
    assert outcome.answer(PROBABLE) == found.answer
    assert outcome.confidence == pytest.approx(found.moments[0].confidence)
    assert outcome.right == (found.moments[0].video_id == video_id)
    assert (outcome.name, outcome.literal) == (is_name, is_literal)
    assert all(scored.video_id != video_id for scored in without.moments)


def test_progress_is_the_share_of_the_questions_that_were_asked(small: Small) -> None:
    total = len(UNRELATED) + MADE
    assert small.shares == pytest.approx([row / total for row in range(total + 1)])


def test_a_query_is_measured_by_unrelated_sentences_of_its_own_language(small: Small) -> None:
    """Cosines across languages are lower, so the level of the clips' language would hide every answer."""
    encoder, known = Polyglot(), languages()
    banks = banks_of(small.store, {"subtitle": encoder})["subtitle"]
    groups = measuring._scales(small.store, "subtitle", banks, encoder)
    assert {name: list(group.across) for name, group in groups.items()} == {"en": ["fr"], "fr": ["en"]}
    ids = ["fr0", "fr1"]
    sentences = encoder.encode_text(known["en"].sentences)
    across = measure_scale(small.store.clips_of("subtitle", ids).vectors @ sentences.T)
    assert groups["fr"].across["en"].level == pytest.approx(across.level)
    stream = StreamMeasures(2, groups, banks.of_language, banks.main)
    stream = StreamMeasures.from_json(json.loads(json.dumps(stream.to_json())))
    measured = MeasuredCorpus(Calibration({"subtitle": stream}), small.store.ledger().language_of)
    block = small.store.clips_of("subtitle", ["en0", "fr0"])
    for query, language in (
        ("how do people cool the engine of a boat", "en"),
        ("le bateau et la vapeur", "fr"),
    ):
        scale = measured.scale_of(block, "subtitle", query)
        assert scale is not None
        levels = [groups[own].across.get(language, groups[own].scale).level for own in ("en", "fr")]  # type: ignore[union-attr]
        assert np.unique(scale.level).tolist() == pytest.approx(sorted(levels))
    unclear, own = (measured.scale_of(block, "subtitle", query) for query in ("PyTorch", ""))
    assert unclear is not None and own is not None and np.array_equal(unclear.level, own.level)


def test_what_was_measured_is_kept_for_each_stream(small: Small) -> None:
    known, report = small.known, small.report
    assert known.calibrated == ("subtitle", "vision")
    assert {name: stream.clips for name, stream in known.streams.items()} == CLIPS
    assert (known.foreign, known.rates) == (("fr",), report.summary())
    assert "does not know French" in known.note and report.lines()[0] == known.note
    assert report.not_measured == ""
    summary = report.summary()
    assert (summary["questions"], summary["queries"]) == ("made of the corpus", len(UNRELATED) + MADE)
    assert summary["answered_elsewhere"] == sum(outcome.near for outcome in small.of_kind("taken_out"))
    assert summary["miss_rate"]["of"] == MADE and summary["false_alarm_rate"]["of"] == len(UNRELATED)


# When it is due --------------------------------------------------------------------------------------


def _due(small: Small, change: Callable[[dict[str, StreamMeasures]], None]) -> bool:
    streams = dict(small.known.streams)
    change(streams)
    return is_due(small.store, Calibration(streams))


@pytest.mark.parametrize(("clips", "due"), [(32, True), (33, False), (36, False), (40, False), (41, True)])
def test_it_is_due_again_if_a_stream_changed_by_more_than_a_tenth(
    small: Small, clips: int, due: bool
) -> None:
    assert (
        _due(small, lambda streams: streams.update(subtitle=replace(streams["subtitle"], clips=clips))) is due
    )


def test_it_is_due_for_a_new_stream_a_new_language_and_what_an_older_version_measured(small: Small) -> None:
    def without_vision(streams: dict[str, StreamMeasures]) -> None:
        del streams["vision"]

    def without_french(streams: dict[str, StreamMeasures]) -> None:
        streams["subtitle"] = replace(streams["subtitle"], of_language={"en": "en"})

    def without_groups(streams: dict[str, StreamMeasures]) -> None:
        streams["vision"] = replace(streams["vision"], groups={"": streams["vision"].groups["en"]})

    assert not is_due(small.store, small.known), "a video without words has no language to measure"
    assert is_due(small.store, Calibration())
    assert _due(small, without_vision)
    assert _due(small, without_french)
    assert _due(small, without_groups)


# Other stores ----------------------------------------------------------------------------------------


def _put_words(store: Store, name: str, language: str, lines: Sequence[str]) -> None:
    """Add a video that has no pictures."""
    record, clips = video(name, language, OnlyEnglish(), lines)
    store.put_video(replace(record, streams={"subtitle": "subtitle"}), {"subtitle": clips["subtitle"]})


def _store(place: Path, name: str, language: str, lines: Sequence[str]) -> tuple[Store, dict[str, Any]]:
    store, text = Store.open(place / "other.corpus", create=True), OnlyEnglish()
    store.add_stream(StreamInfo("subtitle", text.name, text.fingerprint, text.dimension))
    _put_words(store, name, language, lines)
    return store, {"subtitle": text}


@pytest.mark.slow
def test_few_clips_are_asked_forty_sentences_and_one_video_is_never_taken_out(tmp_path: Path) -> None:
    lines = ["gulls steal bread from the tired cooks of this narrow boat while maps swing"]
    store, encoders = _store(tmp_path, "one", "en", lines)
    report = measure(store, encoders)
    kinds = [outcome.kind for outcome in report.outcomes]
    assert (kinds.count("unrelated"), kinds.count("known"), kinds.count("taken_out")) == (40, 1, 0)
    lines = ["lamps and maps beside heavy anchors while sailors watch rust under grey paint near ladders"]
    _put_words(store, "two", "en", lines)
    kinds = [outcome.kind for outcome in measure(store, encoders, SENTENCES[:2]).outcomes]
    assert (kinds.count("known"), kinds.count("taken_out")) == (2, 2)
    unasked = measure(store, encoders, made=0)
    assert [outcome.kind for outcome in unasked.outcomes] == ["unrelated"] * 40
    assert unasked.not_measured.startswith("no words to make questions of")


@pytest.mark.slow
def test_where_no_group_has_sentences_in_its_language_nothing_is_asked(tmp_path: Path) -> None:
    lines = ["Häviöfunktio pienenee jokaisella askeleella"] * 2
    store, encoders = _store(tmp_path, "luento", "fi", lines)
    shares = list[float]()
    report = measure(store, encoders, progress=shares.append)
    assert (report.outcomes, report.calibration.calibrated) == ((), ())
    assert "no unrelated sentences in the language of these words (fi)" in report.not_measured
    assert report.to_json()["calibration"] is None and report.to_json()["risk_coverage"] is None
    assert report.lines() == [f"calibration error and AUROC: - ({report.not_measured})"]
    assert len(shares) == 41, "English sentences measure the scale"
    assert load_calibration(store).group("subtitle", "fi").scale is not None
    assert load_calibration(store).rates is None
