"""Hostile names, titles and captions are shown as text and never run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.server.page.conftest import playwright_api

from whenabouts.corpus import Corpus

expect = playwright_api.expect

NAMES = (
    "' onmouseover='hacked()' x='",
    '" onerror="hacked()" src="x',
    "\u202egpj.4pm \u2066hidden\u2069",
    '=HYPERLINK("http:__evil.example","open")',
    "javascript:hacked()",
    "&lt;script&gt;hacked()&lt;_script&gt;",
    "${hacked()} {{hacked()}} `hacked()`",
    "%3Cscript%3Ehacked()%3C%2Fscript%3E",
    "W" * 230,
    "e" + "\u0301" * 100,
)
_WORDS = (
    "lantern </script><script>hacked()</script>",
    "lantern <svg onload=hacked()>",
    "lantern \u202e)(dekcah\u202c \u200f\u200b",
    "lantern ' onfocus='hacked()' autofocus='",
    "lantern " + "A" * 4000,
)


@pytest.fixture
def hostile(tmp_path: Path, samples: Path) -> Corpus:
    """A corpus with a video per hostile name; its title has an HTML element, its words are hostile."""
    folder, titles = tmp_path / "videos", []
    folder.mkdir()
    for name in NAMES:
        film = (samples / "frog.webm").read_bytes() + name.encode()  # no two files are the same
        (folder / f"{name}.webm").write_bytes(film)
        cues = [
            f"00:0{at}.000 --> 00:0{at}.900\n{words.replace('<', '&lt;')}\n"
            for at, words in enumerate(_WORDS)
        ]
        (folder / f"{name}.vtt").write_text("\n".join(["WEBVTT\n", *cues]), encoding="utf-8")
        titles.append(json.dumps({"path": f"{name}.webm", "title": f"{name} <img src=x onerror=hacked()>"}))
    (tmp_path / "titles.jsonl").write_text("\n".join(titles), encoding="utf-8")
    corpus = Corpus(tmp_path / "hostile.corpus", create=True)
    corpus.add(folder, metadata_file=tmp_path / "titles.jsonl", processes=1)
    return corpus


@pytest.mark.slow
def test_names_titles_and_captions_of_strangers_are_text(
    hostile: Corpus, serving: Callable[..., Any], open_tab: Callable[..., Any], tmp_path: Path
) -> None:
    with serving(hostile, tmp_path / "cache") as address:
        page = open_tab(address)
        page.goto(f"{address}?q=lantern&k=50")
        expect(page.locator(".card-link").first).to_be_visible()
        page.locator(".card-link").first.hover()
        _screenshot(page, "hostile-results")
        for number, video in enumerate(hostile.videos()):
            page.goto(f"{address}?q=lantern&v={quote(video.id, safe='')}&s=0&e=4")
            expect(page.locator("#title")).to_contain_text("<img src=x onerror=hacked()>")
            expect(page.locator(".cue").first).to_contain_text("</script><script>hacked()</script>")
            _check(page)
            _screenshot(page, f"hostile-{number}")


def _check(page: Any) -> None:
    # The words became no element, and no attribute contains a script.
    assert page.locator("main script, main svg[onload], main img[src=x]").count() == 0
    attributes = (
        "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes].map(a => a.name + a.value))"
    )
    programs = ("on", "hrefjavascript", "srcjavascript")
    assert not [text for text in page.evaluate(attributes) if text.startswith(programs)]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")


def _screenshot(page: Any, name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png")
