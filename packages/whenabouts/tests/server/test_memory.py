"""The server's memory bound: caches are dropped first, then requests are refused."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from starlette.types import Message
from tests.server.conftest import Open, error_of

from whenabouts.resident import resident_bytes
from whenabouts.server.errors import ServerError
from whenabouts.server.memory import MemoryBound, Needs, Parts, taken_by
from whenabouts.server.settings import Limits, Settings
from whenabouts.types import UsageError


@pytest.mark.slow
def test_what_is_kept_goes_first_and_then_requests_are_refused() -> None:
    held, dropped, now = [900], list[float](), [0.0]

    def drop() -> None:
        dropped.append(now[0])
        held[0] -= 300

    bound = MemoryBound(700 << 20, [drop], 0, lambda: held[0] << 20, lambda: now[0])
    bound.check()
    held[0], now[0] = 1000, 1.0
    with pytest.raises(ServerError, match="no memory left") as refused:
        bound.check()
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "5")
    now[0] = 2.0
    with pytest.raises(ServerError):
        bound.check()  # dropped a moment ago: nothing new is kept yet
    now[0] = 6.0
    bound.check()
    assert dropped == [0.0, 6.0]


@pytest.mark.slow
def test_a_server_over_its_bound_refuses_searches_and_lives(opened: Open, indexed: Path) -> None:
    client = opened(indexed, limits=Limits(memory_bytes=1 << 20))
    for target in ("/api/search?query=crown", "/api/videos", "/api/stats"):
        assert error_of(client.get(target)) == (503, "out_of_memory", None)
    assert client.get("/api/health").status_code == 200
    assert opened(indexed, limits=Limits(memory_bytes=64 << 30)).get("/api/videos").status_code == 200


@dataclass
class Greedy:
    """A checker that needs much memory for each look."""

    asked: int = 0
    name: str = "greedy"
    fingerprint: str = "greedy 1"
    runs_here: bool = True

    def answer(self, instructions: str, parts: object, seconds: float) -> str:
        self.asked += 1
        assert np.ones(50 << 17).sum()
        return '{"match": true, "reason": "so"}'


@pytest.mark.slow
def test_a_checker_of_this_process_has_looked_before_the_memory_is_divided(
    opened: Open, indexed: Path
) -> None:
    few = Limits(searches=1, reads=1, checks=1)
    service = opened(indexed, limits=few).application.service
    taken = []
    for checker in (None, Greedy(), Greedy(runs_here=False)):
        service.checker = checker
        taken.append(service.measured_parts().server)
        assert checker is None or checker.asked == checker.runs_here
    assert taken[1] == taken[0]  # there is enough of it
    assert 40 << 20 < taken_by(lambda: np.ones(50 << 17).sum()) < 80 << 20


def test_a_request_that_waited_while_the_memory_filled_is_refused_when_its_turn_comes(
    opened: Open, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(indexed)
    service, sizes, reads = client.application.service, iter([1, 99 << 20]), list[int]()
    clock = iter(range(100))
    service.memory = MemoryBound(50 << 20, [], 0, lambda: next(sizes, 99 << 20), lambda: float(next(clock)))
    monkeypatch.setattr(service.metrics.videos, "set", reads.append)
    assert error_of(client.get("/api/videos")) == (503, "out_of_memory", None)
    assert next(sizes, None) is None and not reads
    service.memory = MemoryBound(50 << 20, [], 0, lambda: 1, lambda: float(next(clock)))
    assert client.get("/api/videos").status_code == 200 and len(reads) == 1


@pytest.mark.slow
def test_what_was_dropped_is_read_again(opened: Open, indexed: Path) -> None:
    client = opened(indexed)
    first = [client.json("/api/search", query="crown jewels")["data"] for _ in range(3)]
    service = client.application.service
    service.memory.drop()
    assert client.json("/api/search", query="crown jewels")["data"] == first[0] == first[2]


def test_a_bound_is_a_number_of_megabytes() -> None:
    assert 1 << 20 < resident_bytes() < 1 << 40
    with pytest.raises(UsageError, match="--memory"):
        Settings(limits=Limits(memory_bytes=0))


@pytest.mark.slow
def test_memory_that_is_dropped_goes_back_and_requests_come_in_again() -> None:
    kept: list[bytearray] = []
    room = 40 << 20
    now = iter(range(0, 1000, 10))
    bound = MemoryBound(resident_bytes() + 4 * room, [kept.clear], room, clock=lambda: float(next(now)))
    with bound.room():
        # Small pieces, which an allocator does not return by itself.
        kept.extend(bytearray(b"x" * 100_000) for _ in range(10 * room // 100_000))
        full = resident_bytes()
    with bound.room():
        assert not kept
        assert resident_bytes() < full - 8 * room


@pytest.mark.slow
def test_no_more_requests_are_let_in_than_the_bound_has_room_for() -> None:
    bound = MemoryBound(100, [], 30, lambda: 30)
    with bound.room(), bound.room():
        with pytest.raises(ServerError):
            bound.check()
        with pytest.raises(ServerError), bound.room():
            pass
    bound.check()


def test_a_bound_is_divided_so_that_all_parts_together_stay_below_it() -> None:
    needs, largest = Needs(700 << 20, 32 << 20), 3300 << 20
    for most in (1404 << 20, 1500 << 20, 3 << 30, 6 << 30, 18 << 30, 200 << 30):
        parts = Parts.of(most, needs, 4, 3, largest)
        assert parts.server + parts.decoders * (parts.decoder + (64 << 20)) <= most
        assert parts.server >= needs.held + 4 * needs.request
        assert 512 << 20 <= parts.decoder <= largest
        assert 1 <= parts.decoders <= 3
    assert Parts.of(18 << 30, needs, 4, 3, largest).decoder == largest
    with pytest.raises(UsageError, match=r"--memory 2806: .* needs 2840 MB or more.*2 processes"):
        Parts.of(1403 << 20, needs, 4, 3, largest, count=2)


@pytest.mark.slow
def test_a_bound_below_what_the_corpus_needs_is_refused_at_the_start(indexed: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "whenabouts", "serve", "--corpus", str(indexed), "--port", "0"]
    command += ["--cache", str(tmp_path)]
    refused = subprocess.run([*command, "--memory", "200"], capture_output=True, text=True, timeout=300)
    assert (refused.returncode, refused.stdout) == (2, "")
    found = re.search(r"--memory 200: .* needs (\d+) MB or more: (\d+) MB once it is open", refused.stderr)
    assert found is not None, refused.stderr
    assert 500 < int(found.group(2)) + 500 < int(found.group(1)) < 4000
    enough = str(int(found.group(1)) + 50)
    with subprocess.Popen([*command, "--memory", enough], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = re.search(r":(\d+)/", server.stdout.readline())
        assert port is not None
        for query in ("crown", "lighthouse&all=true", "a&k=1000"):
            address = f"http://127.0.0.1:{port.group(1)}/api/search?query={query}"
            assert urllib.request.urlopen(address, timeout=60).status == 200
        server.terminate()
        assert server.wait(60) == 0


@pytest.mark.slow
def test_room_for_a_body_is_held_before_a_byte_of_it_is_read(opened: Open, indexed: Path) -> None:
    client = opened(indexed)
    service = client.application.service
    length = 1 << 20
    # Two bodies, each in four copies, may take half of the free memory.
    service.memory = MemoryBound(100 << 20, [], 0, lambda: 100 * length - 2 * 2 * 4 * length)
    begun, ended, answers = list[int](), asyncio.Event(), list[int]()

    async def upload(number: int, headers: list[tuple[bytes, bytes]]) -> None:
        path, host = "/api/search", (b"host", b"localhost")
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
        scope |= {"query_string": b"", "headers": [host, *headers]}

        async def receive() -> Message:
            begun.append(number)
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answers.append(message["status"])

        await client.application(scope, receive, send)

    async def all_of_them() -> None:
        declared = [(b"content-length", b"%d" % length)]
        tasks = [asyncio.create_task(upload(number, declared)) for number in range(20)]
        tasks.append(asyncio.create_task(upload(20, [(b"transfer-encoding", b"chunked")])))
        while len(answers) < 19:
            await asyncio.sleep(0.01)
        assert (begun, answers) == ([0, 1], [503] * 19)
        ended.set()
        await asyncio.gather(*tasks)

    asyncio.run(all_of_them())
    with service.memory.body(length), service.memory.body(length), pytest.raises(ServerError):
        service.memory.check()
        with service.memory.body(length):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("uploads", [120, 160])
def test_unfinished_uploads_keep_to_the_bound(indexed: Path, tmp_path: Path, uploads: int) -> None:
    command = [sys.executable, "-m", "whenabouts", "serve", "--corpus", str(indexed), "--port", "0"]
    command += ["--cache", str(tmp_path), "--memory"]
    refused = subprocess.run([*command, "200"], capture_output=True, text=True, timeout=300)
    found = re.search(r"needs (\d+) MB or more", refused.stderr)
    assert found is not None, refused.stderr
    server = subprocess.Popen([*command, found[1]], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = re.search(r":(\d+)/", server.stdout.readline())
        assert port is not None
        before = peak_of(server.pid)

        async def upload(ended: asyncio.Event) -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", int(port[1]))
            # Most are refused; on a busy machine some are not even read within the time.
            with contextlib.closing(writer), contextlib.suppress(OSError, TimeoutError):
                writer.write(
                    b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    b"Content-Length: 8900000\r\n\r\n" + b"A" * 8_899_999
                )
                await asyncio.wait_for(writer.drain(), 5)
                await ended.wait()

        async def all_of_them() -> None:
            ended = asyncio.Event()
            sent = [asyncio.create_task(upload(ended)) for _ in range(uploads)]
            await asyncio.sleep(5)
            address = f"http://127.0.0.1:{port[1]}/api/search?query=crown"
            answer = await asyncio.to_thread(urllib.request.urlopen, address, timeout=60)
            assert answer.status == 200
            ended.set()
            await asyncio.gather(*sent)

        asyncio.run(all_of_them())
        assert peak_of(server.pid) - before < 150 << 20
    finally:
        server.kill()
        server.communicate()


def peak_of(process: int) -> int:
    """The peak memory of a process in bytes."""
    status = Path(f"/proc/{process}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) << 10
