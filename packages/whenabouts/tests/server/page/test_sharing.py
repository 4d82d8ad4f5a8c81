"""Links to a search, a moment and a collection; the page for guests and behind a reverse proxy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.server.page.test_page import expect, open_first, parameters_of, search, standing, until
from tests.server.reverse_proxy import proxied

from whenabouts.corpus import Corpus
from whenabouts.workplace.guests import Guests

pytestmark = pytest.mark.slow
TOKEN = "a-token-that-is-long-enough"
COPIES = {"permissions": ["clipboard-read", "clipboard-write"]}


@pytest.fixture(scope="module")
def place(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus that only this file uses, with a collection of one moment."""
    folder = tmp_path_factory.mktemp("shared")
    shutil.copytree(corpus.location, folder / "c.corpus")
    own = Corpus(folder / "c.corpus")
    friday = next(video.id for video in own.videos() if video.path.endswith("friday.mp4"))
    own.collections.add("film", [own.moment(f"{friday}@1-2")], create=True)
    return folder / "c.corpus"


@pytest.fixture
def guests(tmp_path: Path) -> Guests:
    made = Guests(tmp_path / "friends.json")
    made.add("nobody here")
    return made


@pytest.fixture
def guarded(place: Path, guests: Guests, tmp_path: Path, serving: Any) -> Iterator[str]:
    with serving(
        Corpus(place), tmp_path / "cache", token=TOKEN, guests=guests.path, change_people=True
    ) as at:
        yield at


def copied(page: Any) -> str:
    return str(page.evaluate("() => navigator.clipboard.readText()"))


def test_a_search_is_shared_with_its_filters(open_tab: Callable[..., Any], address: str) -> None:
    page = open_tab(**COPIES)
    page.goto(f"{address}?q=crown+jewels&stream=subtitle&min=20")
    expect(page.locator(".card-link").first).to_contain_text("friday")
    page.get_by_role("button", name="Copy search link").click()
    expect(page.locator("#copy-search")).to_have_text("Link copied")
    link = copied(page)
    expect(page.locator("#copy-search")).to_have_text("Copy search link")
    assert link == page.url
    other = open_tab(at=address)
    other.goto(link)
    expect(other.locator(".card-link").first).to_contain_text("friday")
    expect(other.locator("#stream")).to_have_value("subtitle")


def test_one_key_copies_a_link_to_what_is_open(
    open_tab: Callable[..., Any], address: str, place: Path
) -> None:
    page = open_tab(**COPIES)
    search(page, address, "crown jewels")
    page.locator(".card-link").first.focus()
    page.keyboard.press("c")
    expect(page.locator("#live")).to_have_text("Link copied.")
    assert copied(page) == page.url
    open_first(page, address, "crown jewels")
    page.keyboard.press("c")
    expect(page.locator("#message")).to_have_text("Link copied.")
    assert copied(page) == page.url and "&s=" in page.url
    page.get_by_role("button", name="Copy search link").click()
    expect(page.locator("#live")).to_have_text("Link copied.")
    until(page, lambda: copied(page) == f"{address}?q=crown+jewels")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_contain_text("copy a link to the moment, the search or the collection")


def test_a_link_that_the_browser_does_not_copy_is_shown(page: Any, address: str) -> None:
    search(page, address, "crown jewels")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    page.get_by_role("button", name="Copy search link").click()
    dialog = page.get_by_role("dialog", name="The link")
    expect(dialog.get_by_label("The link")).to_have_value(page.url)
    assert page.evaluate("() => getSelection().toString() || document.activeElement.value") == page.url
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_picture_is_in_no_link(page: Any, address: str, samples: Path) -> None:
    page.goto(address)
    page.watched.expected.append("400")
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    page.evaluate(
        "(data) => { const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));"
        "const given = new DataTransfer(); given.items.add(new File([bytes], 'a.png', {type: 'image/png'}));"
        "document.dispatchEvent(new ClipboardEvent('paste', {clipboardData: given, bubbles: true})); }",
        png,
    )
    expect(page.locator("#example")).to_be_visible()
    expect(page.locator("#copy-search")).to_be_hidden()


def test_a_guest_who_reads_sees_collections_and_cannot_change_them(
    open_tab: Callable[..., Any], guarded: str, guests: Guests
) -> None:
    page = open_tab(guarded, **COPIES)
    open_first(page, f"{guarded}?token={guests.add('Ada')}", "crown jewels")
    expect(page.locator("#guest")).to_have_text("Ada")
    expect(page.locator("#collect")).to_be_hidden()
    expect(page.locator("#save-search")).to_be_hidden()
    page.keyboard.press("b")
    expect(page.locator("#message")).to_have_text("")
    page.keyboard.press("?")
    expect(page.locator("#keys")).not_to_contain_text(
        "put the moment into the collection", use_inner_text=True
    )
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Collections").click()
    expect(page.get_by_label("Name of a new collection")).to_be_hidden()
    page.locator(".shelf", has=page.get_by_text("film", exact=True)).click()
    note = page.get_by_label("note on moment 1")
    expect(note).to_have_attribute("readonly", "")
    for name in ("Delete…", "Take moment 1 out"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.locator(".handle")).to_be_hidden()
    page.keyboard.press("c")
    expect(page.locator("#live")).to_have_text("Link copied.")
    assert copied(page) == page.url and "c=" in page.url and "token" not in page.url
    page.get_by_role("button", name="Play through").click()
    expect(page.get_by_role("dialog", name="Play through")).to_contain_text("1 of 1")


def test_a_guest_who_collects_can(open_tab: Callable[..., Any], guarded: str, guests: Guests) -> None:
    page = open_tab(guarded)
    open_first(page, f"{guarded}?token={guests.add('Bo', ['collect'])}", "crown jewels")
    expect(page.locator("#guest")).to_have_text("Bo")
    expect(page.locator("#collect")).to_be_visible()
    expect(page.locator("#save-search")).to_be_visible()
    page.keyboard.press("b")
    expect(page.locator("#message")).to_contain_text("which has")


def test_the_owner_sees_no_guest(open_tab: Callable[..., Any], guarded: str) -> None:
    page = open_tab(guarded)
    search(page, f"{guarded}?token={TOKEN}", "crown jewels")
    expect(page.locator("#save-search")).to_be_visible()
    expect(page.locator("#guest")).to_be_hidden()


@pytest.mark.parametrize("strip", [True, False], ids=["stripped", "kept"])
def test_the_page_lives_below_a_path_of_a_proxy(
    place: Path, guests: Guests, tmp_path: Path, serving: Any, open_tab: Callable[..., Any], strip: bool
) -> None:
    settings: dict[str, Any] = {"token": TOKEN, "base_path": "/moments", "proxies": ("127.0.0.1",)}
    with serving(Corpus(place), tmp_path / "cache", **settings) as server:
        port = urlsplit(server).port
        forwarded = {"X-Forwarded-Host": "localhost:1", "Host": "videos.example.org"}
        with proxied(port or 0, "/moments", strip=strip) as at:
            asked: list[str] = []
            page = open_tab(at, **COPIES)
            page.on("request", lambda request: asked.append(urlsplit(request.url).path))
            search(page, f"{at}?token={TOKEN}", "crown jewels")
            assert page.url.startswith(at) and "token" not in page.url
            until(
                page, lambda: bool(page.evaluate("() => document.querySelector('.thumb img')?.naturalWidth"))
            )
            page.locator(".card-link").first.click()
            standing(page)
            page.keyboard.press("c")
            expect(page.locator("#message")).to_have_text("Link copied.")
            assert copied(page).startswith(f"{at}?q=crown+jewels&v=")
            page.reload()
            standing(page)
            page.get_by_role("link", name="Collections").click()
            page.locator(".shelf", has=page.get_by_text("film", exact=True)).click()
            expect(page.locator(".clip")).not_to_have_count(0)
            picture = "() => document.querySelector('.clip img')?.naturalWidth"
            until(page, lambda: bool(page.evaluate(picture)))
            page.get_by_role("button", name="Play through").click()
            video = page.locator("dialog video.on")
            until(page, lambda: bool(video.evaluate("(video) => video.readyState >= 1")))
            page.get_by_role("button", name="Close", exact=True).click()
            page.get_by_role("link", name="whenabouts, start page").click()
            expect(page.locator("#answer")).to_contain_text("Search")
            assert parameters_of(page) == {}
            assert {path for path in asked if not path.startswith("/moments/")} <= {"/favicon.ico"}
        with proxied(port or 0, "/moments", strip=strip, forwarded=forwarded) as at:
            page = open_tab(at)
            page.watched.expected.append("403")
            # If the proxy reports another host name than the browser's, requests count as cross-site.
            answer = page.request.post(
                f"{at}api/collections", data={"name": "x"}, headers={"Origin": "http://localhost"}
            )
            assert answer.status == 403
