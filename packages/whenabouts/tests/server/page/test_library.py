"""The library on the page: sort, filter and select among 3,000 videos."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from tests.server.page.test_page import PHONE, expect, no_sideways, search, too_small, until

from whenabouts.corpus import Corpus
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store

pytestmark = pytest.mark.slow

Serving = Callable[..., AbstractContextManager[str]]
MANY = 3000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 3000 talks in six folders, without files."""
    place = tmp_path_factory.mktemp("many") / "many.corpus"
    store = Store.open(place, create=True)
    store.add_stream(StreamInfo("subtitle", "words", "a", 0))
    store.put_videos(
        (
            VideoRecord(
                f"talk_{number}-{number:08x}",
                str(place.parent / f"{2020 + number % 3}" / f"part {number % 2}" / f"talk {number}.vtt"),
                kind="transcript",
                title=f"Talk {number}",
                duration=60.0 + number,
                words="file",
                streams={"subtitle": "a"},
                metadata={"language": ("en", "de")[number % 2], "room": ("hall", "lab", "roof")[number % 3]},
            ),
            {"subtitle": ClipColumns(np.zeros(1), np.ones(1), text=[f"the harbour at dawn {number}"])},
        )
        for number in range(MANY)
    )
    return place


@pytest.fixture(scope="module")
def wall(many: Path, tmp_path_factory: pytest.TempPathFactory, serving: Serving) -> Iterator[str]:
    """The address of the page of the 3000 talks."""
    with serving(Corpus(many), tmp_path_factory.mktemp("cache")) as address:
        yield address


def titles(page: Any) -> list[str]:
    """The titles of the cards in the page, in their order."""
    return [str(text) for text in page.locator("#library .card-title").all_inner_texts()]


def opened(page: Any, address: str) -> Any:
    page.goto(address)
    expect(page.locator("#library .card-link").first).to_be_visible()
    return page


@pytest.fixture
def page(open_tab: Callable[..., Any], wall: str) -> Any:
    """A tab with the 3000 talks."""
    return opened(open_tab(wall), wall)


def test_only_the_cards_in_sight_are_in_the_page_and_all_can_be_reached(page: Any) -> None:
    expect(page.locator("#answer")).to_have_text(f"Search {MANY} videos")
    assert titles(page)[:3] == ["Talk 0", "Talk 1", "Talk 2"], "2 before 10"
    assert page.locator("#library li.card").count() < 60
    page.evaluate("() => scrollTo(0, document.documentElement.scrollHeight)")
    expect(page.locator("#library .card-title", has_text=f"Talk {MANY - 1}")).to_be_visible()
    assert page.locator("#library li.card").count() < 60
    last = page.locator("#library li.card").last
    assert (last.get_attribute("aria-posinset"), last.get_attribute("aria-setsize")) == (f"{MANY}", f"{MANY}")
    page.evaluate("() => scrollTo(0, document.documentElement.scrollHeight / 2)")
    until(page, lambda: "Talk 1500" in titles(page))


def test_keys_go_from_card_to_card_and_to_the_end(page: Any) -> None:
    page.locator("#library .card-link").first.focus()
    for key, title in (
        ("ArrowRight", "Talk 1"),
        ("End", f"Talk {MANY - 1}"),
        ("ArrowLeft", f"Talk {MANY - 2}"),
    ):
        page.keyboard.press(key)
        expect(page.locator(".card-link:focus .card-title")).to_have_text(title)
    page.keyboard.press("Home")
    columns = page.evaluate("() => getComputedStyle(document.querySelector('.wall')).gridTemplateColumns")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".card-link:focus .card-title")).to_have_text(f"Talk {len(columns.split())}")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("v=talk_"))
    expect(page.locator("#library .card-link[aria-current]")).to_have_count(1)


def test_facts_narrow_the_list_and_the_search_after_it(page: Any) -> None:
    page.get_by_role("button", name="German 1500").click()
    expect(page.locator("#answer")).to_have_text(f"Search 1500 of {MANY} videos")
    page.get_by_role("button", name="roof 500").click()
    expect(page.locator("#answer")).to_have_text(f"Search 500 of {MANY} videos")
    chosen = page.locator(".facet", has_text="German")
    expect(chosen).to_have_attribute("aria-pressed", "true")
    page.get_by_role("searchbox").fill("harbour")
    page.keyboard.press("Enter")
    expect(page.locator("#cards .card-link").first).to_be_visible()
    numbers = [int(text.split()[-1]) for text in page.locator("#cards .card-title").all_inner_texts()]
    assert numbers and all(number % 2 == 1 and number % 3 == 2 for number in numbers)
    # A chip removes its condition, here and in the list.
    page.get_by_role("button", name="No longer only room: roof").click()
    page.get_by_role("button", name="No longer only German").click()
    expect(page.locator("#scope")).to_be_hidden()


def test_dates_narrow_the_list_without_a_search(page: Any) -> None:
    page.goto(f"{page.url}?after=1969-01-01&before=2000-01-01")
    expect(page.locator("#answer")).to_have_text(f"Search {MANY} videos")
    expect(page.get_by_role("button", name="roof 1000")).to_be_visible()
    page.goto(page.url.replace("1969", "1999"))
    expect(page.locator("#answer")).to_have_text(f"Search 0 of {MANY} videos")
    expect(page.locator(".facet", has_text="roof")).to_have_count(0)


@pytest.mark.parametrize("state", ["fine", "unreadable"])
def test_the_card_of_a_file_that_was_never_indexed_has_no_date(page: Any, state: str) -> None:
    card = """async (state) => (await import("./static/results.js")).videoCard({
      state, video_id: "a", title: "a",
      streams: [], indexed: "1970-01-01T00:00:00+00:00"}, "#").textContent"""
    assert ("indexed 1970-01-01" in page.evaluate(card, state)) == (state == "fine")


def test_folders_lead_down_and_crumbs_lead_up(page: Any, many: Path) -> None:
    page.get_by_role("button", name="2021 1000").click()
    expect(page.locator("#answer")).to_have_text(f"Search 1000 of {MANY} videos")
    page.get_by_role("button", name="part 1 500").click()
    expect(page.locator(".crumbs")).to_have_text(f"{many.parent.name}›2021›part 1")
    page.go_back()
    expect(page.locator("#answer")).to_have_text(f"Search 1000 of {MANY} videos")
    page.locator(".crumbs").get_by_role("button", name=many.parent.name).click()
    expect(page.locator("#answer")).to_have_text(f"Search {MANY} videos")


def test_the_order_is_chosen_and_stays_in_the_address(page: Any) -> None:
    page.get_by_label("Sort").select_option("Longest first")
    until(page, lambda: titles(page)[:1] == [f"Talk {MANY - 1}"])
    page.reload()
    until(page, lambda: titles(page)[:1] == [f"Talk {MANY - 1}"])
    expect(page.get_by_label("Sort")).to_have_value("-length")


def test_chosen_videos_are_those_that_are_searched(page: Any) -> None:
    for number in (1, 2):
        page.get_by_label(f"Choose Talk {number}", exact=True).check()
    page.get_by_role("button", name="Search only these").click()
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("harbour")
    page.keyboard.press("Enter")
    expect(page.locator("#cards .card-title")).to_have_count(2)
    assert sorted(page.locator("#cards .card-title").all_inner_texts()) == ["Talk 1", "Talk 2"]
    assert parse_qs(urlsplit(page.url).query)["within"] == ["talk_1-00000001 | talk_2-00000002"]
    page.get_by_role("button", name="No longer only 2 chosen videos").click()
    until(page, lambda: page.locator("#cards .card-title").count() > 2)


def test_a_result_says_where_its_file_lies(open_tab: Callable[..., Any], address: str, videos: Path) -> None:
    page = open_tab()
    search(page, address, "crown jewels")
    path = page.locator("#cards .card .path").first
    expect(path).to_have_text(f"…/{'/'.join([*videos.parts[-2:], 'friday.mp4'])}")
    assert path.get_attribute("title") == str(videos / "friday.mp4")


def test_a_file_that_was_moved_is_found_again(
    open_tab: Callable[..., Any], serving: Serving, samples: Path, tmp_path: Path
) -> None:
    films = tmp_path / "films"
    films.mkdir()
    shutil.copy(samples / "friday.mp4", films)
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    corpus.add(films, processes=1)
    (films / "friday.mp4").rename(films / "hildy.mp4")
    with serving(corpus, tmp_path / "cache") as address:
        page = opened(open_tab(address), address)
        page.get_by_role("button", name="friday: file gone, how to mend it").click()
        dialog = page.get_by_role("dialog", name="friday: file gone")
        expect(dialog.locator("code").first).to_have_text(
            f"whenabouts relocate FOLDER --corpus {tmp_path / 'my.corpus'}"
        )
        page.watched.expected.append("400")
        dialog.get_by_label("The file is now at").fill(str(films / "nothing.mp4"))
        dialog.get_by_role("button", name="Use this file").click()
        expect(dialog.get_by_role("status")).to_contain_text("No such file")
        dialog.get_by_label("The file is now at").fill(str(films / "hildy.mp4"))
        dialog.get_by_role("button", name="Use this file").click()
        expect(dialog).to_have_count(0)
        expect(page.locator(".mark-state")).to_have_count(0)
        page.goto("about:blank")


def test_on_a_phone_facts_are_behind_a_button(open_tab: Callable[..., Any], wall: str) -> None:
    page = opened(open_tab(wall, **PHONE), wall)
    assert no_sideways(page) and not too_small(page)
    expect(page.get_by_role("button", name="German")).to_be_hidden()
    page.get_by_text("Narrow", exact=True).tap()
    assert no_sideways(page) and not too_small(page)
    page.get_by_role("button", name="German").tap()
    expect(page.locator("#answer")).to_have_text(f"Search 1500 of {MANY} videos")
    page.get_by_label("Choose Talk 1", exact=True).tap()
    assert no_sideways(page) and not too_small(page)


def test_a_list_that_cannot_be_read_says_so_and_is_asked_for_again(page: Any) -> None:
    page.watched.expected.append("500")
    error = {"error": {"code": "internal", "message": "a fault of the server", "field": None}}
    page.route("**/api/videos?*", lambda route: route.fulfill(status=500, json=error))
    page.evaluate("() => scrollTo(0, document.documentElement.scrollHeight)")
    trouble = page.get_by_role("alert").filter(has_text="a fault of the server")
    expect(trouble).to_be_in_viewport()
    page.unroute("**/api/videos?*")
    trouble.get_by_role("button", name="Try again").click()
    expect(trouble).to_have_count(0)
    expect(page.locator("#library .card-title", has_text=f"Talk {MANY - 1}")).to_be_visible()
