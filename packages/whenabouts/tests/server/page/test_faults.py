"""Real faults: the page says what happened and what to do, and continues afterwards."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.search.test_example import Mosaic
from tests.server.page.test_page import expect, search, standing
from tests.small_disk import mounted

from whenabouts.corpus import Corpus
from whenabouts.workplace.guests import Guests

pytestmark = pytest.mark.slow
TOKEN = "a-token-that-is-long-enough"


@pytest.fixture
def own(tmp_path: Path, videos: Path) -> Path:
    """A folder of two films with words and a corpus of them, which a test may change."""
    for name in ("friday.mp4", "friday.vtt", "rabbits.avi", "rabbits.srt"):
        shutil.copy2(videos / name, tmp_path)
    Corpus(tmp_path / "own.corpus", create=True).add(tmp_path, processes=1)
    return tmp_path


@pytest.fixture
def served(own: Path, serving: Any) -> Iterator[str]:
    with serving(Corpus(own / "own.corpus"), own / "cache") as at:
        yield at


def opened(page: Any, at: str, query: str = "crown jewels") -> None:
    search(page, at, query)
    page.locator(".card-link").first.click()


def way(page: Any, words: str) -> Any:
    return page.get_by_role("button", name=words, exact=True)


def test_results_stay_while_the_server_is_gone_and_it_is_asked_again(
    own: Path, serving: Any, open_tab: Callable[..., Any]
) -> None:
    corpus = Corpus(own / "own.corpus")
    with serving(corpus, own / "cache") as at:
        page = open_tab(at)
        page.watched.expected += ["ERR_CONNECTION_REFUSED"]
        search(page, at, "crown jewels")
        expect(page.locator(".card-link").first).to_contain_text("friday")
    page.get_by_role("searchbox").fill("rabbits")
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_have_text("No answer")
    expect(page.locator("#fault")).to_contain_text("Start the server again")
    expect(page.locator("#line")).to_have_text("These are still the results for “crown jewels”.")
    page.locator(".card-link").first.click()
    expect(page.locator("#unplayable")).to_contain_text("The server does not answer")
    way(page, "Back to the results").click()
    expect(page.locator("#player")).to_be_hidden()
    with serving(corpus, own / "cache", port=urlsplit(at).port):
        way(page, "Try again").click()
        expect(page.locator(".card-link").first).to_contain_text("rabbits")
        expect(page.locator("#fault")).to_be_hidden()


def test_a_film_that_was_moved_is_told_with_its_folder_and_plays_when_it_is_back(
    own: Path, served: str, open_tab: Callable[..., Any]
) -> None:
    page = open_tab(served)
    page.watched.expected += ["410"]
    search(page, served, "crown jewels")
    (own / "friday.mp4").rename(own / "away.mp4")
    page.locator(".card-link").first.click()
    fault = page.locator("#unplayable")
    expect(fault).to_contain_text("is gone or unreadable")
    expect(fault).to_contain_text("It was moved, renamed or deleted")
    expect(page.locator("#cue-list")).to_contain_text("crown jewels")
    way(page, "Show the folder").click()
    expect(fault.locator(".place-text")).to_have_text(str(own / "friday.mp4"))
    (own / "away.mp4").rename(own / "friday.mp4")
    way(page, "Try again").click()
    standing(page)
    expect(fault).to_be_hidden()


def test_a_film_that_goes_while_it_is_open_is_told_apart_from_one_that_cannot_be_played(
    own: Path, served: str, open_tab: Callable[..., Any]
) -> None:
    page = open_tab(served)
    page.watched.expected += ["410", "409"]
    opened(page, served, "rabbits dig a burrow")
    expect(page.locator("#unplayable")).to_contain_text("cannot play this file (avi)")
    (own / "rabbits.avi").rename(own / "away.avi")
    way(page, "Make it playable").click()
    expect(page.locator("#unplayable")).to_contain_text("It was moved, renamed or deleted")
    shutil.copy(own / "away.avi", own / "rabbits.avi")
    os.utime(own / "rabbits.avi", (1e9, 1e9))
    way(page, "Try again").click()
    expect(page.locator("#unplayable")).to_contain_text("has changed since it was indexed")
    expect(page.locator("#unplayable")).to_contain_text("Index it again")
    way(page, "Back to the results").click()
    expect(page.locator(".card-link").first).to_be_focused()


def test_a_codec_that_nobody_knows_is_told_and_the_file_can_be_taken(
    own: Path, served: str, open_tab: Callable[..., Any]
) -> None:
    path = own / "rabbits.avi"
    status, content = path.stat(), path.read_bytes()
    assert b"FMP4" in content
    path.write_bytes(content.replace(b"FMP4", b"ZZZZ"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    page = open_tab(served)
    page.watched.expected += ["409"]
    opened(page, served, "rabbits dig a burrow")
    expect(page.locator("#unplayable")).to_contain_text("cannot play this file (avi)")
    way(page, "Make it playable").click()
    expect(page.locator("#unplayable")).to_contain_text("Its codec may be unknown here")
    with page.expect_download() as given:
        way(page, "Download the file").click()
    assert Path(given.value.path()).read_bytes() == path.read_bytes()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    way(page, "Try again").click()
    standing(page)
    expect(page.locator("#unplayable")).to_be_hidden()


def test_a_full_disk_is_told_and_what_was_asked_can_be_done_when_there_is_room(
    own: Path, serving: Any, open_tab: Callable[..., Any]
) -> None:
    with mounted(own / "small", megabytes=1) as small, serving(Corpus(own / "own.corpus"), small) as at:
        page = open_tab(at)
        page.watched.expected += ["507"]
        opened(page, at, "rabbits dig a burrow")
        expect(page.locator("#unplayable")).to_contain_text("cannot play this file")
        ballast = filled(small)
        way(page, "Make it playable").click()
        expect(page.locator("#unplayable")).to_contain_text("disk is full")
        expect(page.locator("#unplayable")).to_contain_text("Free some space there")
        page.locator("#cut").click()
        expect(page.locator("#message")).to_contain_text("Not cut: the server's disk is full")
        ballast.unlink()
        way(page, "Try again").click()
        standing(page)


def filled(disk: Path) -> Path:
    """Fill a small disk; returns the file that fills it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast


def test_a_collection_on_a_full_disk_loses_nothing(
    own: Path, serving: Any, open_tab: Callable[..., Any]
) -> None:
    with mounted(own / "small", megabytes=4) as small:
        shutil.copytree(own / "own.corpus", small / "own.corpus")
        corpus = Corpus(small / "own.corpus")
        kept = corpus.collections.add("film", [corpus.moment("friday@1-2")], create=True)
        with serving(corpus, own / "cache") as at:
            page = open_tab(at)
            page.watched.expected += ["507"]
            page.goto(f"{at}?c={kept.id}")
            expect(page.get_by_label("note on moment 1")).to_have_value("")
            ballast = filled(small)
            page.get_by_label("note on moment 1").fill("the theft" + " of the jewels" * 140)
            page.get_by_label("note on moment 1").press("Enter")
            message = page.locator("#collection-message")
            expect(message).to_contain_text("disk is full")
            expect(page.get_by_label("note on moment 1")).to_have_value(re.compile("^the theft"))
            ballast.unlink()
            message.get_by_role("button", name="Try again").click()
            expect(message).to_have_text("")
            assert corpus.collections.get("film").items[0].note.startswith("the theft")


def test_what_keeps_a_collection_from_being_taken_away_is_named(
    own: Path, videos: Path, serving: Any, open_tab: Callable[..., Any]
) -> None:
    shutil.copy2(videos / "nasa_audio_only.mp3", own)
    (own / "notes.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:02.000\na note\n")
    corpus = Corpus(own / "own.corpus")
    corpus.add(own, processes=1)
    names = ("friday@1-2", "rabbits@0-1", "nasa_audio_only@1-2", "notes@0-1")
    kept = corpus.collections.add("film", [corpus.moment(name) for name in names], create=True)
    (own / "rabbits.avi").rename(own / "away.avi")
    with serving(corpus, own / "cache") as at:
        page = open_tab(at)
        page.watched.expected += ["410", "404"]
        page.goto(f"{at}?c={kept.id}")
        expect(page.locator(".clip").nth(1)).to_contain_text("The file of this video is not there.")
        message = page.locator("#collection-message")
        way(page, "Export").click()
        expect(message).to_contain_text("Moment 2, “rabbits”: the file of rabbits.avi is gone")
        expect(message).to_contain_text("is gone or unreadable")
        way(page, "Take moment 2 out").click()
        expect(page.locator(".clip")).to_have_count(3)
        way(page, "One film (mp4)").click()
        expect(message).to_have_text("Saved film.mp4. Left out, because no recording is here: moments 3.")
        way(page, "Export").click()
        expect(message).to_contain_text("Moment 3, “notes”: notes.vtt is")
        expect(message).to_contain_text("is a transcript without a recording")
        page.get_by_label("Format", exact=True).select_option("csv")
        way(page, "Export").click()
        expect(message).to_contain_text("Saved film.csv. Note: no frame numbers: notes.vtt")


def test_a_missing_model_is_told_and_what_is_left_can_be_searched(
    own: Path, serving: Any, open_tab: Callable[..., Any]
) -> None:
    made = Corpus(own / "seen.corpus", encoders=[Mosaic()], create=True)
    made.add(own / "friday.mp4", vision=Mosaic(), processes=1)
    assert "vision" in made.streams
    with serving(Corpus(own / "seen.corpus"), own / "cache") as at:
        page = open_tab(at)
        page.watched.expected += ["503"]
        page.goto(f"{at}?q=crown+jewels&stream=vision")
        expect(page.locator("#answer")).to_have_text("A model is missing")
        expect(page.locator("#fault")).to_contain_text("mosaic")
        expect(page.locator("#fault")).to_contain_text("whenabouts doctor")
        way(page, "Search what is left").click()
        expect(page.locator(".card-link").first).to_contain_text("crown jewels")
        expect(page.locator("#fault")).to_be_hidden()


def test_a_corpus_that_is_replaced_is_told_and_searched_again(
    own: Path, videos: Path, serving: Any, open_tab: Callable[..., Any]
) -> None:
    with serving(Corpus(own / "own.corpus"), own / "cache") as at:
        page = open_tab(at)
        page.watched.expected += ["404"]
        search(page, at, "crown jewels")
        expect(page.locator(".card-link").first).to_contain_text("friday")
        other = own / "other"
        other.mkdir()
        for name in ("nasa_13013.mp4", "nasa_13013.srt"):
            shutil.copy2(videos / name, other)
        Corpus(other / "new.corpus", create=True).add(other, processes=1)
        (own / "own.corpus").rename(own / "old.corpus")
        (other / "new.corpus").rename(own / "own.corpus")
        page.locator(".card-link").first.click()
        expect(page.locator("#unplayable")).to_contain_text("another corpus stands in its place")
        way(page, "Search again").click()
        expect(page.locator("#player")).to_be_hidden()
        expect(page.locator("#results")).to_contain_text("1 video")
        search(page, at, "space telescope")
        expect(page.locator(".card-link").first).to_contain_text("nasa 13013")


def test_a_token_that_is_withdrawn_leaves_what_is_shown(
    own: Path, serving: Any, open_tab: Callable[..., Any]
) -> None:
    guests = Guests(own / "friends.json")
    token = guests.add("Ada")
    with serving(Corpus(own / "own.corpus"), own / "cache", token=TOKEN, guests=guests.path) as at:
        page = open_tab(at)
        page.watched.expected += ["401"]
        search(page, f"{at}?token={token}", "crown jewels")
        assert "token" not in page.url
        expect(page.locator("#guest")).to_have_text("Ada")
        guests.remove("Ada")
        page.get_by_role("searchbox").fill("rabbits")
        page.keyboard.press("Enter")
        expect(page.locator("#answer")).to_have_text("Your link is not valid any more")
        expect(page.locator("#fault")).to_contain_text("ask for a new one")
        expect(page.locator(".card-link").first).to_contain_text("friday")
        page.locator(".card-link").first.click()
        expect(page.locator("#unplayable")).to_contain_text("withdrawn")
        way(page, "Back to the results").click()
        # Once a new link is opened in another tab of the same browser, this tab works again.
        page.context.request.get(f"{at}?token={guests.add('Ada')}")
        way(page, "Try again").click()
        expect(page.locator(".card-link").first).to_contain_text("rabbits")
