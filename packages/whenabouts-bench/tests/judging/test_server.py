"""The judging server: blind, no impersonation, no lost answers, no invalid ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import av
import pytest
from tests.judging.served_set import (
    EXPLANATION,
    HIDDEN,
    HOSTILE,
    SECRET,
    Judge,
    Served,
    ok,
    refused,
    serve_set,
    small_set,
    write_avi,
)

from whenabouts.server.decoding import Decoders
from whenabouts.server.errors import busy
from whenabouts.server.security import HEADERS
from whenabouts.types import UsageError
from whenabouts.workplace.guests import Guests
from whenabouts_bench.judging import server_service
from whenabouts_bench.judging.agreement import kappa
from whenabouts_bench.judging.server_people import People
from whenabouts_bench.judging.server_service import Holds
from whenabouts_bench.judging.server_videos import CONTEXT_SECONDS

Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path, samples: Path) -> Iterator[Serve]:
    """Serves a new task set to Ada and Bo, or to others."""
    running: list[Served] = []

    def serve_one(*names: str, **more: Any) -> Served:
        tasks = small_set(tmp_path / "set", samples, **more)
        running.append(serve_set(tasks, tmp_path / "cache", *(names or ("Ada", "Bo"))))
        return running[-1]

    yield serve_one
    for served in running:
        served.client.app.service.close()  # type: ignore[attr-defined]


def test_a_moment_is_graded_with_its_borders_and_the_next_one_comes(serve: Serve) -> None:
    served = serve()
    ada = served.judge("Ada")
    first = ada.next()
    assert first["task"] | {"rate": 0} == {
        "task_id": "t0", "query": "A man speaks", "start": 1.0, "end": 2.5, "context_start": 0.0,
        "context_end": pytest.approx(6.0, abs=0.5), "rate": 0, "video": "there", "is_exam": False,
        "answer": None, "feedback": None,
    }  # fmt: skip
    assert first["progress"] == {
        "judged": 0, "left": 4, "skipped": 0, "exam_right": 0, "exam_tasks": 0, "passed": True,
    }  # fmt: skip
    answered = ada.grade("t0", 3, start=1.25, end=2.0)
    assert answered["feedback"] is None
    assert (answered["next"]["task"]["task_id"], answered["next"]["progress"]["judged"]) == ("t1", 1)
    kept = served.journal.state().answer("Ada", "t0")
    assert kept is not None
    assert (kept.grade, kept.start, kept.end) == (3, 1.25, 2.0)


def test_an_undo_with_the_id_of_a_grade_is_refused(serve: Serve) -> None:
    served = serve()
    ada = served.judge("Ada")
    ada.grade("t0", 3, id="ab" * 16)
    assert refused(ada.post("/api/undo", id="ab" * 16)) == (409, "known_id")
    assert served.journal.state().answer("Ada", "t0") is not None


def test_an_undo_leads_back_to_the_task_and_to_what_was_said(serve: Serve) -> None:
    served = serve()
    ada = served.judge("Ada")
    ada.grade("t0", 3, start=1.25, end=2.0)
    ada.grade("t1", 0)
    assert ok(ada.post("/api/undo"))["task"]["answer"] == {"grade": 0, "start": None, "end": None}
    back = ok(ada.post("/api/undo"))
    assert back["task"]["task_id"] == "t0"
    assert back["task"]["answer"] == {"grade": 3, "start": 1.25, "end": 2.0}
    assert back["progress"]["judged"] == 0
    assert refused(ada.post("/api/undo")) == (409, "nothing_to_undo")
    assert served.journal.state().grades("t0") == ()


def test_shown_tasks_change_only_while_no_other_is_assigned(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve()
    ada, service = served.judge("Ada"), served.client.app.service  # type: ignore[attr-defined]
    take, were_locked = service.holds.take, list[bool]()

    def taken(*given: object) -> None:
        were_locked.append(service._assigning.locked())
        take(*given)

    monkeypatch.setattr(service.holds, "take", taken)
    ada.grade("t0", 3)
    ok(ada.post("/api/undo"))
    assert were_locked == [True, True]


def test_an_answer_that_comes_twice_counts_once(serve: Serve) -> None:
    served = serve()
    ada = served.judge("Ada")
    for _ in range(2):
        assert ada.grade("t0", 3, id="ab" * 16)["next"]["task"]["task_id"] == "t1"
    assert [event.kind for event in served.journal.events()] == ["guideline", "grade"]


def test_nothing_of_others_of_captions_or_of_sources_is_sent(serve: Serve) -> None:
    served = serve()
    ada, bo = served.judge("Ada"), served.judge("Bo")
    bo.grade("t0", 4, start=1.7131, end=2.3)
    answers = [
        ada.get("/api/me"), ada.get("/api/guideline"), ada.get("/api/task", params={"annotator": "Ada"}),
        ada.post("/api/answers", task_id="t0", grade=1), ada.post("/api/answers", task_id="t1", grade=1),
        ada.post("/api/answers", task_id="t2", grade=1), ada.post("/api/skips", task_id="t3"),
        ada.post("/api/undo"), ada.get("/api/tasks/t0/video"), ada.get("/api/tasks/t3/video"),
    ]  # fmt: skip
    for answer in answers:
        sent = json.dumps(dict(answer.headers))
        if answer.headers["content-type"] == "application/json":
            sent += answer.text.replace("evening news", "")
        for hidden in (*HIDDEN, "Bo", "1.7131", "gone.mp4", str(served.tasks.folder)):
            assert hidden not in sent
    assert refused(ada.get("/api/annotators")) == (403, "not_leading")


def test_each_is_let_in_by_a_link_of_their_own_and_judges_as_nobody_else(serve: Serve) -> None:
    served = serve()
    ada, bo = served.judge("Ada"), served.judge("Bo")
    assert ok(ada.get("/api/me"))["annotator"] == "Ada"
    assert refused(ada.get("/api/task", params={"annotator": "Bo"})) == (409, "another_annotator")
    assert refused(ada.post("/api/answers", annotator="Bo", task_id="t0", grade=1)) == (
        409,
        "another_annotator",
    )
    link = served.client.get("/", params={"token": bo.token})
    assert link.headers["location"] == "/"
    assert bo.token not in link.headers["set-cookie"]
    assert ok(served.client.get("/api/me"))["annotator"] == "Bo"  # by the cookie of the link
    served.client.cookies.clear()
    for path in ("/", "/static/judge.js", "/api/me", "/api/task?annotator=Ada", "/api/tasks/t0/video"):
        assert refused(served.client.get(path)) == (401, "unauthorized")
        wrong = {"Authorization": f"Bearer {ada.token[:-1]}"}
        assert refused(served.client.get(path, headers=wrong))[0] in (401, 429)
    assert ok(served.client.get("/api/health"))["status"] == "ok"
    elsewhere = {"Origin": "https://evil.example"}
    assert refused(ada.get("/api/me", headers=elsewhere)) == (403, "cross_site")
    assert refused(ada.get("/api/me", headers={"Host": "evil.example"})) == (403, "wrong_host")


def test_who_leads_sees_how_far_all_are_and_judges_nothing(serve: Serve) -> None:
    served = serve()
    for name in ("Ada", "Bo"):
        served.judge(name).grade("t0", 3)
    ok(served.judge("Bo").post("/api/skips", task_id="t3"))
    lead = served.lead
    assert ok(lead.get("/api/me")) | {"fingerprint": ""} == {
        "annotator": None, "leads": True, "name": "evening news", "fingerprint": "",
    }  # fmt: skip
    overview = ok(lead.get("/api/annotators"))
    rows = [(row["annotator"], row["judged"], row["left"], row["skipped"]) for row in overview["annotators"]]
    assert rows == [("Ada", 1, 3, 0), ("Bo", 1, 2, 1)]
    assert (overview["settled"], overview["tasks"], overview["missing"]) == (1, 4, ["gone"])
    assert refused(lead.get("/api/task", params={"annotator": "Ada"})) == (403, "not_judging")


def test_who_leads_sees_agreement_and_what_is_disputed(serve: Serve) -> None:
    served = serve()
    for task_id, grades in {"t0": (3, 3), "t1": (0, 4), "t2": (2, 1)}.items():
        for name, grade in zip(("Ada", "Bo"), grades, strict=True):
            served.judge(name).grade(task_id, grade)
    overview = ok(served.lead.get("/api/annotators"))
    (agreement,) = overview["agreement"]
    assert (agreement["first"], agreement["second"], agreement["tasks"]) == ("Ada", "Bo", 3)
    assert agreement["same"] == pytest.approx(1 / 3)
    assert agreement["kappa"] == pytest.approx(kappa([3, 0, 2], [3, 4, 1], "linear"))
    (disputed,) = overview["disputed"]
    assert (disputed["task_id"], disputed["missing"], overview["disputes"]) == ("t1", 2, 1)
    assert disputed["grades"] == [["Ada", 0], ["Bo", 4]]


def test_who_leads_lets_one_more_judge(serve: Serve) -> None:
    served = serve()
    lead = served.lead
    headers = {"Authorization": f"Bearer {lead.token}"}

    def invited(name: str) -> Any:
        return served.client.post("/api/annotators", headers=headers, json={"name": name})

    cy = Judge(served.client, ok(invited("Cy"))["token"], "Cy")
    assert cy.token == ok(invited("Cy"))["token"]  # named again: the same link
    assert cy.token in People.of(["Ada", "Cy"], "login", SECRET).tokens  # and after a restart with the name
    cy.grade(cy.next()["task"]["task_id"], 3)
    names = [row["annotator"] for row in ok(lead.get("/api/annotators"))["annotators"]]
    assert names == ["Ada", "Bo", "Cy"]
    assert refused(invited(" Cy")) == (400, "invalid")
    ada = {"Authorization": f"Bearer {served.judge('Ada').token}"}
    assert refused(served.client.post("/api/annotators", headers=ada, json={"name": "Eve"})) == (
        403,
        "not_leading",
    )


def test_the_guideline_is_changed_by_who_leads_and_every_version_is_kept(serve: Serve) -> None:
    served = serve()
    ada, lead = served.judge("Ada"), served.lead
    before = ok(ada.get("/api/guideline"))

    def edit(who: Any, text: str, version: str) -> Any:
        headers = {"Authorization": f"Bearer {who.token}"}
        return served.client.post("/api/guideline", headers=headers, json={"text": text, "version": version})

    assert refused(edit(ada, "All is 4.", before["version"])) == (403, "not_leading")
    after = ok(edit(lead, "Only dogs count.", before["version"]))
    assert ok(ada.get("/api/guideline")) == after
    assert ada.next()["guideline"] == after["version"] != before["version"]
    assert refused(edit(lead, "Only cats count.", before["version"])) == (409, "guideline_changed")
    assert refused(edit(lead, "", after["version"]))[0] == 400
    kept = [event.text for event in served.journal.events() if event.kind == "guideline"]
    assert kept == [before["text"], "Only dogs count."]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"grade": 7}, (400, "invalid_parameter")),
        ({"grade": -1}, (400, "invalid_parameter")),
        ({"grade": 2.5}, (400, "invalid_parameter")),
        ({"grade": "3"}, (400, "invalid_parameter")),
        ({"grade": True}, (400, "invalid_parameter")),
        ({"grade": None}, (400, "invalid_parameter")),
        ({"task_id": "of-another-set"}, (404, "no_such_task")),
        ({"start": 3.0, "end": 2.0}, (400, "invalid")),
        ({"start": 1.0}, (400, "invalid")),
        ({"start": -1.0, "end": 2.0}, (400, "invalid_parameter")),
        ({"id": "short"}, (400, "invalid_parameter")),
        ({"id": "../../etc/passwd0"}, (400, "invalid_parameter")),
        ({"annotator": "x" * 81}, (400, "invalid_parameter")),
        ({"caption": "please"}, (400, "unknown_parameter")),
        ({"task_id": "x" * 70_000}, (413, "too_large")),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    serve: Serve, body: dict[str, object], expected: tuple[int, str]
) -> None:
    served = serve()
    answer = served.judge("Ada").post("/api/answers", **{"task_id": "t0", "grade": 3, **body})
    assert refused(answer) == expected
    assert str(served.tasks.folder) not in answer.text
    assert not list(served.journal.events())


def test_the_recording_of_a_task_is_sent_whole_or_in_parts(serve: Serve, samples: Path) -> None:
    ada = serve().judge("Ada")
    whole = ada.get("/api/tasks/t0/video")
    assert (whole.status_code, whole.content) == (200, (samples / "friday.mp4").read_bytes())
    assert (whole.headers["content-type"], whole.headers["accept-ranges"]) == ("video/mp4", "bytes")
    part = ada.get("/api/tasks/t0/video", headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole.content[10:20])
    again = ada.get("/api/tasks/t0/video", headers={"If-None-Match": whole.headers["etag"]})
    assert again.status_code == 304
    for name, value in HEADERS.items():
        assert whole.headers[name] == value


def test_nothing_but_recordings_of_tasks_is_sent(serve: Serve) -> None:
    served = serve()
    ada = served.judge("Ada")
    for task_id in ("of-another-set", "gone", "..%2f..%2fgone.mp4", "%2fetc%2fpasswd", "friday.mp4"):
        assert refused(ada.get(f"/api/tasks/{task_id}/video"))[0] == 404
    # A task set may name any file as a video.
    (served.tasks.folder.parent / "gone.mp4").write_text("root:x:0:0:root:/root:/bin/bash\n")
    assert refused(ada.get("/api/tasks/t3/video")) == (409, "unreadable_video")
    for path in ("/static/server.py", "/static/..%2fserver.py", "/static/nothing.js", "/openapi.json"):
        assert refused(ada.get(path)) == (404, "not_found")


def test_too_many_requests_do_not_make_a_recording_unreadable(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> NoReturn:
        raise busy("videos", 1)

    ada = serve().judge("Ada")
    with monkeypatch.context() as while_busy:
        while_busy.setattr(Decoders, "probe", full)
        assert refused(ada.get("/api/task", params={"annotator": "Ada"})) == (429, "busy")
    assert ada.next()["task"]["video"] == "there"


def test_a_missing_video_is_told_and_its_task_waits_until_it_is_there(serve: Serve, samples: Path) -> None:
    served = serve()
    ada = served.judge("Ada")
    for task_id in ("t0", "t1", "t2"):
        following = ada.grade(task_id, 2)["next"]
    assert (following["task"]["task_id"], following["task"]["video"]) == ("t3", "missing")
    assert refused(ada.get("/api/tasks/t3/video")) == (410, "video_gone")
    skipped = ok(ada.post("/api/skips", task_id="t3"))
    assert skipped["task"] is None
    assert (skipped["progress"]["left"], skipped["progress"]["skipped"]) == (0, 1)
    (served.tasks.folder.parent / "gone.mp4").symlink_to(samples / "friday.mp4")
    assert ada.next(skipped=True)["task"]["video"] == "there"
    assert ada.grade("t3", 2)["next"]["progress"]["skipped"] == 0


def test_what_no_browser_plays_is_cut_to_mp4_with_its_context(serve: Serve) -> None:
    served = serve()
    write_avi(served.tasks.folder.parent / "gone.mp4")
    ada = served.judge("Ada")
    clip = ada.get("/api/tasks/t3/clip")
    assert (clip.status_code, clip.headers["content-type"]) == (200, "video/mp4")
    assert b"ftyp" in clip.content[:12]
    (served.tasks.folder.parent / "clip.mp4").write_bytes(clip.content)
    with av.open(str(served.tasks.folder.parent / "clip.mp4")) as cut:
        # From 0 s, because the moment begins at 2 s, to its end and the context.
        assert cut.duration == pytest.approx((3.0 + CONTEXT_SECONDS) * av.time_base, rel=0.02)
    assert ada.get("/api/tasks/t3/clip", headers={"Range": "bytes=0-3"}).status_code == 206


def test_the_exam_comes_first_and_tells_what_was_wrong(serve: Serve) -> None:
    served = serve(exam=True)
    ada = served.judge("Ada")
    first = ada.next()
    assert (first["task"]["task_id"], first["task"]["is_exam"], first["task"]["feedback"]) == (
        "e0",
        True,
        None,
    )
    assert refused(ada.post("/api/answers", task_id="t0", grade=3)) == (409, "exam_first")
    assert refused(ada.post("/api/skips", task_id="e0")) == (409, "in_exam")
    wrong = ada.grade("e0", 1)
    told = {"grade": 1, "reference": 4, "right": False, "explanation": EXPLANATION}
    assert wrong["feedback"] == told
    assert refused(ada.post("/api/undo")) == (409, "in_exam")
    right = ada.grade("e1", 2)
    assert right["feedback"] == {"grade": 2, "reference": 3, "right": True, "explanation": ""}
    assert (right["next"]["task"]["task_id"], right["next"]["task"]["feedback"]) == ("e0", told)
    assert right["next"]["progress"]["passed"] is False
    passed = ada.grade("e0", 4)["next"]
    assert (passed["task"]["task_id"], passed["progress"]["passed"]) == ("t0", True)


def test_no_more_annotators_get_a_task_than_it_needs(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve("Ada", "Bo", "Cid")
    judges = [served.judge(name) for name in ("Ada", "Bo", "Cid")]
    assert [judge.next()["task"]["task_id"] for judge in judges] == ["t0", "t0", "t1"]
    assert judges[0].next()["task"]["task_id"] == "t0"  # loading the page again changes nothing
    judges[0].grade("t0", 3)
    judges[1].grade("t0", 1)  # too far apart: two more are needed
    assert judges[2].grade("t1", 3)["next"]["task"]["task_id"] == "t0"
    monkeypatch.setattr(server_service, "HELD_SECONDS", 0.0)
    assert [judge.next()["task"]["task_id"] for judge in judges] == ["t1", "t1", "t0"]


@pytest.mark.slow
def test_many_at_once_judge_each_moment_as_often_as_it_needs(serve: Serve) -> None:
    names = [f"annotator {number}" for number in range(7)]
    served = serve(*names, tasks=24)

    def judge_all(name: str) -> int:
        judge, count = served.judge(name), 0
        task = judge.next()["task"]
        while task is not None:
            task = judge.grade(task["task_id"], 3)["next"]["task"]
            count += 1
        return count

    with ThreadPoolExecutor(len(names)) as threads:
        counts = list(threads.map(judge_all, names))
    state = served.journal.state()
    assert sum(counts) == 48
    assert {len(state.grades(task.id)) for task in served.tasks.tasks} == {2}


def test_who_went_away_holds_a_task_for_some_minutes_only() -> None:
    now = [0.0]
    holds = Holds(lambda: now[0])
    task = small_task()
    holds.take("Ada", task)
    holds.take("Bo", task)
    assert holds.of_others("Ada") == {"t0": 1}
    now[0] = server_service.HELD_SECONDS
    assert not holds.of_others("Cid")


def small_task() -> Any:
    from tests.judging.conftest import task

    return task(0)


def test_hostile_words_are_sent_as_words(serve: Serve) -> None:
    served = serve()
    ada = served.judge("Ada")
    ada.grade("t0", 1)
    answer = ada.post("/api/answers", task_id="t1", grade=1)
    assert answer.headers["content-type"] == "application/json"
    assert ok(answer)["next"]["task"]["query"] == HOSTILE


def test_links_of_one_secret_stay_and_a_name_is_one_person() -> None:
    people = People.of(["Ada", "Bo"], "login", SECRET)
    assert people == People.of(["Ada", "Bo"], "other", SECRET)
    assert people != People.of(["Ada", "Bo"], "login", SECRET + "x")
    assert People.of(["Ada"], "login").lead_token != People.of(["Ada"], "login").lead_token
    assert len({*people.tokens, people.lead_token}) == 3
    assert (people.names, people.judging("")) == (("Ada", "Bo"), "")
    alone = People.of([], "login", SECRET)
    assert (alone.names, alone.judging("")) == (("login",), "login")
    with pytest.raises(UsageError, match="--annotator Ada: is named twice"):
        People.of(["Ada", "Bo", "Ada"], "login")
    with pytest.raises(UsageError, match="WHENABOUTS_TOKEN has 6 letters"):
        People.of(["Ada"], "login", "secret")


def test_what_is_no_name_is_refused_before_anything_is_served(serve: Serve) -> None:
    with pytest.raises(UsageError, match="give a name of 1 to 80 printable characters"):
        serve("Ada", " Bo")


def test_guests_judge_under_their_names_if_their_scopes_say_so(tmp_path: Path, samples: Path) -> None:
    guests = Guests(tmp_path / "friends.json")
    names = {"Cy": ["judge"], "Dee": ["read", "collect"]}
    tokens = {name: guests.add(name, scopes) for name, scopes in names.items()}
    tasks = small_set(tmp_path / "set", samples)
    served = serve_set(tasks, tmp_path / "cache", "Ada", guests=guests.path)
    with served.client:
        cy, dee = (Judge(served.client, token, name) for name, token in tokens.items())
        assert ok(cy.get("/api/me")) | {"fingerprint": ""} == {
            "annotator": "Cy", "leads": False, "name": tasks.name, "fingerprint": ""
        }  # fmt: skip
        cy.grade(cy.next()["task"]["task_id"], 3)
        assert served.journal.state().annotators() == ["Cy"]
        assert refused(cy.get("/api/annotators")) == (403, "not_leading")
        assert refused(served.judge("Ada").get("/api/task", params={"annotator": "Cy"}))[1] == (
            "another_annotator"
        )
        for path in ("/", "/api/me", "/api/guideline", "/static/judge.js"):
            assert refused(dee.get(path)) == (403, "scope_missing")
        assert refused(dee.post("/api/answers", task_id="t0", grade=1)) == (403, "scope_missing")
        guests.remove("Cy")
        assert refused(cy.get("/api/me")) == (401, "unauthorized")
