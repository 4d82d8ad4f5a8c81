"""The server as a process: its address, its timeouts for slow clients, and its end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.conftest import TOKEN, Live, Serve, wait_until

from whenabouts.server import run
from whenabouts.server.run import greeting, listen
from whenabouts.server.settings import Limits, Settings
from whenabouts.types import UsageError
from whenabouts.workplace.cached import default_cache


@contextmanager
def process(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process `whenabouts serve`, and the line that it printed."""
    command = [sys.executable, "-m", "whenabouts", "serve", "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as running:
        try:
            assert running.stdout is not None
            yield running, running.stdout.readline()
        finally:
            if running.poll() is None:
                running.kill()


def port_of(line: str) -> int:
    found = re.search(r":(\d+)/", line)
    assert found is not None, line
    return int(found.group(1))


@pytest.mark.slow
def test_a_signal_ends_it_after_what_runs_and_is_no_error(indexed: Path, tmp_path: Path) -> None:
    arguments = ["--corpus", str(indexed), "--cache", str(tmp_path)]
    with process(*arguments) as (running, line):
        connection = http.client.HTTPConnection("localhost", port_of(line), timeout=60)
        connection.request("GET", "/api/videos")
        videos = re.findall(rb'"video_id":"(car-detection-[^"]+)"', connection.getresponse().read())
        got: list[Any] = []

        def cut() -> None:
            connection.request("GET", f"/api/videos/{videos[0].decode()}/clip?start=1&end=7")
            answer = connection.getresponse()
            got.append((answer.status, len(answer.read())))

        asking = threading.Thread(target=cut)
        asking.start()
        assert wait_until(lambda: bool(list(tmp_path.rglob("*.part*"))), 20), "the clip was not begun"
        running.send_signal(signal.SIGTERM)
        asking.join(60)
        connection.close()
        assert got[0][0] == 200
        assert got[0][1] > 10_000
        assert running.wait(30) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""
    assert not list(tmp_path.rglob("*.part*"))


@pytest.mark.slow
def test_the_line_at_the_start_has_the_address_and_not_the_token_that_it_was_given(
    indexed: Path, tmp_path: Path
) -> None:
    arguments = ["--corpus", str(indexed), "--cache", str(tmp_path)]
    with process(*arguments, WHENABOUTS_TOKEN=TOKEN) as (running, line):
        assert re.fullmatch(r"serving at http://127\.0\.0\.1:\d+/ \(add \?token= and the token .*\)\n", line)
        connection = http.client.HTTPConnection("127.0.0.1", port_of(line), timeout=60)
        connection.request("GET", "/api/videos")
        assert connection.getresponse().status == 401
        connection.close()
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 0
        assert running.stdout is not None
        assert running.stdout.read() == ""


@pytest.mark.slow
def test_a_second_ctrl_c_at_the_end_is_no_traceback(indexed: Path, tmp_path: Path) -> None:
    with process("--corpus", str(indexed), "--cache", str(tmp_path)) as (running, _):
        for _ in range(2):
            running.send_signal(signal.SIGINT)
            time.sleep(0.03)
        assert running.wait(30) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""


def test_a_port_that_is_taken_or_may_not_be_used_is_told(tmp_path: Path) -> None:
    first = listen(Settings(port=0, cache=tmp_path))
    with first, pytest.raises(UsageError, match="--port"):
        listen(Settings(port=first.getsockname()[1], cache=tmp_path))
    with pytest.raises(UsageError, match="--host"):
        listen(Settings(host="203.0.113.77", token=TOKEN, cache=tmp_path))


def test_a_user_without_a_home_folder_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(UsageError, match="XDG_CACHE_HOME"):
        default_cache()


def test_addresses_are_shown_as_a_browser_takes_them(tmp_path: Path) -> None:
    settings = Settings(host="::1", port=0, cache=tmp_path)
    with listen(settings) as bound:
        assert greeting(settings, bound) == f"serving at http://[::1]:{bound.getsockname()[1]}/"


def test_small_answers_are_sent_at_once(live: Serve, indexed: Path) -> None:
    running = live(indexed)
    with running.connect() as connection:
        connection.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        [client] = running.server.server_state.connections
        accepted = client.transport.get_extra_info("socket")
        at_once = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert at_once, "small answers wait for the client's delayed acknowledgement (40 ms)"


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /api/health HTTP/1.1\r\nHost: local",
        b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b'Content-Length: 20\r\n\r\n{"query":',
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_client_that_does_not_finish_asking_is_let_go(live: Serve, indexed: Path, begun: bytes) -> None:
    running = live(indexed, limits=Limits(head_seconds=0.5))
    with running.connect() as connection, contextlib.suppress(ConnectionResetError):
        connection.sendall(begun)
        while connection.recv(1 << 16):  # raises TimeoutError where it is not let go
            pass
    assert running.get("/api/health").startswith(b"HTTP/1.1 200")


def test_a_client_that_asks_byte_by_byte_in_time_is_answered(running: Live) -> None:
    with running.connect() as connection:
        for byte in b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
            connection.sendall(bytes([byte]))
            time.sleep(0.001)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_a_connection_too_many_is_told_so_as_any_other_error(
    live: Serve, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_MOST_CONNECTIONS", 3)
    running = live(indexed)
    idle = [running.connect() for _ in range(2)]
    try:
        assert wait_until(lambda: len(running.server.server_state.connections) == 2)
        head, _, body = running.say(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n").partition(
            b"\r\n\r\n"
        )
    finally:
        for connection in idle:
            connection.close()
    assert head.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 5" in head and b"connection: close" in head.lower()
    assert json.loads(body)["error"]["code"] == "busy"
    assert wait_until(lambda: not running.server.server_state.connections)
    assert running.get("/api/health").startswith(b"HTTP/1.1 200")


def test_many_clients_that_say_nothing_do_not_keep_others_out(live: Serve, indexed: Path) -> None:
    running = live(indexed, limits=Limits(head_seconds=1.0))
    silent = [running.connect() for _ in range(100)]
    try:
        assert running.get("/api/health").startswith(b"HTTP/1.1 200")
    finally:
        for connection in silent:
            connection.close()


def test_a_search_whose_client_left_does_not_hold_up_others(live: Serve, indexed: Path) -> None:
    running = live(indexed, limits=Limits(searches=1))
    for number in range(30):
        with running.connect() as connection:
            connection.sendall(
                f"GET /api/search?query=jewel{number} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            )
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert running.get("/api/search?query=crown+jewels").startswith(b"HTTP/1.1 200")
    assert wait_until(lambda: running.application.service.searches.inside == 0)
