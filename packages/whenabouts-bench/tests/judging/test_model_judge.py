"""A model as one more blind annotator: what it is sent, what it may answer, how it compares with people."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.chat_server import ChatServer, Reply, chat_server, says
from tests.judging.conftest import Clock

from whenabouts.cli.main import main
from whenabouts.intake.chat import Bounds, Chat, ChatError, ChatUnreachable, Endpoint
from whenabouts.intake.files import FormatError
from whenabouts.types import Moment, UsageError
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.model_judge import GRADES_FILE, grade_with_model, model_grades
from whenabouts_bench.judging.model_study import Alpha, judged_by, kendall_tau, model_studies
from whenabouts_bench.judging.qrels import Judged
from whenabouts_bench.judging.tasks import Source, Task, TaskSet

CUES = "WEBVTT\n\n00:01.000 --> 00:02.000\nthe old bell\n\n00:05.000 --> 00:06.000\nnobody hears this\n"
NAME = "tiny (words)"


@pytest.fixture
def spoken(tmp_path: Path, samples: Path) -> TaskSet:
    """Four moments of one recording, in which the first two have words; captions and runs are hidden."""
    (tmp_path / "talk.mp4").write_bytes((samples / "friday.mp4").read_bytes())
    (tmp_path / "talk.vtt").write_text(CUES)
    spans = [(0.5, 2.5), (0.8, 2.2), (3.0, 4.0), (5.0, 6.0)]
    tasks = tuple(
        Task(f"t{n}", f"q{n // 2}", f"A bell {n // 2}", Moment("talk", *span)) for n, span in enumerate(spans)
    )
    made = TaskSet(tmp_path / "set", "spoken", tasks, {"talk": "../talk.mp4"}, annotators=1)
    made.write({task.id: Source({"hidden_run": 1}, 0.5, "hidden caption") for task in tasks})
    return TaskSet.open(tmp_path / "set")


def chat_of(server: ChatServer) -> Chat:
    return Chat(Endpoint.parse(server.address, {}), Bounds(seconds=10, tries=1))


def message_of(request: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(request["messages"][1]["content"][0]["text"]))


def test_a_model_is_sent_what_annotators_get_and_no_pictures_unasked(spoken: TaskSet) -> None:
    with chat_server(says('{"grade": 3}')) as server:
        done = grade_with_model(spoken, Journal.open(spoken).state(), chat_of(server))
        again = grade_with_model(spoken, Journal.open(spoken).state(), chat_of(server))
    assert (done.graded, done.before, done.silent, done.faults) == (3, 0, 1, ())
    assert (again.graded, again.before, again.silent) == (0, 3, 1)
    assert len(server.requests) == 3  # t2 has no words; nothing is sent twice
    assert message_of(server.requests[0]) == {"query": "A bell 0", "seconds": 2.0, "said": "the old bell"}
    sent = json.dumps(server.requests)
    assert "image_url" not in sent and "hidden_run" not in sent and "hidden caption" not in sent
    assert "talk" not in sent
    assert "A perfect answer" in server.requests[0]["messages"][0]["content"]
    assert model_grades(spoken) == {NAME: {"t0": 3, "t1": 3, "t3": 3}}


@pytest.mark.slow
def test_frames_are_sent_when_a_number_is_named(spoken: TaskSet) -> None:
    with chat_server(says('```json\n{"grade": 1}\n```')) as server:
        done = grade_with_model(spoken, Journal.open(spoken).state(), chat_of(server), frames=2)
    assert (done.graded, done.silent) == (4, 0)
    pictures = server.requests[0]["messages"][1]["content"][1:]
    assert len(pictures) == 2
    for part in pictures:
        kind, data = part["image_url"]["url"].split(",")
        assert kind == "data:image/jpeg;base64" and base64.b64decode(data).startswith(b"\xff\xd8")
    assert set(model_grades(spoken)) == {"tiny (2 frames)"}
    with pytest.raises(UsageError, match="--frames 17: give 0"):
        grade_with_model(spoken, Journal.open(spoken).state(), chat_of(server), frames=17)


def test_a_new_guideline_asks_anew(spoken: TaskSet) -> None:
    with chat_server(says('{"grade": 3}')) as server:
        grade_with_model(spoken, Journal.open(spoken).state(), chat_of(server))
        spoken.write_guideline("Only bells that ring.")
        server.answer = lambda _: says('{"grade": 0}')
        assert grade_with_model(spoken, Journal.open(spoken).state(), chat_of(server)).graded == 3
    assert set(model_grades(spoken)[NAME].values()) == {0}


@pytest.mark.parametrize("answer", ["four", '{"grade": 5}', '{"grade": true}', '{"grade": "3"}', "{}"])
def test_what_is_no_grade_is_said_and_three_in_a_row_end_the_run(spoken: TaskSet, answer: str) -> None:
    with chat_server(says(answer)) as server, pytest.raises(ChatError):
        grade_with_model(spoken, Journal.open(spoken).state(), chat_of(server))
    assert len(server.requests) == 3 and model_grades(spoken) == {}


def test_one_fault_is_told_and_the_others_are_graded(spoken: TaskSet) -> None:
    def answer(request: dict[str, Any]) -> Reply:
        return says("no" if message_of(request)["query"] == "A bell 1" else '{"grade": 2}')

    with chat_server(answer) as server:
        done = grade_with_model(spoken, Journal.open(spoken).state(), chat_of(server))
    assert done.graded == 2
    (fault,) = done.faults
    assert fault.startswith("t3: the answer has no grade")


def test_an_endpoint_that_is_not_there_ends_the_run_and_grades_stay(spoken: TaskSet) -> None:
    calls: list[int] = []

    def answer(_: dict[str, Any]) -> Reply:
        calls.append(1)
        return says('{"grade": 4}') if len(calls) == 1 else Reply(status=401)

    with chat_server(answer) as server, pytest.raises(ChatUnreachable):
        grade_with_model(spoken, Journal.open(spoken).state(), chat_of(server))
    assert model_grades(spoken) == {NAME: {"t0": 4}}


def test_a_full_disk_leaves_no_part_of_a_grade(spoken: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = os.write, list[int]()

    def soon_full(descriptor: int, data: bytes) -> int:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(write(descriptor, data[: None if not written else 20]))
        return written[-1]

    with chat_server(says('{"grade": 3}')) as server:
        monkeypatch.setattr(os, "write", soon_full)
        with pytest.raises(FormatError, match=rf"{GRADES_FILE}: cannot be written: No space left"):
            grade_with_model(spoken, Journal.open(spoken).state(), chat_of(server))
        monkeypatch.undo()
        assert model_grades(spoken) == {NAME: {"t0": 3}}
        assert grade_with_model(spoken, Journal.open(spoken).state(), chat_of(server)).graded == 2


def test_grades_of_another_set_are_refused(spoken: TaskSet) -> None:
    line = {"task_id": "t0", "model": NAME, "grade": 3, "tasks": "other"}
    (spoken.folder / GRADES_FILE).write_text(json.dumps(line) + "\n")
    with pytest.raises(FormatError, match="line 1: tasks: is of another task set"):
        model_grades(spoken)


def graded_set(make_set: Callable[..., TaskSet], clock: Clock, model: dict[str, int]) -> TaskSet:
    """Six tasks that ann and bea graded alike (grade n % 5), and a model's grades."""
    tasks = make_set()
    journal = Journal.open(tasks, clock)
    for name in ("ann", "bea"):
        journal.append_all([Event("grade", name, f"t{n}", grade=n % 5) for n in range(6)])
    lines = [{"task_id": t, "model": NAME, "grade": g, "tasks": tasks.fingerprint} for t, g in model.items()]
    (tasks.folder / GRADES_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tasks


def test_a_study_has_kappa_alpha_confusion_and_bias(make_set: Callable[..., TaskSet], clock: Clock) -> None:
    tasks = graded_set(make_set, clock, {"t0": 1, "t1": 1, "t2": 3, "t3": 3, "t4": 4})
    (study,) = model_studies(Judged.of(tasks, Journal.open(tasks).state()))
    assert (study.model, study.graded) == (NAME, 5)
    consensus, ann, bea = study.agreements
    assert [each.second for each in (consensus, ann, bea)] == ["consensus", "ann", "bea"]
    assert (consensus.tasks, consensus.same, consensus.within_1) == (5, 0.6, 1.0)
    assert consensus.quadratic is not None and consensus.quadratic > 0.8
    assert study.people.value == 1.0
    assert study.together.value is not None and 0.8 < study.together.value < 1.0
    assert study.together.interval is not None
    assert [row[n] for n, row in enumerate(study.confusion)] == [0, 1, 0, 1, 1]
    assert study.confusion[0][1] == study.confusion[2][3] == 1
    assert study.bias == pytest.approx(2 / 5)


def test_alpha_is_krippendorffs() -> None:
    # Two coders, ten units, two values (Krippendorff, "Computing Krippendorff's alpha-reliability", 2011, A).
    # With two values the interval metric is the nominal one.
    first, second = (0, 1, 0, 0, 0, 0, 0, 0, 1, 0), (1, 1, 1, 0, 0, 1, 0, 0, 0, 0)
    units = [("q", pair) for pair in zip(first, second, strict=True)]
    assert Alpha.of(units).value == pytest.approx(0.095, abs=5e-4)
    assert Alpha.of([("q", (1,))]).value is None


def test_tau_counts_pairs_of_systems() -> None:
    assert kendall_tau([1, 2, 3, 4], [1, 2, 3, 4]) == 1
    assert kendall_tau([1, 2, 3, 4], [4, 3, 2, 1]) == -1
    # One discordant pair and one tie of five: (4 - 1) / sqrt(6 * 5)
    assert kendall_tau([1, 2, 3, 4], [1, 3, 2, 3]) == pytest.approx((4 - 1) / (6 * 5) ** 0.5)


def test_its_grades_are_no_judgements_unless_asked_and_it_orders_runs(
    make_set: Callable[..., TaskSet], clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = graded_set(make_set, clock, {f"t{n}": grade for n, grade in enumerate((1, 0, 3, 2, 0, 4))})
    folder, runs = str(tasks.folder), []
    for name, first in (("low", 0), ("high", 1)):
        moments = [task.moment for task in tasks.tasks]
        lines = [
            {"query_id": f"q{q}", "moments": [
                {"video_id": m.video_id, "start": m.start, "end": m.end, "score": 1.0}
                for m in [moments[2 * q + first]]
            ]}
            for q in range(3)
        ]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        runs += ["--run", str(tmp_path / f"{name}.jsonl")]
    metric = ("--metric", "ndcg@1, iou=.9")
    assert main(["judgements", folder, "--out", str(tmp_path / "truth"), *runs, *metric, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (order,) = told["orders"]
    assert order["model"] == NAME and order["tau"] == -1.0
    people = read_annotations(tmp_path / "truth")
    asked = ["judgements", folder, "--out", str(tmp_path / "theirs"), "--truth-of", NAME, "--table"]
    assert main(asked) == 0
    assert f"{NAME}: 6 tasks graded; its grades are no judgements" in capsys.readouterr().out
    theirs = read_annotations(tmp_path / "theirs")
    assert people.relevance.tolist() == [0, 1, 2, 3, 4, 0]
    assert theirs.relevance.tolist() == [1, 0, 3, 2, 0, 4]
    with pytest.raises(UsageError, match=r"'nobody' has graded nothing in .*; known: 'tiny"):
        judged_by(Judged.of(tasks, Journal.open(tasks).state()), "nobody")
    assert main(["judgements", folder, "--truth-of", NAME]) == 2


def test_the_verb_grades_and_compares(spoken: TaskSet, capsys: pytest.CaptureFixture[str]) -> None:
    Journal.open(spoken).append_all([Event("grade", "ann", f"t{n}", grade=3) for n in range(4)])
    with chat_server(says('{"grade": 2}')) as server:
        assert main(["judge", str(spoken.folder), "--model", server.address, "--frames", "0"]) == 0
    said = capsys.readouterr().out
    assert "3 tasks graded now, 0 before" in said
    assert "1 moments have nothing to show: no words are known; --frames N sends pictures" in said
    assert "its grades are -1.00 off the final ones" in said
    assert main(["judge", str(spoken.folder), "--frames", "2"]) == 2
    assert main(["judge", str(spoken.folder), "--model", server.address, "--annotator", "Ada"]) == 2
