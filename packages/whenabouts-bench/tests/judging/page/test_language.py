"""The judging page in German: every text has an entry, and a person judges in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.server.page.catalogue import dictionary, texts_of_html, texts_of_scripts

import whenabouts
import whenabouts_bench
from whenabouts_bench.judging.tasks import TaskSet

playwright_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect = playwright_api.expect

PAGE = Path(whenabouts_bench.__file__).parent / "judging" / "page"
SHARED = Path(whenabouts.__file__).parent / "server" / "page"


@pytest.mark.parametrize("file", sorted(PAGE.glob("judge.*.js")), ids=lambda file: file.name)
def test_every_text_has_an_entry_and_every_entry_a_text(file: Path) -> None:
    used = texts_of_scripts(PAGE) | texts_of_html(PAGE)
    own, shared = dictionary(file, "words"), dictionary(SHARED / file.name.replace("judge", "words"), "words")
    assert len(used) > 60
    assert sorted(used - own.keys() - shared.keys() - {"Esc"}) == [], "texts without an entry"
    assert sorted(own.keys() - used) == [], "entries without a text"
    assert sorted(own.keys() & shared.keys()) == [], "entries that are in both"


@pytest.mark.slow
def test_a_person_judges_in_german(
    judging: Callable[..., tuple[TaskSet, dict[str, str]]], open_tab: Callable[..., Any]
) -> None:
    _, links = judging("Ada", exam=True)
    page = open_tab(links["Ada"], locale="de-DE", viewport={"width": 390, "height": 844})
    page.goto(links["Ada"])
    expect(page.locator("html")).to_have_attribute("lang", "de")
    page.get_by_role("button", name="Schließen").click()
    expect(page.locator("#progress-text")).to_have_text("Prüfung: 0 von 2 richtig")
    expect(page.locator("#context")).to_contain_text("Umfeld")
    expect(page.locator("#keys-open")).to_be_in_viewport(ratio=1)
    page.wait_for_timeout(300)  # a key that was still meant for the moment before does not grade
    page.keyboard.press("1")
    expect(page.locator("#feedback-text")).to_have_text(
        "Sie gaben 1, der Maßstab ist 4. Er kommt noch einmal."
    )
    page.get_by_role("button", name="Fortsetzen").click()
    page.get_by_role("button", name="English").click()
    expect(page.locator("#progress-text")).to_have_text("Exam: 0 of 2 right")
