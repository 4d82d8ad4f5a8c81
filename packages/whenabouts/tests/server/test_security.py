"""Access checks over a real connection: forged paths, hosts, headers and tokens are refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from tests.server.conftest import TOKEN, Client, Live, Open, error_of

from whenabouts.server.security import COOKIE, HEADERS, HEALTH, READY, Guard
from whenabouts.server.settings import Settings
from whenabouts.types import UsageError
from whenabouts.workplace.guests import READ, matching, owner_of, session_of


@pytest.fixture
def guarded(opened: Open, indexed: Path) -> Client:
    """The sample corpus behind a token."""
    return opened(indexed, token=TOKEN)


TRAVERSALS = [
    "/api/videos/../../../../etc/passwd",
    "/api/videos/..%2f..%2f..%2fetc%2fpasswd/file",
    "/api/videos/%2e%2e%2f%2e%2e%2fetc%2fpasswd/file",
    "/api/videos/%252e%252e%252fetc%252fpasswd/file",
    "/api/videos/%2fetc%2fpasswd/file",
    "/api/videos//etc/passwd/file",
    "/api/videos/..%5c..%5cetc%5cpasswd/file",
    "/api/videos/..\\..\\etc\\passwd/file",
    "/api/videos/%00/file",
    "/api/videos/friday%00.mp4/file",
    "/api/videos/%c0%ae%c0%ae%c0%afetc/file",
    "/api/videos/....//....//etc/passwd/file",
    "/api/videos/file:%2f%2f%2fetc%2fpasswd/file",
    "/api/videos/friday.mp4/file",
    "/api/videos/friday/file",
    "/api/videos/%27%20OR%201=1--/file",
    "/api/videos/a%27%20OR%20video_id%20LIKE%20%27%25/file",
    "/api/videos/%ff%fe/file",
    "/static/../app.py",
    "/static/..%2fapp.py",
    "/static/%2e%2e/app.py",
    "/static/%252e%252e%252fapp.py",
    "/static//etc/passwd",
    "/static/%2fetc%2fpasswd",
    "/static/..%5capp.py",
    "/static/index.html%00.css",
    "/static/",
    "/static/.",
    "//etc/passwd",
    "/etc/passwd",
    "/..%2f..%2fetc/passwd",
]


def test_no_path_leads_out_of_the_corpus(running: Live, samples: Path) -> None:
    absolute = str(samples / "friday.mp4").replace("/", "%2f")
    for target in [*TRAVERSALS, f"/api/videos/{absolute}/file", f"/api/videos/{'a' * 5000}/file"]:
        said = running.get(target)
        head, _, body = said.partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")), (target, head[:200])
        assert b"root:" not in body, target
        assert json.loads(body)["error"]["code"] in ("not_found", "no_such_video", "invalid_parameter"), (
            target
        )


def test_every_answer_carries_the_headers_that_keep_browsers_safe(client: Client, friday: str) -> None:
    for path in ("/", "/api/health", "/api/nothing", "/api/search", f"/api/videos/{friday}/file", "/metrics"):
        answer = client.get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, path
        assert not [name for name in answer.headers if name.startswith("access-control")]
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'self';" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8765", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8765"]
)
def test_names_of_this_machine_are_answered(client: Client, host: str) -> None:
    assert client.get("/api/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8765", "0.0.0.0", "192.168.1.5", "",
     "localhost@evil.example", "evil.example#localhost", "[::1].evil.example", "localhost:80:evil"],
)  # fmt: skip
def test_other_names_that_resolve_here_are_refused(client: Client, host: str) -> None:
    assert error_of(client.get("/api/videos", headers={"Host": host}))[:2] == (403, "wrong_host")


def test_a_server_at_another_loopback_address_answers_to_it(opened: Open, indexed: Path) -> None:
    client = opened(indexed, host="127.0.0.2")
    assert client.get("/api/health", headers={"Host": "127.0.0.2:8765"}).status_code == 200
    other = client.get("/api/health", headers={"Host": "127.0.0.3:8765"})
    assert error_of(other)[:2] == (403, "wrong_host")


def test_two_host_headers_or_none_are_refused(running: Live) -> None:
    two = running.say(
        "GET /api/videos HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    )
    assert two.startswith(b"HTTP/1.1 400")
    assert running.say("GET /api/videos HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_pages_of_other_sites_may_link_here_but_not_ask(client: Client) -> None:
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert error_of(client.get("/api/videos", headers={**foreign, "Sec-Fetch-Mode": "no-cors"}))[:2] == (
        403,
        "cross_site",
    )
    assert client.get("/", headers={**foreign, "Sec-Fetch-Mode": "navigate"}).status_code in (200, 404)
    posted = client("POST", "/api/search", json={"query": "a"}, headers={**foreign, "Sec-Fetch-Mode": "cors"})
    assert error_of(posted)[:2] == (403, "cross_site")
    for origin in ("http://evil.example", "null"):
        assert error_of(client.get("/api/videos", headers={"Origin": origin}))[:2] == (403, "cross_site")
    own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert client.get("/api/videos", headers=own).status_code == 200


def test_nothing_but_health_and_readiness_is_told_without_the_token(guarded: Client) -> None:
    for path in ("/", "/static/page.css", "/openapi.json", "/metrics", "/api/videos", "/api/nothing"):
        answer = guarded.get(path)
        assert error_of(answer)[:2] == (401, "unauthorized"), path
        assert answer.headers["www-authenticate"] == "Bearer"
    for path in (HEALTH, READY):
        assert guarded.get(path).json()["status"] == "ok"


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN.upper()}",
        f"Basic {TOKEN}",
        f"bearer{TOKEN}",
        TOKEN,
        f"Bearer {TOKEN} {TOKEN}",
        "Bearer \xe4\xf6",
        "Bearer " + "a" * 20_000,
    ],
)
def test_wrong_tokens_are_refused(guarded: Client, header: str) -> None:
    answer = guarded.get("/api/videos", headers={"Authorization": header.encode("latin-1")})
    assert error_of(answer)[:2] == (401, "unauthorized")


def test_the_right_token_is_let_in_whatever_the_case_of_bearer(guarded: Client) -> None:
    for scheme in ("Bearer", "bearer"):
        answer = guarded.get("/api/videos", headers={"Authorization": f"{scheme} {TOKEN}"})
        assert answer.status_code == 200


def test_two_authorization_headers_are_refused_even_if_one_is_right(guarded: Client) -> None:
    answer = guarded(
        "GET", "/api/videos", headers=[("Authorization", f"Bearer {TOKEN}"), ("Authorization", "x")]
    )
    assert answer.status_code == 401


def test_the_link_trades_the_token_for_a_cookie_that_scripts_cannot_read(guarded: Client) -> None:
    answer = guarded.get("/", params={"q": "a&b", "token": TOKEN})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/?q=a%26b"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert TOKEN not in cookie
    session = {COOKIE: session_of(TOKEN)}
    assert f"{COOKIE}={session[COOKIE]}" in cookie
    held = {"Cookie": f"theme=dark; {COOKIE}={session[COOKIE]}"}
    assert guarded.get("/api/videos", headers=held).status_code == 200
    for wrong in (TOKEN, "", session_of("another"), session[COOKIE][:-1]):
        assert guarded.get("/api/videos", headers={"Cookie": f"{COOKIE}={wrong}"}).status_code == 401
    assert (
        guarded.get("/api/videos", headers={"Cookie": f'{COOKIE}="; x={session[COOKIE]}'}).status_code == 401
    )


@pytest.mark.parametrize(
    "cookie",
    [f'{COOKIE}="' + '\\"' * 15_000 + '"', f'{COOKIE}="' + "\\" * 30_000 + '"', f"{COOKIE}=x;" * 1_300],
)
def test_a_cookie_of_whoever_has_no_token_costs_next_to_nothing(guarded: Client, cookie: str) -> None:
    guarded.get("/api/videos")
    began = time.process_time()
    assert guarded.get("/api/videos", headers={"Cookie": cookie}).status_code == 401
    assert time.process_time() - began < 0.3


def test_a_token_in_the_address_never_leads_to_another_site(guarded: Client) -> None:
    for path in ("//evil.example/", "/%2fevil.example/", "/\\evil.example"):
        where = guarded.get("http://localhost" + path, params={"token": TOKEN}).headers["location"]
        assert where.startswith("/")
        assert not where.startswith(("//", "/\\")), where


def test_a_wrong_token_in_the_address_gets_no_cookie(guarded: Client) -> None:
    for query in ("token=wrong", "token=", f"token={TOKEN}&token=x"):
        answer = guarded.get(f"/?{query}")
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


def test_a_person_with_a_dead_link_reads_a_sentence(guarded: Client) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for path, told in (
        ("/?token=of-yesterday", "is not valid here"),
        ("/", "add ?token= and the server's token"),
    ):
        answer = guarded.get(path, headers=browser)
        assert answer.status_code == 401 and answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.text.startswith("whenabouts: ") and told in answer.text


def test_guessing_is_slowed_down_but_the_owner_is_not(guarded: Client) -> None:
    statuses = [
        guarded.get("/api/videos", headers={"Authorization": f"Bearer {number}"}).status_code
        for number in range(40)
    ]
    assert statuses[:30] == [401] * 30
    assert statuses[30:] == [429] * 10
    assert guarded.get("/api/videos", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_whoever_asks_often_without_a_token_or_with_a_dead_one_is_told_so_each_time(guarded: Client) -> None:
    for headers in ({}, {"Authorization": "Bearer dead"}, {"Cookie": f"{COOKIE}={session_of('dead')}"}):
        statuses = {guarded.get("/api/videos", headers=headers).status_code for _ in range(40)}
        assert statuses == {401}


def test_a_person_is_known_by_a_token_of_their_own(tmp_path: Path) -> None:
    async def who(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(f"[{scope['guest'].name}]")(scope, receive, send)

    hers = "one-of-ada-that-is-long-enough"
    settings = Settings(token=TOKEN, cache=tmp_path)
    guard = Guard(who, settings, people={hers: "Ada"}, theirs=(READ,), cookie="judged_by")
    client = TestClient(guard, base_url="http://localhost", follow_redirects=False)
    for token, name in ((TOKEN, ""), (hers, "Ada")):
        assert client.get("/", headers={"Authorization": f"Bearer {token}"}).text == f"[{name}]"
        answer = client.get("/", params={"token": token})
        assert answer.headers["set-cookie"].startswith(f"judged_by={session_of(token)};")
        assert client.get("/").text == f"[{name}]"
    client.cookies.clear()
    assert client.get("/", headers={"Cookie": f"{COOKIE}={session_of(hers)}"}).status_code == 401


@pytest.mark.parametrize("token", ["a" * 20, "a" * 80])
def test_secrets_are_compared_whatever_they_hold(token: str) -> None:
    owner = owner_of(token)
    assert matching(session_of(token), [owner]) is owner
    for wrong in ("ä", "\ud800", "", token[:-1], token + "a", session_of(token)):
        assert matching(session_of(wrong), [owner]) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "", "127.0.0.1.nip.io"])
def test_any_other_address_needs_a_token(host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--token"):
        Settings(host=host, cache=tmp_path)
    assert not Settings(host=host, token=TOKEN, cache=tmp_path).is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_this_machine_needs_none(host: str, tmp_path: Path) -> None:
    assert Settings(host=host, cache=tmp_path).is_loopback


@pytest.mark.parametrize(
    "token", ["short", "with space and more", "ümlaut-ümlaut-ümlaut", "a" * 15, "a;b" * 9]
)
def test_tokens_that_could_be_guessed_or_garbled_are_refused(token: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="openssl"):
        Settings(token=token, cache=tmp_path)


def test_settings_do_not_print_the_token(tmp_path: Path) -> None:
    assert TOKEN not in repr(Settings(token=TOKEN, cache=tmp_path))


def test_requests_that_are_none_are_refused_and_the_server_lives_on(running: Live) -> None:
    for request in (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 300_000 + b"\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\na",
        b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n",
    ):
        said = running.say(request)
        # A client that still sends when the server closes may lose the answer to a reset.
        assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413")) or (not said and len(request) > 1 << 18)
    assert running.get("/api/health").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Origin", "http://[bad"),
        ("Origin", "http://[::1"),
        ("Origin", "http://exa%mple]"),
        ("Origin", "http://\u2100"),
        ("Host", "[bad"),
        ("Host", "localhost\x00"),
        ("Host", "\xb2"),
        ("Content-Length", "9" * 5000),
        ("Content-Length", "\xb2"),
        ("Content-Length", "-1"),
    ],
)
def test_malformed_headers_are_refused_with_headers(client: Client, name: str, value: str) -> None:
    answer = client.get("/api/health", headers={name: value.encode("latin-1", "replace")})
    assert 400 <= error_of(answer)[0] < 500
    assert all(answer.headers[key] == expected for key, expected in HEADERS.items())


def test_a_fault_of_the_guard_itself_is_answered_with_headers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("/data/secret")

    monkeypatch.setattr("whenabouts.server.security._check_site", fail)
    answer = client.get("/api/health")
    assert error_of(answer) == (500, "internal", None)
    assert "secret" not in answer.text
    assert all(answer.headers[key] == expected for key, expected in HEADERS.items())
