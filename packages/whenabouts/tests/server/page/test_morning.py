"""A user's whole task on the page: from a folder to a list, a film and a link, with a restart between."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.server.page.test_page import expect

from whenabouts.corpus import Corpus

pytestmark = pytest.mark.slow
SOON = 120_000
ACTIONS = 6
"""From the empty page to a cut film; starting the server is one more (docs/a-morning.md)."""
MORE = (("space telescope", 1), ("crown jewels", 0), ("Hildy", 0))
"""What else is asked, and how many results further the moment is."""


class Hand:
    """A user's clicks and keys, counted."""

    def __init__(self, page: Any) -> None:
        self.page, self.actions = page, 0

    def click(self, role: str, name: str) -> None:
        self.actions += 1
        self.page.get_by_role(role, name=name, exact=True).click(timeout=SOON)

    def press(self, key: str) -> None:
        self.actions += 1
        self.page.keyboard.press(key)

    def ask(self, words: str) -> None:
        self.actions += 1
        self.page.get_by_role("searchbox").first.fill(words)
        self.page.keyboard.press("Enter")


def test_a_morning_on_the_page(
    open_tab: Callable[..., Any],
    samples: Path,
    tmp_path: Path,
    serving: Callable[..., AbstractContextManager[str]],
) -> None:
    place, cache = tmp_path / "c.corpus", tmp_path / "cache"
    with serving(Corpus(place, create=True), cache, allow=(samples,)) as at:
        page = open_tab(at)
        hand = Hand(page)
        page.goto(at)
        hand.click("link", "Add a folder")
        hand.click("button", "Plan this whole folder")
        hand.click("button", "Start")
        expect(page.locator(".job.done")).to_contain_text("8 added", timeout=SOON)
        hand.ask(MORE[0][0])
        expect(page.locator(".card-link").first).to_be_focused()
        hand.press("Enter")
        expect(page.locator("#player")).to_be_visible()
        with page.expect_download(timeout=SOON) as film:
            hand.press("x")
        assert film.value.suggested_filename.endswith(".mp4")
        assert Path(film.value.path()).stat().st_size > 10_000
        assert hand.actions == ACTIONS

        # Select some of the words as a moment, and put four moments into a collection.
        page.locator(".cue-time").first.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Shift+ArrowDown")
        expect(page.locator(".cue.inside")).to_have_count(2)
        page.locator("#collect summary").click()
        page.get_by_label("Into the collection").fill("morning")
        page.get_by_role("button", name="Add the moment").click()
        expect(page.locator("#message")).to_contain_text("1 moment now")
        for count, (words, steps) in enumerate(MORE, 2):
            hand.ask(words)
            expect(page.locator(".card-link").first).to_be_focused()
            page.keyboard.press("Enter")
            expect(page.locator("#player")).to_be_visible()
            for _ in range(steps):
                page.keyboard.press("j")
            expect(page.locator("#message")).to_have_text("")
            page.keyboard.press("b")
            expect(page.locator("#message")).to_contain_text(f"{count} moments now")
        page.get_by_role("link", name="Collections").click()
        page.locator(".shelf", has_text="morning").click()
        titles = page.locator(".clip .card-title")
        expect(titles).to_have_count(4)
        page.locator(".handle").nth(3).focus()
        for _ in range(3):
            page.keyboard.press("Alt+ArrowUp")
        expect(titles.first).to_have_text("1. friday")
        page.get_by_role("button", name="Copy link").click()
        link = page.url
        taken = {}
        for button in ("Export", "One film (mp4)"):
            with page.expect_download(timeout=SOON) as given:
                page.get_by_role("button", name=button, exact=True).click()
            taken[given.value.suggested_filename] = Path(given.value.path()).read_bytes()
        assert [*taken] == ["morning.edl", "morning.mp4"]
        assert taken["morning.edl"].startswith(b"TITLE: morning")
        assert len(taken["morning.mp4"]) > 10_000
        page.goto("about:blank")

    with serving(Corpus(place), cache, allow=(samples,)) as again:
        page = open_tab(again)
        page.goto(link.replace(at, again))
        expect(page.locator(".clip .card-title")).to_have_count(4)
        expect(page.locator(".clip .card-title").first).to_have_text("1. friday")
