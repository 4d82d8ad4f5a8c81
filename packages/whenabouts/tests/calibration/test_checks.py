"""How often a checker is wrong: which moments it is shown, and what is counted and stored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest
from tests.two_languages import PASSAGES, SECONDS, OnlyEnglish, fill, video

from whenabouts import Corpus
from whenabouts.calibration.checks import calibrate_checker, lines_of
from whenabouts.checkers import CheckerError, CheckerUnavailable
from whenabouts.checking import CheckRates, rates_of
from whenabouts.confidence.rates import Rate
from whenabouts.index.lock import CorpusBusy
from whenabouts.index.store import Store
from whenabouts.types import UsageError

Shown = dict[str, Any]


@dataclass
class Scripted:
    """A checker whose answer is a function of the input: description, words, start and end."""

    answers: Callable[[Shown], dict[str, object] | Exception]
    name: str = "scripted"
    runs_here: bool = False
    fingerprint: str = "scripted 1"
    shown: list[Shown] = field(default_factory=list)

    def answer(self, instructions: str, parts: Sequence[str | bytes], seconds: float) -> str:
        last = parts[-1]
        assert isinstance(last, str) and seconds == 120.0
        self.shown.append(json.loads(last.split("\n")[1]))
        given = self.answers(self.shown[-1])
        if isinstance(given, Exception):
            raise given
        return json.dumps({"match": True, "start": None, "end": None, "reason": "because"} | given)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("checks") / "small.corpus"
    fill(Store.open(place, create=True), {"en": 3})
    return place


@pytest.fixture
def corpus(filled: Path, tmp_path: Path) -> Corpus:
    return Corpus(shutil.copytree(filled, tmp_path / "own.corpus"), encoders=[OnlyEnglish()])


@dataclass(frozen=True)
class Asked:
    """Every passage as a question: its words in their order."""

    path: Path
    places: dict[str, tuple[str, float, float]]

    @classmethod
    def of(cls, corpus: Corpus, path: Path, count: int = 3 * PASSAGES) -> Asked:
        places = {
            line.text: (record.video_id, line.start, line.end)
            for record in corpus.records()
            for line in corpus.words(record)
        }
        places = dict(list(places.items())[:count])
        lines = [
            {"query": text, "video": video, "start": start, "end": end}
            for text, (video, start, end) in places.items()
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return cls(path, places)

    def is_right(self, shown: Shown) -> bool:
        return str(shown["description"]) in str(shown["words"])


@pytest.mark.slow
def test_each_question_shows_one_right_and_one_wrong_moment(corpus: Corpus, tmp_path: Path) -> None:
    asked, shares = Asked.of(corpus, tmp_path / "known.jsonl"), list[float]()
    total = len(asked.places)
    checker = Scripted(lambda shown: {"match": asked.is_right(shown)})
    rates, notes = calibrate_checker(corpus, checker, asked.path, progress=shares.append)
    assert [asked.is_right(shown) for shown in checker.shown] == [True, False] * total
    assert (rates.right.count, rates.right.of) == (total, total)
    assert (rates.wrong.count, rates.wrong.of) == (0, total)
    assert (rates.questions, rates.unread, rates.moves, rates.overlap, notes) == ("given", 0, False, None, [])
    assert shares == pytest.approx([row / total for row in range(total + 1)])
    assert rates_of(Corpus(corpus.location).store, checker) == rates


@pytest.mark.slow
def test_questions_on_one_video_count_as_fewer_independent_ones(corpus: Corpus, tmp_path: Path) -> None:
    asked = Asked.of(corpus, tmp_path / "known.jsonl")
    easy = {text for text, (video, _, _) in asked.places.items() if video == "en1"}
    checker = Scripted(lambda shown: {"match": asked.is_right(shown) == (shown["description"] in easy)})
    rates, _ = calibrate_checker(corpus, checker, asked.path)
    assert (rates.right.count, rates.wrong.count) == (PASSAGES, 2 * PASSAGES)
    assert rates.right.effective < 3 * PASSAGES and rates.wrong.effective < 3 * PASSAGES


@pytest.mark.parametrize(
    ("count", "late", "moves"),
    [(10, 0, True), (9, 0, False), (10, 10, False), (16, 4, True), (16, 5, False)],
)
def test_borders_are_used_if_ten_or_more_were_moved_and_surely_nearer_to_the_truth(
    corpus: Corpus, tmp_path: Path, count: int, late: int, moves: bool
) -> None:
    asked = Asked.of(corpus, tmp_path / "known.jsonl", count)
    # The questions ask for the first half of each passage; `late` times the checker gives the second half.
    half = (SECONDS - 2) / 2
    lines = [json.loads(line) for line in asked.path.read_text("utf-8").splitlines()]
    asked.path.write_text(
        "".join(json.dumps(line | {"end": line["start"] + half}) + "\n" for line in lines), encoding="utf-8"
    )
    wrong = list(asked.places)[:late]

    def moved(shown: Shown) -> dict[str, object]:
        start = asked.places[str(shown["description"])][1] + half * (shown["description"] in wrong)
        return {"match": asked.is_right(shown), "start": start, "end": start + half}

    rates, _ = calibrate_checker(corpus, Scripted(moved), asked.path)
    assert rates.right.count == count and rates.moves is moves
    assert rates.overlap == pytest.approx((0.5, 1 - late / count), abs=0.01)


@pytest.mark.slow
def test_made_questions_show_no_wrong_moment_that_says_the_words_and_unread_answers_are_counted(
    corpus: Corpus,
) -> None:
    said = [line.text for line in corpus.words(corpus.resolve("en1"))]
    corpus.store.put_video(*video("copy", "en", OnlyEnglish(), [f"{line} Again!" for line in said]))
    turns = iter(range(1000))
    checker = Scripted(lambda shown: CheckerError("cut off") if next(turns) % 3 == 2 else {})
    rates, notes = calibrate_checker(corpus, checker, count=12)
    assert rates.questions == "made of the corpus" and "words of passages" in notes[0]
    assert rates.unread == len(checker.shown) // 3
    assert rates.right.of + rates.wrong.of + rates.unread == len(checker.shown)
    assert len({shown["description"] for shown in checker.shown}) == 12
    first = {shown["description"]: shown for shown in reversed(checker.shown)}
    for shown in checker.shown:
        words = set(shown["words"].lower().replace(".", "").split())
        assert shown is first[shown["description"]] or not set(shown["description"].split()) <= words


@pytest.mark.slow
def test_a_checker_that_stops_keeps_nothing_and_bad_counts_and_questions_are_told(
    corpus: Corpus, tmp_path: Path
) -> None:
    gone = Scripted(lambda shown: CheckerUnavailable("gone"))
    with pytest.raises(CheckerUnavailable, match="gone"):
        calibrate_checker(corpus, gone, count=1)
    assert rates_of(corpus.store, gone) is None
    with pytest.raises(UsageError, match="0 questions: give 1 or more"):
        calibrate_checker(corpus, gone, count=0)
    unread = Scripted(lambda shown: CheckerError("cut off"))
    with pytest.raises(
        UsageError, match=r"no right or no wrong moment .* \([12] answers? could not be read\)"
    ):
        calibrate_checker(corpus, unread, count=1)
    silent = Corpus(tmp_path / "silent.corpus", create=True)
    fill(silent.store, {})
    with pytest.raises(UsageError, match="nothing is said in this corpus to make questions of"):
        calibrate_checker(Corpus(silent.location), gone)


def test_the_rates_are_told_in_lines() -> None:
    checker = Scripted(lambda shown: {})
    few = list(lines_of(checker, CheckRates(Rate(3, 4, 4), Rate(1, 4, 4), "given")))
    assert few[0] == "scripted, on questions given"
    assert few[1].startswith("right moments called a match  75.0% (3 of 4;")
    assert few[2].startswith("wrong moments called a match  25.0% (1 of 4;")
    assert few[3:] == ["too few moments: its verdicts are shown, but change no confidence"]
    many = CheckRates(Rate(80, 100, 100), Rate(20, 100, 100), "given", 2, True, (0.5, 0.75))
    assert list(lines_of(checker, many))[3:] == [
        "its match multiplies the odds of a moment by 3.93, its no match by 0.25",
        "2 answers could not be read",
        "borders that it moved: mean IoU 0.50 before, 0.75 after, so its borders are used",
    ]
    shown_only = CheckRates(Rate(80, 100, 100), Rate(20, 100, 100), "given", 0, False, (0.5, 0.75))
    assert list(lines_of(checker, shown_only))[-1].endswith("0.75 after, so its borders are only shown")


def test_what_cannot_be_stored_is_not_measured_and_a_later_writer_is_waited_for(
    corpus: Corpus, tmp_path: Path
) -> None:
    checker = Scripted(lambda shown: {"match": True})
    with Corpus(corpus.location).writing(), pytest.raises(CorpusBusy):
        calibrate_checker(corpus, checker, count=1)
    other = shutil.copytree(corpus.location, tmp_path / "other.corpus")
    both = Corpus([corpus.location, other], encoders=[OnlyEnglish()])
    with pytest.raises(UsageError, match="side by side"):
        calibrate_checker(both, checker, count=1)
    assert checker.shown == []

    writes, writer = Event(), Corpus(corpus.location)

    def write() -> None:
        with writer.writing():
            writes.set()
            sleep(1)

    thread = Thread(target=write)

    def answers(shown: Shown) -> dict[str, object]:
        if not thread.ident:
            thread.start()
            assert writes.wait(60)
        return {"match": True}

    checker = Scripted(answers)
    rates, _ = calibrate_checker(corpus, checker, count=1)
    thread.join()
    assert rates_of(Corpus(corpus.location).store, checker) == rates
