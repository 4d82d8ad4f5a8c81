"""Takes the pictures of `docs/a-morning.md`: a morning on the page, from an empty corpus to a collection."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from make_page_pictures import ARGUMENTS, CHROMIUM, PICTURES, ROOT
from PIL import Image
from playwright.sync_api import expect, sync_playwright

SIZE = {"width": 1280, "height": 800}
MOST_BYTES = 600_000
SOON = 120_000
MORE = (("space telescope", 1), ("crown jewels", 0), ("Hildy", 0))
"""What else is collected: a query, and how many results below the first."""


@contextmanager
def served(folder: str) -> Iterator[str]:
    """The address of `whenabouts serve` on an empty corpus that may be filled with the sample videos."""
    command = [sys.executable, "-m", "whenabouts", "serve", "--corpus", f"{folder}/my.corpus"]
    command += ["--allow", str(ROOT / "samples/videos"), "--port", "0"]
    # Where the samples lie on the machine that takes the pictures is nobody else's concern.
    command += ["--cache", f"{folder}/cache", "--no-show-paths"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found is not None, "the server did not start"
            yield found[0]
        finally:
            server.terminate()


class Pictures:
    """Screenshots of a page, numbered in order; `bytes` is what they take together."""

    def __init__(self, page: Any) -> None:
        self._page, self._count, self.bytes = page, 0, 0

    def take(self, name: str) -> None:
        """A screenshot, once pictures have come and nothing moves."""
        self._page.mouse.move(0, 0)
        self._page.wait_for_load_state("networkidle")
        self._page.wait_for_timeout(1500)
        self._count += 1
        path = PICTURES / f"morning-{self._count}-{name}.webp"
        Image.open(io.BytesIO(self._page.screenshot())).convert("RGB").save(path, quality=72, method=6)
        self.bytes += path.stat().st_size
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


def ask(page: Any, words: str) -> None:
    """Ask, and wait for the first result."""
    page.get_by_role("searchbox").first.fill(words)
    page.keyboard.press("Enter")
    expect(page.locator(".card-link").first).to_be_focused(timeout=SOON)


def morning(page: Any, address: str) -> int:
    """From the empty page to a collection in an order of one's own; the bytes of its pictures."""
    pictures = Pictures(page)
    page.goto(address)
    page.get_by_role("link", name="Add a folder").wait_for(timeout=SOON)
    pictures.take("empty")
    page.get_by_role("link", name="Add a folder").click()
    page.get_by_role("button", name="Plan this whole folder").click(timeout=SOON)
    page.get_by_role("button", name="Start", exact=True).wait_for(timeout=SOON)
    pictures.take("plan")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".job.done")).to_contain_text("8 added", timeout=SOON)
    page.goto(address)
    page.locator(".card-link").first.wait_for(timeout=SOON)
    pictures.take("library")
    ask(page, MORE[0][0])
    pictures.take("results")
    page.keyboard.press("Enter")
    expect(page.locator("#player")).to_be_visible()
    page.locator(".cue-time").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowDown")
    expect(page.locator(".cue.inside")).to_have_count(2)
    pictures.take("words")
    page.locator("#collect summary").click()
    page.get_by_label("Into the collection").fill("morning")
    page.get_by_role("button", name="Add the moment").click()
    expect(page.locator("#message")).to_contain_text("1 moment now")
    for count, (words, steps) in enumerate(MORE, 2):
        ask(page, words)
        page.keyboard.press("Enter")
        expect(page.locator("#player")).to_be_visible()
        for _ in range(steps):
            page.keyboard.press("j")
        expect(page.locator("#message")).to_have_text("")
        page.keyboard.press("b")
        expect(page.locator("#message")).to_contain_text(f"{count} moments now")
    page.get_by_role("link", name="Collections").click()
    page.locator(".shelf", has_text="morning").click()
    page.locator(".handle").nth(3).focus()
    for _ in range(3):
        page.keyboard.press("Alt+ArrowUp")
    expect(page.locator(".clip .card-title").first).to_have_text("1. friday")
    page.evaluate("() => document.activeElement.blur()")
    pictures.take("collection")
    return pictures.bytes


def main() -> None:
    """Take them all."""
    with tempfile.TemporaryDirectory() as folder, served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_context(color_scheme="light", viewport=SIZE).new_page()
        page.set_default_timeout(SOON)
        expect.set_options(timeout=SOON)
        size = morning(page, address)
        browser.close()
    assert size < MOST_BYTES, f"the pictures have {size} bytes together; at most {MOST_BYTES}"


if __name__ == "__main__":
    main()
