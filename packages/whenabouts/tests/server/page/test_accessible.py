"""Accessibility: every screen passes axe, and nothing moves if the user prefers reduced motion."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.server.page.axe import faults
from tests.server.page.test_page import PAGE, answered, error_of, expect, open_first, search

from whenabouts.corpus import Corpus
from whenabouts.types import Answer
from whenabouts.workplace.guests import Guests

pytestmark = pytest.mark.slow
Serving = Callable[..., AbstractContextManager[str]]
SOON = 120_000


def test_the_library_and_its_filters_and_keys(page: Any, address: str) -> None:
    page.goto(address)
    expect(page.locator(".card-link").first).to_be_visible()
    assert not faults(page)
    page.locator("#filters > summary").click()
    page.locator(".narrow").evaluate("(details) => { details.open = true; }")
    expect(page.locator(".facet").first).to_be_visible()
    page.locator(".choose input").first.check()
    expect(page.locator(".chosen-bar").first).to_be_visible()
    assert not faults(page)
    page.locator("#answer").click()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    assert not faults(page)


@pytest.mark.parametrize("answer", ["match", "unsure", "no_match"])
def test_results(page: Any, address: str, answer: Answer) -> None:
    answered(page, error_of(answer, [0.97, 0.5, 0.1, 0.1, 0.1], notes=["a note"]))
    search(page, address, "words")
    if page.locator("#tail").is_visible():
        page.locator("#tail > summary").click()
    page.locator("#reasons-open").click()
    assert not faults(page)


def test_chips_of_what_was_understood_and_a_list_by_videos(page: Any, address: str) -> None:
    search(page, address, "the first time space telescope")
    expect(page.locator("#understood .chip").first).to_be_visible()
    page.locator("#understood .chip").first.click()
    expect(page.locator("#understood .chip.literal").first).to_be_visible()
    page.keyboard.press("g")
    assert not faults(page)


def test_a_fault_with_its_remedy(page: Any, address: str) -> None:
    page.watched.expected.append("507")
    error = {"error": {"code": "disk_full", "message": "no space is left", "field": None}}
    page.route("**/api/search?*", lambda route: route.fulfill(status=507, json=error))
    search(page, address, "words")
    expect(page.locator("#fault")).to_be_visible()
    assert not faults(page)


def test_a_video(page: Any, address: str, ids: dict[str, str]) -> None:
    open_first(page, address, "crown jewels")
    page.keyboard.press("w")
    expect(page.locator("#why-title")).to_be_visible()
    assert not faults(page)
    for menu in ("#export", "#collect", "#cue-save"):
        page.locator(f"{menu} > summary").click()
        assert not faults(page)
    page.goto(f"{address}?v={ids['rabbits.avi']}")
    expect(page.locator("#play-clip")).to_be_visible()
    assert not faults(page)


@pytest.fixture
def alone(corpus: Corpus, tmp_path: Path) -> Corpus:
    """A corpus whose collections only this file changes."""
    shutil.copytree(corpus.location, tmp_path / "alone.corpus")
    return Corpus(tmp_path / "alone.corpus")


def test_collections(open_tab: Callable[..., Any], alone: Corpus, tmp_path: Path, serving: Serving) -> None:
    with serving(alone, tmp_path / "cache") as at:
        check_collections(open_tab(at), at)


def check_collections(page: Any, address: str) -> None:
    open_first(page, address, "crown jewels")
    page.keyboard.press("b")
    expect(page.locator("#message")).to_contain_text("now.")
    page.get_by_role("button", name="Save search").click()
    page.get_by_role("link", name="Collections").click()
    expect(page.locator(".shelf").first).to_be_visible()
    assert not faults(page)
    page.locator(".shelf").first.click()
    expect(page.locator(".clip").first).to_be_visible()
    assert not faults(page)
    page.get_by_label("Choose moment 1").check()
    expect(page.get_by_role("form", name="Chosen moments")).to_be_visible()
    assert not faults(page)
    page.get_by_role("button", name="Play through").click()
    expect(page.get_by_role("dialog", name="Play through")).to_be_visible()
    assert not faults(page)


def test_the_empty_page_and_adding(
    open_tab: Callable[..., Any], samples: Path, tmp_path: Path, serving: Serving
) -> None:
    films = tmp_path / "films"
    films.mkdir()
    for name in ("friday.mp4", "friday.vtt"):
        shutil.copy(samples / name, films)
    (films / "broken.mp4").write_bytes(b"no film" * 100)
    corpus = Corpus(tmp_path / "c.corpus", create=True)
    with serving(corpus, tmp_path / "cache", allow=(films,)) as at:
        page = open_tab(at)
        page.goto(at)
        expect(page.get_by_role("link", name="Add a folder")).to_be_visible()
        assert not faults(page)
        page.get_by_role("link", name="Add a folder").click()
        page.get_by_role("button", name="Plan this whole folder").click()
        expect(page.locator(".job.planned .plan")).to_be_visible(timeout=SOON)
        assert not faults(page)
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator(".job.done")).to_be_visible(timeout=SOON)
        expect(page.locator(".failed").first).to_be_visible()
        assert not faults(page)


def test_the_page_of_a_guest(
    open_tab: Callable[..., Any], corpus: Corpus, tmp_path: Path, serving: Serving
) -> None:
    guests = Guests(tmp_path / "friends.json")
    token = guests.add("Ada")
    with serving(corpus, tmp_path / "cache", token="a-token-that-is-long-enough", guests=guests.path) as at:
        page = open_tab(at)
        open_first(page, f"{at}?token={token}", "crown jewels")
        expect(page.locator("#guest")).to_have_text("Ada")
        assert not faults(page)


def test_axe_finds_what_is_planted(page: Any, address: str) -> None:
    page.goto(address)
    expect(page.locator(".card-link").first).to_be_visible()
    page.evaluate(
        "() => { document.querySelector('#answer').style.color = '#999';"
        " document.querySelector('main').append(document.createElement('button')); }"
    )
    found = {fault.split()[0] for fault in faults(page)}
    assert found == {"button-name", "color-contrast"}


# The selectors of all active style rules that move something.
MOVING = """async (names) => {
  const load = (name) => new Promise((loaded) => {
    const link = Object.assign(document.createElement('link'), {rel: 'stylesheet', href: `static/${name}`});
    link.addEventListener('load', loaded);
    document.head.append(link);
  });
  await Promise.all(names.map(load));
  const moves = ({style}) => style && (style.scrollBehavior === 'smooth'
    || [style.transitionProperty, style.animationName].some((name) => !['', 'none'].includes(name)));
  const walk = (rules) => [...rules].flatMap((rule) => {
    if (rule.media && !matchMedia(rule.media.mediaText).matches) return [];
    return [...(moves(rule) ? [rule.selectorText] : []), ...walk(rule.cssRules ?? [])];
  });
  return [...new Set([...document.styleSheets].flatMap((sheet) => walk(sheet.cssRules)))];
}"""


@pytest.mark.parametrize(("motion", "moving"), [("reduce", []), ("no-preference", [".ghost"])])
def test_style_sheets_move_nothing_where_motion_is_not_wanted(
    open_tab: Callable[..., Any], address: str, motion: str, moving: list[str]
) -> None:
    page = open_tab(reduced_motion=motion)
    page.goto(address)
    assert page.evaluate(MOVING, sorted(file.name for file in PAGE.glob("*.css"))) == moving


@pytest.mark.parametrize(("motion", "plays"), [("reduce", 0), ("no-preference", 1)])
def test_a_card_plays_under_the_mouse_only_where_motion_is_wanted(
    open_tab: Callable[..., Any], address: str, motion: str, plays: int
) -> None:
    page = open_tab(reduced_motion=motion)
    search(page, address, "crown jewels")
    page.locator(".card-link").first.hover()
    page.wait_for_timeout(600)  # a pointer that only passes starts nothing
    expect(page.locator(".preview")).to_have_count(plays)
