"""Takes the pictures of `docs/page.md`: the page on the sample corpus in a real Chromium."""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WIDE = {"viewport": {"width": 1280, "height": 860}}
NARROW = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
MATCH, NONE = "telescope in a clean room", "football match"
LARGEST_PICTURE, LARGEST_ANIMATION = 200_000, 1_000_000
# A ring where the mouse is: screenshots do not show it.
_MOUSE = """() => {
  const ring = document.createElement('div');
  ring.id = 'mouse';
  Object.assign(ring.style, {position: 'fixed', width: '22px', height: '22px', margin: '-11px',
    borderRadius: '50%', border: '3px solid #e8a300', zIndex: 99, pointerEvents: 'none', left: '-50px'});
  document.body.append(ring);
  const follow = (e) => Object.assign(ring.style, {left: e.clientX + 'px', top: e.clientY + 'px'});
  addEventListener('pointermove', follow, true);
}"""


@contextmanager
def served(folder: str) -> Iterator[str]:
    """The address of `whenabouts serve` on the sample videos, indexed anew."""
    corpus, run = f"{folder}/samples.corpus", [sys.executable, "-m", "whenabouts"]
    subprocess.run([*run, "index", str(ROOT / "samples/videos"), "--corpus", corpus], check=True)
    serve = [*run, "serve", "--corpus", corpus, "--port", "0", "--cache", f"{folder}/cache"]
    server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if found := re.search(r"http://\S+", line):
                yield found[0]
                break
        else:
            raise SystemExit("the server did not start")
    finally:
        server.terminate()
        server.wait()


def ask(page: Any, address: str, query: str) -> None:
    """Ask, and wait for the answer with its pictures."""
    page.goto(address)
    page.get_by_role("searchbox").fill(query)
    page.keyboard.press("Enter")
    page.wait_for_selector("#results[data-answer]:not([data-answer=''])")
    page.wait_for_timeout(600)
    page.evaluate("() => document.activeElement.blur()")


def look(page: Any) -> None:
    """Open the first result and wait for its frame."""
    page.locator(".card-link").first.click()
    page.wait_for_timeout(1500)
    page.evaluate("() => document.activeElement.blur()")


def keep(page: Any, name: str, **options: Any) -> None:
    """A screenshot with few enough colours to be small."""
    image = Image.open(io.BytesIO(page.screenshot(**options))).convert("RGB")
    path = PICTURES / f"{name}.png"
    image.quantize(255, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")
    assert path.stat().st_size < LARGEST_PICTURE, f"{path} is too large"


def stills(browser: Any, address: str) -> None:
    """A moment on a phone in the dark, and a query that nothing answers."""
    page = browser.new_context(color_scheme="dark", **NARROW).new_page()
    ask(page, address, MATCH)
    look(page)
    # Lines out of sight are not drawn, and a picture of the whole page shows them.
    page.evaluate(
        "() => document.querySelectorAll('.cue').forEach((cue) => cue.style.contentVisibility = 'visible')"
    )
    keep(page, "moment-dark-narrow", full_page=True)
    page.context.close()
    page = browser.new_context(color_scheme="light", **WIDE).new_page()
    ask(page, address, NONE)
    keep(page, "not-in-here")
    page.context.close()


def animation(browser: Any, address: str) -> None:
    """Search, open, drag a border, play: as an animated WebP."""
    page = browser.new_context(color_scheme="light", viewport={"width": 1440, "height": 960}).new_page()
    frames: list[tuple[Image.Image, int]] = []

    def frame(milliseconds: int) -> None:
        image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        frames.append((image.resize((960, 640), Image.Resampling.LANCZOS), milliseconds))

    page.goto(address)
    page.wait_for_timeout(800)
    page.evaluate(_MOUSE)
    frame(900)
    for letters in ("telescope ", "in a ", "clean ", "room"):
        page.keyboard.type(letters)
        frame(180)
    page.keyboard.press("Enter")
    page.wait_for_timeout(800)
    frame(1300)
    card = page.locator(".card-link").first.bounding_box()
    page.mouse.move(card["x"] + 90, card["y"] + 60)
    frame(500)
    page.mouse.click(card["x"] + 90, card["y"] + 60)
    page.wait_for_timeout(1300)
    frame(1300)
    grip = page.locator("#grip-end").bounding_box()
    x, y = grip["x"] + 8, grip["y"] + grip["height"] - 12
    page.mouse.move(x, y)
    frame(500)
    page.mouse.down()
    for step in range(1, 9):
        page.mouse.move(x + step * 16, y)
        page.wait_for_timeout(120)
        frame(110)
    page.mouse.up()
    frame(900)
    page.locator("#play").click()
    for _ in range(10):
        page.wait_for_timeout(120)
        frame(200)
    pictures, lengths = zip(*frames, strict=True)
    path = PICTURES / "search-and-drag.webp"
    pictures[0].save(
        path, save_all=True, append_images=pictures[1:], duration=list(lengths), loop=0, quality=62, method=6
    )
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes, {len(pictures)} frames")
    assert path.stat().st_size < LARGEST_ANIMATION, f"{path} is too large"
    page.context.close()


def first_paint(browser: Any, address: str, times: int = 20) -> None:
    """Print the browser's own first-contentful-paint entries, each in a new context (nothing cached)."""
    paints, sizes = [], []
    for _ in range(times):
        context = browser.new_context(**WIDE)
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector(".card-link")
        entry = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
        paints.append(page.evaluate(entry))
        size = """() => performance.getEntries().filter((e) => 'decodedBodySize' in e)
          .filter((e) => !e.name.includes('/api/')).reduce((sum, e) => sum + e.decodedBodySize, 0)"""
        sizes.append(page.evaluate(size))
        context.close()
    paints.sort()
    middle = paints[len(paints) // 2]
    print(f"first contentful paint, {times} loads: {paints[0]:.0f} / {middle:.0f} / {paints[-1]:.0f} ms")
    print(f"bytes without pictures and answers: {max(sizes)}")


def main() -> None:
    """Take them all, or only measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paint", action="store_true", help="only measure the first paint")
    options = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        first_paint(browser, address)
        if not options.paint:
            stills(browser, address)
            animation(browser, address)
        browser.close()


if __name__ == "__main__":
    main()
