"""People on the page and over REST: turns, names as text, and the filter by person."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.planted_people import BLUE, RED, face_models, film
from tests.uncalibrated import uncalibrated

from whenabouts.corpus import Corpus

pytestmark = pytest.mark.slow

playwright_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytest.importorskip("cv2")
pytest.importorskip("onnx")
expect = playwright_api.expect

HOSTILE = "<img src=x onerror=hacked()>"
TURNS = [("Ada", 0), ("Ben", 4), ("Ada", 6), (HOSTILE, 9), ("Ben", 12), (HOSTILE, 15), ("Ada", 18)]


@pytest.fixture(scope="module")
def peopled_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("people")
    film(folder / "talk.mp4", [(6.0, [RED]), (3.0, []), (7.0, [BLUE]), (5.0, [RED, BLUE])])
    cues = [
        f"00:{at:02d}.000 --> 00:{at + 2:02d}.500\n<v {name.replace('<', '&lt;').replace('>', '&gt;')}>"
        f"Word {at} of the harbour.\n"
        for name, at in TURNS
    ]
    (folder / "talk.vtt").write_text("WEBVTT\n\n" + "\n".join(cues), encoding="utf-8")
    corpus = Corpus(folder / "a.corpus", create=True)
    with uncalibrated():
        corpus.add(folder / "talk.mp4", speakers=True, faces=str(face_models(folder / "models")), processes=1)
    corpus.people.name(corpus.people.listed("face")[0].name, "Zoe")
    return corpus


@pytest.fixture(scope="module")
def peopled(
    peopled_corpus: Corpus,
    tmp_path_factory: pytest.TempPathFactory,
    serving: Callable[..., AbstractContextManager[str]],
) -> Iterator[str]:
    """The address of a page on a film with people."""
    with serving(peopled_corpus, tmp_path_factory.mktemp("cache")) as at:
        yield at


@pytest.fixture
def page(open_tab: Callable[..., Any], peopled: str) -> Any:
    tab = open_tab(peopled)
    tab.goto(peopled)
    return tab


def test_turns_have_names_and_colours_below_the_time_line(
    page: Any, peopled_corpus: Corpus, tmp_path: Path
) -> None:
    video = peopled_corpus.resolve("talk.mp4").video_id
    page.goto(page.url + f"?q=harbour&v={video}&s=0&e=21")
    speakers = page.get_by_role("group", name="speakers")
    expect(speakers.locator(".turn")).to_have_count(len(TURNS))
    expect(speakers.locator(".turn").first).to_have_text("Ada")
    expect(page.locator(".lane-name", has_text=HOSTILE)).to_have_count(1)
    expect(
        page.get_by_role("group", name="faces", exact=True).locator(".turn", has_text="Zoe")
    ).not_to_have_count(0)
    shades = speakers.locator(".turn").evaluate_all(
        "turns => turns.map((turn) => [turn.textContent, getComputedStyle(turn).backgroundColor])"
    )
    assert len({name for name, _ in shades}) == len({colour for _, colour in shades}) == 3
    speakers.locator(".turn", has_text="Ben").first.click()
    expect(page.locator("#readout")).to_contain_text("0:04")
    page.screenshot(path=str(tmp_path / "people.png"), full_page=True)
    page.locator("#zoom-in").click()


def test_the_filter_offers_everybody_and_narrows_the_search(page: Any) -> None:
    page.locator("#filters summary").click()
    expect(page.locator("#people option")).not_to_have_count(0)
    page.locator("#query").fill("harbour")
    page.locator("#where").fill("speaker=Ben")
    page.locator("#where").press("Enter")
    expect(page.locator("#cards .card").first).to_be_visible()
    assert "where=speaker%3DBen" in page.url
    assert page.locator("#stream option").all_inner_texts().count("speakers") == 0
    # A name alone is enough, in any case; who is only seen is another condition.
    for name, condition in (
        ("ada", "speaker%3DAda"),
        ("Zoe", "person%3DZoe"),
        ("Nobody", "speaker%3DNobody"),
    ):
        page.locator("#where").fill(name)
        page.locator("#where").press("Enter")
        expect(page).to_have_url(re.compile(f"where={condition}"))
    expect(page.locator("#line")).to_contain_text("Nothing was found in what the filters leave")


def test_a_person_is_named_merged_and_forgotten_below_the_time_line(
    page: Any, peopled_corpus: Corpus
) -> None:
    page.watched.expected.append("409")
    video = peopled_corpus.resolve("talk.mp4").video_id
    page.goto(page.url + f"?q=harbour&v={video}&s=0&e=21")
    named = page.locator("button.lane-name")
    dialog = page.get_by_role("dialog")

    def rename(person: str, name: str) -> None:
        named.get_by_text(person, exact=True).click()
        dialog.get_by_label("Name").fill(name)
        dialog.get_by_label("Name").press("Enter")

    rename("Ben", "Benedikt")
    expect(dialog.get_by_role("heading")).to_have_text("Benedikt")
    dialog.get_by_role("button", name="Close").click()
    expect(named.get_by_text("Ben", exact=True)).to_have_count(0)
    rename("Benedikt", "Ada")
    expect(dialog).to_contain_text("Ada is somebody already")
    dialog.get_by_role("button", name="Merge").click()
    expect(dialog.get_by_role("heading")).to_have_text("Ada")
    dialog.get_by_role("button", name="Undo the last change").click()
    expect(named.get_by_text("Benedikt", exact=True)).to_have_count(1)
    named.get_by_text(HOSTILE, exact=True).click()
    page.once("dialog", lambda question: question.dismiss())
    dialog.get_by_role("button", name="Forget for good").click()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.locator("#player")).to_be_visible()
    rename("Benedikt", "Ben")
    expect(dialog).to_contain_text("Benedikt is Ben.")
    assert {person.name for person in peopled_corpus.people.listed("speaker")} == {"Ada", "Ben", HOSTILE}


def test_where_the_owner_does_not_let_names_are_only_shown(
    open_tab: Callable[..., Any],
    peopled_corpus: Corpus,
    serving: Callable[..., AbstractContextManager[str]],
    tmp_path: Path,
) -> None:
    video = peopled_corpus.resolve("talk.mp4").video_id
    with serving(peopled_corpus, tmp_path, change_people=False) as at:
        tab = open_tab(at)
        tab.goto(at + f"?q=harbour&v={video}&s=0&e=21")
        expect(tab.locator(".lane-name", has_text="Ada")).to_have_count(1)
        expect(tab.locator("button.lane-name")).to_have_count(0)


def test_rest_lists_people(peopled: str, peopled_corpus: Corpus) -> None:
    import httpx

    people = httpx.get(peopled + "api/people").json()
    assert people["total"] == len(people["data"]) and "person=Zoe" in [p["where"] for p in people["data"]]
    video = peopled_corpus.resolve("talk.mp4").video_id
    streams = httpx.get(peopled + f"api/videos/{video}/people").json()["data"]
    assert [stream["title"] for stream in streams] == ["speakers", "faces"]
    assert streams[0]["turns"][0]["name"] == "Ada"
    assert httpx.get(peopled + "api/videos/none/people").status_code == 404
    found = httpx.get(peopled + "api/search", params={"query": "harbour", "where": "person=Zoe"}).json()
    assert found["data"] and all(row["start"] > 8.9 for row in found["data"])
