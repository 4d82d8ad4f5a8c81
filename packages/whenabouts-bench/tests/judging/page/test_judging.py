"""The judging page in Chromium: keys, borders, undo, two at once, an exam, a connection that breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.judging.served_set import EXPLANATION, HOSTILE, write_avi
from tests.server.page.axe import faults

from whenabouts_bench.judging.events import Answer, Event
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import TaskSet

playwright_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect = playwright_api.expect
pytestmark = pytest.mark.slow
Judging = Callable[..., tuple[TaskSet, dict[str, str]]]
Open = Callable[..., Any]
# Keys are ignored for `SETTLE_MILLISECONDS`, because they may belong to the moment before.
SETTLED = 300


def enter(open_tab: Open, at: str, **settings: Any) -> Any:
    """A tab whose owner has read the guideline."""
    page = open_tab(at, **settings)
    page.goto(at)
    expect(page.locator("#guideline")).to_be_visible()
    expect(page.locator("#guideline-text")).to_contain_text("A perfect answer")
    page.keyboard.press("Escape")
    expect(page.locator("#guideline")).to_be_hidden()
    return page


def press(page: Any, key: str) -> None:
    page.wait_for_timeout(SETTLED)
    page.keyboard.press(key)


def stands_at(page: Any, progress: str) -> None:
    expect(page.locator("#progress-text")).to_have_text(progress)


def answer(tasks: TaskSet, annotator: str, task_id: str) -> Answer:
    given = Journal.open(tasks).state().answer(annotator, task_id)
    assert given is not None
    return given


def border(page: Any, side: str) -> float:
    return float(page.locator(f"#grip-{side}").get_attribute("aria-valuenow"))


def drag(page: Any, side: str, pixels: int) -> None:
    box = page.locator(f"#grip-{side}").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] - 8
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + pixels, y, steps=4)
    page.mouse.up()


def test_a_person_judges_with_keys_drags_a_border_and_takes_one_back(
    judging: Judging, open_tab: Open
) -> None:
    tasks, links = judging("Ada")
    page = enter(open_tab, links["Ada"])
    expect(page.locator("#query")).to_have_text("A man speaks")
    video = page.locator("#screen video")
    expect(video).to_have_js_property("paused", False)  # it loops
    start, end = border(page, "start"), border(page, "end")
    page.keyboard.press("ArrowRight")
    assert border(page, "start") == pytest.approx(start + 0.1)
    drag(page, "end", 60)
    assert border(page, "start") == pytest.approx(start + 0.1)
    assert border(page, "end") > end
    dragged = border(page, "end")
    page.reload()  # nothing is graded yet, and nothing is lost
    expect(page.locator("#reset")).to_be_visible()
    assert border(page, "start") == pytest.approx(start + 0.1, abs=2e-3)
    assert border(page, "end") == pytest.approx(dragged, abs=2e-3)
    expect(video).to_have_js_property("paused", False)
    page.keyboard.press("c")
    expect(page.locator("#context")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Space")
    expect(video).to_have_js_property("paused", True)
    moved = border(page, "start"), border(page, "end")
    press(page, "3")
    stands_at(page, "1 of 4")
    given = answer(tasks, "Ada", "t0")
    assert (given.grade, given.start, given.end) == (3, *(pytest.approx(at, abs=2e-3) for at in moved))
    page.keyboard.press("u")
    stands_at(page, "0 of 4")
    expect(page.locator("[data-given] kbd")).to_have_text("3")
    assert border(page, "end") == pytest.approx(moved[1], abs=2e-3)
    page.wait_for_timeout(SETTLED)
    page.get_by_role("button", name="2 Part of an answer").click()
    stands_at(page, "1 of 4")
    assert answer(tasks, "Ada", "t0").grade == 2
    press(page, "0")
    expect(page.locator("#query")).to_have_text(HOSTILE)  # as text: open_tab fails if it runs
    press(page, "1")
    expect(page.locator("#unplayable-text")).to_contain_text("The video is missing")
    press(page, "4")  # a video that is not shown cannot be judged
    stands_at(page, "3 of 4")
    page.get_by_role("button", name="Skip this one").click()
    expect(page.locator("#done-title")).to_have_text("Nothing more for now")
    stands_at(page, "3 of 4, 1 skipped")


def test_two_judge_at_once_and_who_leads_changes_the_guideline(judging: Judging, open_tab: Open) -> None:
    tasks, links = judging("Ada", "Bo")
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    ada, bo = enter(open_tab, links["Ada"]), enter(open_tab, links["Bo"], **phone)
    for grade in ("4", "2"):
        press(ada, grade)
        press(bo, str(int(grade) - 1))
    for page in (ada, bo):
        stands_at(page, "2 of 4")
    assert Journal.open(tasks).state().grades("t0") in ((4, 3), (3, 4))
    assert bo.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    lead = open_tab(links[""])
    lead.goto(links[""])
    expect(lead.locator("#lead-rows tr").first).to_contain_text("Ada2")
    for key in ("u", "Control+z", "3", "ArrowLeft", "]", "c", " "):  # for those who judge
        lead.keyboard.press(key)
    lead.wait_for_timeout(200)
    expect(lead.locator("#fault")).to_be_hidden()
    lead.get_by_role("button", name="Guideline").click()
    lead.get_by_role("button", name="Edit").click()
    lead.locator("#guideline-edit").fill(
        "Look at **dogs**, `cats` and *birds*, not 2 * 3 * 4.\n\n"
        "| grade | when |\n| - | - |\n| 4 | Only `<i>dogs</i>`. |\n\n| - |\n"
    )
    lead.get_by_role("button", name="Save").click()
    expect(lead.locator("#guideline-text p")).to_have_text(["Look at dogs, cats and birds, not 2 * 3 * 4."])
    press(ada, "1")
    expect(ada.locator("#news")).to_have_text("The guideline has changed: G shows it.")
    expect(ada.locator("[data-grade='4'] .meaning")).to_have_text("Only <i>dogs</i>")


def test_who_leads_is_told_that_those_who_judge_do_not_agree(judging: Judging, open_tab: Open) -> None:
    _, links = judging("Ada", "Bo")
    ada, bo = enter(open_tab, links["Ada"]), enter(open_tab, links["Bo"])
    for done in range(1, 4):
        for page, grade in ((ada, "4"), (bo, "0")):
            press(page, grade)
            stands_at(page, f"{done} of 4")
    for page in (ada, bo):
        page.get_by_role("button", name="Skip this one").click()
        expect(page.locator("#done-title")).to_be_visible()
    lead = open_tab(links[""])
    lead.goto(links[""])
    expect(lead.locator("#lead-text")).to_contain_text(
        "0 of 4 moments need nobody any more. The other 4 wait"
    )
    expect(lead.locator("#lead-text")).not_to_contain_text("`")
    expect(lead.locator("#agreement-rows tr")).to_have_text(["Ada, Bo30 %0.00"])
    expect(lead.locator("#disputed-rows tr").first).to_contain_text("Ada 4, Bo 02 more")
    expect(lead.locator("#disputed-rows tr th").nth(2)).to_have_text(HOSTILE)
    lead.get_by_label("Who shall judge, too?").fill("Cy")
    lead.keyboard.press("Enter")
    link = lead.locator("#invite-message a")
    expect(lead.locator("#lead-rows")).to_contain_text("Cy")
    cy = enter(open_tab, link.get_attribute("href"))
    press(cy, "2")
    stands_at(cy, "1 of 4")


def test_the_exam_comes_first_and_tells_what_was_wrong(judging: Judging, open_tab: Open) -> None:
    _, links = judging("Ada", exam=True)
    page = enter(open_tab, links["Ada"], reduced_motion="reduce")
    stands_at(page, "Exam: 0 of 2 right")
    expect(page.locator("#screen video")).to_have_js_property("readyState", 4)
    expect(page.locator("#screen video")).to_have_js_property("paused", True)  # until it is asked to
    press(page, "1")
    expect(page.locator("#feedback-text")).to_have_text("You gave 1, the reference is 4. It comes again.")
    expect(page.locator("#feedback-why")).to_have_text(EXPLANATION)
    page.locator("#feedback-on").click()
    expect(page.locator("#grades button").first).to_be_enabled()
    press(page, "3")
    expect(page.locator("#feedback-text")).to_have_text("You gave 1, the reference is 4. Judge it again.")
    press(page, "4")
    stands_at(page, "0 of 4")
    expect(page.locator("#feedback")).to_be_hidden()


def test_the_exam_shows_one_feedback_at_a_time(judging: Judging, open_tab: Open) -> None:
    _, links = judging("Ada", exam=True)
    page = enter(open_tab, links["Ada"])
    for wrong in ("1", "0"):
        press(page, wrong)
        expect(page.locator("#feedback-on")).to_be_visible()
        page.keyboard.press("Enter")
    expect(page.locator("#feedback-text")).to_have_text("You gave 1, the reference is 4. Judge it again.")
    press(page, "4")
    expect(page.locator("#feedback-text")).to_have_text("You gave 0, the reference is 3. Judge it again.")
    expect(page.locator("#message")).to_be_empty()
    stands_at(page, "Exam: 1 of 2 right")


def test_an_answer_outlives_a_broken_connection_and_a_closed_tab(judging: Judging, open_tab: Open) -> None:
    tasks, links = judging("Ada")
    page = enter(open_tab, links["Ada"])
    page.watched.expected += ["Failed to load resource", "net::ERR"]
    page.context.set_offline(True)
    press(page, "3")
    expect(page.locator("#offline")).to_contain_text("Your answer is kept in this browser and sent again")
    page.context.set_offline(False)
    stands_at(page, "1 of 4")
    expect(page.locator("#offline")).to_be_hidden()
    page.route("**/api/answers", lambda route: route.abort())
    press(page, "2")
    expect(page.locator("#offline")).to_be_visible()
    page.unroute("**/api/answers")
    page.reload()  # as if the tab were closed and opened again
    stands_at(page, "2 of 4")
    assert (answer(tasks, "Ada", "t0").grade, answer(tasks, "Ada", "t1").grade) == (3, 2)
    assert len(Journal.open(tasks).events()) == 3


def test_what_the_browser_does_not_play_is_cut_out_for_it(judging: Judging, open_tab: Open) -> None:
    tasks, links = judging("Ada")
    write_avi(tasks.folder.parent / "gone.mp4")
    for task_id in ("t0", "t1", "t2"):
        Journal.open(tasks).append(Event("grade", "Ada", task_id, 3))
    page = enter(open_tab, links["Ada"])
    video = page.locator("#screen video")
    expect(video).to_have_attribute("src", "api/tasks/t3/clip")
    expect(video).to_have_js_property("paused", False)
    assert (border(page, "start"), border(page, "end")) == (2.0, 3.0)
    press(page, "4")
    expect(page.locator("#done-title")).to_have_text("All done. Thank you!")
    page.get_by_role("button", name="Undo the last answer").click()
    expect(page.locator("[data-given] kbd")).to_have_text("4")


def test_axe_finds_nothing_serious_from_the_guideline_to_the_end(judging: Judging, open_tab: Open) -> None:
    _, links = judging("Ada", exam=True)
    page = open_tab(links["Ada"])
    page.goto(links["Ada"])
    expect(page.locator("#guideline-text")).to_contain_text("A perfect answer")
    assert not faults(page)
    page.keyboard.press("Escape")
    press(page, "1")
    expect(page.locator("#feedback-text")).to_be_visible()
    assert not faults(page)
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    assert not faults(page)
    page.goto("about:blank")
    lead = open_tab(links[""])
    lead.goto(links[""])
    expect(lead.locator("#lead-rows th")).to_have_text(["Ada"])
    assert not faults(lead)
    lead.goto("about:blank")


def test_axe_finds_nothing_serious_where_all_is_judged(judging: Judging, open_tab: Open) -> None:
    tasks, links = judging("Ada")
    for task_id in ("t0", "t1", "t2", "t3"):
        Journal.open(tasks).append(Event("grade", "Ada", task_id, 3))
    page = enter(open_tab, links["Ada"])
    expect(page.locator("#done-title")).to_be_visible()
    assert not faults(page)
    page.get_by_role("button", name="Undo the last answer").click()
    expect(page.locator("[data-given]")).to_be_visible()
    assert not faults(page)
