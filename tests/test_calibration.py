"""Confidence on a real corpus: uniform for the unrelated, measured again when the corpus has grown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuepoint import Corpus
from cuepoint.background import SENTENCES
from cuepoint.calibration import is_due, load
from cuepoint.index.progress import Progress

ROOT = Path(__file__).resolve().parents[1]

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
    "the exit code when nothing is found",
    "confidence is the share of unrelated sentences",
    "subtitle files that lie beside a video",
    "installing PyTorch without a graphics card",
    "full-text index of the words",
)


def _passages() -> list[str]:
    """Sentences of this repository's own pages."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "ARCHITECTURE.md"]
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
    corpus = Corpus(folder / "pages.corpus")
    corpus.add(folder, processes=1, progress=told.append)
    return corpus


def _best(corpus: Corpus, query: str) -> float:
    confidence = corpus.search(query, k=1).moments[0].confidence
    assert confidence is not None
    return confidence


def test_unrelated_sentences_get_confidences_that_are_about_uniform(corpus: Corpus) -> None:
    assert not set(UNRELATED) & set(SENTENCES)
    shares = np.sort([_best(corpus, sentence) for sentence in UNRELATED])
    # Kolmogorov-Smirnov: a uniform sample of 50 stays below 0.23 in 99 of 100 cases.
    steps = np.arange(1, len(shares) + 1) / len(shares)
    distance = max(np.max(steps - shares), np.max(shares - steps + 1 / len(shares)))
    assert distance < 0.23, shares.round(2)
    assert np.mean(shares >= 0.95) <= 0.14  # called a match: 1 in 20, and what chance adds to it


def test_what_nothing_answers_is_no_match_and_what_something_answers_is_a_match(corpus: Corpus) -> None:
    answers = [corpus.search(sentence, k=1).answer for sentence in UNRELATED]
    assert np.mean([answer == "no_match" for answer in answers]) > 0.6
    assert [corpus.search(sentence, k=1).answer for sentence in RELATED] == ["match"] * len(RELATED)


def test_a_confidence_bounds_what_is_returned_but_not_what_it_is_called(corpus: Corpus) -> None:
    result = corpus.search(RELATED[0], k=50, min_confidence=0.9)
    assert result.answer == "match"
    assert all(found.confidence is not None and found.confidence >= 0.9 for found in result.moments)
    nothing = corpus.search(UNRELATED[0], k=50, min_confidence=1.0)
    assert (nothing.answer, nothing.moments) == ("no_match", ())


def test_a_corpus_is_measured_again_once_it_has_grown_by_a_tenth(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuepoint import calibration

    measured: list[int] = []

    def note(store: Any, encoders: Any, **rest: Any) -> calibration.Calibration:
        # The measurement itself is what all other tests here are about; this one counts them.
        measured.append(store.stats().streams["subtitle"].clips)
        known = load(store)
        for name, stats in store.stats().streams.items():
            store.put_fact(f"calibration:{name}", {"clips": stats.clips})
        return known

    monkeypatch.setattr(calibration, "measure", note)
    grown = Corpus(tmp_path / "grown.corpus")
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
        "merging and indexing what is new",
        "measuring what unrelated questions score",
    ]
    measuring = [progress.fraction for progress in steps[1:]]
    assert measuring == sorted(measuring) and measuring[0] == 0.0 and measuring[-1] > 0.99
    assert len(measuring) > len(SENTENCES)  # once before the sentences are encoded, once for each
    assert {progress.files_done for progress in steps} == {steps[0].files_total}


def test_what_was_measured_is_kept_with_the_corpus(corpus: Corpus) -> None:
    known = load(Corpus(corpus.location, create=False)._store)
    assert set(known.scales) == set(known.chances) == {"subtitle"}
    assert known.clips["subtitle"] == corpus.stats().store.streams["subtitle"].clips
    assert not is_due(corpus._store, known)


def test_where_nothing_was_measured_it_is_unsure_and_orders_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuepoint.calibration.is_due", lambda store, known: False)
    corpus = Corpus(tmp_path / "small.corpus")
    corpus.add(_write(tmp_path, "small.vtt", ["A lone sentence about whales.", "And another."]), processes=1)
    result = corpus.search("whales", k=5)
    assert result.answer == "unsure"
    assert result.doubt == "uncalibrated: this corpus is too small to say how sure an answer is"
    assert "whales" in result.moments[0].text
    assert all(found.confidence is None for found in result.moments)
    assert result.to_json()["moments"][0]["confidence"] is None
    # How sure it is cannot be told, so nothing reaches a bound.
    bounded = corpus.search("whales", k=5, min_confidence=0.5)
    assert (bounded.answer, bounded.moments) == ("no_match", ())
