"""A served task set of the sample videos, for the tests of the server and its page."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import av
import numpy as np
from starlette.testclient import TestClient

from whenabouts.server.run import Server, link, listen
from whenabouts.server.settings import Settings
from whenabouts.types import Moment
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.server import Application
from whenabouts_bench.judging.server_people import People
from whenabouts_bench.judging.tasks import ExamTask, Source, Task, TaskSet

SECRET = "a-secret-that-is-long-enough"
HOSTILE = '<script>hacked()</script> A man & a "woman" speak'
EXPLANATION = "The flower opens, and nothing else happens."
# None of these may reach a browser: runs, captions (here a file's name), ids with captions, paths.
HIDDEN = ("hidden_run", "0.7731", "hidden caption", "samples")


def small_set(folder: Path, samples: Path, *, exam: bool = False, tasks: int = 4) -> TaskSet:
    """Moments, the fourth without a recording, and two exam tasks."""
    clips = {"friday hidden caption": "friday.mp4", "flower hidden caption": "flower.webm"}
    videos = {name: str(samples / file) for name, file in clips.items()} | {"gone": "../gone.mp4"}
    friday, flower = clips
    chosen: tuple[Task, ...] = (
        Task("t0", "q0", "A man speaks", Moment(friday, 1.0, 2.5)),
        Task("t1", "q0", "A man speaks", Moment(flower, 0.5, 1.0)),
        Task("t2", "q1", HOSTILE, Moment(friday, 2.0, 3.0)),
        Task("t3", "q1", HOSTILE, Moment("gone", 2.0, 3.0)),
    )
    chosen += tuple(replace(chosen[0], id=f"t{number}") for number in range(4, tasks))
    asked = (
        ExamTask(Task("e0", "x0", "A flower opens", Moment(flower, 0.2, 0.9)), 4, EXPLANATION),
        ExamTask(Task("e1", "x1", "A man speaks", Moment(friday, 1.0, 2.0)), 3),
    )
    written = TaskSet(folder, "evening news", chosen, videos, asked if exam else ())
    written.write({task.id: Source({"hidden_run": 1}, 0.7731) for task in chosen})
    return TaskSet.open(folder)


def write_avi(path: Path) -> None:
    """Fifteen seconds of MPEG-4 part 2 in AVI, which no browser plays, whatever its name says."""
    with av.open(str(path), "w", format="avi") as out:
        stream = out.add_stream("mpeg4", rate=10)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height = 64, 48
        for number in range(150):
            picture = np.full((48, 64, 3), number, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))


@dataclass
class Judge:
    """The client of one annotator."""

    client: Any  # of httpx, or Starlette's test client
    token: str
    name: str = ""

    def get(self, path: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", **more.pop("headers", {})}
        return self.client.get(path, headers=headers, **more)

    def post(self, path: str, **body: Any) -> Any:
        body = {"annotator": self.name, "id": secrets.token_hex(16), **body}
        return self.client.post(path, headers={"Authorization": f"Bearer {self.token}"}, json=body)

    def next(self, **parameters: Any) -> dict[str, Any]:
        """The next task."""
        return ok(self.get("/api/task", params={"annotator": self.name, **parameters}))

    def grade(self, task_id: str, grade: object, **more: object) -> dict[str, Any]:
        """The response to a grade."""
        return ok(self.post("/api/answers", task_id=task_id, grade=grade, **more))


@dataclass
class Served:
    """A served task set with its lead and annotators."""

    tasks: TaskSet
    client: TestClient
    people: People

    @property
    def lead(self) -> Judge:
        return Judge(self.client, self.people.lead_token)

    def judge(self, name: str) -> Judge:
        token = next(token for token, own in self.people.tokens.items() if own == name)
        return Judge(self.client, token, name)

    @property
    def journal(self) -> Journal:
        """The journal as it is on the disk."""
        return Journal.open(self.tasks)


def serve_set(tasks: TaskSet, cache: Path, *names: str, guests: Path | None = None) -> Served:
    people = People.of(names, "login", SECRET)
    settings = Settings(token=people.lead_token, cache=cache, guests=guests)
    client = TestClient(
        Application(tasks, people, settings), base_url="http://localhost", follow_redirects=False
    )
    return Served(tasks, client, people)


@contextmanager
def serving(tasks: TaskSet, cache: Path, *names: str, **more: Any) -> Iterator[dict[str, str]]:
    """Name -> link while a server with some settings runs in a thread; "" is the lead."""
    people = People.of(names, "login", SECRET)
    settings = Settings(token=people.lead_token, cache=cache, port=0, **more)
    started = threading.Event()
    with listen(settings) as bound:
        server = Server(Application(tasks, people, settings), settings, started.set)
        thread = threading.Thread(target=lambda: server.run(sockets=[bound]))
        thread.start()
        try:
            assert started.wait(60), "the server did not start"
            tokens = {name: token for token, name in people.tokens.items()} | {"": people.lead_token}
            yield {name: link(settings, bound, token) for name, token in tokens.items()}
        finally:
            server.should_exit = True
            thread.join(60)


def ok(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert isinstance(body, dict)
    return body


def refused(answer: Any) -> tuple[int, str]:
    """Status and code of an error of the usual form."""
    error = answer.json()["error"]
    assert error["message"]
    return answer.status_code, error["code"]
