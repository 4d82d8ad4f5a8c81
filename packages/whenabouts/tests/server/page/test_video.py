"""The page of a video: its whole time line, its words beside it, and films that no browser plays."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.server.page.test_page import expect, open_first, search, standing

pytestmark = pytest.mark.slow


def moment_of(page: Any) -> tuple[float, float]:
    given = dict(re.findall(r"[?&]([se])=([\d.]+)", page.url))
    return float(given["s"]), float(given["e"])


def test_words_stand_beside_the_picture_at_full_height(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 868})
    open_first(page, address, "space telescope")
    expect(page.locator(".cue").first).to_be_visible()
    screen, words = page.locator("#screen").bounding_box(), page.locator("#cue-list").bounding_box()
    assert words["x"] >= screen["x"] + screen["width"]
    assert words["y"] < screen["y"] + 120
    assert words["height"] > 500


def test_selected_words_are_the_moment(page: Any, address: str) -> None:
    open_first(page, address, "space telescope")
    texts = page.locator(".cue-text")
    expect(texts.nth(2)).to_be_visible()
    first, third = texts.nth(0).bounding_box(), texts.nth(2).bounding_box()
    page.mouse.move(first["x"] + 4, first["y"] + first["height"] / 2)
    page.mouse.down()
    page.mouse.move(third["x"] + 30, third["y"] + third["height"] / 2, steps=6)
    page.mouse.up()
    expect(page.locator(".cue.inside")).to_have_count(3)
    assert moment_of(page) == (0.21, 12.47)


def test_passages_are_made_the_moment_by_the_keyboard(page: Any, address: str) -> None:
    open_first(page, address, "space telescope")
    page.locator(".cue-time").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowDown")
    expect(page.locator(".cue.inside")).to_have_count(2)
    assert moment_of(page) == (4.26, 12.47)


def test_words_are_found_in_the_transcript(page: Any, address: str) -> None:
    open_first(page, address, "space telescope")
    expect(page.locator(".cue").first).to_be_visible()
    page.keyboard.press("f")
    page.keyboard.type("SPACE")
    expect(page.locator("#cue-found")).to_have_text("2 passages")
    expect(page.locator(".cue.has")).to_have_count(2)
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator("#cue-found")).to_have_text("2 of 2")
    assert abs(page.evaluate("() => document.querySelector('#screen video').currentTime") - 8.35) < 0.1
    page.keyboard.press("Escape")
    expect(page.locator(".cue.has")).to_have_count(0)
    expect(page.locator("#player")).to_be_visible()


@pytest.mark.parametrize(
    ("label", "starts"), [("Subtitles (SRT)", "1\n00:00:00,210 --> "), ("Text", "NAR: This")]
)
def test_the_words_are_downloaded(page: Any, address: str, tmp_path: Path, label: str, starts: str) -> None:
    open_first(page, address, "space telescope")
    page.locator("#cue-save summary").click()
    with page.expect_download() as given:
        page.get_by_role("link", name=label).click()
    given.value.save_as(tmp_path / "words")
    assert (tmp_path / "words").read_text(encoding="utf-8").startswith(starts)
    assert given.value.suggested_filename.startswith("nasa_13013.")


def test_the_whole_video_is_on_one_line_with_all_hits_of_the_search(page: Any, address: str) -> None:
    open_first(page, address, "space telescope")
    hits = page.locator("#overview .hit")
    expect(hits.first).to_be_visible()
    assert hits.count() >= 3
    page.wait_for_function(
        "() => [...document.querySelectorAll('.strip img')].filter((i) => i.naturalWidth).length >= 5"
    )
    before = moment_of(page)
    hits.nth(1).click()
    expect(page).not_to_have_url(re.compile(f"s={before[0]:.3f}"))
    standing(page)
    box = page.locator("#overview").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.97, box["y"] + 5)
    page.wait_for_function("() => document.querySelector('#screen video').currentTime > 11")


def test_frames_and_speed(page: Any, address: str) -> None:
    open_first(page, address, "space telescope")
    standing(page)
    now = "() => document.querySelector('#screen video').currentTime"
    before = page.evaluate(now)
    page.get_by_role("button", name="One frame on").click()
    page.wait_for_function(f"() => Math.abs(({now})() - {before} - 0.04) < 0.025")
    page.keyboard.press(">")
    expect(page.locator("#speed")).to_have_value("1.25")
    assert page.evaluate("() => document.querySelector('#screen video').playbackRate") == 1.25
    page.locator("#speed").select_option("0.5")
    assert page.evaluate("() => document.querySelector('#screen video').playbackRate") == 0.5


def test_a_film_that_no_browser_plays_is_made_playable(page: Any, address: str) -> None:
    search(page, address, "burrow under the hedge")
    page.locator(".card-link", has_text="rabbits").first.click()
    expect(page.locator("#unplayable")).to_be_visible()
    page.get_by_role("button", name="Make it playable").click()
    page.wait_for_function("() => document.querySelector('#screen.clip video')?.videoWidth > 0")
    page.keyboard.press("Space")
    expect(page.locator("#play-label")).to_have_text("Pause")
