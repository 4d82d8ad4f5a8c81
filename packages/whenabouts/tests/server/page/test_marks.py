"""Chapters and on-screen text of a film on the page: shown, reached by keys, and used to jump."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from tests.server.page.test_page import at, expect, standing, until
from tests.streams.written_film import slide, write_film
from tests.uncalibrated import uncalibrated

from whenabouts.corpus import Corpus

pytest.importorskip("rapidocr", reason="the extra screen is not installed")
pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=hacked()>"
TALK = (
    ("Photosynthesis", "light becomes sugar"),
    ("Volcanoes", "lava flows"),
    ("Harbours", "ropes and tides"),
)


@pytest.fixture(scope="module")
def course(
    tmp_path_factory: pytest.TempPathFactory, serving: Callable[..., AbstractContextManager[str]]
) -> Iterator[tuple[str, str]]:
    """The address of a page, and the id of a film with three slides and three chapters."""
    folder = tmp_path_factory.mktemp("course")
    chapters = [(0.0, 8.0, "Plants"), (8.0, 16.0, HOSTILE), (16.0, 24.0, "")]
    film = write_film(folder / "course.mp4", lambda k: slide(*TALK[k // 200]), 24, rate=25, chapters=chapters)
    (folder / "words.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:04.000\nonly words\n", encoding="utf-8")
    corpus = Corpus(folder / "a.corpus", create=True)
    with uncalibrated():
        corpus.add(folder, screen_text=True, processes=1)
    with serving(corpus, folder / "cache") as address:
        yield address, corpus.resolve(film.name).video_id


@pytest.fixture
def page(open_tab: Callable[..., Any], course: tuple[str, str]) -> Any:
    address, video = course
    tab = open_tab(address)
    tab.goto(f"{address}?q=lava&v={video}&s=1&e=3")
    standing(tab)
    expect(tab.locator("#texts .turn")).to_have_count(3)
    return tab


def reaches(page: Any, seconds: float) -> None:
    until(page, lambda: abs(at(page) - seconds) < 0.1)


def test_chapters_are_on_the_line_of_the_whole_video_and_in_a_list(page: Any) -> None:
    parts = page.locator(".chapter")
    expect(parts).to_have_text(["Plants", HOSTILE, "Chapter 3"])
    expect(parts.first).to_have_class("chapter now")
    whole, second = page.locator("#overview").bounding_box(), parts.nth(1).bounding_box()
    assert second["x"] == pytest.approx(whole["x"] + whole["width"] / 3, abs=2)
    assert second["width"] == pytest.approx(whole["width"] / 3, abs=2)
    parts.nth(2).click()
    reaches(page, 16)
    expect(page.locator("#chapters summary")).to_have_text("3 chapters · now Chapter 3")
    page.locator("#chapters summary").press("Enter")
    lines = page.get_by_role("list", name="Chapters").get_by_role("button")
    expect(lines).to_have_text(["0:00Plants", f"0:08{HOSTILE}", "0:16Chapter 3"])
    lines.nth(1).press("Enter")
    reaches(page, 8)
    expect(lines.nth(1)).to_have_attribute("aria-current", "true")
    expect(lines.nth(1)).to_be_focused()


def test_chapters_are_stepped_through_by_keys(page: Any) -> None:
    page.locator("#title").focus()
    page.keyboard.press("n")
    reaches(page, 8)
    page.keyboard.press("n")
    reaches(page, 16)
    page.keyboard.press("p")
    reaches(page, 8)
    page.keyboard.press("p")
    reaches(page, 0)


def test_text_on_the_screen_has_a_lane_whose_words_are_read_by_mouse_and_keys(page: Any) -> None:
    said, texts = page.locator("#texts .lane-said"), page.locator("#texts .turn")
    expect(said).to_have_text("Texts on the screen: 3")
    texts.nth(1).hover()
    expect(said).to_contain_text("Volcanoes / lava flows")
    expect(said.locator("mark")).to_have_text("lava")
    texts.nth(1).click()
    start = at(page)
    assert start == pytest.approx(8, abs=1.1)
    page.keyboard.press("ArrowRight")
    expect(texts.nth(2)).to_be_focused()
    expect(said).to_contain_text("Harbours / ropes and tides")
    page.keyboard.press("Enter")
    until(page, lambda: at(page) > start + 5)
    page.keyboard.press("Home")
    expect(texts.first).to_be_focused()
    expect(said).to_contain_text("Photosynthesis / light becomes sugar")
    assert page.locator("#texts .turn[tabindex='0']").count() == 1


def test_the_lane_follows_what_the_time_line_shows_and_arrows_lead_out_of_it(page: Any) -> None:
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Zoom in").click()
    expect(page.locator("#texts .turn")).to_have_count(1)
    page.locator("#texts .turn").focus()
    page.keyboard.press("ArrowRight")
    focused = page.locator("#texts .turn:focus")
    expect(focused).to_contain_text("Volcanoes")
    expect(page.locator("#texts .lane-said")).to_contain_text("Volcanoes")


def test_more_texts_than_are_drawn_are_walked_through_by_keys(
    open_tab: Callable[..., Any], course: tuple[str, str]
) -> None:
    address, video = course
    texts = [{"start": n / 40, "end": (n + 1) / 40, "text": f"text {n}"} for n in range(900)]
    stream = {"stream": "screen_text", "title": "texts on the screen", "texts": texts}
    page = open_tab(address)
    page.route("**/texts", lambda route: route.fulfill(json={"video_id": video, "data": [stream]}))
    page.goto(f"{address}?v={video}")
    drawn = page.locator("#texts .turn")
    expect(drawn).to_have_count(400)
    expect(page.locator("#texts .lane-said")).to_contain_text("900 (500 of those in view are not drawn")
    drawn.first.focus()
    for key in ("End", "ArrowLeft", "Home", "ArrowRight"):
        page.keyboard.press(key)
    expect(drawn.nth(1)).to_be_focused()
    expect(page.locator("#texts .turn[tabindex='0']")).to_have_count(1)


def test_another_video_has_neither(page: Any, course: tuple[str, str]) -> None:
    page.goto(course[0])
    page.locator(".card-link", has_text="words").click()
    expect(page.locator(".cue")).to_have_count(1)
    expect(page.locator("#chapters")).to_be_hidden()
    expect(page.locator("#texts")).to_be_hidden()
    page.locator(".card-link", has_text="course").click()
    expect(page.locator("#texts .turn")).to_have_count(3)
    page.locator(".card-link", has_text="words").click()
    expect(page.locator("#texts")).to_be_hidden()
    page.keyboard.press("n")


def test_nothing_scrolls_sideways_on_a_phone(open_tab: Callable[..., Any], course: tuple[str, str]) -> None:
    address, video = course
    page = open_tab(address, viewport={"width": 390, "height": 844}, has_touch=True)
    page.goto(f"{address}?v={video}")
    expect(page.locator("#texts .turn")).to_have_count(3)
    page.locator("#chapters summary").click()
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    assert page.locator("#texts .turn").first.bounding_box()["height"] >= 40
    assert page.locator(".chapter-line").first.bounding_box()["height"] >= 44
