"""A trained system in the page: chosen, searched with, and asked why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.server.page.axe import faults
from tests.small_pairs import seeing_localizer
from tests.small_systems import Letters, Shades, small_xml, write_talk
from tests.uncalibrated import uncalibrated

from whenabouts.corpus import Corpus

pytestmark = pytest.mark.slow

playwright_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect = playwright_api.expect
QUERY = "the penguin moves to the north"


@pytest.fixture(scope="module")
def address(
    tmp_path_factory: pytest.TempPathFactory, serving: Callable[..., AbstractContextManager[str]]
) -> Iterator[str]:
    """A page on four transcripts that is served with a trained system."""
    folder = tmp_path_factory.mktemp("explained")
    (folder / "talks").mkdir()
    for number in range(4):
        write_talk(folder / "talks", number)
    corpus = Corpus(folder / "c", encoders=[Letters()], create=True)
    corpus.add(folder / "talks", text=Letters(), processes=1)
    small_xml().save_pretrained(folder / "run <b>")
    with serving(corpus, folder / "cache", models={"run <b>": str(folder / "run <b>")}) as at:
        yield at


def open_with_model(page: Any, address: str) -> None:
    """Choose the system as a person does, ask, and open the second result."""
    page.goto(f"{address}?q={QUERY.replace(' ', '+')}")
    expect(page.locator(".card-link").first).to_be_visible()
    page.locator("#filters > summary").click()
    page.get_by_label("Trained system").select_option("run <b>")
    expect(page.locator("#line")).to_contain_text("run <b>")
    page.locator(".card-link").nth(1).click()
    expect(page.locator(".curve-name")).to_have_text(["start (score)", "end (score)"])


def test_a_model_is_chosen_among_the_filters_and_stays_in_the_address(page: Any, address: str) -> None:
    open_with_model(page, address)
    assert parse_qs(urlsplit(page.url).query)["model"] == ["run <b>"]
    page.reload()
    expect(page.locator("#line")).to_contain_text("run <b>")
    expect(page.locator("#model")).to_have_value("run <b>")
    expect(page.locator(".curve-name")).to_have_text(["start (score)", "end (score)"])


def test_why_shows_the_words_that_count_and_the_probabilities_of_the_borders(page: Any, address: str) -> None:
    open_with_model(page, address)
    page.get_by_role("button", name="Why here?").click()
    expect(page.locator("#why-title")).to_have_text("Found: it is result 2")
    words = page.locator("#why-body .token")
    expect(words).to_have_count(7)  # "[CLS]" and six words, by number
    shares = [float(re.search(r"(\d+)%$", text)[1]) for text in words.all_text_contents()]  # type: ignore[index]
    assert sum(shares) == pytest.approx(100, abs=4)
    shades = words.evaluate_all("(all) => all.map((one) => Number(one.style.getPropertyValue('--much')))")
    assert max(shades) == 1
    assert max(range(7), key=shades.__getitem__) in [
        at for at, one in enumerate(shares) if one == max(shares)
    ]
    expect(page.locator("#why-body")).to_contain_text("It starts at 0:")
    expect(page.locator("#why-body")).to_contain_text("It ends at 0:")
    expect(page.locator("#why-body .lost li")).to_have_count(1)
    assert not faults(page)


def test_the_readout_says_the_probability_under_the_mouse(page: Any, address: str) -> None:
    open_with_model(page, address)
    page.locator(".plot").hover(position={"x": 5, "y": 30})
    expect(page.locator(".tip")).to_contain_text(re.compile(r"start score 0\.\d\d, end score 0\.\d\d"))


def test_the_streams_own_search_is_a_choice_away(page: Any, address: str) -> None:
    open_with_model(page, address)
    page.get_by_label("Trained system").select_option("none")
    expect(page.locator("#line")).not_to_contain_text("run <b>")
    page.locator(".card-link").first.click()
    expect(page.locator(".curve-name")).to_have_text([re.compile("words")])


def test_how_much_each_stream_counts_stands_beneath_start_and_end(
    open_tab: Callable[..., Any],
    tmp_path: Path,
    samples: Path,
    serving: Callable[..., AbstractContextManager[str]],
) -> None:
    corpus = Corpus(tmp_path / "c", encoders=[Letters(), Shades()], create=True)
    with uncalibrated():
        corpus.add(samples / "friday.mp4", text=Letters(), vision=Shades(), clip_seconds=2.0, processes=1)
    seeing_localizer(Shades(), 2.0).save_pretrained(tmp_path / "run")
    names = ["start (score)", "end (score)", "share of words", "share of pictures"]
    with serving(corpus, tmp_path / "cache", models={"both": str(tmp_path / "run")}) as address:
        page = open_tab(address)
        page.goto(f"{address}?q={QUERY.replace(' ', '+')}&model=both")
        page.locator(".card-link").first.click()
        expect(page.locator(".curve-name")).to_have_text(names)
        page.locator(".plot").hover(position={"x": 5, "y": 100})
        shares = re.search(
            r"share of words (\d+) ?%, share of pictures (\d+) ?%", page.locator(".tip").inner_text()
        )
        assert shares is not None and sum(map(int, shares.groups())) in (99, 100, 101)
        page.get_by_role("button", name="Why here?").click()
        expect(page.locator("#why-body")).to_contain_text(
            re.compile(r"What counts there: subtitle \d+ ?%, vision")
        )
        page.goto(f"{address}?q={QUERY.replace(' ', '+')}&vs=both&vs=")
        expect(page.locator("#comparison:not([aria-busy])")).to_be_visible(timeout=60_000)
        column = page.locator(".column").first
        expect(column.locator(".curve-name")).to_have_text(["start", "end", *names[2:]])
        expect(column.locator("figcaption")).to_contain_text("of a share, 100 %")
