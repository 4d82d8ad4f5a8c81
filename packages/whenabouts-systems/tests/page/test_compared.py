"""Two systems side by side in the page: opened, read, stepped through, played, left again."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import torch
from tests.server.page.axe import faults
from tests.server.page.test_page import WEAK_TEXT, no_sideways, too_small
from tests.small_systems import WIDTH, Letters, inputs, small_xml, write_talk
from tests.uncalibrated import uncalibrated

from whenabouts.corpus import Corpus
from whenabouts.types import Moment
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.trained import Trained

pytestmark = pytest.mark.slow

playwright_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect = playwright_api.expect
QUERY = "the penguin moves to the north"
FIRST, SECOND, WORDLESS, GONE = "run <b>", "second", "wordless", "gone"


@dataclass
class Served:
    """Where the page is, and what it is served from."""

    address: str
    corpus: Corpus
    models: dict[str, str]

    def url(self, *vs: str, **more: str) -> str:
        return f"{self.address}?{urlencode([('q', QUERY), *more.items(), *(('vs', one) for one in vs)])}"

    def best(self, model: str) -> list[Moment]:
        found = self.corpus.search(QUERY, 10, model=self.models[model] if model else None)
        return [one.moment for one in found.moments]


def wordless() -> Trained:
    """A small MMN: it scores a map of spans, and tells no word weights."""
    torch.manual_seed(0)
    sizes = {"pooling_counts": [15], "map_layers": 2, "hidden": 16, "joint": 16}
    settings = {"streams": {"subtitle": WIDTH}, "query_width": WIDTH, **sizes}
    model = new_model("mmn", config_of("mmn", settings)).eval()
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    return Trained("mmn", model, inputs(), Decoding(max_clips=6))


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
    samples: Path,
    serving: Callable[..., AbstractContextManager[str]],
) -> Iterator[Served]:
    """Four transcripts and a video, served with three systems and the folder of one that is gone."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "talks").mkdir()
    for number in range(4):
        write_talk(folder / "talks", number)
    for name in ("friday.mp4", "friday.vtt"):
        shutil.copy(samples / name, folder / "talks")
    corpus = Corpus(folder / "c", encoders=[Letters()], create=True)
    with uncalibrated():
        corpus.add(folder / "talks", text=Letters(), processes=1)
    for name, trained in {FIRST: small_xml(0), SECOND: small_xml(1), WORDLESS: wordless()}.items():
        trained.save_pretrained(folder / name)
        corpus.encode(folder / name)
    models = {name: str(folder / name) for name in (FIRST, SECOND, WORDLESS, GONE)}
    with serving(corpus, folder / "cache", models=models) as at:
        yield Served(at, corpus, models)


@pytest.fixture(scope="module")
def address(served: Served) -> str:
    return served.address


def filled(page: Any) -> None:
    """Wait until both systems have answered."""
    expect(page.locator("#comparison:not([aria-busy])")).to_be_visible(timeout=60_000)


def opened(page: Any, served: Served, *vs: str, **more: str) -> Any:
    """Open a comparison by its address; its columns, when they are filled."""
    page.goto(served.url(*vs, **more))
    filled(page)
    columns = page.locator(".column")
    expect(columns).to_have_count(2)
    return columns


def named(rank: int, found: Moment) -> re.Pattern[str]:
    minutes, seconds = divmod(found.start, 60)
    return re.compile(rf"^{rank}\. .* {int(minutes)}:{seconds:04.1f} – ")


def marks(column: Any) -> list[str]:
    """What is said of each moment of a column about the other one's; "" where nothing is."""
    told: list[str] = column.locator(".card").evaluate_all(
        "(all) => all.map((one) => one.querySelector('.same')?.textContent ?? '')"
    )
    return told


def same(one: Sequence[Moment], two: Sequence[Moment], name: str) -> list[str]:
    """The marks that there should be."""
    ranks = [next((at for at, other in enumerate(two, 1) if mine.iou(other) >= 0.5), None) for mine in one]
    return [f"= {rank}. of {name}" if rank else "" for rank in ranks]


def test_compare_opens_two_columns_and_its_script_is_fetched_only_then(page: Any, served: Served) -> None:
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(urlsplit(request.url).path))
    page.goto(served.url())
    button = page.get_by_role("button", name="Compare")
    expect(button).to_be_visible()
    assert "/static/page.js" in fetched
    late = {"/static/compare.js", "/static/compare.css", "/static/why.js"}
    assert not late & set(fetched)
    button.click()
    expect(page.locator("#compare-title")).to_be_focused()
    expect(page.locator("#results")).to_be_hidden()
    filled(page)
    assert late <= set(fetched)
    assert parse_qs(urlsplit(page.url).query)["vs"] == [FIRST, SECOND]
    expect(page.get_by_role("region", name=FIRST, exact=True).locator(".card")).to_have_count(10)
    expect(page.get_by_role("region", name=SECOND, exact=True).locator(".card")).to_have_count(10)
    boxes = [page.locator(".column").nth(side).bounding_box() for side in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    page.go_back()
    expect(page.locator("#results")).to_be_visible()
    expect(page.locator("#comparison")).to_be_hidden()


def test_moments_that_both_find_are_marked_with_their_rank_on_the_other_side(
    page: Any, served: Served
) -> None:
    columns = opened(page, served, FIRST, SECOND)
    one, two = served.best(FIRST), served.best(SECOND)
    expected = same(one, two, SECOND)
    assert any(expected) and not all(expected)
    assert marks(columns.nth(0)) == expected
    assert marks(columns.nth(1)) == same(two, one, FIRST)
    both = sum(map(bool, expected))
    expect(page.locator("#comparison > .beneath")).to_contain_text(f"{both} of the 10 best moments of")
    for side, found in enumerate((one, two)):
        card = columns.nth(side).locator(".card").nth(2)
        expect(card.locator(".rank")).to_have_text("3.")
        expect(card.locator(".place")).to_contain_text(re.compile(r"score -?\d+\.\d{3}"))
        assert card.locator(".card-link").get_attribute("data-key").startswith(found[2].video_id)


def test_words_and_start_and_end_are_told_and_stepping_moves_nothing_else(page: Any, served: Served) -> None:
    columns = opened(page, served, FIRST, SECOND)
    one, two = served.best(FIRST), served.best(SECOND)
    for side, found in enumerate((one, two)):
        expect(columns.nth(side).locator(".token")).to_have_count(7)  # "[CLS]" and six words
        expect(columns.nth(side).locator(".along-name")).to_have_text(named(1, found[0]))
        expect(columns.nth(side).locator(".along .curve-name")).to_have_text(["start", "end"])
        expect(columns.nth(side).locator("figcaption")).to_contain_text("It starts at 0:")
    scales = columns.locator("figcaption p:last-child").all_text_contents()
    assert scales[0] == scales[1], "probabilities are drawn to one scale"
    label = columns.nth(0).get_by_role("img").get_attribute("aria-label")
    assert re.search(r"start is highest at 0:\d\d\.\d \(.* %\); end is highest at ", label)
    tops = "(all) => all.map((one) => one.getBoundingClientRect().top)"
    before = page.locator(".card-link").evaluate_all(tops)
    columns.nth(0).get_by_role("button", name="of the next moment").click()
    expect(columns.nth(0).locator(".along-name")).to_have_text(named(2, one[1]))
    expect(columns.nth(0).locator(".chosen")).to_contain_text("2.")
    assert page.locator(".card-link").evaluate_all(tops) == before
    columns.nth(0).get_by_role("button", name="Show in both").click()
    shown = columns.nth(1).locator(".along-name")
    expect(shown).to_contain_text(columns.nth(0).locator(".along-name").inner_text()[3:])
    rank = next((at for at, other in enumerate(two, 1) if one[1].iou(other) >= 0.5), None)
    expect(shown).to_contain_text(f"(here {rank}.)" if rank else "(not among the best here)")


def test_a_moment_plays_as_its_own_system_s_and_closing_leads_back_to_it(page: Any, served: Served) -> None:
    columns = opened(page, served, FIRST, SECOND)
    link = columns.nth(1).locator(".card-link").nth(1)
    link.click()
    expect(page.locator("#title")).to_be_focused()
    expect(page.locator(".timeline .curve-name")).to_have_text(["start (score)", "end (score)"])
    parameters = parse_qs(urlsplit(page.url).query)
    assert (parameters["model"], parameters["vs"]) == ([SECOND], [FIRST, SECOND])
    expect(page.locator("#why")).to_have_text("Why here?")
    expect(link).to_have_attribute("aria-current", "true")
    expect(columns.nth(1).locator(".along-name")).to_have_text(re.compile("^2\\."))
    expect(columns.nth(0).locator(".along-name")).to_have_text(re.compile("^1\\."))
    page.keyboard.press("Escape")
    expect(page.locator("#player")).to_be_hidden()
    expect(link).to_be_focused()


def test_a_question_without_answers_is_said_to_have_none(page: Any, served: Served) -> None:
    columns = opened(page, served, FIRST, "", after="2999-01-01")
    for side in (0, 1):
        expect(columns.nth(side)).to_contain_text("Finds nothing for this query.")
        expect(columns.nth(side)).to_contain_text("passes the filters")
        expect(columns.nth(side).locator(".card")).to_have_count(0)
        expect(columns.nth(side).locator(".along")).to_be_hidden()
    expect(page.get_by_role("button", name="Back to results")).to_be_visible()


def test_a_system_without_word_weights_and_the_usual_search_say_so(page: Any, served: Served) -> None:
    columns = opened(page, served, WORDLESS, "")
    expect(columns.nth(0).locator(".why")).to_contain_text("This system has no word weights.")
    expect(columns.nth(0).locator(".along .curve-name")).to_have_text(["start", "end"])
    expect(columns.nth(1).locator(".why")).to_contain_text("The usual search does not weigh words.")
    expect(columns.nth(1).locator(".along .curve-name")).to_have_text(["words"])
    expect(columns.nth(1).locator(".card").first).to_contain_text("score")


def test_a_system_that_cannot_be_asked_is_said_beside_what_the_other_finds(page: Any, served: Served) -> None:
    page.watched.expected.append("400")
    columns = opened(page, served, GONE, SECOND)
    expect(columns.nth(0).get_by_role("alert")).to_contain_text("gone: no such folder")
    expect(columns.nth(1).locator(".card")).to_have_count(10)
    assert not any(marks(columns.nth(1)))
    columns.nth(0).get_by_label("First system").select_option(FIRST)
    expect(columns.nth(0).get_by_label("First system")).to_have_value(FIRST)
    filled(page)
    expect(columns.nth(0).locator(".card:not(.ghost)")).to_have_count(10)
    expect(columns.nth(0).get_by_role("alert")).to_have_count(0)


def test_a_system_that_is_on_the_other_side_changes_places(page: Any, served: Served) -> None:
    columns = opened(page, served, FIRST, SECOND)
    columns.nth(0).get_by_label("First system").select_option(SECOND)
    filled(page)
    assert parse_qs(urlsplit(page.url).query)["vs"] == [SECOND, FIRST]
    expect(columns.nth(1).get_by_label("Second system")).to_have_value(FIRST)
    assert marks(columns.nth(0)) == same(served.best(SECOND), served.best(FIRST), FIRST)


def test_the_comparison_goes_by_the_keyboard_alone(page: Any, served: Served) -> None:
    page.goto(served.url())
    button = page.get_by_role("button", name="Compare")
    button.focus()
    page.keyboard.press("Enter")
    filled(page)
    links = [page.locator(".column").nth(side).locator(".card-link") for side in (0, 1)]
    links[0].nth(0).focus()
    for key, (side, row) in {"ArrowDown": (0, 1), "ArrowRight": (1, 1), "j": (1, 2), "k": (1, 1)}.items():
        page.keyboard.press(key)
        expect(links[side].nth(row)).to_be_focused()
    names: list[str] = []
    page.locator("#compare-title").focus()
    for _ in range(9):
        page.keyboard.press("Tab")
        names.append(
            page.evaluate(
                "() => { const e = document.activeElement;"
                " return e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText; }"
            )
        )
    assert all(names) and "Show in both" in names
    page.keyboard.press("Escape")
    expect(page.locator("#results")).to_be_visible()
    expect(button).to_be_focused()
    assert "vs" not in parse_qs(urlsplit(page.url).query)


def test_a_narrow_screen_has_the_columns_one_below_the_other(
    open_tab: Callable[..., Any], served: Served
) -> None:
    page = open_tab(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    page.goto(served.url())
    expect(page.get_by_role("button", name="Compare")).to_be_visible()
    assert no_sideways(page) and not too_small(page)
    columns = opened(page, served, FIRST, "")
    assert no_sideways(page) and not too_small(page)
    boxes = [columns.nth(side).bounding_box() for side in (0, 1)]
    assert boxes[0]["x"] == boxes[1]["x"] and boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]
    columns.nth(0).locator(".card-link").first.tap()
    expect(page.locator("#player")).to_be_visible()
    expect(page.locator("#comparison")).to_be_hidden()
    assert no_sideways(page)
    page.get_by_role("button", name="Close the player").tap()
    expect(columns.nth(0).locator(".card-link").first).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_of_a_comparison_stands_out_from_what_is_behind_it(
    open_tab: Callable[..., Any], served: Served, scheme: str
) -> None:
    page = open_tab(color_scheme=scheme)
    opened(page, served, FIRST, SECOND)
    # What is behind shaded words is a mixture that the measure does not read.
    page.locator(".token").evaluate_all("(all) => all.forEach((one) => one.remove())")
    assert not page.evaluate(WEAK_TEXT)


def test_axe_finds_nothing_serious_in_a_comparison(page: Any, served: Served) -> None:
    columns = opened(page, served, FIRST, "")
    assert not faults(page)
    columns.nth(0).locator(".card-link").first.click()
    expect(page.locator(".curve-name").first).to_be_visible()
    assert not faults(page)


def test_a_comparison_that_cannot_be_fetched_is_said(page: Any, served: Served) -> None:
    page.watched.expected.append("ERR_FAILED")
    page.route("**/static/compare.js", lambda route: route.abort())
    page.goto(served.url())
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#fault")).to_contain_text("The comparison could not be loaded.")
    page.unroute("**/static/compare.js")
    page.get_by_role("button", name="Try again").click()
    filled(page)
    expect(page.locator(".column .card")).to_have_count(20)


def test_another_question_is_compared_at_once_and_an_old_answer_never_wins(page: Any, served: Served) -> None:
    columns = opened(page, served, FIRST, SECOND)
    first = columns.nth(0).locator(".card-link").first.get_attribute("href")
    searches: list[str] = []
    page.on(
        "request", lambda request: searches.append(request.url) if "/api/search?" in request.url else None
    )
    for word in ("violin", "clock", "beetle sleeps in the sun"):
        page.get_by_role("searchbox").fill(word)
        page.keyboard.press("Enter")
    filled(page)
    hrefs = page.locator(".column .card-link").evaluate_all("(all) => all.map((one) => one.href)")
    assert {parse_qs(urlsplit(one).query)["q"][0] for one in hrefs} == {"beetle sleeps in the sun"}
    assert first not in hrefs
    assert all("model=" in one for one in searches), "the list that is not seen is not asked for"
    page.get_by_role("searchbox").fill("")
    page.keyboard.press("Enter")
    expect(page.locator("#comparison")).to_be_hidden()
    expect(page.locator("#answer")).to_contain_text("Search ")
    assert all(one != two for one, two in itertools.pairwise(hrefs))
