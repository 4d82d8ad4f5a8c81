"""A new connection goes to the process with the fewest connections."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from whenabouts.server.run import Server
from whenabouts.server.settings import Settings
from whenabouts.server.sharing import Share, SharedSocket


@contextlib.contextmanager
def listening(share: Share) -> Iterator[tuple[SharedSocket, int]]:
    bound = socket.create_server(("127.0.0.1", 0))
    bound.setblocking(False)
    with SharedSocket(bound, share) as shared:
        shared.setblocking(False)
        yield shared, shared.getsockname()[1]


def taken(shared: SharedSocket, seconds: float) -> float | None:
    """Seconds until a connection was accepted; None if none was in time."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        with contextlib.suppress(BlockingIOError):
            shared.accept()[0].close()
            return time.monotonic() - began
    return None


def test_a_process_with_more_connections_leaves_the_next_for_a_moment() -> None:
    counts = Share.none_yet(2)
    mine, other = Share(counts, 0), Share(counts, 1)
    mine.begin()
    other.begin()
    mine.add(1)
    with listening(mine) as (shared, port), socket.create_connection(("127.0.0.1", port)):
        waited = taken(shared, 10)
        assert waited is not None
        assert waited >= 0.05
    other.add(1)
    with listening(mine) as (shared, port), socket.create_connection(("127.0.0.1", port)):
        waited = taken(shared, 10)
        assert waited is not None and not mine.is_above


def test_the_loop_of_the_server_is_one_that_asks_the_socket() -> None:
    """uvloop, which uvicorn takes where it is installed, accepts without `SharedSocket`."""

    async def nothing(*_: Any) -> None: ...

    assert Server(nothing, Settings(), lambda: None).config.loop == "asyncio"


def test_nothing_is_left_to_a_process_that_is_not_there() -> None:
    counts = Share.none_yet(3)
    mine = Share(counts, 1)
    mine.begin()
    mine.add(5)
    alone = mine.is_above
    Share(counts, 2).begin()
    beside = mine.is_above
    Share(counts, 2).end()
    assert (alone, beside, mine.is_above) == (False, True, False)


def test_a_socket_that_nobody_calls_has_nothing() -> None:
    share = Share([0], 0)
    with listening(share) as (shared, _), pytest.raises(BlockingIOError):
        shared.accept()
