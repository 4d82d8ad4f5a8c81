"""Confidence on real corpora: uniform for the unrelated, its rates kept, measured again after growth."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts import Corpus, SearchResult
from whenabouts.calibration import measuring
from whenabouts.calibration.measuring import calibrate, is_due
from whenabouts.calibration.questions import made_from
from whenabouts.confidence.background import SENTENCES
from whenabouts.confidence.probability import PROBABLE, UNADJUSTED, Adjustment
from whenabouts.index.progress import Progress
from whenabouts.search.candidates import Allowed
from whenabouts.search.searcher import Searcher
from whenabouts.search.stored_calibration import GroupMeasures, StreamMeasures, load_calibration

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]

# None of these is in the background bank, and nothing in the corpus (pages about a program) answers them.
UNRELATED = (
    "a donkey carries firewood up the hill",
    "how to prune an apple tree in winter",
    "the queen opens parliament",
    "children feed ducks at the pond",
    "recipes with lentils and cumin",
    "a stork nests on the chimney",
    "the monsoon floods the rice fields",
    "caring for an elderly parent",
    "the invention of the telegraph",
    "the siege of Constantinople",
    "two nuns ride a tandem bicycle",
    "remedies against hay fever",
    "a surfer falls off the board",
    "the migration of salmon upstream",
    "ironing a shirt without creases",
    "a choir sings in the cathedral",
    "tips for hiking in the desert",
    "a hairdresser cuts a fringe",
    "the death of Julius Caesar",
    "polar bears hunt seals",
    "a boy learns to tie his shoelaces",
    "wine harvest in Burgundy",
    "an ambulance hurries through traffic",
    "breathing exercises against stress",
    "a butcher sharpens his cleaver",
    "the rings of Saturn",
    "grandmother knits woollen socks",
    "the rules of badminton doubles",
    "a fox steals a chicken at night",
    "raising twins on a farm",
    "an acrobat walks the tightrope",
    "the poetry of Emily Dickinson",
    "crossing the Atlantic in a rowing boat",
    "a mechanic changes the brake pads",
    "vaccination against measles",
    "a lumberjack fells a spruce",
    "cheese making in the Alps",
    "the eruption of Mount Vesuvius",
    "teenagers skateboard in an empty pool",
    "how tides depend on the moon",
    "a beekeeper opens the hive",
    "the trial of Galileo",
    "a soup kitchen for the homeless",
    "juggling with five oranges",
    "restoring a baroque violin",
    "camels rest at an oasis",
    "the strike of the coal miners",
    "mushroom soup for four",
    "a toddler takes her first steps",
    "an owl blinks in the barn",
)
RELATED = (
    "installing PyTorch without a graphics card",
    "subtitle files that lie beside a video",
    "full-text index of the words",
)
# In words of its own.
PARAPHRASE = "the exit code when nothing is found"


def _passages() -> list[str]:
    """Sentences of this repository's own pages."""
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs" / f"{name}.md" for name in ("confidence", "finding", "people", "speech", "tutorial")),
    ]
    prose = [
        " ".join(paragraph.split())
        for page in pages
        for paragraph in re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S).split("\n\n")
        if not paragraph.lstrip().startswith(("|", "#", "!", "[", "@@", "<"))
    ]
    return [one for text in prose for one in re.split(r"(?<=[.:;])\s", text) if len(one.split()) >= 5]


def _write(folder: Path, name: str, lines: list[str]) -> Path:
    """A transcript in which each line takes twenty seconds, so that each is a passage of its own."""
    cues = [
        f"{_clock(20 * number)} --> {_clock(20 * number + 18)}\n{line}\n" for number, line in enumerate(lines)
    ]
    path = folder / name
    path.write_text("WEBVTT\n\n" + "\n".join(cues), encoding="utf-8")
    return path


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.000"


@pytest.fixture(scope="module")
def told() -> list[Progress]:
    """What was heard while `corpus` was made."""
    return []


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, told: list[Progress]) -> Corpus:
    """A corpus of a few hundred passages, in recordings of thirty."""
    folder = tmp_path_factory.mktemp("calibrated")
    lines = _passages()
    assert len(lines) >= 150
    for start in range(0, len(lines), 30):
        _write(folder, f"page {start:03d}.vtt", lines[start : start + 30])
    corpus = Corpus(folder / "pages.corpus", create=True)
    corpus.add(folder, processes=1, progress=told.append)
    return corpus


@pytest.fixture(scope="module")
def unrelated(corpus: Corpus) -> list[SearchResult]:
    """What is answered to sentences that nothing in the corpus answers."""
    return [corpus.search(sentence, k=1) for sentence in UNRELATED]


def _best(result: SearchResult) -> float:
    percentile = result.moments[0].chance_percentile
    assert percentile is not None
    return percentile


def test_unrelated_sentences_get_percentiles_that_are_about_uniform(unrelated: list[SearchResult]) -> None:
    assert not set(UNRELATED) & set(SENTENCES)
    shares = np.sort([_best(result) for result in unrelated])
    # Kolmogorov-Smirnov: a uniform sample of 50 stays below 0.23 in 99 of 100 cases.
    steps = np.arange(1, len(shares) + 1) / len(shares)
    distance = max(np.max(steps - shares), np.max(shares - steps + 1 / len(shares)))
    assert distance < 0.23, shares.round(2)
    assert np.mean([result.answer == "match" for result in unrelated]) <= 0.06


def test_what_nothing_answers_is_no_match_and_what_something_answers_is_a_match(
    corpus: Corpus, unrelated: list[SearchResult]
) -> None:
    assert np.mean([result.answer == "no_match" for result in unrelated]) > 0.6
    assert [corpus.search(sentence, k=1).answer for sentence in RELATED] == ["match"] * len(RELATED)
    assert corpus.search(PARAPHRASE, k=1).answer != "no_match"


def test_a_confidence_bounds_what_is_returned_but_not_what_it_is_called(corpus: Corpus) -> None:
    everything = corpus.search(RELATED[0], k=50)
    result = corpus.search(RELATED[0], k=50, min_confidence=0.3)
    assert result.answer == everything.answer == "match"
    assert 0 < len(result.moments) < len(everything.moments)
    assert all(found.confidence is not None and found.confidence >= 0.3 for found in result.moments)
    nothing = corpus.search(UNRELATED[0], k=50, min_confidence=1.0)
    assert (nothing.answer, nothing.moments) == ("no_match", ())


def test_a_corpus_is_measured_again_once_it_has_grown_by_a_tenth(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []

    def note(store: Any, encoders: Any, **rest: Any) -> None:
        # The measurement itself is what all other tests here are about; this one counts them.
        measured.append(store.stats().streams["subtitle"].clips)
        for name, stats in store.stats().streams.items():
            own = StreamMeasures(stats.clips, {"en": GroupMeasures()}, {"en": "en"}, "en")
            store.put_fact(f"calibration:{name}", own.to_json())

    monkeypatch.setattr(measuring, "measure", note)
    grown = Corpus(tmp_path / "grown.corpus", create=True)
    lines = _passages()
    grown.add(_write(tmp_path, "first.vtt", lines[:40]), processes=1)
    grown.add(_write(tmp_path, "little.vtt", lines[40:42]), processes=1)
    grown.add(tmp_path / "first.vtt", processes=1)
    assert len(measured) == 1
    grown.add(_write(tmp_path, "more.vtt", lines[42:52]), processes=1)
    assert len(measured) == 2
    grown.remove("first")
    grown.add(_write(tmp_path, "last.vtt", lines[52:53]), processes=1)
    assert len(measured) == 3


def test_each_step_after_the_files_is_told_while_it_goes_on(corpus: Corpus, told: list[Progress]) -> None:
    assert corpus.videos()
    steps = [progress for progress in told if progress.step]
    assert told[-len(steps) :] == steps
    assert list(dict.fromkeys(progress.step for progress in steps)) == [
        "merging and indexing new data",
        "measuring the scores of unrelated questions",
    ]
    measuring = [progress.fraction for progress in steps[1:]]
    assert measuring == sorted(measuring) and measuring[0] == 0.0 and measuring[-1] > 0.99
    assert len(measuring) > len(SENTENCES)  # once before the sentences are encoded, once for each
    assert {progress.files_done for progress in steps} == {steps[0].files_total}


def test_what_was_measured_is_kept_with_the_corpus(corpus: Corpus) -> None:
    known = load_calibration(Corpus(corpus.location, create=False).store)
    assert known.calibrated == ("subtitle",)
    assert known.group("subtitle", "en").scale is not None
    assert known.streams["subtitle"].clips == corpus.stats().store.streams["subtitle"].clips
    assert not is_due(corpus.store, known)


def test_where_nothing_was_measured_it_is_unsure_and_orders_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whenabouts.calibration.measuring.is_due", lambda store, known: False)
    corpus = Corpus(tmp_path / "small.corpus", create=True)
    corpus.add(_write(tmp_path, "small.vtt", ["A lone sentence about whales.", "And another."]), processes=1)
    result = corpus.search("whales", k=5)
    assert result.answer == "unsure"
    assert result.doubt.startswith("uncalibrated: ") and "whenabouts calibrate" in result.doubt
    assert result.interval is None
    assert "whales" in result.moments[0].text
    assert all(found.confidence is None for found in result.moments)
    assert result.to_json()["moments"][0]["confidence"] is None
    # How sure it is cannot be told, so nothing reaches a bound.
    bounded = corpus.search("whales", k=5, min_confidence=0.5)
    assert (bounded.answer, bounded.moments) == ("no_match", ())


# The rates -------------------------------------------------------------------------------------------


def test_the_rates_are_kept_and_handed_on_with_every_answer(corpus: Corpus) -> None:
    known = load_calibration(Corpus(corpus.location, create=False).store)
    said = corpus.search(RELATED[0], k=1).to_json()["calibration"]
    assert said == known.rates
    assert said["false_alarm_rate"]["of"] == len(SENTENCES)
    assert said["miss_rate"]["of"] == measuring.MADE_AT_END_OF_RUN
    assert said["queries"] == len(SENTENCES) + measuring.MADE_AT_END_OF_RUN
    assert (said["match_at"], said["no_match_below"]) == (PROBABLE.match_at, PROBABLE.no_match_below)
    assert known.adjustment == UNADJUSTED  # made questions are easier than people's
    assert 0 <= said["expected_calibration_error"] < 0.3
    stats = corpus.stats()
    assert stats.to_json()["calibration"] == said
    assert any("false alarms" in line and "misses" in line for line in stats.lines())


def test_the_stated_false_alarms_hold_for_questions_that_were_never_asked_before(
    corpus: Corpus, unrelated: list[SearchResult]
) -> None:
    stated = load_calibration(corpus.store).rates
    assert stated is not None
    alarms = sum(result.answer == "match" for result in unrelated)
    # The interval is the rate's; 50 new questions scatter by themselves: three standard deviations.
    high = stated["false_alarm_rate"]["high"]
    assert alarms <= 50 * high + 3 * np.sqrt(50 * high * (1 - high))
    assert stated["false_alarm_rate"]["rate"] <= 0.1
    assert stated["miss_rate"]["rate"] <= 0.2


def test_what_is_counted_is_what_a_search_would_answer(corpus: Corpus) -> None:
    known = made_from(corpus.store, 25)
    store, encoders = corpus.store, corpus.encoders.for_queries()
    kept = dict(store.fact("calibration:subtitle") or {})
    try:
        given = measuring.measure(store, encoders, SENTENCES[:60], made=25)
        outcomes = [one for one in given.outcomes if one.kind == "known"]
        for question, outcome in zip(known, outcomes, strict=True):
            result = corpus.search(question.text, k=1)
            first = result.moments[0]
            assert outcome.answer(PROBABLE) == result.answer
            assert outcome.confidence == pytest.approx(first.confidence)
            assert outcome.right or first.moment.overlap(question.answer) == 0
    finally:
        store.put_fact("calibration:subtitle", kept)


def test_taking_a_video_out_of_the_answers_is_taking_it_out_of_the_corpus(corpus: Corpus) -> None:
    known = made_from(corpus.store, 12, seed=7)
    searcher: Searcher = corpus.searcher()
    everything = [video.id for video in corpus.videos()]
    for question in known:
        _, without = measuring.results_with_and_without(searcher, question)
        others = [video_id for video_id in everything if video_id != question.answer.video_id]
        answer = searcher.search_stream(
            "subtitle", searcher.understanding.encode(question.text, ["subtitle"]), Allowed(others)
        )
        # What a person is shown; far down, moments that get a second look in their place change the order.
        listed = min(10, len(answer.moments))
        first = without.moments[:listed]
        assert listed
        assert [one.moment for one in first] == [answer.moment(row) for row in range(listed)]
        assert [one.score for one in first] == pytest.approx(answer.moments.score[:listed].tolist())


def test_a_calibration_of_the_first_release_is_read_without_rates(corpus: Corpus) -> None:
    known = load_calibration(corpus.store)
    kept = dict(corpus.store.fact("calibration:subtitle") or {})
    older = {key: value for key, value in kept.items() if key != "answers"}
    corpus.store.put_fact("calibration:subtitle", older)
    try:
        old = load_calibration(corpus.store)
        assert (old.streams, old.adjustment, old.rates) == (known.streams, UNADJUSTED, None)
        result = corpus.search(RELATED[0], k=1)
        assert (result.answer, result.calibration) == ("match", None)
    finally:
        corpus.store.put_fact("calibration:subtitle", kept)


# Real videos: a few lines are said in two films, all else is silent.
SAID_THERE = (
    ("the space telescope", "nasa"),
    ("a very large clean room", "nasa"),
    ("Goddard Space Flight Center", "nasa"),
    ("stolen crown jewels", "friday"),
    ("is he in a bad mood", "friday"),
    ("lord of the universe", "friday"),
)


def _check_real(corpus: Corpus) -> None:
    for query, video in SAID_THERE:
        result = corpus.search(query, k=1)
        assert result.name(result.moments[0]).startswith(video), query
        assert result.answer != "no_match", query
    answers = [corpus.search(query, k=1).answer for query in UNRELATED]
    assert np.mean([answer == "match" for answer in answers]) <= 0.1
    assert np.mean([answer == "no_match" for answer in answers]) >= 0.6
    stated = load_calibration(corpus.store).rates
    assert stated is not None and stated["false_alarm_rate"]["rate"] <= 0.08


def test_on_the_sample_videos_at_most_one_in_ten_unrelated_questions_is_a_match(
    samples_corpus: Path,
) -> None:
    _check_real(Corpus(samples_corpus, create=False))


def test_on_real_videos_at_most_one_in_ten_unrelated_questions_is_a_match(
    shared_data: Path, tmp_path: Path
) -> None:
    corpus = Corpus(tmp_path / "real.corpus", create=True)
    corpus.add(shared_data / "real_video", processes=1)
    _check_real(corpus)


def test_pictures_alone_are_calibrated_by_unrelated_sentences_and_given_questions(
    samples: Path, tmp_path: Path, planted: Any, sample_queries: list[dict[str, Any]]
) -> None:
    corpus = Corpus(tmp_path / "seen.corpus", encoders=[planted], create=True)
    silent = [samples / name for name in sorted({str(query["video"]) for query in sample_queries})]
    corpus.add(*silent, vision=planted, clip_seconds=0.5, processes=1)
    queries = tmp_path / "known.jsonl"
    queries.write_text("".join(json.dumps(query) + "\n" for query in sample_queries), encoding="utf-8")
    report = calibrate(corpus, queries)
    rates = report.summary()
    assert rates["miss_rate"]["count"] == 0
    assert rates["miss_rate"]["of"] == len(sample_queries)
    assert rates["false_alarm_rate"]["rate"] <= 0.1
    assert rates["right_when_match"]["rate"] >= 0.9
    assert corpus.search(sample_queries[0]["query"], k=1).answer == "match"


def test_what_is_neither_probable_nor_improbable_is_unsure_and_says_how_often_such_an_answer_is_right(
    corpus: Corpus,
) -> None:
    doubted = replace(load_calibration(corpus.store), adjustment=Adjustment(0.0, 0.1, 40.0), rates=None)
    result = Searcher(corpus.store, corpus.encoders.for_queries(), doubted).search(RELATED[0], k=1)
    confidence = result.moments[0].confidence
    assert confidence is not None and 0.15 < confidence < PROBABLE.match_at
    assert (result.answer, result.calibration) == ("unsure", None)
    assert f"is right in {round(100 * confidence)} of 100 cases (" in result.doubt
    assert result.interval is not None and result.interval[0] < confidence < result.interval[1]


def test_what_people_asked_moves_the_probabilities_of_their_corpus(corpus: Corpus, tmp_path: Path) -> None:
    kept = dict(corpus.store.fact("calibration:subtitle") or {})
    before = corpus.search(RELATED[0], k=1).moments[0].confidence
    elsewhere = max(corpus.videos(), key=lambda video: video.id).id
    lines = [
        {"query": question.text, "video": elsewhere, "start": 0, "end": 1}
        for question in made_from(corpus.store, 60, seed=3)
        if question.answer.video_id != elsewhere
    ]
    path = tmp_path / "wrong.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    try:
        report = calibrate(corpus, path)
        assert report.calibration.adjustment.shift < 0 < report.calibration.adjustment.questions
        after = corpus.search(RELATED[0], k=1).moments[0].confidence
        assert before is not None and after is not None and after < before
    finally:
        corpus.store.put_fact("calibration:subtitle", kept)


def test_one_short_file_gives_answers_too_with_a_wider_range(corpus: Corpus, tmp_path: Path) -> None:
    lines = ["We keep our bees behind the barn.", "The honey is sold at the market on Fridays."]
    small = Corpus(tmp_path / "short.corpus", create=True)
    small.add(_write(tmp_path, "short.vtt", lines), processes=1)
    result, large = small.search("the honey is sold at the market", k=1), corpus.search(RELATED[0], k=1)
    assert result.answer != "no_match" and large.answer == "match"
    assert small.search("the eruption of Mount Vesuvius", k=1).answer == "no_match"
    assert result.interval is not None and large.interval is not None
    assert result.interval[0] < large.interval[0]


def test_a_corpus_in_french_is_asked_in_french_and_says_what_its_model_does_not_know(tmp_path: Path) -> None:
    lines = [
        "Bonjour à tous, aujourd'hui nous allons parler de la descente de gradient.",
        "Le réseau de neurones apprend les poids avec la rétropropagation.",
        "Il y a une couche de convolution et une couche de normalisation dans ce modèle.",
        "Vous pouvez voir que la fonction de perte est plus petite pour cet exemple.",
        "Mais il faut choisir le taux d'apprentissage avec soin, sinon on ne converge pas.",
    ]
    corpus = Corpus(tmp_path / "french.corpus", create=True)
    corpus.add(_write(tmp_path, "cours.vtt", lines), processes=1)
    known = load_calibration(corpus.store)
    assert list(known.streams["subtitle"].groups) == ["fr"] and "French" in known.note
    result = corpus.search("la fonction de perte", k=1)
    assert result.answer == "match" and any("does not know French" in note for note in result.notes)
    assert corpus.search("un ours se tient dans une rivière", k=1).answer != "match"


def test_where_no_sentences_are_in_the_language_confidence_is_withheld_and_says_why(tmp_path: Path) -> None:
    lines = ["Tämä on suomenkielinen luento syväoppimisesta ja neuroverkoista."] * 3 + [
        "Seuraavaksi katsomme, miten gradientti lasketaan takaisinpäin koko verkon läpi.",
        "Häviöfunktio pienenee jokaisella askeleella, kunnes opetus pysähtyy lopulta kokonaan.",
    ]
    corpus = Corpus(tmp_path / "finnish.corpus", create=True)
    corpus.add(_write(tmp_path, "luento.vtt", lines), processes=1)
    result = corpus.search("gradientti lasketaan", k=1)
    assert (result.answer, result.moments[0].confidence) == ("unsure", None)
    assert "no unrelated sentences in" in result.doubt
    report = calibrate(corpus)
    assert report.to_json()["calibration"] is None
    (line,) = report.lines()
    assert line.startswith("calibration error and AUROC: - (how sure an answer is cannot be said: ")
    report.write(tmp_path / "out")
    written = json.loads((tmp_path / "out" / "calibration.json").read_text())
    stats = corpus.stats()
    assert written["not_measured"] == stats.to_json()["not_measured"] == report.not_measured != ""
    assert any(report.not_measured in line for line in stats.lines())


def test_where_no_answer_has_a_confidence_no_error_is_told(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "small.corpus", create=True)
    corpus.add(_write(tmp_path, "page.vtt", _passages()[:60]), processes=1)
    report = calibrate(corpus, made=20)
    assert report.not_measured == "" and report.summary()["expected_calibration_error"] is not None
    unstated = tuple(replace(outcome, confidence=None) for outcome in report.outcomes)
    report = replace(report, outcomes=unstated)
    summary = report.summary()
    assert (summary["expected_calibration_error"], summary["auroc"]) == (None, None)
    assert "no answer to a known question has a confidence" in summary["not_measured"]
    assert (report.to_json()["reliability"], report.to_json()["risk_coverage"]) == ([], None)
    text = "\n".join(report.lines())
    assert "calibration error and AUROC: - (no answer to a known question has a confidence" in text
    assert "expected calibration error" not in text
