"""A server behind a reverse proxy: addresses have the base path, and only named proxies are trusted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import TOKEN, Client, Open, Serve, error_of
from tests.server.reverse_proxy import proxied

from whenabouts.cli.main import main
from whenabouts.server.security import COOKIE, HEADERS
from whenabouts.server.settings import Settings
from whenabouts.types import UsageError

BASE = "/moments"
ADDRESS = re.compile(r"(?<![\w/])/(?:moments/)?(?:api|static)/[^\s\"']*")


def addresses(body: Any) -> set[str]:
    return set(ADDRESS.findall(json.dumps(body)))


@pytest.fixture
def below(opened: Open, indexed: Path) -> Client:
    return opened(indexed, token=TOKEN, base_path=BASE)


@pytest.mark.slow
@pytest.mark.parametrize("strip", [True, False])
def test_every_address_leads_back_through_the_proxy(live: Serve, indexed: Path, strip: bool) -> None:
    server = live(indexed, base_path=BASE, token=TOKEN)
    with (
        proxied(server.port, BASE, strip=strip) as at,
        httpx.Client(base_url=at, timeout=60, follow_redirects=True) as browser,
    ):
        page = browser.get("./", params={"token": TOKEN, "q": "x"})
        assert page.status_code == 200 and str(page.url) == f"{at}?q=x"
        (cookie,) = browser.cookies.jar
        assert (cookie.name, cookie.path) == (COOKIE, f"{BASE}/")
        for name in re.findall(r'(?:href|src)="(static/[^"]+)"', page.text):
            assert browser.get(name).status_code == 200, name
        made = browser.post("api/collections", json={"name": f"film {strip}"}).json()
        browser.post(f"api/collections/{made['id']}/items", json={"moments": [f"{_friday(browser)}@1-2"]})
        answers = [
            browser.get("api/videos").json(),
            browser.get(f"api/videos/{_friday(browser)}").json(),
            browser.get("api/search", params={"query": "crown jewels"}).json(),
            browser.post("api/search", json={"query": "crown jewels"}).json(),
            browser.get(f"api/collections/{made['id']}").json(),
        ]
        for answer in answers:
            found = addresses(answer)
            assert found and all(place.startswith(f"{BASE}/") for place in found), found
            for place in sorted(found)[:3]:
                assert browser.head(httpx.URL(at).join(place)).status_code == 200, place
        described = browser.get("openapi.json").json()
        assert described["servers"] == [{"url": BASE}]
        assert "/api/videos" in described["paths"]
        browser.delete(f"api/collections/{made['id']}")


def _friday(browser: httpx.Client) -> str:
    videos = browser.get("api/videos").json()["data"]
    return str(next(video["video_id"] for video in videos if video["name"] == "friday.mp4"))


def test_the_base_path_without_its_slash_leads_to_the_page(below: Client) -> None:
    for query, beneath in (("", "/moments/"), ("?q=a%26b", "/moments/?q=a%26b")):
        answer = below.get(f"/moments{query}")
        assert (answer.status_code, answer.headers["location"]) == (307, beneath)
        assert all(answer.headers[name] == value for name, value in HEADERS.items())
    for path in ("/momentsx/api/videos", "/moments/moments/api/videos", "/moment/"):
        assert below.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 404


def test_a_token_below_the_base_path_never_leads_to_another_site(below: Client) -> None:
    for path in ("/moments//evil.example/", "/moments/%2fevil.example/", "//evil.example/"):
        where = below.get("http://localhost" + path, params={"token": TOKEN}).headers["location"]
        assert where.startswith("/moments/") and not where.startswith("/moments//"), where


def test_health_and_requests_without_the_prefix_are_answered_too(below: Client) -> None:
    assert below.get("/api/health").status_code == below.get("/moments/api/health").status_code == 200
    assert below.get("/moments/api/videos").status_code == below.get("/api/videos").status_code == 401


@pytest.mark.slow
def test_only_a_named_proxy_says_under_which_name_it_was_asked(opened: Open, indexed: Path) -> None:
    owner = {"Authorization": f"Bearer {TOKEN}"}
    asked = {"X-Forwarded-Host": "videos.example.org", "X-Forwarded-Proto": "https", "Host": "internal"}
    origin = {"Origin": "https://videos.example.org", "Sec-Fetch-Site": "same-origin"}
    named = opened(indexed, token=TOKEN, proxies=("127.0.0.1",))
    assert named.get("/api/videos", headers=owner | asked | origin).status_code == 200
    assert error_of(named.get("/api/videos", headers=owner | asked | {"Origin": "https://evil.example"}))[
        1
    ] == ("cross_site")
    assert named.get("/api/videos", headers=asked).status_code == 401
    exchanged = named.get("/", params={"token": TOKEN}, headers=asked)
    assert "; Secure" in exchanged.headers["set-cookie"]
    assert "Secure" not in named.get("/", params={"token": TOKEN}).headers["set-cookie"]
    for proxies in ((), ("127.0.0.2", "10.0.0.0/8", "::1")):
        stranger = opened(indexed, token=TOKEN, proxies=proxies)
        assert error_of(stranger.get("/api/videos", headers=owner | asked))[:2] == (403, "wrong_host")
        lied = {"X-Forwarded-Host": "localhost", "Host": "evil.example"}
        assert error_of(stranger.get("/api/videos", headers=owner | lied))[:2] == (403, "wrong_host")
        plain = stranger.get("/", params={"token": TOKEN}, headers={"X-Forwarded-Proto": "https"})
        assert "Secure" not in plain.headers["set-cookie"]


def test_the_nearest_proxy_is_believed_and_nonsense_refused(opened: Open, indexed: Path) -> None:
    owner = {"Authorization": f"Bearer {TOKEN}"}
    named = opened(indexed, token=TOKEN, proxies=("127.0.0.0/8",))
    chain = {"X-Forwarded-Host": "evil.example, videos.example.org", "Origin": "https://videos.example.org"}
    assert named.get("/api/videos", headers=owner | chain).status_code == 200
    for header, value in (("Host", "a b"), ("Host", "x/y"), ("Host", "é"), ("Proto", "ftp")):
        strange = {f"X-Forwarded-{header}".encode(): value.encode("latin-1")}
        answer = named.get("/api/videos", headers=[*owner.items(), *strange.items()])
        assert error_of(answer)[:2] == (400, "bad_forwarded")
        assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("base", ["moments", "/", "/a//b", "/a/../b", "/.", "/a b", "/a?b", "/ä", "//a"])
def test_a_base_path_that_makes_no_sense_is_refused(base: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--base-path"):
        Settings(base_path=base, cache=tmp_path)


def test_the_command_checks_what_it_is_given(
    indexed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["serve", "--corpus", str(indexed), "--port", "0"]
    assert main([*command, "--trust-proxy", "127.0.0.1"]) == 2
    assert "--trust-proxy needs a token of your own" in capsys.readouterr().err
    monkeypatch.setenv("WHENABOUTS_TOKEN", TOKEN)
    for given in (("--trust-proxy", "proxy.example"), ("--base-path", "a b"), ("--guests", "none.json")):
        assert main([*command, *given]) == 2
        assert given[1] in capsys.readouterr().err


def test_a_proxy_needs_an_address_and_the_server_a_token(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--trust-proxy: 'proxy.example' does not appear"):
        Settings(proxies=("proxy.example",), token=TOKEN, cache=tmp_path)
    with pytest.raises(UsageError, match="--trust-proxy needs a token"):
        Settings(proxies=("127.0.0.1",), cache=tmp_path)
