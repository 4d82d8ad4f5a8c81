"""A store that takes the same new key twice is refused before anything is written there."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError
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
        self.signed: list[str] = []
        self.tokens: list[str] = []
        self.guard = threading.Lock()
        putting = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                putting.signed.append(self.headers.get("Authorization", ""))
                putting.tokens.append(self.headers.get("X-Amz-Security-Token", ""))
                self.send_response(putting.put(self.path, self.headers.get("If-None-Match", "")))
                self.send_header("ETag", '"1"')
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
            is_away = self.kind == "away" and len(self.asked) < 8
            is_new = path not in self.keys
            if self.kind != "looks first" and not is_away:
                self.keys.add(path)
        if self.kind == "refuses":
            return 501
        if is_away:
            return 503
        if self.kind == "forbids":
            return 403
        if self.kind == "looks first":
            time.sleep(0.3)
            self.keys.add(path)
        return 200 if is_new or self.kind == "takes all" else 412


@pytest.fixture
def putting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Putting]:
    monkeypatch.setattr(conditional_put, "_passed", set())
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
        ("takes all", "the store has no conditional put .*a second put of one key was accepted"),
        ("looks first", "is not atomic .4 of 4 puts of one key at the same time"),
        ("refuses", "the store has no conditional put .*answers 501"),
    ],
)
def test_a_store_without_conditional_put_is_refused_with_the_reason(
    putting: Putting, kind: str, why: str
) -> None:
    putting.kind = kind
    with pytest.raises(StoreError, match=rf"s3://b/c: .*{why}.*or a folder"):
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


def test_a_store_that_forbids_the_trial_is_tried_again_the_next_time(putting: Putting) -> None:
    putting.kind = "forbids"
    check_conditional_put("s3://b/c", options(putting))
    putting.kind = "takes all"
    with pytest.raises(StoreError, match="no conditional put"):
        check_conditional_put("s3://b/c", options(putting))


def test_nothing_is_sent_without_encryption_unless_that_is_allowed(putting: Putting) -> None:
    check_conditional_put("s3://b/c", {**options(putting), "allow_http": "false"})
    assert putting.asked == []


@pytest.mark.slow
def test_of_two_writers_that_put_the_same_key_one_is_refused(tmp_path: Path) -> None:
    """What every commit rests on, with the client that commits: obstore and LanceDB share it."""
    with running("moto", tmp_path) as server:
        bucket = server.bucket()
        store = conditional_put._store(
            bucket,
            server.endpoint,
            conditional_put._credential(server.access, server.secret, ""),
            {"aws_allow_http": "true"},
        )
        obstore.put(store, "c/1.manifest", b"first", mode="create")
        with pytest.raises(AlreadyExistsError):
            obstore.put(store, "c/1.manifest", b"second", mode="create")
        assert bytes(obstore.get(store, "c/1.manifest").bytes()) == b"first"


@pytest.mark.parametrize("token", ["", "a-token"])
def test_keys_of_a_profile_sign_the_trial(
    putting: Putting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other keys")
    profiles = tmp_path / "credentials"
    line = f"aws_session_token = {token}\n" if token else ""
    profiles.write_text(f"[films]\naws_access_key_id = own\naws_secret_access_key = secret\n{line}")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    monkeypatch.setenv("AWS_PROFILE", "films")
    check_conditional_put("s3://b/c", {"endpoint": options(putting)["aws_endpoint"], "allow_http": "true"})
    assert {"Credential=own/" in asked for asked in putting.signed} == {True}
    assert set(putting.tokens) == {token}


def test_nothing_is_asked_of_amazon_or_without_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(conditional_put, "_refuses_second_put", lambda *_: pytest.fail("asked"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    check_conditional_put("s3://b/c", {"access_key_id": "a", "secret_access_key": "b"})
    check_conditional_put("s3://b/c", {"endpoint": "http://127.0.0.1:9"})


def test_a_store_that_is_not_there_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional_put, "_RETRIES", 1)
    with pytest.raises(
        StoreError, match=r"s3://b/c: the store cannot be reached at http://127\.0\.0\.1:9; check"
    ):
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


def test_without_obstore_a_new_corpus_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    options = {"aws_endpoint": "http://127.0.0.1:9", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    with pytest.raises(StoreError, match=r"http://127\.0\.0\.1:9: .*pip install 'whenabouts\[objects\]'"):
        check_conditional_put("s3://bucket/place", options)
