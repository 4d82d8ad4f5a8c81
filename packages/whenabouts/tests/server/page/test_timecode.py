"""The camera's time code on the page: in the player, on cards and in collections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.server.page.test_page import border, expect, open_first, search, standing, until
from tests.server.page.test_video import write_greys

from whenabouts.corpus import Corpus
from whenabouts.times import frame_of
from whenabouts.video.timecode import timecode

FILM, NTSC, PAL = Fraction(24000, 1001), Fraction(30000, 1001), Fraction(25)
# Each minute begins within the film; 23:59:58 passes midnight.
FILMS = {
    "film": (FILM, "09:59:58:12"),
    "pal": (PAL, "23:59:58:20"),
    "drops": (NTSC, "10:00:58;00"),
    "counts": (NTSC, "10:00:58:00"),
}


def write_film(path: Path, rate: Fraction, code: str = "") -> None:
    """Write 100 frames, with a time code and a line of words."""
    write_greys(path, rate, [2 * number for number in range(100)], code)
    words = f"WEBVTT\n\n00:01.500 --> 00:02.900\nThe hedgehog of {path.stem} crosses the road.\n"
    path.with_suffix(".vtt").write_text(words, encoding="utf-8")


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A corpus of films with time codes at four rates, and one without."""
    folder = tmp_path_factory.mktemp("coded")
    for name, (rate, code) in FILMS.items():
        write_film(folder / f"{name}.mov", rate, code)
    write_film(folder / "plain.mp4", PAL)
    corpus = Corpus(folder / "own.corpus", create=True)
    assert corpus.add(folder, processes=1).added == 5
    return corpus


@pytest.fixture(scope="module")
def coded(films: Corpus, tmp_path_factory: pytest.TempPathFactory, serving: Any) -> Iterator[str]:
    """The address of a page whose films have time codes."""
    with serving(films, tmp_path_factory.mktemp("cache")) as at:
        yield at


def exported(page: Any, at: str, link: str) -> tuple[str, str]:
    """The time codes of a moment in its file, as the exporter writes them."""
    id, start, end = re.findall(r"[?&](?:v|s|e)=([^&]+)", link)
    text = page.request.get(f"{at}api/export?moments={id}@{start}-{end}&format=edl").text()
    return tuple(re.findall(r" C        (\S+) (\S+) ", text)[0])


@pytest.mark.slow
def test_cards_show_the_time_codes_that_an_edit_list_has(
    coded: str, open_tab: Callable[..., Any], films: Corpus
) -> None:
    page = open_tab(coded)
    search(page, coded, "hedgehog crosses the road")
    switch = page.get_by_role("button", name="Time code of the camera")
    expect(switch).to_have_attribute("aria-pressed", "false")
    cards = page.locator("#results .card-link")
    expect(cards).to_have_count(5)
    for card in cards.all():
        assert card.locator(".time").inner_text().startswith("0:01.5 – 0:02.9")
    switch.click()
    names = {video.id: Path(video.path).stem for video in films.videos()}
    for card in cards.all():
        link = card.get_attribute("href")
        name = names[re.findall("v=([^&]+)", link)[0]]
        if name == "plain":
            expect(card.locator(".time")).to_contain_text("0:01.5 – ")
            continue
        expect(card.locator(".time")).to_have_text(" – ".join(exported(page, coded, link)))
    page.reload()
    expect(switch).to_have_attribute("aria-pressed", "true")
    expect(cards.filter(has_text="drops").locator(".time")).to_have_text("10:00:59;15 – 10:01:00;29")
    page.keyboard.press("t")
    expect(cards.filter(has_text="drops").locator(".time")).to_have_text("0:01.5 – 0:02.9")


@pytest.mark.slow
def test_the_player_shows_and_reads_the_camera_s_time_code(coded: str, open_tab: Callable[..., Any]) -> None:
    page = open_tab(coded)
    search(page, coded, "hedgehog of drops")
    page.locator(".card-link", has_text="drops").first.click()
    standing(page)
    page.keyboard.press("t")
    start, end = page.get_by_label("Start", exact=True), page.get_by_label("End", exact=True)
    expect(start).to_have_value("10:00:59;15")
    expect(page.locator("#grip-start")).to_have_attribute("aria-valuetext", "10:00:59;15")
    expect(page.locator("#readout")).to_contain_text("10:00:59;15")
    for _ in range(15):
        page.get_by_role("button", name="Start one frame later").click()
    expect(start).to_have_value("10:01:00;02")
    expect(page.locator("#readout")).to_contain_text("10:01:00;02")
    end.fill("10:01:00;22")
    end.press("Enter")
    assert border(page, "end") == pytest.approx(80 / NTSC, abs=1e-3)
    # Outside the camera's codes they count from the start of the file.
    start.fill("00:00:02:10")
    start.press("Enter")
    assert border(page, "start") == pytest.approx(70 / NTSC, abs=1e-3)
    expect(start).to_have_value("10:01:00;12")
    page.locator("#title").focus()
    page.keyboard.press("t")
    expect(start).to_have_value("0:02.336")


@pytest.mark.slow
def test_a_code_near_zero_is_the_camera_s_only_while_those_are_shown(
    tmp_path: Path, open_tab: Callable[..., Any], serving: Any
) -> None:
    write_film(tmp_path / "near.mov", PAL, "00:00:00:10")
    corpus = Corpus(tmp_path / "own.corpus", create=True)
    corpus.add(tmp_path, processes=1)
    with serving(corpus, tmp_path / "cache") as at:
        page = open_tab(at)
        open_first(page, at, "hedgehog of near")
        start = page.get_by_label("Start", exact=True)
        for seconds in (1.0, 0.6):
            start.fill("00:00:01:00")
            start.press("Enter")
            assert border(page, "start") == pytest.approx(seconds, abs=1e-3)
            page.get_by_role("button", name="Time code of the camera").click()


@pytest.mark.slow
def test_a_collection_shows_and_reads_the_camera_s_time_code(
    coded: str, open_tab: Callable[..., Any], films: Corpus
) -> None:
    ids = {Path(video.path).stem: video.id for video in films.videos()}
    kept = films.collections.add(
        "codes", [films.moment(f"{ids[name]}@1-2") for name in ("plain", "drops", "pal")], create=True
    )
    page = open_tab(coded)
    page.goto(f"{coded}?c={kept.id}")
    draft, starts = page.get_by_label("note on moment 2"), page.get_by_label(re.compile("^start of moment"))
    draft.fill("not yet sent")
    page.get_by_role("button", name="Time code of the camera").click()
    expect(starts.nth(1)).to_have_value("10:00:59;00")
    expect(starts.nth(0)).to_have_value("0:01.000")
    expect(draft).to_have_value("not yet sent")
    starts.nth(1).fill("10:00:59;15")
    starts.nth(1).press("Enter")
    until(page, lambda: films.collections.get("codes").items[1].start == pytest.approx(45 / NTSC, abs=1e-3))
    expect(starts.nth(1)).to_have_value("10:00:59;15")
    # Codes begin anew at midnight.
    end = page.get_by_label("end of moment 3")
    expect(end).to_have_value("00:00:00:20")
    end.fill("00:00:00:22")
    end.press("Enter")
    until(page, lambda: films.collections.get("codes").items[2].end == pytest.approx(2.08))
    films.collections.delete("codes")


@pytest.mark.slow
def test_without_a_time_code_the_page_offers_none(page: Any, address: str) -> None:
    open_first(page, address, "crown jewels")
    page.wait_for_timeout(500)
    expect(page.get_by_role("button", name="Time code of the camera")).to_be_hidden()
    page.keyboard.press("t")
    expect(page.locator("#start")).to_have_value(re.compile(r"^0:0\d\.\d\d\d$"))


@pytest.mark.slow
def test_time_codes_on_the_page_are_those_of_the_exporter(page: Any, address: str) -> None:
    page.goto(address)
    write = """async (all) => { const { codeAt, frameOf } = await import("./static/words.js");
      return all.map(([frame, rate, drops]) => { const code = codeAt(frame, rate, drops);
        return [code, frameOf(code, rate)]; }) }"""
    frames = [*range(0, 40_000, 7), 107_891, 107_892, 215_999, 2_000_000]
    cases = [(FILM, False), (PAL, False), (NTSC, False), (NTSC, True), (2 * NTSC, True)]
    for rate, drops in cases:
        given = [[frame, float(rate), drops] for frame in frames if frame < 86_400 * round(rate) * 0.99]
        codes = [timecode(frame, rate, drop=drops) for frame, *_ in given]
        assert page.evaluate(write, given) == [[code, frame_of(code, rate)[0]] for code in codes]


@pytest.mark.slow
def test_an_export_leaves_out_notes_and_the_camera_s_time_code_if_told(
    coded: str, open_tab: Callable[..., Any], films: Corpus
) -> None:
    drops = next(video.id for video in films.videos() if Path(video.path).stem == "drops")
    kept = films.collections.add("list", [films.moment(f"{drops}@1-2")], create=True)
    page = open_tab(coded)
    page.goto(f"{coded}?c={kept.id}")
    notes, codes = (
        page.get_by_label("Notes and tags"),
        page.locator("#collections").get_by_label("Time code of"),
    )
    expect(codes).to_be_visible()
    expect(notes).to_be_hidden()
    films.collections.change("list", kept.items[0].id, note="she asks", tags=["night"])
    page.reload()
    expect(codes).to_be_visible()

    def taken() -> str:
        with page.expect_download() as given:
            page.get_by_role("button", name="Export", exact=True).click()
        return Path(given.value.path()).read_text()

    text = taken()
    assert " C        10:00:59;00 10:01:00;02 " in text
    assert "NOTE she asks" in text and "TAGS night" in text
    notes.uncheck()
    codes.uncheck()
    text = taken()
    assert " C        00:00:01;00 00:00:02;00 " in text
    assert "she asks" not in text and "night" not in text
    page.get_by_label("Format", exact=True).select_option("csv")
    expect(codes).to_be_hidden()
    page.get_by_label("Format", exact=True).select_option("m3u")
    expect(notes).to_be_hidden()
    page.locator(".clip-link").click()
    standing(page)
    page.locator("#export summary").click()
    page.locator("#from-camera").uncheck()
    with page.expect_download() as given:
        page.get_by_role("button", name="Download", exact=True).click()
    assert " C        00:00:01;00 00:00:02;00 " in Path(given.value.path()).read_text()
    films.collections.delete("list")
