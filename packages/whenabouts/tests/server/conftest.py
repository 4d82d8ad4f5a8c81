"""Fixtures of the server's tests: the sample corpus behind the application, in process or over a socket."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.small_disk import mounted

from whenabouts.corpus import Corpus
from whenabouts.index.folders import remember_folders
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.server.app import Application
from whenabouts.server.run import Server, listen
from whenabouts.server.settings import Limits, Settings

TOKEN = "a-token-that-is-long-enough"
HOSTILE = "<script>alert('x')</script> & \"quoted\".vtt"
# Escaped as in WebVTT: the reader removes tags, and unescapes this text to one.
HOSTILE_LINE = "&lt;img src=x onerror=alert(1)&gt; the lighthouse keeper's lamp"


@pytest.fixture(scope="session")
def indexed(tmp_path_factory: pytest.TempPathFactory, samples_corpus: Path) -> Path:
    """A corpus of the sample videos and a transcript full of HTML and scripts; tests must not change it."""
    folder = tmp_path_factory.mktemp("served")
    # A hostile file name; it cannot contain a slash.
    (folder / HOSTILE.replace("/", "_")).write_text(
        f"WEBVTT\n\n00:00.500 --> 00:04.000\n{HOSTILE_LINE}\n", encoding="utf-8"
    )
    shutil.copytree(samples_corpus, folder / "corpus")
    Corpus(folder / "corpus").add(folder, processes=1)
    return folder / "corpus"


@dataclass
class Client:
    """Sends requests to the application in this process; each request has its own event loop."""

    application: Application
    headers: dict[str, str]

    def __call__(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.application, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                client.headers.update(self.headers)
                return await client.request(method, path, **kwargs)

        return asyncio.run(ask())

    def get(self, path: str, **kwargs: Any) -> httpx.Response:
        return self("GET", path, **kwargs)

    def json(self, path: str, **parameters: Any) -> Any:
        answer = self("GET", path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def error(self, path: str, **parameters: Any) -> tuple[int, str, str | None]:
        """Status, code and field of an error answer; checks its documented form."""
        return error_of(self("GET", path, params=parameters))


def error_of(answer: httpx.Response) -> tuple[int, str, str | None]:
    body = answer.json()
    assert set(body) == {"error"}, answer.text
    assert set(body["error"]) == {"code", "message", "field"}
    assert body["error"]["message"]
    return answer.status_code, body["error"]["code"], body["error"]["field"]


Open = Callable[..., Client]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """A factory of clients: `opened(corpus folder, **settings)`; they are closed when the test ends."""
    made: list[Application] = []

    def open_one(place: Path, *, limits: Limits | None = None, **settings: Any) -> Client:
        settings.setdefault("cache", tmp_path / "cache")
        application = Application(
            Corpus(place, create=False), Settings(limits=limits or Limits(), **settings)
        )
        made.append(application)
        return Client(application, {})

    yield open_one
    for application in made:
        application.service.close()


@pytest.fixture(scope="session")
def client(indexed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of the sample corpus, for tests that change nothing and count nothing."""
    settings = Settings(cache=tmp_path_factory.mktemp("client") / "cache")
    application = Application(Corpus(indexed, create=False), settings)
    yield Client(application, {})
    application.service.close()


@pytest.fixture(scope="session")
def friday(client: Client) -> str:
    """The id of a sample video with pictures, sound and words."""
    return id_of(client, "friday.mp4")


def id_of(client: Client, name: str) -> str:
    videos = client.json("/api/videos")["data"]
    return str(next(video["video_id"] for video in videos if video["name"] == name))


@dataclass
class Live:
    """A listening server in a thread of this process."""

    application: Application
    server: Server
    port: int

    def connect(self) -> socket.socket:
        """A connection to the server that fails the test after a minute without an answer."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def say(self, request: str | bytes) -> bytes:
        """The server's answer to raw bytes, until it closes the connection or is silent for a while."""
        with self.connect() as connection:
            connection.sendall(request.encode() if isinstance(request, str) else request)
            said = b""
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while block := connection.recv(1 << 16):
                    said += block
                    connection.settimeout(3)
            return said

    def get(self, target: str, *headers: str) -> bytes:
        """The answer to a GET whose target is sent unchanged, even if it is malformed."""
        lines = [f"GET {target} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
        return self.say("\r\n".join(lines) + "\r\n\r\n")


Serve = Callable[..., Live]


def _stacks() -> str:
    """The stack of each thread, to show what a server that does not end waits for."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames().items()
    return "\n".join(
        f"{names.get(ident)}\n{''.join(traceback.format_stack(frame))}" for ident, frame in frames
    )


@contextlib.contextmanager
def listening(place: Path, cache: Path, limits: Limits | None = None, **settings: Any) -> Iterator[Live]:
    """A server on a free port, stopped at the end of the block."""
    chosen = Settings(port=0, limits=limits or Limits(), cache=cache, **settings)
    application = Application(Corpus(place, create=False), chosen)
    started = threading.Event()
    server = Server(application, chosen, started.set)
    with listen(chosen) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        assert started.wait(60)
        try:
            yield Live(application, server, bound.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(60)
    assert not thread.is_alive(), _stacks()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Serve]:
    """A factory of listening servers: `live(corpus folder, **settings)`; they stop when the test ends."""
    with contextlib.ExitStack() as running:
        yield lambda place, **settings: running.enter_context(
            listening(place, tmp_path / "live-cache", **settings)
        )


@pytest.fixture(scope="module")
def running(indexed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server of the sample corpus with the usual limits."""
    with listening(indexed, tmp_path_factory.mktemp("running")) as server:
        yield server


@pytest.fixture
def big_file(tmp_path: Path) -> tuple[Path, str]:
    """A corpus with one video of 64 MB, larger than all buffers between server and client; and its id."""
    path = tmp_path / "big.mp4"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    status = path.stat()
    record = VideoRecord(
        "big-00000000", str(path), status.st_size, status.st_mtime_ns, "0" * 32, duration=10.0
    )
    Store.open(tmp_path / "big.corpus", create=True).put_video(record, {})
    return tmp_path / "big.corpus", record.video_id


@pytest.fixture(scope="session")
def one_video(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    """A corpus of one video, and the video's file; tests must not change them."""
    folder = tmp_path_factory.mktemp("one")
    for name in ("friday.mp4", "friday.vtt"):
        shutil.copy2(samples / name, folder)
    Corpus(folder / "corpus", create=True).add(folder / "friday.mp4", processes=1)
    return folder


@pytest.fixture
def copied(tmp_path: Path, one_video: Path) -> tuple[Path, Path]:
    """A corpus of one video, and the video's file, which a test may change."""
    folder = tmp_path / "own"
    shutil.copytree(one_video, folder)
    store = Store.open(folder / "corpus")
    store.put_records([replace(record, path=str(folder / "friday.mp4")) for record in store.videos()])
    remember_folders(store, [folder])
    return folder / "corpus", folder / "friday.mp4"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    with mounted(tmp_path / "small", megabytes=1) as folder:
        yield folder


def wait_until(is_so: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether a condition becomes true in time. Asks ever less often: a question to a server costs 10 ms."""
    until, pause = time.monotonic() + seconds, 0.02
    while time.monotonic() < until:
        if is_so():
            return True
        time.sleep(pause)
        pause = min(1.3 * pause, 0.3)
    return is_so()
