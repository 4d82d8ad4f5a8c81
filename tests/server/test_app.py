"""The application around the routes: HEAD wherever GET is answered, and requests counted by route."""

from __future__ import annotations

import pytest

from .conftest import Asked, Serve


@pytest.mark.parametrize(
    "path",
    ["/api/health", "/api/videos", "/api/stats", "/openapi.json", "/api/search?query=crown+jewels", "/"],
)
def test_head_is_answered_as_get_is_but_without_a_body(asked: Asked, path: str) -> None:
    got, head = asked.get(path), asked("HEAD", path)
    assert (got.status_code, head.status_code) == (200, 200)
    assert got.content and not head.content
    of_time = {"x-took-ms", "date", "server-timing"}
    assert {k: v for k, v in head.headers.items() if k not in of_time} == {
        k: v for k, v in got.headers.items() if k not in of_time
    }


@pytest.mark.parametrize(("path", "status"), [("/api/videos/gone", 404), ("/api/videos?nonsense=1", 400)])
def test_head_has_the_status_of_an_error_too(asked: Asked, path: str, status: int) -> None:
    assert (asked.get(path).status_code, asked("HEAD", path).status_code) == (status, status)
    assert not asked("HEAD", path).content


def test_what_is_never_read_is_no_head_either(asked: Asked) -> None:
    for method in ("PUT", "DELETE", "PATCH"):
        assert asked(method, "/api/health").status_code == 405


def test_heads_are_counted_as_such_by_their_route(asked: Asked, friday: str) -> None:
    asked("HEAD", f"/api/videos/{friday}")
    counted = asked.get("/metrics").text
    assert (
        'whenabouts_requests_total{method="HEAD",route="/api/videos/{video_id}",status="200"} 1.0' in counted
    )


def test_a_real_connection_goes_on_after_a_head(live: Serve, indexed: object) -> None:
    request = "HEAD /api/health HTTP/1.1\r\nHost: localhost\r\n"
    said = live(indexed).say(f"{request}\r\n{request}Connection: close\r\n\r\n")
    assert said.count(b"HTTP/1.1 200") == 2
    assert b'"status"' not in said
