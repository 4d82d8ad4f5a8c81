"""Bounded work: excess requests are refused with a time to retry, and clients may leave the queue."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import Open, Serve, error_of, wait_until

from whenabouts.budget import Budget, NotAwaited, TookTooLong, check_budget
from whenabouts.corpus import Corpus
from whenabouts.server.decoding import Decoders
from whenabouts.server.errors import ServerError
from whenabouts.server.settings import Limits, Settings
from whenabouts.server.work import BoundedExecutor, ClientGone, ConnectionLimit, RateLimit
from whenabouts.types import UsageError


def test_jobs_run_in_threads_and_their_errors_come_back() -> None:
    executor = BoundedExecutor("tests", 2, 2, 5.0)

    def fail() -> None:
        raise ValueError("as planned")

    async def both() -> None:
        assert await executor.run(lambda: threading.current_thread().name.startswith("whenabouts-tests"))
        with pytest.raises(ValueError, match="as planned"):
            await executor.run(fail)

    asyncio.run(both())
    assert executor.inside == 0
    executor.close()


def test_a_full_line_is_refused_with_the_seconds_to_wait() -> None:
    executor, free = BoundedExecutor("tests", 1, 2, 5.0), threading.Event()

    async def crowd() -> None:
        inside = [asyncio.ensure_future(executor.run(free.wait)) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(ServerError) as refused:
            await executor.run(free.wait)
        assert refused.value.status == 429
        assert 1 <= int(refused.value.headers["Retry-After"]) <= 60
        free.set()
        assert await asyncio.gather(*inside) == [True] * 3
        assert await executor.run(lambda: "again") == "again"

    asyncio.run(crowd())
    assert executor.refused == 1
    executor.close()


def test_who_waits_too_long_is_refused_and_its_job_never_runs() -> None:
    executor, began, free, ran = BoundedExecutor("tests", 1, 5, 0.3), *(threading.Event() for _ in range(3))

    def hold() -> None:
        began.set()
        free.wait()

    async def crowd() -> None:
        first = asyncio.ensure_future(executor.run(hold))
        while not began.is_set():
            await asyncio.sleep(0.01)
        with pytest.raises(ServerError) as refused:
            await executor.run(ran.set)
        assert refused.value.status == 429
        free.set()
        await first

    asyncio.run(crowd())
    assert not ran.is_set()
    assert executor.inside == 0
    executor.close()


def test_who_goes_away_loses_the_place_in_the_line() -> None:
    executor, free, ran = BoundedExecutor("tests", 1, 5, 30.0), threading.Event(), threading.Event()

    async def leave() -> None:
        await asyncio.sleep(0.01)

    async def crowd() -> None:
        first = asyncio.ensure_future(executor.run(free.wait))
        await asyncio.sleep(0.05)
        with pytest.raises(ClientGone):
            await executor.run(ran.set, leave)
        assert executor.inside == 1
        free.set()
        await first

    asyncio.run(crowd())
    assert not ran.is_set()
    executor.close()


def _until_called_off(began: threading.Event, ended: list[str]) -> None:
    """A job that looks at its budget for a minute, and notes that it was called off."""
    began.set()
    until = time.monotonic() + 60
    try:
        while time.monotonic() < until:
            check_budget()
            time.sleep(0.005)
    except NotAwaited:
        ended.append("called off")
        raise


def test_a_job_that_nobody_waits_for_any_more_ends_at_its_next_look() -> None:
    executor, began, looked = BoundedExecutor("tests", 1, 5, 30.0), threading.Event(), list[str]()

    async def leave() -> None:
        while not began.is_set():
            await asyncio.sleep(0.01)

    async def crowd() -> None:
        with pytest.raises(ClientGone):
            await executor.run(lambda: _until_called_off(began, looked), leave)

    asyncio.run(crowd())
    assert wait_until(lambda: executor.inside == 0, 10)
    assert looked == ["called off"]
    executor.close()


async def _fail() -> None:
    raise OSError("the connection is odd")


def test_a_task_that_is_cancelled_or_cannot_watch_its_client_calls_its_job_off() -> None:
    executor, began, ran = BoundedExecutor("tests", 1, 5, 30.0), threading.Event(), threading.Event()
    ended: list[str] = []

    async def crowd() -> None:
        first = asyncio.ensure_future(executor.run(lambda: _until_called_off(began, ended)))
        while not began.is_set():
            await asyncio.sleep(0.01)
        waiting = asyncio.ensure_future(executor.run(ran.set))
        with pytest.raises(OSError, match="the connection is odd"):
            await executor.run(ran.set, _fail)
        for task in (waiting, first):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(crowd())
    assert wait_until(lambda: executor.inside == 0, 10)
    assert ended == ["called off"] and not ran.is_set()
    executor.close()


def test_after_its_end_an_executor_refuses_each_job_alike() -> None:
    executor = BoundedExecutor("tests", 1, 0, 5.0)
    executor.close()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="after shutdown"):
            asyncio.run(executor.run(time.monotonic))
    assert executor.inside == 0


def test_a_job_that_takes_too_long_ends_at_its_next_look_and_the_next_may_take_as_long() -> None:
    executor = BoundedExecutor("tests", 1, 5, 30.0, 0.1)

    def job(seconds: float) -> str:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            check_budget()
            time.sleep(0.005)
        return "done"

    async def crowd() -> None:
        with pytest.raises(TookTooLong, match=r"takes longer than 0\.1 s"):
            await executor.run(partial(job, 30))
        assert await executor.run(partial(job, 0.03)) == "done"

    asyncio.run(crowd())
    check_budget()  # outside there is none
    executor.close()


def test_a_rate_gives_so_many_at_once_and_then_so_many_a_minute() -> None:
    now = 100.0
    rate = RateLimit("tests", 30, clock=lambda: now)

    def taken() -> int:
        for count in range(100):
            try:
                rate.take()
            except ServerError as refused:
                assert refused.status == 429
                assert refused.headers["Retry-After"] == "2"
                return count
        return 100

    assert taken() == 10
    now += 60
    assert taken() == 10
    now += 6
    assert taken() == 3


def test_a_connection_limit_counts_what_is_open() -> None:
    downloads = ConnectionLimit("tests", 1)
    downloads.acquire()
    with pytest.raises(ServerError):
        downloads.acquire()
    downloads.release()
    downloads.acquire()


async def at_once(application: Any, paths: list[str]) -> list[httpx.Response]:
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        return list(await asyncio.gather(*(client.get(path) for path in paths)))


@pytest.mark.slow
def test_more_searches_than_there_is_room_for_are_told_to_come_again(
    opened: Open, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(indexed, limits=Limits(searches=1, searches_waiting=2))
    search = Corpus.search
    most = running = 0

    def slow(corpus: Corpus, *words: Any, **narrowed: Any) -> Any:
        nonlocal most, running
        running += 1
        most = max(most, running)
        assert wait_until(lambda: client.application.service.searches.refused == 7)
        running -= 1
        return search(corpus, *words, **narrowed)

    monkeypatch.setattr(Corpus, "search", slow)
    answers = asyncio.run(at_once(client.application, [f"/api/search?query=jewel+{n}" for n in range(10)]))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200] * 3 + [429] * 7
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)
    assert most == 1
    assert client.get("/api/videos").status_code == 200
    metrics = client.get("/metrics").text
    assert 'whenabouts_jobs_refused{kind="searches"} 7.0' in metrics
    assert 'whenabouts_requests_total{method="GET",route="/api/search",status="429"} 7.0' in metrics


@pytest.mark.slow
def test_two_requests_for_one_thumbnail_decode_once(
    opened: Open, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(indexed)
    video = next(v for v in client.json("/api/videos")["data"] if v["name"] == "friday.mp4")["video_id"]
    drawn: list[float] = []

    def counted(decoders: Decoders, path: Path, at: float, width: int, out: Path) -> None:
        drawn.append(at)
        time.sleep(0.05)
        draw(decoders, path, at, width, out)

    draw = Decoders.draw
    monkeypatch.setattr(Decoders, "draw", counted)
    url = f"/api/videos/{video}/thumbnail?at=2.5&width=320"
    answers = asyncio.run(at_once(client.application, [url] * 8 + [f"/api/videos/{video}/thumbnail?at=4"]))
    assert [answer.status_code for answer in answers] == [200] * 9
    assert len({answer.content for answer in answers[:8]}) == 1
    assert sorted(drawn) == [2.5, 4.0]
    assert client.get(url).content == answers[0].content
    assert len(drawn) == 2
    # Widths and instants that round to the same values give the same picture.
    assert client.get(f"/api/videos/{video}/thumbnail?at=2.5001&width=310").content == answers[0].content
    assert len(drawn) == 2


def test_a_fault_is_told_to_all_who_wait_and_not_kept(
    opened: Open, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(indexed)
    video = next(v for v in client.json("/api/videos")["data"] if v["name"] == "friday.mp4")["video_id"]

    def failing(_: Decoders, *task: object) -> None:
        time.sleep(0.05)
        raise OSError(28, "No space left on device")

    draw = Decoders.draw
    monkeypatch.setattr(Decoders, "draw", failing)
    url = f"/api/videos/{video}/thumbnail?at=2.5"
    answers = asyncio.run(at_once(client.application, [url] * 3))
    assert [answer.status_code for answer in answers] == [507] * 3
    monkeypatch.setattr(Decoders, "draw", draw)
    assert client.get(url).status_code == 200


def test_new_clips_are_rationed_and_those_there_are_not(opened: Open, indexed: Path) -> None:
    client = opened(indexed, limits=Limits(clips_a_minute=6))
    video = next(v for v in client.json("/api/videos")["data"] if v["name"] == "friday.mp4")["video_id"]
    statuses = [
        client.get(f"/api/videos/{video}/clip?start={start}&end={start + 0.2:.1f}").status_code
        for start in range(4)
    ]
    assert statuses == [200, 200, 429, 429]
    assert client.get(f"/api/videos/{video}/clip?start=0&end=0.2").status_code == 200


def test_a_search_beyond_its_time_is_an_answer_that_says_so(opened: Open, indexed: Path) -> None:
    client = opened(indexed, limits=Limits(job_seconds=1e-9))
    answer = client.get("/api/search?query=crown+jewels")
    assert error_of(answer) == (503, "took_too_long", None)
    assert "--time-limit" in answer.json()["error"]["message"]


def test_a_search_looks_at_its_budget_all_the_way(
    opened: Open, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(Budget, "check", lambda self: looks.append(1))
    opened(indexed).json("/api/search", query="crown jewels")
    assert len(looks) > 10


def test_a_client_that_leaves_calls_its_search_off(
    live: Serve, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = threading.Event(), threading.Event()

    def search(*_: Any, **__: Any) -> None:
        began.set()
        try:
            for _look in range(6_000):
                check_budget()
                time.sleep(0.01)
        except NotAwaited:
            ended.set()
            raise

    monkeypatch.setattr(Corpus, "search", search)
    server = live(indexed)
    with server.connect() as connection:
        connection.sendall(b"GET /api/search?query=x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert began.wait(30)
        assert not ended.is_set()
    assert ended.wait(10)
    assert b"200 OK" in server.get("/api/health")


def test_a_time_limit_is_a_number_of_seconds() -> None:
    for seconds in (0, -1, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="--time-limit"):
            Settings(limits=Limits(job_seconds=seconds))
