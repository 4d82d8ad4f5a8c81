"""Final grades as judgements: grade 0 stays, open and discarded tasks go, borders are means."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.judging.conftest import Clock, task

from whenabouts.cli.main import main
from whenabouts.types import Judgement, Moment, UsageError
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.jsonl import write_annotations
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.importing import import_answers
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.qrels import Judged, joined, write_grades
from whenabouts_bench.judging.tasks import Source, Task, TaskSet


def grade(journal: Journal, task_id: str, *grades: int) -> None:
    for name, value in zip(("ann", "bea", "cem", "dan"), grades, strict=False):
        journal.append(Event("grade", name, task_id, grade=value))


def test_final_grades_become_judgements(journal: Journal, tmp_path: Path) -> None:
    grade(journal, "t0", 0, 0)
    grade(journal, "t1", 0, 4, 0, 4)
    grade(journal, "t2", 1, 3)
    grade(journal, "t3", 3, 4)
    (tmp_path / "out").mkdir()
    write_annotations(Judged.of(journal.task_set, journal.state()).annotations, tmp_path / "out")
    read = read_annotations(tmp_path / "out")
    assert read.qrels == {
        "q0": [Judgement(Moment("video", 0.0, 5.0), 0.0)],
        "q1": [Judgement(Moment("video", 3.0, 8.0), 4.0)],
        "q2": [],
    }
    assert read.queries[2].text == "Sentence q2"
    assert read.videos[0].duration == 60


def test_borders_are_the_mean_of_those_whose_grades_count(journal: Journal) -> None:
    grade(journal, "t0", 4, 1, 3, 3)  # the 4 and the 1 are dropped
    journal.append(Event("borders", "ann", "t0", start=50, end=60))
    journal.append(Event("borders", "cem", "t0", start=1, end=4))
    (judged,) = Judged.of(journal.task_set, journal.state()).annotations.qrels["q0"]
    assert judged == Judgement(Moment("video", 0.5, 4.5), 3.0)  # dan left them at 0 and 5


def test_borders_that_nobody_moved_are_exact_also_after_an_import(make_set: Callable[..., TaskSet]) -> None:
    thirds = Task("t0", "q0", "words", Moment("video", 1 / 3, 10 / 3))
    here, copy = make_set(thirds), make_set(thirds, folder="copy")
    grade(Journal.open(copy), "t0", 3, 3)
    import_answers(Journal.open(here), copy.folder / "journal.jsonl")
    for tasks in (copy, here):
        judged = Judged.of(tasks, Journal.open(tasks).state())
        assert judged.annotations.qrels["q0"] == [Judgement(thirds.moment, 3.0)]


def test_an_earlier_state_has_the_judgements_of_then(journal: Journal) -> None:
    grade(journal, "t0", 2, 2)
    journal.append(Event("grade", "bea", "t0", grade=3))
    then = Judged.of(journal.task_set, journal.state(at=3)).annotations
    now = Judged.of(journal.task_set, journal.state()).annotations
    assert (then.relevance.tolist(), now.relevance.tolist()) == ([2.0], [3.0])


def batches(tmp_path: Path, clock: Clock) -> Journal:
    """A query with a first batch of 6 and a second of 2; t5 has the best rank and t0 the worst."""
    tasks = tuple(task(number, batch=1 if number < 6 else 2) for number in range(8))
    ranks = {6: 7, 7: 8}
    sources = {t.id: Source({"captions": ranks.get(n, 6 - n)}) for n, t in enumerate(tasks)}
    (tmp_path / "video.mp4").touch()
    TaskSet(tmp_path / "set", "two", tasks, {"video": "../video.mp4"}, annotators=1).write(sources)
    return Journal.open(TaskSet.open(tmp_path / "set"), clock)


def test_the_second_batch_comes_where_the_last_five_of_the_first_are_still_relevant(
    tmp_path: Path, clock: Clock
) -> None:
    journal = batches(tmp_path, clock)
    for number, value in enumerate((2, 1, 3, 2, 2)):  # t0 to t4 are the last five by rank: mean 2
        following = journal.next_task("ann")
        assert following is not None
        assert following.id == f"t{number}"
        journal.append(Event("grade", "ann", following.id, grade=value))
    assert journal.progress("ann").tasks == 8
    journal.append(Event("grade", "ann", "t1", grade=0))
    assert journal.progress("ann").tasks == 6
    journal.append(Event("grade", "ann", "t5", grade=4))  # the best candidate does not affect the last five
    assert journal.next_task("ann") is None
    journal.append(Event("grade", "ann", "t1", grade=1))
    following = journal.next_task("ann")
    assert following is not None
    assert following.id == "t6"


def test_the_second_batch_waits_for_the_last_five(tmp_path: Path, clock: Clock) -> None:
    journal = batches(tmp_path, clock)
    for number in range(4):
        journal.append(Event("grade", "ann", f"t{number}", grade=4))
    assert journal.progress("ann").tasks == 6
    assert len(Judged.of(journal.task_set, journal.state()).outcomes) == 6


def test_moments_of_annotators_who_only_dragged_are_not_judged(
    make_set: Callable[..., TaskSet], clock: Clock
) -> None:
    journal = Journal.open(make_set(annotators=1), clock)
    journal.append(Event("borders", "ann", "t0", start=1, end=2))
    journal.append(Event("grade", "bea", "t0", grade=2))
    (judged,) = Judged.of(journal.task_set, journal.state()).annotations.qrels["q0"]
    assert judged.moment == Moment("video", 0.0, 5.0)


def judged(name: str, grade: float, text: str = "a dog") -> Annotations:
    builder = AnnotationBuilder(name)
    builder.most_grade = 4.0
    builder.add_query("q", text)
    builder.judge("q", "video", 0.0, 5.0, grade)
    return builder.annotations()


def test_rounds_that_agree_are_joined_and_others_are_refused() -> None:
    both = joined([judged("first", 3), judged("second", 3)])
    assert both.qrels == {"q": [Judgement(Moment("video", 0.0, 5.0), 3.0)]}
    assert both.most_grade == 4
    with pytest.raises(UsageError, match=r"second: query 'q', video 0-5 s has grade 1, and 3 in the rounds"):
        joined([judged("first", 3), judged("second", 1)])
    with pytest.raises(UsageError, match=r"second: query 'q' has another text"):
        joined([judged("first", 3), judged("second", 3, "a cat")])


def test_no_name_in_the_raw_grades_is_a_formula(journal: Journal, tmp_path: Path) -> None:
    journal.append(Event("grade", '=HYPERLINK("http://x")', "t0", grade=3))
    write_grades(journal.state(), tmp_path / "grades.csv")
    rows = list(csv.reader((tmp_path / "grades.csv").read_text().splitlines()))
    assert rows[1:] == [["t0", '\'=HYPERLINK("http://x")', "3"]]


def test_borders_that_would_be_empty_when_written_are_refused_at_once(journal: Journal) -> None:
    with pytest.raises(UsageError, match="start < end"):
        journal.append(Event("grade", "ann", "t0", grade=3, start=1.9999999, end=2.0))
    journal.append(Event("grade", "ann", "t0", grade=3, start=1.999, end=2.0))
    assert Judged.of(journal.task_set, journal.state()) is not None


@pytest.mark.slow
def test_judged_sets_keep_similarity_caption_and_source(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = tuple(task(number) for number in range(4))
    (tmp_path / "video.mp4").touch()
    sources = {t.id: Source({"captions": n + 1}, 0.9 - n / 10, f"caption {n}") for n, t in enumerate(tasks)}
    TaskSet(tmp_path / "set", "own", tasks, {"video": "../video.mp4"}, annotators=1).write(sources)
    journal = Journal.open(TaskSet.open(tmp_path / "set"), clock)
    journal.append_all([Event("grade", "ann", t.id, grade=4 - n) for n, t in enumerate(tasks)])
    assert main(["judgements", str(tmp_path / "set"), "--out", str(tmp_path / "truth")]) == 0
    truth = read_annotations(tmp_path / "truth")
    assert truth.captions == ("caption 0", "caption 1", "caption 2", "caption 3")
    assert truth.similarity is not None and truth.similarity.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert joined([truth, truth]).captions == truth.captions
    lines = [json.loads(line) for line in (tmp_path / "truth" / "sources.jsonl").read_text().splitlines()]
    assert lines[1] == {
        "query_id": "q1", "video_id": "video", "start": 1.0, "end": 6.0, "ranks": {"captions": 2}
    }  # fmt: skip
    pytest.importorskip("matplotlib", reason="figures are drawn with matplotlib")
    drawn = ("relevance", "figures", "--truth", str(tmp_path / "truth"), "--out", str(tmp_path / "figures"))
    assert main([*drawn, "--json"]) == 0
    capsys.readouterr()
    assert {"similarity.svg", "candidates.svg"} <= {path.name for path in (tmp_path / "figures").iterdir()}
