"""A store that takes the same new key twice is refused before anything is written there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.s3 import Proxy, Server, running

from whenabouts.index import conditional_put
from whenabouts.index.conditional_put import check_conditional_put
from whenabouts.index.records import StoreError
from whenabouts.index.store import Store


class Putting:
    """A server that takes puts as it is told to, and counts what it was asked."""

    def __init__(self) -> None:
        self.kind = "conditional"
        self.keys: set[str] = set()
        self.asked: list[str] = []
        self.guard = threading.Lock()
        putting = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.send_response(putting.put(self.path, self.headers.get("If-None-Match", "")))
                self.end_headers()

            def do_DELETE(self) -> None:
                putting.asked.append("DELETE")
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def put(self, path: str, condition: str) -> int:
        with self.guard:
            self.asked.append(condition)
            first = len(self.asked) <= 4
            is_new = path not in self.keys
            self.keys.add(path)
        if self.kind == "refuses":
            return 501
        if self.kind == "away" and len(self.asked) < 8:
            return 503
        if self.kind == "looks first" and first:
            return 200
        return 200 if is_new or self.kind == "takes all" else 412


@pytest.fixture
def putting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Putting]:
    monkeypatch.setattr(conditional_put, "_kept_promise", set())
    made = Putting()
    thread = threading.Thread(target=made.http.serve_forever, daemon=True)
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


def options(putting: Putting) -> dict[str, str]:
    return Server("own", f"http://127.0.0.1:{putting.http.server_port}").options


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("takes all", "a second put of one key was taken"),
        ("looks first", "when several ask at once .4 of 4 puts"),
        ("refuses", "answers 501"),
    ],
)
def test_a_store_without_conditional_put_is_refused_with_the_reason(
    putting: Putting, kind: str, why: str
) -> None:
    putting.kind = kind
    with pytest.raises(StoreError, match=rf"s3://b/c: the store has no conditional put .*{why}.*or a folder"):
        check_conditional_put("s3://b/c", options(putting))
    assert putting.asked[-1] == "DELETE"


@pytest.mark.parametrize("kind", ["conditional", "away"])
def test_a_store_that_has_it_is_asked_once(putting: Putting, kind: str) -> None:
    putting.kind = kind
    check_conditional_put("s3://b/c", options(putting))
    asked = len(putting.asked)
    assert set(putting.asked) == {"*", "DELETE"}
    check_conditional_put("s3://b/other", options(putting))
    assert len(putting.asked) == asked


def test_nothing_is_asked_of_amazon_or_without_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(conditional_put, "_ask", lambda *_: pytest.fail("asked"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    check_conditional_put("s3://b/c", {"access_key_id": "a", "secret_access_key": "b"})
    check_conditional_put("s3://b/c", {"endpoint": "http://127.0.0.1:9"})


def test_a_store_that_is_not_there_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional_put, "_ATTEMPTS", 1)
    with pytest.raises(StoreError, match=r"s3://b/c: the store cannot be reached: .*refused"):
        check_conditional_put("s3://b/c", Server("none", "http://127.0.0.1:9").options)


@pytest.mark.slow
def test_s3rver_is_refused_and_nothing_stays_there(tmp_path: Path) -> None:
    """A program that people use as an S3 server, which takes every put."""
    with running("s3rver", tmp_path) as server:
        bucket = server.bucket()
        with pytest.raises(StoreError, match="no conditional put"):
            Store.open(f"s3://{bucket}/c", create=True, storage_options=server.options)
        assert server.client().list_objects_v2(Bucket=bucket).get("Contents", []) == []


@pytest.mark.slow
def test_a_corpus_is_made_where_puts_are_conditional(tmp_path: Path) -> None:
    with running("moto", tmp_path) as server, Proxy(server) as proxy:
        place = f"s3://{server.bucket()}/a b/ü.corpus"
        Store.open(place, create=True, storage_options=proxy.server.options)
        tried = [asked for asked in proxy.asked if "conditional-put" in asked.path]
        assert [asked.method for asked in tried] == ["PUT"] * 5 + ["DELETE"]
