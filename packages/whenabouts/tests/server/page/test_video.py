"""The page of a video: its time line, its words, and films that no browser plays."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import cycle
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from tests.server.page.test_page import expect, open_first, search, standing

from whenabouts.corpus import Corpus

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


def test_it_says_what_is_indexed_and_since_when(page: Any, address: str) -> None:
    open_first(page, address, "space telescope")
    expect(page.locator("#indexed")).to_have_text(re.compile(r"^words indexed since 20\d\d-\d\d-\d\d$"))


def test_curves_have_their_streams_titles_before_the_results_are_there(
    page: Any, address: str, ids: dict[str, str]
) -> None:
    held: list[Any] = []
    for route in ("**/api/search?*", "**/api/videos?*"):
        page.route(route, lambda request: held.append(request))
    page.goto(f"{address}?q=crown+jewels&v={ids['friday.mp4']}&s=2.000&e=3.000")
    expect(page.locator("#readout")).to_contain_text("words")
    assert held
    for request in held:
        request.continue_()


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


def test_recognised_words_are_called_so(page: Any, address: str) -> None:
    def recognised(route: Any) -> None:
        answer = route.fetch()
        cues = [cue | {"recognised": sure} for cue, sure in zip(answer.json()["data"], cycle((0.9, 0.83)))]
        route.fulfill(response=answer, json=answer.json() | {"data": cues[:2]})

    open_first(page, address, "space telescope")
    expect(page.locator(".cue").first).to_be_visible()
    expect(page.locator("#cue-sureness")).to_be_hidden()
    page.route("**/cues?*", recognised)
    page.reload()
    sureness = page.locator("#cue-sureness")
    expect(sureness).to_have_text("These words were recognised by a program, 86 % sure on average.")
    page.unroute("**/cues?*")
    page.reload()
    expect(page.locator(".cue").nth(2)).to_be_visible()
    expect(sureness).to_be_hidden()


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


NTSC = Fraction(30000, 1001)


def write_greys(path: Path, rate: Fraction, greys: Sequence[int], code: str = "") -> None:
    """Write a film with a frame of each grey, and a camera's time code if one is given."""
    with av.open(str(path), "w") as out:
        if code:
            out.metadata["timecode"] = code
        stream = out.add_stream("libx264", rate=rate)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for grey in greys:
            picture = np.full((120, 160, 3), grey, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))


@pytest.fixture()
def grey(tmp_path: Path, serving: Any, open_tab: Callable[..., Any]) -> Iterator[Any]:
    """A tab with a film open whose frame n is 10 n grey, at 29.97, with a camera's time code."""
    write_greys(tmp_path / "grey.mov", NTSC, range(0, 240, 10), "10:00:58;00")
    (tmp_path / "grey.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:00.500\nfog\n", encoding="utf-8")
    corpus = Corpus(tmp_path / "own.corpus", create=True)
    assert corpus.add(tmp_path, processes=1).added == 1
    [video] = corpus.videos()
    with serving(corpus, tmp_path / "cache") as at:
        page = open_tab(at)
        page.goto(f"{at}?v={video.id}&s=0.000&e=0.700")
        standing(page)
        yield page


def test_the_visible_frame_is_the_first_or_last_of_the_moment(grey: Any) -> None:
    def step_to(number: int) -> None:
        grey.keyboard.press(".")
        grey.wait_for_function(
            """(number) => { const canvas = new OffscreenCanvas(1, 1).getContext('2d');
              canvas.drawImage(document.querySelector('#screen video'), 0, 0, 1, 1);
              return Math.abs(canvas.getImageData(0, 0, 1, 1).data[0] - 10 * number) < 4 }""",
            arg=number,
        )

    for number in range(1, 12):
        step_to(number)
    grey.keyboard.press("i")
    assert moment_of(grey)[0] == pytest.approx(11 / NTSC, abs=1e-3)
    step_to(12)
    for _ in range(2):
        grey.keyboard.press("o")
        assert moment_of(grey)[1] == pytest.approx(13 / NTSC, abs=1e-3)


def test_a_camera_s_time_code_is_read_or_refused_and_never_moved_to_the_end(grey: Any) -> None:
    field, message = grey.get_by_label("Start", exact=True), grey.locator("#message")
    for code in ("10:00:58;12", "10:00:58:12"):
        field.fill(code)
        field.press("Enter")
        assert moment_of(grey) == pytest.approx((12 / NTSC, 0.7), abs=1e-3)
    for wrong in ("10:01:58;12", "01:00:00:00", "10:00:59", "5"):
        field.fill(wrong)
        field.press("Enter")
        expect(message).to_contain_text(f"“{wrong}” is after the end of this video (0:00.801); times count")
        expect(message).to_contain_text("Its time code begins at 10:00:58;00.")
    field.fill("0.75")
    field.press("Enter")
    expect(message).to_have_text("A moment ends after it starts; nothing is changed.")
    assert moment_of(grey) == pytest.approx((12 / NTSC, 0.7), abs=1e-3)


def test_a_film_that_no_browser_plays_is_made_playable(page: Any, address: str) -> None:
    search(page, address, "burrow under the hedge")
    page.locator(".card-link", has_text="rabbits").first.click()
    expect(page.locator("#unplayable")).to_be_visible()
    page.get_by_role("button", name="Make it playable").click()
    page.wait_for_function("() => document.querySelector('#screen.clip video')?.videoWidth > 0")
    page.keyboard.press("Space")
    expect(page.locator("#play-label")).to_have_text("Pause")


@pytest.mark.parametrize(
    ("name", "codecs"),
    [
        ("hevc.mkv", ("libx265", "aac")),
        ("hevc.mp4", ("libx265", "aac")),
        ("flac.mkv", ("libx264", "flac")),
        ("old.wmv", ("wmv2", "wmav2")),
    ],
)
def test_films_of_other_containers_and_codecs_play(
    name: str, codecs: tuple[str, str], tmp_path: Path, serving: Any, open_tab: Callable[..., Any]
) -> None:
    write_film(tmp_path / name, codecs)
    words = "WEBVTT\n\n00:00.500 --> 00:03.500\nA hedgehog walks through the garden.\n"
    (tmp_path / name).with_suffix(".vtt").write_text(words, encoding="utf-8")
    corpus = Corpus(tmp_path / "own.corpus", create=True)
    assert corpus.add(tmp_path, processes=1).added == 1
    with serving(corpus, tmp_path / "cache") as at:
        page = open_tab(at)
        search(page, at, "hedgehog")
        page.locator(".card-link").first.click()
        picture = page.locator("#screen video")
        expect(picture.or_(page.locator("#unplayable")).first).to_be_visible()
        standing_or_refused = "() => document.querySelector('#screen video')?.videoWidth > 0"
        standing_or_refused += " || document.querySelector('#unplayable')?.offsetParent != null"
        page.wait_for_function(standing_or_refused)
        if page.locator("#unplayable").is_visible():
            page.get_by_role("button", name="Make it playable").click()
        page.wait_for_function("() => document.querySelector('#screen video')?.videoWidth === 160")
        page.keyboard.press("Space")
        page.wait_for_function("() => document.querySelector('#screen video').currentTime > 1")


def write_film(path: Path, codecs: tuple[str, str]) -> None:
    """Write four seconds of a changing picture of 160 x 120, and a tone."""
    program = shutil.which("ffmpeg")
    if program is None:
        pytest.skip("needs ffmpeg")
    inputs = [
        "-f",
        "lavfi",
        "-i",
        "testsrc=size=160x120:rate=25:duration=4",
        "-f",
        "lavfi",
        "-i",
        "sine=duration=4",
    ]
    outputs = ["-pix_fmt", "yuv420p", "-c:v", codecs[0], "-c:a", codecs[1], str(path)]
    subprocess.run([program, "-v", "error", *inputs, *outputs], check=True, timeout=60)
