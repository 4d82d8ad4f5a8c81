"""The application around the routes: HEAD wherever GET is answered, and requests counted by route."""

from __future__ import annotations

import pytest
from tests.server.conftest import Client, Live

from whenabouts.server.service_routes import PAGE


@pytest.mark.parametrize(
    "path",
    ["/api/health", "/api/videos", "/api/stats", "/openapi.json", "/api/search?query=crown+jewels", "/"],
)
def test_head_is_answered_as_get_is_but_without_a_body(client: Client, path: str) -> None:
    got, head = client.get(path), client("HEAD", path)
    assert (got.status_code, head.status_code) == (200, 200)
    assert got.content and not head.content
    of_time = {"x-took-ms", "date", "server-timing"}
    assert {k: v for k, v in head.headers.items() if k not in of_time} == {
        k: v for k, v in got.headers.items() if k not in of_time
    }


@pytest.mark.parametrize(("path", "status"), [("/api/videos/gone", 404), ("/api/videos?nonsense=1", 400)])
def test_head_has_the_status_of_an_error_too(client: Client, path: str, status: int) -> None:
    assert (client.get(path).status_code, client("HEAD", path).status_code) == (status, status)
    assert not client("HEAD", path).content


def test_what_is_never_read_is_no_head_either(client: Client) -> None:
    for method in ("PUT", "DELETE", "PATCH"):
        assert client(method, "/api/health").status_code == 405


def test_heads_are_counted_as_such_by_their_route(client: Client, friday: str) -> None:
    client("HEAD", f"/api/videos/{friday}")
    counted = client.get("/metrics").text
    assert 'whenabouts_requests_total{method="HEAD",route="/api/videos/{video_id}",status="200"} ' in counted


def test_a_real_connection_goes_on_after_a_head(running: Live) -> None:
    request = "HEAD /api/health HTTP/1.1\r\nHost: localhost\r\n"
    said = running.say(f"{request}\r\n{request}Connection: close\r\n\r\n")
    assert said.count(b"HTTP/1.1 200") == 2
    assert b'"status"' not in said


def test_lists_and_the_page_are_compressed_and_videos_are_not(client: Client, friday: str) -> None:
    for path, is_compressed in (("/", True), ("/api/videos", True), (f"/api/videos/{friday}/file", False)):
        answer = client.get(path, headers={"Accept-Encoding": "gzip"})
        assert (answer.headers.get("content-encoding") == "gzip") == is_compressed, path
        plain = client.get(path, headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == answer.content


def test_the_page_and_all_its_files_are_there_and_are_not_sent_twice(client: Client) -> None:
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    for path in PAGE.iterdir():
        answer = client.get(f"/static/{path.name}")
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")
        again = client.get(f"/static/{path.name}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert client.get("/static/page.js").headers["content-type"].startswith("text/javascript")
