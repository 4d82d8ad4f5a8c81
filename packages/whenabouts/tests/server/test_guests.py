"""Guests of a server: the scope that each route needs, refusals, and revoked tokens at the next request."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.server.conftest import TOKEN, Client, Open, error_of, wait_until
from tests.server.test_openapi import ROUTES
from tests.server.test_processes import _children, _sockets

from whenabouts.cli.main import main
from whenabouts.server.security import HEALTH, READY, SCOPES, scope_of
from whenabouts.server.settings import Settings
from whenabouts.types import UsageError
from whenabouts.workplace.guests import COLLECT, INDEX, JUDGE, READ, Guests

CHANGES = {
    COLLECT: {
        "post /api/collections",
        "patch /api/collections/{collection}",
        "delete /api/collections/{collection}",
        "post /api/collections/{collection}/items",
        "patch /api/collections/{collection}/items/{item}",
        "delete /api/collections/{collection}/items/{item}",
        "post /api/collections/{collection}/items/{item}/move",
        "post /api/saved-searches",
        "delete /api/saved-searches/{name}",
    },
    INDEX: {
        *(f"post /api/people/{action}" for action in ("name", "merge", "undo", "forget")),
        "post /api/videos/{video_id}/relocate",
        "get /api/folders",
        "get /api/jobs",
        "post /api/jobs",
        "get /api/jobs/offer",
        "get /api/jobs/failed",
        "post /api/jobs/retry",
        "post /api/jobs/remove",
        "get /api/jobs/{job}",
        "post /api/jobs/{job}",
        "delete /api/jobs/{job}",
        "post /api/watched",
    },
}
"""What needs more than to read. All other routes only look; those of probes need no token at all."""
OPERATIONS = [
    (method, path)
    for path, methods in ROUTES.items()
    for method in sorted(methods)
    if path not in (HEALTH, READY)
]


def needed(method: str, path: str) -> str:
    return next((scope for scope, those in CHANGES.items() if f"{method} {path}" in those), READ)


@pytest.fixture
def guests(tmp_path: Path) -> Guests:
    return Guests(tmp_path / "friends.json")


@pytest.fixture
def asked(opened: Open, indexed: Path, guests: Guests) -> Client:
    """The sample corpus behind a token, with a file of guests, one of whom has only the scope read."""
    guests.add("a reader")
    return opened(indexed, token=TOKEN, guests=guests.path, change_people=True)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.slow
def test_each_scope_opens_its_routes_and_no_others(asked: Client, guests: Guests) -> None:
    described = asked.get("/openapi.json", headers=bearer(TOKEN)).json()["paths"]
    assert {(method, path) for path, each in described.items() for method in each} == {
        *OPERATIONS,
        ("get", HEALTH),
        ("get", READY),
    }
    tokens = {scope: guests.add(f"who may {scope}", [scope]) for scope in (READ, COLLECT, INDEX, JUDGE)}
    for scope, token in tokens.items():
        has = {scope} if scope == JUDGE else {scope, READ}
        for method, path in OPERATIONS:
            place = re.sub(r"\{[a-z_]+\}", "nothing", path)
            answer = asked(method.upper(), place, headers=bearer(token))
            lacks = needed(method, path) not in has
            is_refused = answer.status_code == 403 and answer.json()["error"]["code"] == "scope_missing"
            assert is_refused is lacks, (scope, method, path, answer.text[:200])
            if lacks:
                assert answer.json()["error"]["field"] == needed(method, path)
            assert described[path][method]["security"] == [{"token": [needed(method, path)]}, {}]
    for method, path in OPERATIONS:
        place = re.sub(r"\{[a-z_]+\}", "nothing", path)
        answer = asked(method.upper(), place, headers=bearer(TOKEN))
        assert answer.status_code not in (401, 403), (method, path, answer.text[:200])


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("HEAD", "/api/videos/x/file", READ),
        ("GET", "/static/page.js", READ),
        ("GET", "/", READ),
        ("GET", "//api/videos", None),
        ("GET", "/api", None),
        ("GET", "/api/nothing", None),
        ("GET", "/api/videosx", None),
        ("PUT", "/api/videos", None),
        ("POST", "/api/collectionsx", None),
        ("DELETE", "/", None),
    ],
)
def test_what_the_table_does_not_name_is_for_the_owner_alone(
    method: str, path: str, scope: str | None
) -> None:
    assert scope_of(SCOPES, method, path) == scope


def test_a_guest_is_told_what_the_token_may_and_what_it_lacks(asked: Client, guests: Guests) -> None:
    token = guests.add("Ada")
    assert asked.get("/api/access", headers=bearer(token)).json() == {"name": "Ada", "scopes": ["read"]}
    everything = {"name": "", "scopes": ["read", "collect", "index", "judge"]}
    assert asked.get("/api/access", headers=bearer(TOKEN)).json() == everything
    answer = asked("POST", "/api/collections", json={"name": "film"}, headers=bearer(token))
    assert error_of(answer) == (403, "scope_missing", "collect")
    assert "the token of Ada may read but not collect" in answer.json()["error"]["message"]
    unnamed = asked.get("/api/nothing", headers=bearer(token))
    assert error_of(unnamed) == (403, "owner_only", None)
    assert asked.get("/api/people", headers=bearer(token)).json()["may_change"] is False
    assert asked.get("/api/people", headers=bearer(TOKEN)).json()["may_change"] is True
    page = asked.get("/nothing", headers={**bearer(token), "Accept": "text/html"})
    assert page.text == "whenabouts: only the owner of this server may do that\n"


def test_a_link_becomes_a_cookie_that_dies_with_the_token(asked: Client, guests: Guests) -> None:
    token = guests.add("Ada")
    cookie = asked.get("/", params={"token": token}).headers["set-cookie"].split(";")[0]
    assert token not in cookie
    assert asked.get("/api/access", headers={"Cookie": cookie}).json()["name"] == "Ada"
    guests.remove("Ada")
    for headers in ({"Cookie": cookie}, bearer(token)):
        answer = asked.get("/api/videos", headers=headers)
        assert error_of(answer)[:2] == (401, "unauthorized")
        assert "withdrawn" in answer.json()["error"]["message"]
    assert asked.get("/api/videos", headers=bearer(TOKEN)).status_code == 200


def test_a_file_of_guests_that_breaks_keeps_the_owner_in(asked: Client, guests: Guests) -> None:
    token = guests.add("Ada")
    guests.path.write_text("{")
    assert asked.get("/api/videos", headers=bearer(token)).status_code == 401
    assert asked.get("/api/videos", headers=bearer(TOKEN)).status_code == 200


def test_guests_need_a_token_of_the_owners_and_a_file(opened: Open, indexed: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--guests needs a token of your own"):
        Settings(guests=tmp_path / "friends.json", cache=tmp_path)
    with pytest.raises(UsageError, match=r"friends.json: the file of guests cannot be read"):
        opened(indexed, token=TOKEN, guests=tmp_path / "friends.json")


@pytest.mark.slow
def test_a_token_is_withdrawn_in_all_processes_at_once(
    one_video: Path, guests: Guests, tmp_path: Path
) -> None:
    token = guests.add("Ada")
    command = [
        sys.executable,
        "-m",
        "whenabouts",
        "serve",
        "--corpus",
        str(one_video / "corpus"),
        "--port",
        "0",
    ]
    command += ["--cache", str(tmp_path / "cache"), "--processes", "2", "--guests", str(guests.path)]
    environment = {**os.environ, "WHENABOUTS_TOKEN": TOKEN}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            port = re.search(r":(\d+)/", process.stdout.readline())
            assert port is not None

            assert wait_until(lambda: len(_children(process.pid)) == 1)
            # Connections that stay open are divided between the processes (server/sharing.py).
            connections = [HTTPConnection("127.0.0.1", int(port.group(1)), timeout=60) for _ in range(8)]

            def statuses(given: str) -> list[int]:
                found = []
                for connection in connections:
                    connection.request("GET", "/api/access", headers=bearer(given))
                    answer = connection.getresponse()
                    answer.read()
                    found.append(answer.status)
                return found

            def both_answer() -> bool:
                for connection in connections:
                    connection.close()
                (child,) = _children(process.pid)
                before = _sockets(child)
                return statuses(token) == [200] * 8 and before < _sockets(child) < before + 8

            assert wait_until(both_answer)
            assert main(["guests", str(guests.path), "remove", "Ada"]) == 0
            assert statuses(token) == [401] * 8
            assert statuses(TOKEN) == [200] * 8
            for connection in connections:
                connection.close()
        finally:
            process.kill()
