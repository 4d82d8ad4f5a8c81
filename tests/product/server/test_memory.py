"""A server does not take more memory than it may: it lets go of what it keeps, then says that it is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from whenabouts.product.server.errors import ServerError
from whenabouts.product.server.memory import MemoryBound, resident_bytes
from whenabouts.product.server.settings import Limits, Settings
from whenabouts.types import UsageError

from .conftest import Open, error_of


def test_what_is_kept_goes_first_and_then_requests_are_refused() -> None:
    held, dropped, now = [900], list[float](), [0.0]

    def drop() -> None:
        dropped.append(now[0])
        held[0] -= 300

    bound = MemoryBound(700 << 20, [drop], lambda: held[0] << 20, lambda: now[0])
    bound.check()
    held[0], now[0] = 1000, 1.0
    with pytest.raises(ServerError, match="700 MB") as refused:
        bound.check()
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "5")
    now[0] = 2.0
    with pytest.raises(ServerError):
        bound.check()  # dropped a moment ago: nothing new is kept yet
    now[0] = 6.0
    bound.check()
    assert dropped == [0.0, 6.0]


def test_a_server_over_its_bound_refuses_searches_and_lives(opened: Open, indexed: Path) -> None:
    client = opened(indexed, limits=Limits(memory_bytes=1 << 20))
    for target in ("/api/search?query=crown", "/api/videos", "/api/stats"):
        assert error_of(client.get(target)) == (503, "out_of_memory", None)
    assert client.get("/api/health").status_code == 200
    assert opened(indexed, limits=Limits(memory_bytes=64 << 30)).get("/api/videos").status_code == 200


def test_a_request_that_waited_while_the_memory_filled_is_refused_when_its_turn_comes(
    opened: Open, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(indexed)
    service, sizes, reads = client.application.service, iter([1, 99 << 20]), list[str]()
    clock = iter(range(100))
    service.memory = MemoryBound(50 << 20, [], lambda: next(sizes, 99 << 20), lambda: float(next(clock)))
    monkeypatch.setattr(service, "records", lambda corpus: reads.append("read"))
    assert error_of(client.get("/api/videos")) == (503, "out_of_memory", None)
    assert next(sizes, None) is None and not reads


def test_what_was_dropped_is_read_again(opened: Open, indexed: Path) -> None:
    client = opened(indexed)
    first = [client.json("/api/search", query="crown jewels")["data"] for _ in range(3)]
    service = client.application.service
    service.memory._drop()
    assert client.json("/api/search", query="crown jewels")["data"] == first[0] == first[2]


def test_a_bound_is_a_number_of_megabytes() -> None:
    assert 1 << 20 < resident_bytes() < 1 << 40
    with pytest.raises(UsageError, match="--memory"):
        Settings(limits=Limits(memory_bytes=0))
