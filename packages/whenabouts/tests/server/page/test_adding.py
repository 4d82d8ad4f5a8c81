"""Adding videos on the page: index into an empty corpus, search, watch, retry and remove."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.page.conftest import HOSTILE_NAME
from tests.server.page.test_page import expect, search, until

from whenabouts.corpus import Corpus

pytestmark = pytest.mark.slow
SOON = 120_000
WORDS = "WEBVTT\n\n00:00.000 --> 00:04.000\n{}\n"


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """Transcripts, one with a hostile name, a broken film, and a link that leads outside."""
    films = tmp_path / "films"
    (films / "below").mkdir(parents=True)
    (films / "lighthouse.vtt").write_text(WORDS.format("a lighthouse at dawn"))
    (films / "below" / f"{HOSTILE_NAME}.vtt").write_text(WORDS.format("boats leave the harbour"))
    (films / "below" / f"{HOSTILE_NAME}.mp4").write_bytes(b"no film" * 100)
    (films / "out").symlink_to(tmp_path)
    return films


@pytest.fixture
def desk(films: Path, tmp_path: Path, serving: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    """The address of the page of an empty corpus; its server may read the films."""
    corpus = Corpus(tmp_path / "c.corpus", create=True)
    with serving(corpus, tmp_path / "cache", allow=(films,)) as at:
        yield at


def indexed(page: Any, button: str) -> None:
    """Press a button that plans, check the plan, start it, and wait until the job is done."""
    page.get_by_role("button", name=button).click()
    page.get_by_role("button", name="Start", exact=True).click(timeout=SOON)
    expect(page.locator(".job").first).to_have_class("job done", timeout=SOON)


def test_from_an_empty_corpus_over_the_samples_to_a_search(
    open_tab: Callable[..., Any],
    samples: Path,
    tmp_path: Path,
    serving: Callable[..., AbstractContextManager[str]],
) -> None:
    corpus = Corpus(tmp_path / "c.corpus", create=True)
    with serving(corpus, tmp_path / "cache", allow=(samples,)) as at:
        page = open_tab(at)
        page.goto(at)
        expect(page.locator("#answer")).to_have_text("Nothing is in this corpus yet.")
        page.get_by_role("link", name="Add a folder").click()
        expect(page.locator("#adding-title")).to_be_focused()
        expect(page.locator("#crumbs [aria-current]")).to_have_text("videos")
        page.get_by_role("button", name="Plan this whole folder").click()
        plan = page.locator(".job.planned .plan")
        expect(plan).to_contain_text("8 to index of 8", timeout=SOON)
        for fact in ("Recordings", "about", "that are free", "words", "whenabouts models get"):
            expect(plan).to_contain_text(fact)
        assert corpus.videos() == []
        page.get_by_role("button", name="Start", exact=True).press("Enter")
        expect(page.locator(".job.running progress")).to_have_count(1, timeout=SOON)
        expect(page.locator(".job.done")).to_contain_text("8 added", timeout=SOON)
        # The queue outlives the page.
        page.reload()
        expect(page.locator(".job.done")).to_contain_text("8 added")
        page.get_by_role("searchbox").first.fill("space telescope")
        page.keyboard.press("Enter")
        expect(page.locator(".card-title").first).to_contain_text("nasa")
        expect(page.locator("#adding")).to_be_hidden()
        page.go_back()
        expect(page.locator(".job.done")).to_be_visible()


def test_files_are_chosen_failures_are_listed_and_tried_again(
    open_tab: Callable[..., Any], desk: str, films: Path, samples: Path
) -> None:
    page = open_tab(desk)
    page.goto(f"{desk}?a=all")
    expect(page.locator(".entry")).to_have_count(3)
    expect(page.locator(".entry", has_text="out")).to_contain_text("leads outside")
    assert page.locator(".entry", has_text="out").locator("a, input").count() == 0
    page.get_by_role("link", name="below/").click()
    page.get_by_label(f"Choose {HOSTILE_NAME}.mp4").check()
    page.get_by_label(f"Choose {HOSTILE_NAME}.vtt").check()
    indexed(page, "Plan what is chosen (2)")
    failed = page.locator(".job .failed li")
    expect(failed).to_contain_text(HOSTILE_NAME)
    expect(page.locator("#failures-label")).to_have_text("1 file of the corpus could not be read")
    shutil.copy(samples / "flower.webm", films / "below" / f"{HOSTILE_NAME}.mp4")
    page.get_by_role("button", name="Try failed files again").click()
    expect(page.locator(".job").first).to_have_class("job done", timeout=SOON)
    expect(page.locator(".job")).to_have_count(2)
    expect(page.locator("#failures")).to_be_hidden(timeout=SOON)
    page.get_by_role("button", name="Off the list").first.click()
    expect(page.locator(".job")).to_have_count(1)


def test_a_folder_is_watched_and_a_video_is_removed(
    open_tab: Callable[..., Any], desk: str, films: Path
) -> None:
    pytest.importorskip("watchfiles", reason="the extra watch is not installed")
    page = open_tab(desk)
    page.goto(f"{desk}?a=films")
    page.get_by_role("switch", name="Watch this folder").focus()
    page.keyboard.press("Space")
    watched = page.locator("#watched .job")
    expect(watched).to_contain_text("films")
    expect(watched).to_contain_text("added", timeout=SOON)
    page.reload()
    expect(page.get_by_role("switch", name="Watch this folder")).to_be_checked()
    search(page, desk, "lighthouse")
    page.locator(".card-link").first.click()
    asked: list[str] = []

    def answer(dialog: Any) -> None:
        asked.append(dialog.message)
        dialog.accept() if len(asked) > 1 else dialog.dismiss()

    page.on("dialog", answer)
    remove = page.get_by_role("button", name="Remove…")
    remove.click()
    expect(remove).to_be_visible()
    remove.click()
    expect(page.locator("#player")).to_be_hidden(timeout=SOON)
    assert (
        asked
        == ["Remove “lighthouse” from the corpus? Its file stays, and is not indexed again by itself."] * 2
    )
    expect(page.locator(".card-title", has_text="lighthouse")).to_have_count(0)
    assert (films / "lighthouse.vtt").exists()
    page.goto(f"{desk}?a=films")
    page.get_by_role("button", name="Watch no more").click()
    expect(page.locator("#watched .job")).to_have_count(0)
    expect(page.get_by_role("switch", name="Watch this folder")).not_to_be_checked()


@contextmanager
def copied_slowly(path: Path, content: bytes) -> Iterator[None]:
    """Copy a file slowly: it grows every tenth of a second and is complete at the end."""
    enough = threading.Event()

    def copy() -> None:
        with path.open("wb", buffering=0) as file:
            for at in range(len(content)):
                file.write(content[at : at + 1])
                if enough.wait(0.1):
                    file.write(content[at + 1 :])
                    return

    copying = threading.Thread(target=copy)
    copying.start()
    try:
        yield
    finally:
        enough.set()
        copying.join()


def test_a_watched_folder_shows_what_is_copied_and_what_failed(
    open_tab: Callable[..., Any], desk: str, films: Path, samples: Path, tmp_path: Path
) -> None:
    pytest.importorskip("watchfiles", reason="the extra watch is not installed")
    page = open_tab(desk)
    page.goto(f"{desk}?a=films")
    page.get_by_role("switch", name="Watch this folder").check()
    watched = page.locator("#watched .job")
    expect(watched).to_contain_text("1 added", timeout=SOON)
    expect(watched.locator("summary")).to_have_text("1 file failed")
    expect(watched.locator(".failed li")).to_contain_text(HOSTILE_NAME)
    whole = (samples / "flower.webm").read_bytes()
    broken = films / "below" / f"{HOSTILE_NAME}.mp4"
    broken.write_bytes(whole)
    with copied_slowly(films / "copied.webm", whole):
        expect(watched.locator("dd", has_text="copied.webm")).to_be_visible(timeout=SOON)
        expect(watched).to_have_class("job running")
        expect(watched.locator("dt").first).to_have_text("Still copied")
        # A redrawn card keeps the focus.
        watched.get_by_role("button", name="Watch no more").focus()
    expect(watched.locator("details")).to_have_count(0, timeout=SOON)
    indexed = {Path(video.path).name for video in Corpus(tmp_path / "c.corpus").videos()}
    assert {"copied.webm", broken.name} <= indexed
    expect(watched).to_have_class("job", timeout=SOON)
    expect(watched.get_by_role("button", name="Watch no more")).to_be_focused()
    expect(page.locator("#failures")).to_be_hidden(timeout=SOON)


def test_a_watched_folder_shows_how_far_it_is(open_tab: Callable[..., Any], desk: str) -> None:
    facts = {"copying": [], "copying_in_all": 0, "waiting": 3, "reading": ["<b>a.mp4", "c.mp4"]}
    facts |= {"reading_in_all": 7, "done": 2, "total": 12, "fraction": 0.25}
    facts |= {"rate": "12.0 MB/s", "left": "2 min 05 s left", "step": ""}
    failed = [{"name": "b.mp4", "why": "b.mp4: empty; copy it again", "again": True}]
    folder = {"place": "films", "since": 0, "there": True, "last": {}, "progress": facts}
    folder |= {"failed": failed, "failed_in_all": 30}
    queue = {"data": [], "watched": [folder], "trouble": ""}
    page = open_tab(desk, viewport={"width": 390, "height": 844})
    page.route("**/api/jobs", lambda route: route.fulfill(json=queue))
    page.goto(f"{desk}?a=films")
    watched = page.locator("#watched .job")
    expect(watched.locator("dd")).to_have_text(["3 files", "<b>a.mp4, c.mp4 and 5 more", "2 of 12 files"])
    expect(watched.locator("progress")).to_have_js_property("value", 0.25)
    expect(watched).to_contain_text("25 % · 12.0 MB/s · 2 min 05 s left")
    expect(watched).to_contain_text("b.mp4: empty; copy it again")
    expect(watched.locator("summary")).to_have_text("30 files failed")
    expect(watched.get_by_role("button", name="Try failed files again")).to_be_visible()
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    page.unroute_all(behavior="ignoreErrors")


def test_a_job_is_paused_by_keys_and_a_phone_does_not_scroll_sideways(
    open_tab: Callable[..., Any], desk: str, tmp_path: Path
) -> None:
    page = open_tab(desk, viewport={"width": 390, "height": 844})
    page.goto(f"{desk}?a=films")
    page.get_by_role("button", name="Plan this whole folder").press("Enter")
    start = page.get_by_role("button", name="Start", exact=True)
    expect(start).to_be_visible(timeout=SOON)
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    with Corpus(tmp_path / "c.corpus").writing():
        start.press("Enter")
        expect(page.locator(".job.running")).to_contain_text("waiting for another indexer", timeout=SOON)
        page.get_by_role("button", name="Pause").press("Enter")
        expect(page.locator(".job.paused")).to_be_visible(timeout=SOON)
        page.get_by_role("button", name="Go on").press("Enter")
        expect(page.locator(".job.running")).to_be_visible(timeout=SOON)
    expect(page.locator(".job.done")).to_be_visible(timeout=SOON)


def test_a_plan_is_made_once_and_a_page_that_was_left_stays_left(
    open_tab: Callable[..., Any], desk: str
) -> None:
    page = open_tab(desk)
    held: list[Any] = []

    def slow(route: Any) -> None:
        held.append(route) if route.request.method == "POST" else route.continue_()

    page.goto(f"{desk}?a=films")
    page.route("**/api/jobs", slow)
    page.get_by_role("button", name="Plan this whole folder").dblclick()
    expect(page.locator("#plan")).to_be_disabled()
    until(page, lambda: len(held) == 1)
    page.wait_for_timeout(200)
    assert len(held) == 1
    held[0].continue_()
    expect(page.locator("#plan")).to_be_enabled()
    expect(page.locator(".job")).to_have_count(1)
    # Answers that come after the page was left change nothing; an error there would fail this test.
    page.route("**/api/folders*", lambda route: held.append(route))
    page.reload()
    until(page, lambda: len(held) > 1)
    page.get_by_role("link", name="Collections").click()
    expect(page.locator("#collections-title")).to_be_visible()
    with page.expect_response("**/api/folders*"):
        held[-1].continue_()
    page.wait_for_timeout(200)
    page.unroute_all(behavior="ignoreErrors")


def test_a_server_that_may_read_no_folder_offers_nothing(page: Any, address: str) -> None:
    search(page, address, "space telescope")
    page.locator(".card-link").first.click()
    expect(page.locator("#only-this")).to_be_visible()
    assert page.locator("#to-adding").is_hidden() and page.locator("#remove").is_hidden()
    page.watched.expected.append("404")
    page.goto(f"{address}?a=all")
    expect(page.locator("#folder-message")).to_contain_text("whenabouts serve --allow")
