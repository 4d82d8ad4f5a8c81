"""Collections on the page: fill from a search, reorder, trim, play and download."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from tests.server.page.test_page import expect, open_first, search, standing, until

from whenabouts.times import parse_seconds

pytestmark = pytest.mark.slow


@pytest.fixture
def name() -> str:
    """The name of a collection that only this test uses."""
    return f"film {uuid4().hex[:8]}"


def test_a_name_that_is_typed_while_the_menu_opens_stays(page: Any, address: str) -> None:
    open_first(page, address, "space telescope")
    typed = """() => {
      document.querySelector('#collect').open = true;
      document.querySelector('#collect-name').value = 'typed at once';
    }"""
    page.evaluate(typed)  # before the browser says that it is open
    expect(page.locator("#collect-name")).to_be_focused()
    expect(page.locator("#collect-name")).to_have_value("typed at once")


@pytest.fixture
def filled(page: Any, address: str, name: str) -> Iterator[Any]:
    """The page of a collection with three moments, which is deleted afterwards."""
    open_first(page, address, "space telescope")
    page.locator("#collect summary").click()
    page.get_by_label("Into the collection").fill(name)
    page.get_by_role("button", name="Add the moment").click()
    expect(page.locator("#message")).to_have_text(f"In “{name}”, which has 1 moment now.")
    page.keyboard.press("j")
    expect(page.locator("#message")).to_have_text("")
    page.keyboard.press("b")
    expect(page.locator("#message")).to_contain_text("2 moments now")
    open_first(page, address, "crown jewels")
    page.keyboard.press("b")
    expect(page.locator("#message")).to_contain_text("3 moments now")
    page.get_by_role("link", name="Collections").click()
    page.locator(".shelf", has_text=name).click()
    expect(page.locator(".clip")).to_have_count(3)
    yield page
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete…").click()
    expect(page.locator(".shelf", has_text=name)).to_have_count(0)


def titles(page: Any) -> list[str]:
    return [re.sub(r"^\d+\. ", "", text) for text in page.locator(".clip .card-title").all_inner_texts()]


def test_moments_are_ordered_by_dragging_and_by_keys(filled: Any) -> None:
    before = titles(filled)
    assert before[2] == "friday"
    filled.locator(".handle").nth(2).focus()
    filled.keyboard.press("Alt+ArrowUp")
    expect(filled.locator(".clip .card-title").nth(1)).to_have_text("2. friday")
    expect(filled.locator(".handle").nth(1)).to_be_focused()
    filled.locator(".clip").nth(1).drag_to(filled.locator(".clip").nth(0))
    expect(filled.locator(".clip .card-title").first).to_have_text("1. friday")
    filled.reload()
    expect(filled.locator(".clip .card-title").first).to_have_text("1. friday")


def is_of_tags(response: Any) -> bool:
    """Whether a response answers a change of tags."""
    return response.request.method == "PATCH" and "tags" in (response.request.post_data or "")


def test_what_is_typed_while_another_field_is_saved_stays(filled: Any) -> None:
    held: list[Any] = []
    filled.route("**/items/*", lambda route: held.append(route))
    note, tags = filled.get_by_label("note on moment 3"), filled.get_by_label("tags of moment 3")
    note.fill("the theft")
    note.press("Enter")
    until(filled, lambda: len(held) == 1)
    tags.fill("crime, 19")
    tags.press("ArrowLeft")
    tags.evaluate("field => field.classList.add('before')")
    held[0].continue_()
    expect(filled.locator(".before")).to_have_count(0)
    expect(tags).to_be_focused()
    expect(tags).to_have_value("crime, 19")
    # A second change waits for the first, so that the answers come in order.
    tags.press("Enter")
    until(filled, lambda: len(held) == 2)
    note.fill("stolen")
    note.press("Enter")
    filled.wait_for_timeout(100)
    assert len(held) == 2
    held[1].continue_()
    until(filled, lambda: len(held) == 3)
    note.evaluate("field => field.classList.add('before')")
    held[2].continue_()
    expect(filled.locator(".before")).to_have_count(0)
    expect(note).to_have_value("stolen")
    expect(tags).to_have_value("crime, 19")


def test_moments_are_trimmed_noted_tagged_and_taken_out(filled: Any) -> None:
    fields = filled.locator(".clip").nth(2)
    fields.get_by_label("start of moment 3").fill("0:04.5")
    fields.get_by_label("start of moment 3").press("Enter")
    expect(filled.get_by_label("start of moment 3")).to_have_value("0:04.500")
    filled.get_by_label("note on moment 3").fill("the theft")
    filled.get_by_label("note on moment 3").press("Enter")
    filled.get_by_label("tags of moment 3").fill("crime, 1940")
    with filled.expect_response(is_of_tags):  # a reload stops what is not yet sent
        filled.get_by_label("tags of moment 3").press("Enter")
    filled.reload()
    expect(filled.get_by_label("note on moment 3")).to_have_value("the theft")
    expect(filled.get_by_label("tags of moment 3")).to_have_value("crime, 1940")
    for end, told in (
        ("0:01", "A moment ends after it starts"),
        ("0:09:00:00", "times count from the start"),
    ):
        filled.get_by_label("end of moment 3").fill(end)
        filled.get_by_label("end of moment 3").press("Enter")
        expect(filled.locator("#collection-message")).to_contain_text(told)
    filled.get_by_role("button", name="Take moment 1 out").click()
    expect(filled.locator(".clip")).to_have_count(2)


# The controls that are visible, without times, the query and the times of words, which are printed as text.
CONTROLS = """() => [...document.querySelectorAll("button, input, select, summary, video, audio, img")]
  .filter((each) => !each.matches(".time-field, #query, .cue-time"))
  .filter((each) => each.checkVisibility() && each.offsetWidth > 1)
  .map((each) => each.id || each.className || each.tagName)"""


def test_a_collection_is_printed_whole_and_without_controls(filled: Any, name: str) -> None:
    note = "she asks, and nobody answers. " * 30
    filled.get_by_label("note on moment 1").fill(note)
    filled.get_by_label("note on moment 1").press("Enter")
    filled.get_by_label("tags of moment 1").fill("crime, 1940")
    with filled.expect_response(is_of_tags):
        filled.get_by_label("tags of moment 1").press("Enter")
    filled.reload()
    expect(filled.locator(".clip")).to_have_count(3)
    filled.emulate_media(media="print")
    assert filled.evaluate(CONTROLS) == []
    printed = filled.locator(".clip-fields").first
    assert printed.get_attribute("data-print") == f"nasa_13013.mp4\n{note}\n#crime #1940"
    of = "(each, part) => getComputedStyle(each, part).content"
    assert "data-print" in printed.evaluate(of, "::after") or note[:20] in printed.evaluate(of, "::after")
    assert printed.bounding_box()["height"] > 100, "the note wraps"
    assert name in filled.locator(".answer-line").last.get_attribute("aria-label")
    expect(filled.locator(".clip .card-title").first).to_be_visible()
    filled.emulate_media(media="screen")


def test_an_answer_and_words_are_printed_whole_and_without_controls(page: Any, address: str) -> None:
    search(page, address, "space telescope")
    page.emulate_media(media="print")
    assert page.evaluate(CONTROLS) == []
    for shown in (".card-title", ".time", ".evidence"):
        expect(page.locator(f".card {shown}").first).to_be_visible()
    page.emulate_media(media="screen")
    page.locator(".card-link").first.click()
    standing(page)
    page.emulate_media(media="print")
    assert page.evaluate(CONTROLS) == []
    expect(page.locator("#title")).to_be_visible()
    expect(page.locator("#results")).to_be_hidden()
    expect(page.locator(".cue-time").last).to_be_visible()
    assert page.evaluate(
        "() => ((list) => list.scrollHeight <= list.clientHeight + 1)(document.querySelector('#cue-list'))"
    )


@pytest.mark.parametrize(("button", "suffix"), [("Export", ".edl"), ("One film (mp4)", ".mp4")])
def test_a_collection_is_taken_away(filled: Any, name: str, button: str, suffix: str) -> None:
    with filled.expect_download() as given:
        filled.get_by_role("button", name=button, exact=True).click()
    assert given.value.suggested_filename == f"{name}{suffix}"
    message = filled.locator("#collection-message")
    expect(message).to_contain_text(f"Saved {name}{suffix}.")
    if suffix == ".edl":
        expect(message).to_contain_text("friday.mp4: its rate is 30; counted at a constant 25 frames")


def test_a_film_says_which_moments_it_leaves_out(collected: Any, name: str) -> None:
    def as_transcripts(route: Any) -> None:
        collection = route.fetch().json()
        for place in (1, 3):
            collection["items"][place] |= {"video_url": None, "thumbnail_url": None, "clip_url": None}
        route.fulfill(json=collection)

    collected.route(re.compile(r"/api/collections/\w+$"), as_transcripts)
    collected.reload()
    with collected.expect_download():
        collected.get_by_role("button", name="One film (mp4)").click()
    told = f"Saved {name}.mp4. Left out, because no recording is here: moments 2, 4."
    expect(collected.locator("#collection-message")).to_have_text(told)


@pytest.fixture
def collected(page: Any, address: str, ids: dict[str, str], name: str) -> Iterator[Any]:
    """The page of a collection with four moments, the second and the fourth alike; deleted afterwards."""
    friday, nasa = f"{ids['friday.mp4']}@1-2", f"{ids['nasa_13013.mp4']}@1-2"
    at = f"{address}api/collections"
    made = page.request.post(at, data={"name": name}).json()["id"]
    flower = f"{ids['flower.webm']}@0.5-1"
    page.request.post(f"{at}/{made}/items", data={"moments": [friday, nasa, flower, nasa]})
    page.goto(f"{address}?c={made}")
    expect(page.locator(".clip")).to_have_count(4)
    yield page
    page.request.delete(f"{at}/{made}")


# How many buttons of a collection's lines lie on a field.
COVERED = """() => {
  const all = (kind) =>
    [...document.querySelectorAll(`.clip ${kind}`)].map((each) => each.getBoundingClientRect());
  const beside = (one, other) => one.right <= other.left || one.bottom <= other.top;
  const covers = (one, other) => !beside(one, other) && !beside(other, one);
  return all('input').flatMap((field) => all('button').filter((button) => covers(button, field))).length;
}"""


@pytest.mark.parametrize("width", [1280, 1400, 1920])
def test_beside_the_player_no_button_lies_on_a_field(collected: Any, width: int) -> None:
    collected.set_viewport_size({"width": width, "height": 900})
    collected.locator(".clip-link").first.click()
    standing(collected)
    assert collected.evaluate(COVERED) == 0
    expect(collected.locator(".clip-link[aria-current]")).to_have_count(1)


def test_texts_that_were_not_saved_stay_and_are_all_tried_again(collected: Any) -> None:
    collected.watched.expected.append("ERR_CONNECTION_REFUSED")
    collected.route("**/items/*", lambda route: route.abort("connectionrefused"))
    message, notes = collected.locator("#collection-message"), collected.get_by_label("note on moment")
    for place, text in enumerate(["the theft", "the telescope"]):
        notes.nth(place).fill(text)
        with collected.expect_event("requestfailed"):
            notes.nth(place).press("Enter")
        expect(message).to_contain_text("The server does not answer")
    collected.unroute("**/items/*")
    notes.nth(3).fill("again")
    notes.nth(3).evaluate("field => field.classList.add('before')")
    notes.nth(3).press("Enter")
    expect(collected.locator(".before")).to_have_count(0)
    expect(notes.nth(0)).to_have_value("the theft")
    expect(notes.nth(1)).to_have_value("the telescope")
    message.get_by_role("button", name="Try again").click()
    expect(message).to_have_text("")
    collected.reload()
    for place, text in enumerate(["the theft", "the telescope", "", "again"]):
        expect(notes.nth(place)).to_have_value(text)


def test_a_text_that_was_not_saved_is_there_after_another_page(collected: Any) -> None:
    collected.watched.expected.append("ERR_CONNECTION_REFUSED")
    collected.route("**/items/*", lambda route: route.abort("connectionrefused"))
    note, message = collected.get_by_label("note on moment 2"), collected.locator("#collection-message")
    note.fill("the theft")
    note.press("Enter")
    expect(message).to_contain_text("The server does not answer")
    leaves = "() => !window.dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    assert collected.evaluate(leaves), "the browser asks before it drops a text"
    collected.get_by_role("link", name="all collections").click()
    expect(collected.locator(".shelf").first).to_be_visible()
    collected.go_back()
    expect(note).to_have_value("the theft")
    collected.unroute("**/items/*")
    message.get_by_role("button", name="Try again").click()
    expect(message).to_have_text("")
    assert not collected.evaluate(leaves)
    collected.reload()
    expect(note).to_have_value("the theft")


def test_a_late_answer_draws_no_collection_over_the_next_page(collected: Any, name: str) -> None:
    held: list[Any] = []
    collected.route("**/items/*", lambda route: held.append(route))
    collected.get_by_label("note on moment 1").fill("late")
    collected.get_by_label("note on moment 1").press("Enter")
    until(collected, lambda: len(held) == 1)
    collected.get_by_role("link", name="all collections").click()
    expect(collected.locator("#collections-title")).to_have_text("Collections")
    with collected.expect_response("**/items/*"):
        held[0].continue_()
    collected.locator(".shelf", has_text=name).click()
    expect(collected.get_by_label("note on moment 1")).to_have_value("late")
    collected.get_by_label("note on moment 1").fill("later")
    collected.get_by_label("note on moment 1").press("Enter")
    until(collected, lambda: len(held) == 2)
    collected.go_back()
    expect(collected.locator("#collections-title")).to_have_text("Collections")
    with collected.expect_response("**/items/*"):
        held[1].continue_()
    collected.wait_for_timeout(200)
    expect(collected.locator("#collections-title")).to_have_text("Collections")


def test_next_and_previous_go_through_the_moments_of_the_collection(
    collected: Any, address: str, ids: dict[str, str]
) -> None:
    collected.goto(f"{collected.url}&q=crown+jewels")
    collected.locator(".clip-link").first.click()
    expect(collected.get_by_role("button", name="Previous result")).to_be_disabled()
    for place, file in enumerate(["nasa_13013.mp4", "flower.webm", "nasa_13013.mp4"], 1):
        collected.get_by_role("button", name="Next result").click()
        expect(collected.locator(".clip-link").nth(place)).to_have_attribute("aria-current", "true")
        assert f"v={ids[file]}&" in collected.url
    expect(collected.get_by_role("button", name="Next result")).to_be_disabled()
    collected.locator("#title").focus()
    collected.keyboard.press("k")
    expect(collected.locator(".clip-link").nth(2)).to_have_attribute("aria-current", "true")
    collected.locator("#export summary").click()
    expect(collected.locator("#scope-results")).to_be_disabled()


def test_borders_that_are_moved_in_the_player_are_saved_into_the_moment(collected: Any) -> None:
    link, save = collected.locator(".clip-link").first, collected.get_by_role("button", name="Save the new")
    link.click()
    expect(collected.locator("#start")).to_have_value("0:01.000")
    expect(save).to_be_hidden()
    collected.get_by_role("button", name="Start one frame later").click()
    collected.get_by_role("button", name="Start one frame later").click()
    expect(collected.get_by_label("start of moment 1")).to_have_value("0:01.000")
    save.click()
    expect(collected.locator("#message")).to_have_text("Saved")
    expect(save).to_be_hidden()
    expect(collected.get_by_label("start of moment 1")).to_have_value("0:01.067")
    collected.reload()
    expect(collected.get_by_label("start of moment 1")).to_have_value("0:01.067")
    expect(link).to_have_attribute("aria-current", "true")


def test_a_moment_is_collected_once_and_the_player_says_so_where_it_is_seen(collected: Any) -> None:
    at, message = collected.url, collected.locator("#message")
    collected.set_viewport_size({"width": 1280, "height": 640})
    open_first(collected, at.split("?")[0], "crown jewels")
    for told in ("which has 1 moment now", "Already in"):
        collected.locator("#collect summary").click()
        collected.get_by_label("Into the collection").fill(f"twice {at[-4:]}")
        collected.get_by_role("button", name="Add the moment").click()
        expect(message).to_contain_text(told)
        expect(message).to_be_in_viewport(ratio=1)
        collected.evaluate("() => document.querySelector('.stage').scrollTo(0, 0)")


def test_what_cannot_be_played_is_told_until_the_next_moment(collected: Any, ids: dict[str, str]) -> None:
    collected.watched.expected.append("Failed to load resource")
    collected.route(f"**/{ids['friday.mp4']}/*", lambda route: route.abort())
    collected.get_by_role("button", name="Play through").click()
    dialog = collected.get_by_role("dialog")
    expect(dialog).to_contain_text("Moment 1 cannot be played.")
    collected.wait_for_timeout(500)
    expect(dialog).to_contain_text("Moment 1 cannot be played.", timeout=1)
    expect(dialog).to_contain_text("2 of 4")


def test_a_collection_that_was_renamed_is_still_the_last_one(filled: Any, address: str, name: str) -> None:
    with filled.expect_response(lambda response: response.request.method == "PATCH"):
        filled.get_by_label("Name of the collection").fill(f"{name} B")
        filled.get_by_label("Name of the collection").press("Enter")
    at = filled.url
    open_first(filled, address, "crown jewels")
    filled.keyboard.press("b")
    expect(filled.locator("#message")).to_have_text(f"Already in “{name} B”.")
    filled.locator("#collect summary").click()
    expect(filled.get_by_label("Into the collection")).to_have_value(f"{name} B")
    filled.goto(at)


def test_a_double_press_takes_one_moment_out_and_it_can_be_put_back(collected: Any) -> None:
    collected.get_by_label("note on moment 2").fill("the telescope")
    with collected.expect_response("**/items/*"):
        collected.get_by_label("note on moment 2").press("Enter")
    collected.get_by_role("button", name="Take moment 2 out").dblclick()
    undo, message = collected.locator("#collection-undo"), collected.locator("#collection-message")
    expect(undo).to_contain_text("Moment 2 is taken out.")
    expect(collected.locator(".clip")).to_have_count(3)
    with collected.expect_download():
        collected.get_by_role("button", name="Export", exact=True).click()
    expect(message).to_contain_text("Saved")
    collected.get_by_label("note on moment 1").fill("first")
    collected.get_by_label("note on moment 1").press("Enter")
    expect(message).to_have_text("")
    undo.get_by_role("button", name="Put back").click()
    expect(collected.locator(".clip")).to_have_count(4)
    expect(collected.get_by_label("note on moment 2")).to_have_value("the telescope")
    expect(undo).to_have_text("")


def test_chosen_moments_are_moved_to_another_collection_and_put_back(
    collected: Any, address: str, name: str, ids: dict[str, str]
) -> None:
    collected.watched.expected += ["409", "Failed to load resource"]
    at, before = items_of(collected, address)
    noted = {"note": "she asks", "tags": ["dialogue"], "start": 1.125}
    collected.request.patch(f"{at}/items/{before[1]['id']}", data=noted)
    there = collected.request.post(f"{address}api/collections", data={"name": f"{name} there"}).json()["id"]
    target = f"{address}api/collections/{there}"
    last = f"{ids['nasa_13013.mp4']}@1.000-2.000"
    collected.request.post(f"{target}/items", data={"moments": [last]})
    collected.reload()
    collected.get_by_label("Choose moment 2").click()
    collected.get_by_label("Choose moment 4").click(modifiers=["Shift"])
    bar = collected.get_by_role("form", name="Chosen moments")
    expect(bar).to_contain_text("3 chosen")
    bar.get_by_label("Into the collection").select_option(there)
    # The second request fails: nothing is lost, and a second try moves the rest.
    asked: list[Any] = []

    def fail_once(route: Any) -> None:
        asked.append(route)
        if len(asked) == 2:
            route.abort()
        else:
            route.fallback()

    collected.route("**/move", fail_once)
    bar.get_by_role("button", name="Move").click()
    message, undo = collected.locator("#collection-message"), collected.locator("#collection-undo")
    expect(message).to_contain_text("The server does not answer")
    assert len(items_of(collected, address)[1]) == 3
    assert len(collected.request.get(target).json()["items"]) == 2
    message.get_by_role("button", name="Try again").click()
    expect(collected.locator(".clip")).to_have_count(1)
    expect(undo).to_contain_text(f"Moved 3 moments to “{name} there”. 1 of them was there already.")
    moved = collected.request.get(target).json()["items"]
    assert [item["id"] for item in moved[1:]] == [item["id"] for item in before[1:]]
    assert {key: moved[1][key] for key in noted} == noted
    expect(bar).to_be_hidden()
    # One is taken out there meanwhile: the others come back.
    collected.request.delete(f"{target}/items/{before[3]['id']}")
    undo.get_by_role("button", name="Put back").click()
    expect(collected.locator(".clip")).to_have_count(3)
    assert [item["id"] for item in items_of(collected, address)[1]] == [item["id"] for item in before[:3]]
    assert len(collected.request.get(target).json()["items"]) == 1
    expect(undo).to_have_text("")
    expect(message).to_have_text(f"Meanwhile taken out of the other collection: {before[3]['title']}.")
    collected.request.delete(target)


def test_a_moment_is_copied_to_a_new_collection_unless_its_name_is_taken(
    collected: Any, address: str, name: str
) -> None:
    collected.watched.expected.append("409")
    at, before = items_of(collected, address)
    collected.request.patch(f"{at}/items/{before[0]['id']}", data={"note": "she asks"})
    collected.reload()
    collected.get_by_label("Choose moment 1").click()
    bar, message = (
        collected.get_by_role("form", name="Chosen moments"),
        collected.locator("#collection-message"),
    )
    bar.get_by_label("Into the collection").select_option(label="A new collection")
    bar.get_by_label("Name of a new collection").fill(name)
    bar.get_by_role("button", name="Copy").click()
    expect(message).to_contain_text(f"another collection has the name or id '{name}'")
    bar.get_by_label("Name of a new collection").fill(f"{name} new")
    bar.get_by_role("button", name="Copy").click()
    expect(message).to_have_text(f"Copied 1 moment to “{name} new”.")
    made = f"{address}api/collections/{quote(f'{name} new')}"
    [copied] = collected.request.get(made).json()["items"]
    assert (copied["note"], copied["video_id"]) == ("she asks", before[0]["video_id"])
    assert [item["id"] for item in items_of(collected, address)[1]] == [item["id"] for item in before]
    collected.request.delete(made)


def items_of(page: Any, address: str) -> tuple[str, list[dict[str, Any]]]:
    """The address of the collection on the page, and its moments as the server has them."""
    at = f"{address}api/collections/{page.url.partition('?c=')[2]}"
    return at, page.request.get(at).json()["items"]


def test_what_another_window_wrote_is_not_overwritten_unseen(collected: Any, address: str) -> None:
    collected.watched.expected.append("409")
    at, items = items_of(collected, address)
    note, message = collected.get_by_label("note on moment 2"), collected.locator("#collection-message")
    for mine, theirs, choice in (
        ("mine", "theirs", "Keep mine"),
        ("more of mine", "last word", "Take theirs"),
    ):
        collected.request.patch(f"{at}/items/{items[1]['id']}", data={"note": theirs})
        note.fill(mine)
        note.press("Enter")
        expect(message).to_contain_text(f"Meanwhile somebody changed it to “{theirs}”.")
        expect(note).to_have_value(mine)
        assert items_of(collected, address)[1][1]["note"] == theirs
        message.get_by_role("button", name=choice).click()
        expect(message).to_have_text("")
        kept = mine if choice == "Keep mine" else theirs
        expect(note).to_have_value(kept)
        assert items_of(collected, address)[1][1]["note"] == kept
    for text in ("own", "own again"):  # one's own changes are no conflict
        note.fill(text)
        with collected.expect_response(lambda response: response.request.method == "PATCH") as answered:
            note.press("Enter")
        assert answered.value.status == 200


def test_a_window_that_is_looked_at_again_shows_the_present_state(collected: Any, address: str) -> None:
    at, items = items_of(collected, address)
    looks = "() => window.dispatchEvent(new Event('focus'))"
    collected.get_by_label("note on moment 3").fill("draft")
    collected.request.delete(f"{at}/items/{items[0]['id']}")
    collected.request.patch(f"{at}/items/{items[2]['id']}", data={"tags": ["red"]})
    collected.evaluate(looks)
    expect(collected.locator(".clip")).to_have_count(3)
    expect(collected.get_by_label("tags of moment 2")).to_have_value("red")
    expect(collected.get_by_label("note on moment 2")).to_have_value("draft")
    collected.request.delete(f"{at}/items/{items[2]['id']}")
    collected.evaluate(looks)
    expect(collected.locator(".clip")).to_have_count(2)
    expect(collected.locator("#collection-message")).to_have_text("You wrote: “draft”.")
    collected.get_by_role("button", name="Put back").click()
    expect(collected.get_by_label("note on moment 2")).to_have_value("draft")
    expect(collected.get_by_label("tags of moment 2")).to_have_value("red")


def test_a_text_on_a_moment_that_is_gone_can_be_put_back(collected: Any, address: str) -> None:
    collected.watched.expected.append("404")
    at, items = items_of(collected, address)
    collected.request.delete(f"{at}/items/{items[1]['id']}")
    collected.get_by_label("note on moment 2").fill("the telescope")
    collected.get_by_label("note on moment 2").press("Enter")
    expect(collected.locator("#collection-message")).to_have_text("You wrote: “the telescope”.")
    expect(collected.locator(".clip")).to_have_count(3)
    collected.get_by_role("button", name="Put back").click()
    expect(collected.get_by_label("note on moment 2")).to_have_value("the telescope")
    collected.request.delete(at)
    collected.get_by_label("note on moment 1").fill("late")
    collected.get_by_label("note on moment 1").press("Enter")
    expect(collected.locator("#collections")).to_contain_text("You wrote: “late”.")


def test_a_list_is_saved_with_the_notes_of_the_server(collected: Any, name: str) -> None:
    def noted(route: Any) -> None:
        answer = route.fetch()
        notes = ["a.mov: the moment ends at 14.000 s", "its moment is left out"]
        route.fulfill(response=answer, headers={**answer.headers, "X-Whenabouts-Notes": json.dumps(notes)})

    collected.route("**/export?*", noted)
    collected.get_by_role("button", name="Export", exact=True).click()
    told = f"Saved {name}.edl. Note: a.mov: the moment ends at 14.000 s. Note: its moment is left out."
    expect(collected.locator("#collection-message")).to_have_text(told)


def test_deleting_says_what_goes_with_a_collection(collected: Any) -> None:
    collected.get_by_label("note on moment 2").fill("the telescope")
    with collected.expect_response("**/items/*"):
        collected.get_by_label("note on moment 2").press("Enter")
    asked: list[str] = []

    def answer(dialog: Any) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    collected.on("dialog", answer)
    expect(collected.get_by_label("note on moment 2")).to_have_value("the telescope")
    collected.get_by_role("button", name="Delete…").click()
    assert "with 4 moments? The videos stay. 1 of them has a note or tags. This cannot be undone." in asked[0]


def test_a_time_may_be_typed_as_a_time_code(collected: Any) -> None:
    collected.get_by_label("end of moment 1").fill("0:00:02:15")
    collected.get_by_label("end of moment 1").press("Enter")
    expect(collected.get_by_label("end of moment 1")).to_have_value(re.compile(r"^0:02\.5"))
    collected.get_by_label("end of moment 1").fill("later")
    collected.get_by_label("end of moment 1").press("Enter")
    expect(collected.locator("#collection-message")).to_contain_text("“later” is no time")


def test_without_a_server_a_collection_and_a_link_say_so(page: Any, address: str) -> None:
    open_first(page, address, "crown jewels")
    page.watched.expected.append("ERR_CONNECTION_REFUSED")
    page.route("**/static/*", lambda route: route.abort("connectionrefused"))
    # On a busy machine the first request after `route` once came through.
    until(page, lambda: bool(page.evaluate("() => fetch('static/page.js').then(() => false, () => true)")))
    page.keyboard.press("b")
    expect(page.locator("#message")).to_contain_text("Not collected: The server does not answer")
    page.locator("#copy").click()
    expect(page.locator("#message")).to_have_text(re.compile("^The server does not answer"))
    page.get_by_role("button", name="Copy search link").click()
    expect(page.locator("#fault")).to_contain_text("The server does not answer")
    page.get_by_role("link", name="Collections").click()
    expect(page.locator("#collections .fault")).to_contain_text("The server does not answer")
    page.unroute("**/static/*")
    page.locator("#collections").get_by_role("button", name="Try again").click()
    expect(page.locator("#collections-title")).to_have_text("Collections")


# Records each picture that a visible player shows while it plays, and for a player that becomes visible its
# state when it is painted (3: it has data to continue from there) and its time.
NOTE_PICTURES = """() => {
  window.pictures = [];
  window.turns = [];
  document.querySelectorAll('.reel').forEach((video, player) => {
    const note = (now) => {
      if (video.classList.contains('on') && !video.paused) window.pictures.push([now, player]);
      video.requestVideoFrameCallback(note);
    };
    video.requestVideoFrameCallback(note);
    new MutationObserver(() => {
      if (!video.classList.contains('on')) return;
      const stands = [video.readyState, video.currentTime];
      requestAnimationFrame((now) => window.turns.push([now, player, ...stands]));
    }).observe(video, { attributeFilter: ['class'] });
  });
}"""


def gaps(page: Any) -> list[float]:
    """Milliseconds between the last picture of a moment and the first of the next."""
    pictures, turns = page.evaluate("() => [window.pictures, window.turns]")
    return [
        turn - max(at for at, player in pictures if player != shown and at <= turn)
        for turn, shown, *_ in turns
    ]


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_collection_plays_through_without_a_gap(filled: Any, motion: str) -> None:
    filled.emulate_media(reduced_motion=motion)
    starts = [
        parse_seconds(each.input_value()) for each in filled.get_by_label(re.compile("^start of")).all()
    ]
    filled.get_by_role("button", name="Play through").click()
    dialog = filled.get_by_role("dialog", name="Play through")
    expect(filled.locator(".reel.on")).to_have_count(1)
    filled.evaluate(NOTE_PICTURES)
    expect(dialog).to_contain_text("3 of 3", timeout=60_000)
    assert filled.evaluate("() => document.getAnimations().length") == 0
    expect(dialog).to_have_count(0, timeout=60_000)
    # Each moment stands fetched on its first picture before its turn. A busy machine only adds to a gap.
    turns = filled.evaluate("() => window.turns")
    assert [state >= 3 for *_, state, _ in turns] == [True, True]
    assert [at for *_, at in turns] == pytest.approx(starts[1:], abs=0.05)
    assert min(gaps(filled)) <= 100, gaps(filled)


def test_playing_through_is_led_by_keys(filled: Any) -> None:
    filled.get_by_role("button", name="Play through").click()
    dialog = filled.get_by_role("dialog", name="Play through")
    expect(dialog.get_by_role("button", name="Pause")).to_be_focused()
    filled.keyboard.press("j")
    expect(dialog).to_contain_text("2 of 3")
    filled.keyboard.press("Space")
    expect(dialog.get_by_role("button", name="Play")).to_be_visible()
    until(filled, lambda: filled.evaluate("() => document.querySelector('.reel.on').paused"))
    filled.keyboard.press("k")
    expect(dialog).to_contain_text("1 of 3")
    dialog.get_by_label("Where in the collection").focus()
    filled.keyboard.press("End")
    expect(dialog).to_contain_text("3 of 3")
    filled.keyboard.press("m")
    filled.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(filled.get_by_role("button", name="Play through")).to_be_focused()


def test_what_no_browser_plays_is_played_through_as_the_server_cuts_it(
    page: Any, address: str, name: str
) -> None:
    search(page, address, "burrow under the hedge")
    page.locator(".card-link", has_text="rabbits").first.click()
    page.locator("#collect summary").click()
    page.get_by_label("Into the collection").fill(name)
    page.get_by_role("button", name="Add the moment").click()
    expect(page.locator("#message")).to_contain_text("1 moment now")
    page.get_by_role("link", name="Collections").click()
    page.locator(".shelf", has_text=name).click()
    page.get_by_role("button", name="Play through").click()
    until(page, lambda: page.evaluate("() => document.querySelector('.reel.on')?.videoWidth > 0"))
    assert "/clip?" in page.locator(".reel.on").get_attribute("src")
    page.keyboard.press("Escape")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete…").click()


def test_a_saved_search_says_what_is_new(page: Any, address: str) -> None:
    search(page, address, "space telescope")
    page.get_by_role("button", name="Save search").click()
    expect(page.get_by_role("button", name="Saved", exact=True)).to_be_visible()
    page.get_by_role("link", name="Collections").click()
    shelf = page.locator(".shelf", has_text="space telescope")
    expect(shelf).to_contain_text("nothing new")
    shelf.click()
    expect(page.locator(".card-link").first).to_contain_text("nasa 13013")
    page.go_back()
    page.get_by_role("button", name="Forget the search space telescope").click()
    expect(shelf).to_have_count(0)


def test_searches_that_differ_by_a_filter_are_saved_apart_and_news_ignore_open_filters(
    page: Any, address: str, ids: dict[str, str]
) -> None:
    within = f"&within={ids['nasa_audio_only.mp3']}"
    for filters in ("", within):
        page.goto(f"{address}?q=space+telescope{filters}")
        page.get_by_role("button", name="Save search").click()
        expect(page.get_by_role("button", name="Saved", exact=True)).to_be_visible()
    page.get_by_role("link", name="Collections").click()
    shelves = page.locator("[data-news]")
    expect(shelves).to_have_text(["nothing new"] * 2)
    names = [each.get_attribute("data-news") for each in shelves.all()]
    assert names == ["space telescope", f"space telescope, within: {ids['nasa_audio_only.mp3']}"]
    # Meanwhile another tab forgets one.
    page.watched.expected.append("404")
    page.request.delete(f"{address}api/saved-searches/space telescope")
    for each in names:
        page.get_by_role("button", name=f"Forget the search {each}", exact=True).click()
    expect(shelves).to_have_count(0)


def test_a_long_question_with_many_moments_is_saved(page: Any, address: str) -> None:
    page.goto(address)
    name = page.evaluate(
        """async () => {
          const { saveSearch } = await import("./static/collections.js");
          const name = "a".repeat(189) + "\\u{1f438}\\u{1f438}";
          const { data } = await saveSearch(name, { q: "frogs" }, Array(250).fill("a@0-1"));
          return data[0].name;
        }"""
    )
    assert name == "a" * 189 + "\U0001f438"
    page.request.delete(f"{address}api/saved-searches/{quote(name)}")


def test_a_search_with_an_example_is_not_saved(page: Any, address: str, ids: dict[str, str]) -> None:
    page.goto(f"{address}?q=flower&like={ids['flower.webm']}@0.5-1")
    expect(page.locator("#copy-search")).to_be_visible()
    expect(page.locator("#save-search")).to_be_hidden()


def test_a_blank_name_is_refused_in_words(page: Any, address: str) -> None:
    page.watched.expected.append("400")
    page.goto(f"{address}?c=all")
    page.get_by_label("Name of a new collection").fill("  ")
    page.get_by_role("button", name="Make it").click()
    field = page.get_by_label("Name of a new collection")
    until(page, lambda: "is not a name" in field.evaluate("field => field.validationMessage"))


def test_an_invalid_collection_is_shown_with_its_fault_and_can_be_deleted(page: Any, address: str) -> None:
    page.watched.expected.append("404")
    problem = "the collection 'film' contains an invalid moment (too long); delete it"
    line = {"id": "0" * 12, "name": "film", "note": "", "changed": 1.0, "count": 1, "seconds": 0.0}
    page.route(
        "**/api/collections", lambda route: route.fulfill(json={"data": [line | {"problem": problem}]})
    )
    page.goto(f"{address}?c=all")
    expect(page.locator(".shelf")).to_contain_text(problem)
    expect(page.locator("a.shelf")).to_have_count(0)
    with page.expect_request(lambda request: request.method == "DELETE") as deleted:
        page.get_by_role("button", name="Delete the collection film").click()
    assert deleted.value.url.endswith("/api/collections/000000000000")
