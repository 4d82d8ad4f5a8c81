"""The layout of results: status line, grid, grouped copies and videos; played by mouse and keys."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.server.page.test_page import answered, error_of, expect, search

pytestmark = pytest.mark.slow


def test_one_line_says_what_was_searched_and_the_rest_is_behind_it(page: Any, address: str) -> None:
    search(page, address, "space telescope")
    expect(page.locator("#line")).to_have_text(re.compile(r"^5 of 6 videos searched$"))
    expect(page.locator("#reasons")).to_be_hidden()
    page.get_by_role("button", name="why?").click()
    expect(page.locator("#beneath")).to_be_visible()
    expect(page.locator("#beneath")).to_contain_text("pictures were not searched")
    first = page.locator(".card-link").first.bounding_box()
    page.get_by_role("button", name="why?").click()
    expect(page.locator("#reasons")).to_be_hidden()
    assert page.locator(".card-link").first.bounding_box()["y"] < first["y"]
    assert page.locator(".card-link").first.bounding_box()["y"] < 230


def test_copies_of_the_same_material_are_one_entry(page: Any, address: str) -> None:
    page.watched.expected.append("404")  # the videos of this answer are made up
    answer = error_of("match", [0.97, 0.96, 0.5])
    answer["data"][1]["text"] = answer["data"][0]["text"]
    answered(page, answer)
    search(page, address, "x")
    expect(page.locator("#cards > .card")).to_have_count(2)
    copy = page.locator(".card").first.get_by_role("link", name="Video 2", exact=True)
    expect(page.locator(".card").first).to_contain_text("also in")
    copy.click()
    expect(page).to_have_url(re.compile("v=video-2"))


def test_results_are_grouped_by_video_and_every_moment_stays_within_reach(page: Any, address: str) -> None:
    answer = error_of("unsure", [0.6, 0.5, 0.4])
    answer["data"][2] |= {"video_id": "video-1", "title": "Video 1", "start": 7.0, "end": 9.0}
    answered(page, answer)
    search(page, address, "x")
    expect(page.locator("#cards > .card")).to_have_count(3)
    page.keyboard.press("g")
    expect(page.locator("#cards > .card")).to_have_count(2)
    expect(page.locator(".card").first.locator(".chip")).to_have_text(["0:07.0"])
    expect(page).to_have_url(re.compile("by=video"))
    page.reload()
    expect(page.locator("#by-video")).to_have_attribute("aria-pressed", "true")
    page.locator("#by-video").click()
    expect(page.locator("#cards > .card")).to_have_count(3)


def test_a_card_without_a_picture_shows_its_words(page: Any, address: str) -> None:
    answered(page, error_of("match", [0.97]))
    search(page, address, "said")
    expect(page.locator(".card .quote")).to_have_text("words that are said")
    expect(page.locator(".card .quote mark")).to_have_text(["said"])
    expect(page.locator(".card .evidence")).to_have_count(0)


def test_words_that_carry_no_meaning_are_not_marked(page: Any, address: str) -> None:
    answered(page, error_of("match", [0.97]))
    search(page, address, "that you are words")
    expect(page.locator(".card mark")).to_have_text(["words"])


def test_a_mouse_that_stays_on_a_card_plays_its_moment_and_so_does_space(page: Any, address: str) -> None:
    search(page, address, "space telescope")
    card = page.locator(".card-link[data-preview]").first
    card.hover()
    expect(card.locator("video.preview.plays")).to_be_visible()
    start = float(card.get_attribute("data-preview").split("#t=")[1].split(",")[0])
    assert card.locator("video").evaluate("(video) => video.muted && video.currentTime") >= start - 0.1
    page.mouse.move(0, 0)
    expect(page.locator("video.preview")).to_have_count(0)
    card.focus()
    page.keyboard.press("Space")
    expect(card.locator("video.preview.plays")).to_be_visible()
    page.keyboard.press("Space")
    expect(page.locator("video.preview")).to_have_count(0)


def test_results_stay_when_the_server_is_gone(page: Any, address: str) -> None:
    search(page, address, "space telescope")
    number = page.locator("#cards > .card").count()
    page.watched.expected.append("ERR_CONNECTION_REFUSED")
    page.route("**/api/search?*", lambda route: route.abort("connectionrefused"))
    page.get_by_role("searchbox").fill("crown jewels")
    page.keyboard.press("Enter")
    expect(page.locator("#fault")).to_be_visible()
    expect(page.locator("#line")).to_have_text("These are still the results for “space telescope”.")
    expect(page.locator("#cards > .card")).to_have_count(number)
    page.unroute("**/api/search?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".card-link").first).to_contain_text("friday")
