"""Jobs over HTTP: plan, start, pause, stop, watch; and processes, files and disks that fail meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from schemathesis import GenerationMode
from tests.server.conftest import TOKEN, Client, Open, error_of, id_of, wait_until
from tests.server.test_openapi import AsLocalhost, ask

from whenabouts.corpus import Corpus
from whenabouts.index.ledger import Ledger
from whenabouts.server.app import Application
from whenabouts.server.jobs_runner import Runner
from whenabouts.server.settings import Settings
from whenabouts.types import UsageError

WORDS = "WEBVTT\n\n00:00.000 --> 00:04.000\n{}\n"
ENDED = ("done", "failed", "interrupted", "paused", "stopped")
ROUTES = [
    ("GET", "/api/folders", None),
    ("GET", "/api/jobs", None),
    ("GET", "/api/jobs/offer", None),
    ("GET", "/api/jobs/failed", None),
    ("GET", "/api/jobs/any", None),
    ("POST", "/api/jobs", {"places": ["films"]}),
    ("POST", "/api/jobs/retry", None),
    ("POST", "/api/jobs/remove", {"videos": ["any"]}),
    ("POST", "/api/jobs/any", {"do": "start"}),
    ("DELETE", "/api/jobs/any", None),
    ("POST", "/api/watched", {"place": "films", "watched": True}),
]


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """Two films with subtitles."""
    films = tmp_path / "films"
    films.mkdir()
    (films / "lighthouse.vtt").write_text(WORDS.format("a lighthouse at dawn"))
    (films / "harbour.vtt").write_text(WORDS.format("boats leave the harbour"))
    return films


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty corpus."""
    return Path(Corpus(tmp_path / "c.corpus", create=True).location)


@pytest.fixture
def desk(opened: Open, films: Path, place: Path) -> Client:
    """A client of a server that may read the films and runs the queue of the empty corpus."""
    client = opened(place, allow=(films,))
    runner_of(client).start()
    return client


def runner_of(client: Client) -> Runner:
    runner = client.application.service.runner
    assert runner is not None
    return runner


def post(client: Client, path: str, body: Any = None) -> Any:
    answer = client("POST", path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def job_of(client: Client, job: str) -> Any:
    return client.json(f"/api/jobs/{job}")


def reached(client: Client, job: str, *states: str) -> Any:
    """The job once it has one of the states."""
    assert wait_until(lambda: job_of(client, job)["state"] in states, 120), client.json("/api/jobs")
    return job_of(client, job)


def planned(client: Client, *places: str) -> Any:
    job = post(client, "/api/jobs", {"places": list(places)})
    return reached(client, job["id"], "planned", "failed")


def started(client: Client, *places: str) -> str:
    job = planned(client, *places)
    assert job["state"] == "planned", job
    return str(post(client, f"/api/jobs/{job['id']}", {"do": "start"})["id"])


def names(client: Client) -> set[str]:
    return {video["name"] for video in client.json("/api/videos")["data"]}


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
def test_without_allow_there_are_no_such_routes(
    opened: Open, place: Path, method: str, path: str, body: Any
) -> None:
    answer = opened(place)(method, path, json=body)
    assert error_of(answer)[:2] == (404, "not_allowed")
    assert "--allow" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
def test_they_demand_the_token(
    opened: Open, place: Path, films: Path, method: str, path: str, body: Any
) -> None:
    client = opened(place, allow=(films,), token=TOKEN)
    assert error_of(client(method, path, json=body))[:2] == (401, "unauthorized")


def test_only_one_corpus_in_a_folder_can_be_added_to(opened: Open, place: Path, films: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        opened(place, allow=(films / "none",))
    other = Corpus(films.parent / "d.corpus", create=True)
    with pytest.raises(UsageError, match="adds to a single corpus in a folder"):
        Runner(Corpus([place, other.location]), [films])


@pytest.mark.parametrize("spelled", ["~/{}", "file://{home}/{}"])
def test_a_corpus_may_be_named_by_home_folder_or_address(
    opened: Open, place: Path, films: Path, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    monkeypatch.setenv("HOME", str(place.parent))
    client = opened(spelled.format(place.name, home=place.parent), allow=(films,))
    assert client.json("/api/jobs/offer")["free_bytes"] > 0


@pytest.mark.slow
def test_an_empty_corpus_is_filled_searched_and_emptied(
    opened: Open, films: Path, place: Path, samples: Path
) -> None:
    shutil.copy(samples / "friday.mp4", films)
    shutil.copy(samples / "friday.vtt", films)
    (films / "links").mkdir()
    (films / "links" / "again.vtt").symlink_to(samples / "friday.vtt")
    # A client on another machine, which may not see paths.
    desk = opened(place, allow=(films,), token=TOKEN)
    desk.headers["authorization"] = f"Bearer {TOKEN}"
    runner_of(desk).start()
    assert desk.json("/api/stats")["adds"] is True
    assert error_of(desk.get("/api/search", params={"query": "lighthouse"}))[:2] == (409, "corpus_empty")
    job = planned(desk, "films")
    plan = job["plan"]
    assert (plan["files"], plan["new"], plan["problems"]) == (3, 3, [])
    assert plan["hours"] > 0 and plan["estimated_seconds"] > 0 and plan["estimated_bytes"] > 0
    assert plan["streams"] == ["words"]
    assert {each["adds"] for each in plan["missing"]} >= {"what pictures show"}
    assert all("whenabouts " in each["command"] or "pip " in each["command"] for each in plan["missing"])
    assert job["places"] == ["films"]
    assert desk.json("/api/videos")["data"] == []
    post(desk, f"/api/jobs/{job['id']}", {"do": "start"})
    done = reached(desk, job["id"], *ENDED)
    assert (done["state"], done["outcome"]["added"], done["failed"]) == ("done", 3, []), done
    assert done["progress"]["files_total"] == 3
    assert names(desk) == {"lighthouse.vtt", "harbour.vtt", "friday.mp4"}
    assert str(films) not in str(desk.json("/api/jobs"))
    found = desk.json("/api/search", query="lighthouse")["data"][0]
    assert "lighthouse" in found["text"]
    # Added files are served without a restart.
    friday = id_of(desk, "friday.mp4")
    assert desk.get(f"/api/videos/{friday}/file").status_code == 200
    assert desk.get(f"/api/videos/{friday}/thumbnail?at=1&width=160").status_code == 200
    cache = desk.application.service.cache.folder
    assert len(list(cache.rglob("*.jpg"))) == 1
    removal = post(desk, "/api/jobs/remove", {"videos": [friday, friday]})
    assert reached(desk, removal["id"], *ENDED)["outcome"] == {"removed": [friday], "collected": 0}
    assert not list(cache.rglob("*.jpg"))
    assert names(desk) == {"lighthouse.vtt", "harbour.vtt"} and (films / "friday.mp4").exists()
    shutil.copy(films / "harbour.vtt", films / "copy.vtt")
    again = planned(desk, "films")
    counts = {"files": 4, "new": 0, "unchanged": 2, "removed_before": 1, "renamed": 0, "copies": 1}
    assert {name: again["plan"][name] for name in counts} == counts
    assert "copy.vtt has the same content as harbour.vtt" in again["plan"]["notes"]
    assert len(desk("DELETE", f"/api/jobs/{again['id']}").json()["data"]) == 2


@pytest.mark.slow
def test_what_is_no_job_is_refused(desk: Client, films: Path, tmp_path: Path) -> None:
    (films / "out").symlink_to(tmp_path)
    refusals = [
        ("/api/jobs", {"places": []}, (400, "invalid_parameter")),
        ("/api/jobs", {"places": ["other"]}, (404, "no_such_place")),
        ("/api/jobs", {"places": ["films/.."]}, (404, "no_such_place")),
        ("/api/jobs", {"places": [str(films)]}, (404, "no_such_place")),
        ("/api/jobs", {"places": ["films/out"]}, (403, "not_allowed")),
        ("/api/jobs", {"places": ["films"], "transcribe": str(tmp_path)}, (400, "invalid")),
        ("/api/jobs", {"places": ["films"], "pictures": "owner/name"}, (400, "invalid")),
        ("/api/jobs", {"places": ["films"], "prune": True}, (400, "unknown_parameter")),
        ("/api/jobs/nobody", {"do": "stop"}, (404, "no_such_job")),
        ("/api/jobs/nobody", {"do": "anything"}, (400, "invalid_parameter")),
        ("/api/jobs/remove", {"videos": ["nobody"]}, (404, "no_such_video")),
        ("/api/watched", {"place": "films/harbour.vtt", "watched": True}, (400, "no_folder")),
        ("/api/watched", {"place": "films/out", "watched": True}, (403, "not_allowed")),
    ]
    for path, body, expected in refusals:
        assert error_of(desk("POST", path, json=body))[:2] == expected, (path, body)
    assert error_of(desk.get("/api/folders", params={"place": "films/out"}))[:2] == (403, "not_allowed")
    assert desk.json("/api/jobs")["data"] == []
    job = planned(desk, "films")["id"]
    assert error_of(desk("POST", f"/api/jobs/{job}", json={"do": "pause"}))[:2] == (409, "not_possible")


@pytest.mark.slow
def test_two_jobs_and_another_indexer_go_one_after_the_other(desk: Client, place: Path) -> None:
    first, second = planned(desk, "films/harbour.vtt")["id"], planned(desk, "films/lighthouse.vtt")["id"]
    with Corpus(place).writing():
        for job in (first, second):
            post(desk, f"/api/jobs/{job}", {"do": "start"})
        assert wait_until(lambda: "waiting for" in job_of(desk, first)["progress"].get("step", ""))
        assert (job_of(desk, first)["state"], job_of(desk, second)["state"]) == ("running", "waiting")
        assert error_of(desk("DELETE", f"/api/jobs/{second}"))[:2] == (409, "not_possible")
    assert reached(desk, second, *ENDED)["state"] == "done"
    assert job_of(desk, first)["state"] == "done"
    assert names(desk) == {"lighthouse.vtt", "harbour.vtt"}


@pytest.mark.slow
def test_a_job_is_paused_continued_and_stopped(desk: Client, place: Path) -> None:
    job = planned(desk, "films")["id"]
    with Corpus(place).writing():
        for wish, state in (
            ("start", "running"),
            ("pause", "paused"),
            ("continue", "running"),
            ("stop", "stopped"),
        ):
            post(desk, f"/api/jobs/{job}", {"do": wish})
            if state == "running":
                assert wait_until(lambda: "waiting for" in job_of(desk, job)["progress"].get("step", ""))
            assert reached(desk, job, state)["message"] == ""
    assert desk.json("/api/videos")["data"] == []


@pytest.mark.slow
def test_a_folder_that_vanishes_or_turns_into_a_link_is_not_read(
    desk: Client, films: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "diary.vtt").write_text(WORDS.format("dear diary"))
    for turn, reason in ((lambda below: None, "gone"), (lambda below: below.symlink_to(secret), "not in")):
        below = films / "below"
        below.mkdir()
        (below / "a.vtt").write_text(WORDS.format("soon gone"))
        job = planned(desk, "films/below")["id"]
        shutil.rmtree(below)
        turn(below)
        post(desk, f"/api/jobs/{job}", {"do": "start"})
        failed = reached(desk, job, *ENDED)
        assert failed["state"] == "failed" and reason in failed["message"], failed
    assert desk.json("/api/videos")["data"] == []


@pytest.mark.slow
def test_a_job_that_a_stranger_put_into_the_corpus_reads_nothing(
    desk: Client, place: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "diary.vtt").write_text(WORDS.format("dear diary"))
    jobs = runner_of(desk).jobs
    put = [
        jobs.queue("index", {"paths": [str(secret)]}),
        jobs.queue("index", {"paths": [str(tmp_path / "films" / ".." / "secret")]}),
        jobs.queue("index", {"paths": [str(tmp_path / "films")], "pictures": str(secret)}),
        jobs.queue("retry", {"paths": ["/"]}),
    ]
    jobs.watch(str(secret))
    for job in put:
        assert reached(desk, job.id, *ENDED)["state"] == "failed"
    assert desk.json("/api/videos")["data"] == []
    assert desk.json("/api/jobs")["watched"] == []
    assert str(secret) not in str(desk.json("/api/jobs"))


@pytest.mark.slow
def test_what_failed_is_listed_with_the_reason_and_tried_again(
    desk: Client, films: Path, samples: Path
) -> None:
    (films / "broken.mp4").write_bytes(b"no video" * 100)
    done = reached(desk, started(desk, "films"), *ENDED)
    assert (done["state"], done["outcome"]["added"]) == ("done", 2)
    (failure,) = done["failed"]
    assert failure["name"] == "broken.mp4" and failure["again"] and failure["why"]
    listed = desk.json("/api/jobs/failed")
    assert (listed["total"], listed["data"][0]["name"]) == (1, "broken.mp4")
    assert str(films) not in listed["data"][0]["why"]
    shutil.copy(samples / "flower.webm", films / "broken.mp4")
    retried = reached(desk, post(desk, "/api/jobs/retry")["id"], *ENDED)
    assert (retried["state"], retried["outcome"]["added"] + retried["outcome"]["updated"]) == ("done", 1)
    assert desk.json("/api/jobs/failed") == {"data": [], "total": 0}
    nothing = reached(desk, post(desk, "/api/jobs/retry")["id"], *ENDED)
    assert (nothing["state"], nothing["message"]) == (
        "failed",
        "no file has failed in the folders of --allow",
    )


@pytest.mark.slow
def test_a_watched_folder_is_followed_and_not_emptied_when_it_vanishes(desk: Client, films: Path) -> None:
    pytest.importorskip("watchfiles", reason="the extra watch is not installed")
    watched = post(desk, "/api/watched", {"place": "films", "watched": True})["watched"]
    assert [(each["place"], each["there"]) for each in watched] == [("films", True)]
    assert desk.json("/api/folders", place="films")["watched"] is True
    assert wait_until(lambda: names(desk) == {"lighthouse.vtt", "harbour.vtt"}, 120)
    (films / "new.vtt").write_text(WORDS.format("something new"))
    assert wait_until(lambda: "new.vtt" in names(desk), 60)
    (films / "new.vtt").unlink()
    assert wait_until(lambda: "new.vtt" not in names(desk), 60)
    assert wait_until(lambda: desk.json("/api/jobs")["watched"][0]["last"].get("pruned") == 1, 30)
    films.rename(films.with_name("unplugged"))
    assert wait_until(lambda: runner_of(desk)._watch is None, 60)
    assert not desk.json("/api/jobs")["watched"][0]["there"]
    assert names(desk) == {"lighthouse.vtt", "harbour.vtt"}
    assert post(desk, "/api/watched", {"place": "films", "watched": False})["watched"] == []


def test_a_watched_folder_of_a_server_that_does_not_answer_is_shown_as_gone(
    opened: Open, place: Path, films: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("watchfiles", reason="the extra watch is not installed")
    client = opened(place, allow=(films,))
    post(client, "/api/watched", {"place": "films", "watched": True})
    stat = os.stat

    def unreachable(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if path in (films, str(films)):
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN), str(films))
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", unreachable)
    [watched] = client.json("/api/jobs")["watched"]
    assert (watched["place"], watched["there"]) == ("films", False)
    runner_of(client)._follow()
    assert runner_of(client)._watch is None


def test_a_queue_without_watched_folders_does_not_read_the_ledger(
    opened: Open, place: Path, films: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(place, allow=(films,))
    monkeypatch.setattr(Ledger, "failed", property(lambda ledger: pytest.fail("a page asks every second")))
    assert client.json("/api/jobs")["watched"] == []


@pytest.mark.slow
def test_of_several_servers_one_runs_the_queue_and_another_takes_over(
    opened: Open, films: Path, place: Path
) -> None:
    both = [opened(place, allow=(films,)) for _ in range(2)]
    runner_of(both[0]).start()
    assert wait_until(lambda: (place / "jobs" / "queue.lock").exists())
    runner_of(both[1]).start()
    job = started(both[1], "films/harbour.vtt")
    assert reached(both[1], job, *ENDED)["state"] == "done"
    assert runner_of(both[1])._locked() is None
    runner_of(both[0]).close()
    job = started(both[1], "films/lighthouse.vtt")
    assert reached(both[1], job, *ENDED)["state"] == "done"


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_job_goes_on_when_there_is_room(
    opened: Open, films: Path, small_disk: Path
) -> None:
    place = small_disk / "c.corpus"
    Corpus(place, create=True)
    desk = opened(place, allow=(films,))
    runner_of(desk).start()
    job = planned(desk, "films")["id"]
    post(desk, f"/api/jobs/{job}", {"do": "start"})
    assert wait_until(lambda: job_of(desk, job)["state"] == "running")
    fill(small_disk / "ballast")
    failed = reached(desk, job, *ENDED)
    assert failed["state"] == "failed" and "full" in failed["message"], failed
    shown = desk("POST", "/api/jobs", json={"places": ["films"]})
    assert error_of(shown)[:2] == (507, "disk_full")
    (small_disk / "ballast").unlink()
    assert wait_until(lambda: runner_of(desk).jobs.get(job).state == "failed")
    (small_disk / "ballast").write_bytes(b"0" * 1000)
    assert desk.json("/api/jobs")["trouble"] == ""


def fill(ballast: Path) -> None:
    """Fill a small disk to its last byte."""
    with ballast.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"0" * size):
                    pass
            except OSError:
                continue


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The OpenAPI description of a server with --allow; its queue is not run."""
    folder = tmp_path_factory.mktemp("described")
    (folder / "films").mkdir()
    corpus = Corpus(folder / "c.corpus", create=True)
    application = Application(corpus, Settings(cache=folder / "cache", allow=(folder / "films",)))
    yield schemathesis.openapi.from_asgi("/openapi.json", AsLocalhost(application))
    application.service.close()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in ROUTES])
def test_the_routes_do_what_their_description_says(
    described: Any, method: str, path: str, mode: GenerationMode
) -> None:
    ask(described, path.replace("/any", "/{job}"), method.lower(), mode, 20)


# Killed ----------------------------------------------------------------------------------------------


def write_talks(folder: Path, number: int) -> None:
    """Write enough transcripts for an index run to write the corpus several times."""
    for talk in range(number):
        (folder / f"talk{talk:03}.vtt").write_text(WORDS.format(f"talk {talk} is about number {talk * 7}"))


def is_under_way(place: Path) -> Callable[[], bool]:
    """Whether clips have been written."""
    return lambda: len(list(place.glob("clips_subtitle.lance/_versions/*"))) >= 4


@pytest.mark.slow
def test_a_worker_that_is_killed_half_way_is_shown_and_its_job_continued(
    desk: Client, films: Path, place: Path
) -> None:
    write_talks(films, 300)
    job = started(desk, "films")
    assert wait_until(is_under_way(place))
    work = runner_of(desk)._work
    assert work is not None
    os.kill(work[1]._process.pid, signal.SIGKILL)
    killed = reached(desk, job, *ENDED)
    assert killed["state"] == "interrupted" and "was killed" in killed["message"]
    post(desk, f"/api/jobs/{job}", {"do": "continue"})
    done = reached(desk, job, *ENDED)
    assert (done["state"], done["failed"], done["message"]) == ("done", [], "")
    assert desk.json("/api/videos")["page_info"]["total_results"] == 302


@pytest.fixture
def serving(place: Path, films: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[str], str]]]:
    """Starts `whenabouts serve --allow`; returns the process and its address."""
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "whenabouts", "serve", "--port", "0"]
        command += ["--corpus", str(place), "--allow", str(films), "--processes", "2"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        threading.Thread(target=process.stdout.read, daemon=True).start()
        assert line.startswith("serving at "), line
        return process, line.removeprefix("serving at ").strip()

    yield start
    for process in started:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_ends_half_way_has_its_job_taken_up_again(
    serving: Callable[[], tuple[subprocess.Popen[str], str]],
    films: Path,
    place: Path,
    signal_number: signal.Signals,
) -> None:
    write_talks(films, 300)
    process, address = serving()

    def now(job: str) -> Any:
        return httpx.get(f"{address}api/jobs/{job}", timeout=60).json()

    def state_of(job: str) -> str:
        return str(now(job)["state"])

    job = httpx.post(f"{address}api/jobs", json={"places": ["films"]}, timeout=60).json()["id"]
    assert wait_until(lambda: state_of(job) == "planned", 120)
    httpx.post(f"{address}api/jobs/{job}", json={"do": "start"}, timeout=60)
    assert wait_until(is_under_way(place))
    process.send_signal(signal_number)
    process.wait(60)
    _, address = serving()
    assert wait_until(lambda: state_of(job) in ENDED, 120)
    assert state_of(job) == "done"
    if signal_number == signal.SIGTERM:  # a killed worker reports nothing
        assert (now(job)["outcome"]["added"], now(job)["outcome"]["unchanged"]) == (302, 0)
    listed = httpx.get(f"{address}api/videos", timeout=60).json()
    assert listed["page_info"]["total_results"] == 302
