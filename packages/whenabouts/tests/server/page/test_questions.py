"""Interpreted questions as chips on the page, and the latest searches of a browser."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from tests.server.page.conftest import HOSTILE_NAME
from tests.server.page.test_page import answered, error_of, expect, search

pytestmark = pytest.mark.slow

QUESTION = 'the first time "crown jewels" in friday.mp4'


def chips(page: Any) -> Any:
    return page.locator("#understood button")


def literal_of(page: Any) -> list[str]:
    return parse_qs(urlsplit(page.url).query).get("literal", [])


def test_what_was_understood_is_shown_and_taken_away_by_click_and_key(page: Any, address: str) -> None:
    asked = []
    page.on("request", lambda r: asked.append(r.url) if "/api/search?" in r.url else None)
    search(page, address, QUESTION)
    expect(chips(page)).to_have_text(["first×", "in: friday×"])
    expect(page.locator(".card .quote mark, .card .evidence mark").first).to_be_visible()
    expect(page.locator("#line")).to_have_text(re.compile("^1 of 6 videos searched"))
    chips(page).nth(1).click()
    expect(chips(page)).to_have_text(["first×", "in: as words↺"])
    assert literal_of(page) == ["in"]
    assert parse_qs(urlsplit(asked[-1]).query)["literal"] == ["in"]
    expect(chips(page).nth(1)).to_be_focused()
    page.locator("#results").focus()
    page.keyboard.press("u")
    expect(chips(page).first).to_be_focused()
    page.keyboard.press("Delete")
    expect(chips(page)).to_have_text(["in: as words↺", "first: as words↺"])
    assert literal_of(page) == ["in,first"]
    page.reload()
    expect(chips(page)).to_have_text(["in: as words↺", "first: as words↺"])
    chips(page).first.press("Enter")
    expect(chips(page)).to_have_text(["in: friday×", "first: as words↺"])
    page.go_back()
    expect(chips(page)).to_have_text(["in: as words↺", "first: as words↺"])


def test_another_spelling_is_searched_by_a_click(page: Any, address: str) -> None:
    search(page, address, "crown jewles")
    page.get_by_role("button", name="Did you mean “crown jewels”?").click()
    expect(page.get_by_role("searchbox")).to_have_value("crown jewels")
    expect(page.locator("#answer")).to_have_text("Said here")
    expect(page.locator("#spelling")).to_be_hidden()


def test_a_video_whose_name_has_the_words_opens_by_a_click(page: Any, address: str) -> None:
    search(page, address, "friday")
    page.locator("#titled a").click()
    expect(page.locator("#player")).to_be_visible()
    assert parse_qs(urlsplit(page.url).query)["v"][0].startswith("friday-")


def test_another_question_is_understood_anew(page: Any, address: str) -> None:
    page.goto(f"{address}?q={quote(QUESTION)}&literal=in,first,strange")
    page.watched.expected.append("400")
    expect(page.locator("#fault")).to_be_visible()  # a rule of that name is refused by the server
    page.goto(f"{address}?q={quote(QUESTION)}&literal=first")
    expect(chips(page)).to_have_text(["in: friday×", "first: as words↺"])
    page.get_by_role("searchbox").fill('"crown jewels" in friday.mp4')
    page.keyboard.press("Enter")
    expect(chips(page)).to_have_text(["in: friday×"])
    page.get_by_role("searchbox").fill("crown jewels")
    page.keyboard.press("Enter")
    expect(page.locator("#understood")).to_be_hidden()
    page.locator("#results").focus()
    page.keyboard.press("u")  # nothing to go to
    expect(page.locator("#results")).to_be_focused()


def test_names_in_chips_are_text(page: Any, address: str) -> None:
    search(page, address, f"boats leave in the video called {HOSTILE_NAME}")
    expect(chips(page)).to_have_text([f"in: {HOSTILE_NAME}×"])
    expect(page.locator("#understood img, #understood script")).to_have_count(0)


def test_the_other_event_of_a_pair_is_named_on_the_card(page: Any, address: str) -> None:
    answer = error_of("match", [0.96])
    answer["data"][0]["partner"] = {"start": 0.25, "end": 0.5}
    answer |= {"understood": [{"name": "after", "label": 'after: "x"'}], "words": "said"}
    answered(page, answer)
    search(page, address, '"said" after "x"')
    expect(page.locator(".card .partner")).to_have_text("after 0:00.3 – 0:00.5")
    expect(page.locator(".card mark")).to_have_text(["said"])


def test_a_chip_fits_a_narrow_page(open_tab: Any, address: str) -> None:
    page = open_tab(viewport={"width": 390, "height": 844})
    search(page, address, f"boats leave in the video called {HOSTILE_NAME}")
    expect(chips(page)).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def past(page: Any) -> Any:
    return page.locator("#past a")


def searched(page: Any, *queries: str) -> None:
    for query in queries:
        page.get_by_role("searchbox").fill(query)
        page.get_by_role("button", name="Search", exact=True).click()
        expect(page.locator("#results")).to_have_attribute("data-answer", re.compile("."))


def kept(page: Any) -> list[str]:
    stored = page.evaluate("localStorage.getItem('whenabouts searches /')")
    return [question["q"] for question in json.loads(stored or "[]")]


def test_earlier_searches_are_reached_by_key_from_an_empty_box(page: Any, address: str) -> None:
    page.goto(address)
    searched(page, "crown jewels", "space telescope", "crown jewels")
    page.goto(address)
    page.get_by_role("searchbox").press("ArrowDown")
    expect(past(page)).to_have_text(["crown jewels", "space telescope"])
    expect(past(page).first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(past(page).nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"\?q=space\+telescope$"))
    expect(page.locator("#past")).to_be_hidden()
    expect(page.locator(".card-link").first).to_be_focused()


def test_a_list_that_comes_late_does_not_take_the_focus_of_a_search(page: Any, address: str) -> None:
    held: list[Any] = []
    for path in ("stats", "search?*"):
        page.route(f"**/api/{path}", lambda route: held.append(route))
    page.goto(address)
    page.get_by_role("searchbox").fill("crown jewels")
    expect(page.locator("#library .card-link").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_have_text("Searching…")
    with page.expect_response("**/api/stats"):
        held[0].continue_()
    page.wait_for_timeout(200)
    held[1].continue_()
    expect(page.locator(".card-link").first).to_be_focused()


def test_earlier_searches_are_forgotten_one_by_one_and_all_at_once(page: Any, address: str) -> None:
    page.goto(address)
    searched(page, "crown jewels", "space telescope", "harbour")
    page.goto(address)
    box = page.get_by_role("searchbox")
    box.click()
    expect(past(page)).to_have_text(["harbour", "space telescope", "crown jewels"])
    box.press("ArrowDown")
    page.keyboard.press("Delete")
    expect(past(page)).to_have_text(["space telescope", "crown jewels"])
    expect(past(page).first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(box).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    expect(page.locator("#past")).to_be_hidden()
    expect(box).to_be_focused()
    box.press("ArrowDown")
    page.get_by_role("button", name="Clear all").click()
    expect(page.locator("#past")).to_be_hidden()
    assert kept(page) == []
    box.press("ArrowDown")  # nothing is kept: to the videos, as ever
    expect(page.locator(".card-link").first).to_be_focused()


def test_typing_closes_the_list_and_filters_are_kept_with_a_search(page: Any, address: str) -> None:
    page.goto(f"{address}?q=crown+jewels&min=20&literal=first")
    expect(page.locator("#results")).to_have_attribute("data-answer", re.compile("."))
    page.goto(address)
    page.get_by_role("searchbox").click()
    expect(past(page)).to_have_text(["crown jewels min: 20, literal: first"])
    page.get_by_role("searchbox").press("c")
    expect(page.locator("#past")).to_be_hidden()
    page.get_by_role("searchbox").fill("")
    page.get_by_role("searchbox").press("ArrowDown")
    past(page).first.click()
    expect(page).to_have_url(re.compile(r"q=crown\+jewels&min=20&literal=first$"))


def test_fifty_searches_are_kept_and_nothing_else_is_believed(page: Any, address: str) -> None:
    page.goto(address)
    many = [{"q": f"search {number}"} for number in range(60)]
    strange = [None, 5, {"q": ""}, {"q": 3}, {"q": "x", "min": {}}, {"q": "<img src=x onerror=hacked()>"}]
    for value in (json.dumps([*strange, *many]), "no json", '{"q": 1}'):
        page.evaluate("(value) => localStorage.setItem('whenabouts searches /', value)", value)
        searched(page, "crown jewels")
        page.goto(address)
        page.get_by_role("searchbox").press("ArrowDown")
        expect(past(page).first).to_have_text("crown jewels")
        assert len(kept(page)) == (50 if value.startswith("[") else 1)
    page.keyboard.press("Escape")


def test_a_guest_has_no_history(page: Any, address: str) -> None:
    page.goto(address)
    searched(page, "crown jewels")
    page.goto(address)
    assert kept(page) == ["crown jewels"]
    page.evaluate("document.getElementById('guest').hidden = false")
    searched(page, "space telescope")
    page.get_by_role("searchbox").fill("")
    page.get_by_role("searchbox").press("ArrowDown")
    expect(page.locator("#past")).to_be_hidden()
    page.goto(address)
    assert kept(page) == ["crown jewels"]
