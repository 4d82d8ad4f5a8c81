"""The judging page behind a reverse proxy, below a base path."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.judging.served_set import Judge, ok, refused, serving, small_set
from tests.server.reverse_proxy import proxied

from whenabouts.cli.main import main

BASE = "/judging"


@pytest.mark.slow
@pytest.mark.parametrize("strip", [True, False])
def test_links_cookies_static_files_and_recordings_lie_below_the_base_path(
    tmp_path: Path, samples: Path, strip: bool
) -> None:
    tasks = small_set(tmp_path / "set", samples)
    with serving(tasks, tmp_path / "cache", "Ada", base_path=BASE, proxies=("127.0.0.1",)) as links:
        own = urlsplit(links["Ada"])
        assert own.path == f"{BASE}/"
        with (
            proxied(int(own.port or 0), BASE, strip=strip, forwarded={"X-Forwarded-Proto": "https"}) as at,
            httpx.Client(base_url=at, timeout=60) as browser,
        ):
            assert browser.get(at.rstrip("/")).headers["location"] == f"{BASE}/"
            let_in = browser.get("./", params=own.query)
            assert (let_in.status_code, let_in.headers["location"]) == (303, f"{BASE}/")
            assert "; Path=/judging/;" in let_in.headers["set-cookie"]
            assert "; Secure" in let_in.headers["set-cookie"]
            # The client itself speaks no TLS here: it sends the cookie as a browser would.
            browser.headers["Cookie"] = let_in.headers["set-cookie"].partition(";")[0]
            page = browser.get("./")
            files = set(re.findall(r'(?:href|src)="(static/[^"]+)"', page.text))
            assert "static/judge.js" in files
            scripts = {name: browser.get(name) for name in files}
            assert all(answer.status_code == 200 for answer in scripts.values())
            assert not re.search(r'["`]/(?:api|static)', page.text + scripts["static/judge.js"].text)
            assert ok(browser.get("api/me"))["annotator"] == "Ada"
            origin = {"Origin": at.partition(BASE)[0]}
            shown = ok(browser.get("api/task", params={"annotator": "Ada"}))
            assert shown["task"]["task_id"] == "t0"
            said = {"annotator": "Ada", "id": "ab" * 16, "task_id": "t0", "grade": 3}
            assert ok(browser.post("api/answers", json=said, headers=origin))["next"]
            film = browser.get("api/tasks/t0/video", headers={"Range": "bytes=0-9"})
            assert (film.status_code, len(film.content)) == (206, 10)
            evil = browser.post("api/answers", json=said, headers={"Origin": "https://evil.example"})
            assert refused(evil) == (403, "cross_site")
        with httpx.Client(base_url=f"http://127.0.0.1:{own.port}", timeout=60) as near:
            assert Judge(near, own.query.partition("=")[2], "Ada").next()["task"]["task_id"] == "t1"


def test_the_command_checks_what_it_is_given(
    tmp_path: Path, samples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_set(tmp_path / "set", samples)
    place = ["judge", str(tmp_path / "set"), "--cache", str(tmp_path / "cache"), "--port", "0"]
    for given in (("--base-path", "a b"), ("--trust-proxy", "proxy.example")):
        assert main([*place, *given]) == 2
        assert " ".join(given) in capsys.readouterr().err.replace(": 'proxy", " proxy")
