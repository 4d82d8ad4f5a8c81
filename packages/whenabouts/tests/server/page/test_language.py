"""German and English: every text has an entry in the dictionary, and the page works in both."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.server.page.catalogue import dictionary, texts_of_html, texts_of_scripts
from tests.server.page.test_page import PAGE, PHONE, answered, error_of, expect, no_sideways, standing

from whenabouts.search.coverage import Coverage
from whenabouts.search.rank import doubt_of, judged_alike
from whenabouts.types import Moment, ScoredMoment

DICTIONARIES = sorted(PAGE.glob("words.*.js"))
# Names that are the same in every language.
NAMES = {"Esc", "Final Cut Pro (FCPXML)", "OpenTimelineIO", "whenabouts"}
GERMAN = {"locale": "de-DE"}


@pytest.mark.parametrize("file", DICTIONARIES, ids=lambda file: file.name)
def test_every_text_has_an_entry_and_every_entry_a_text(file: Path) -> None:
    used = (texts_of_scripts(PAGE) | texts_of_html(PAGE)) - NAMES
    words = dictionary(file, "words")
    assert len(used) > 400
    assert sorted(used - words.keys()) == [], "texts without an entry"
    assert sorted(words.keys() - used) == [], "entries without a text"


@pytest.mark.parametrize("file", DICTIONARIES, ids=lambda file: file.name)
def test_entries_have_the_values_and_the_forms_of_their_texts(file: Path) -> None:
    for text, entry in (dictionary(file, "words") | dictionary(file, "sentences")).items():
        assert text.count("|") == entry.count("|"), text
        values, written = (set(re.findall(r"\{\w+\}", each)) for each in (text, entry))
        assert values == written, text


@pytest.mark.parametrize("file", DICTIONARIES, ids=lambda file: file.name)
def test_every_term_is_one_of_the_program(file: Path) -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in PAGE.parents[1].rglob("*.py"))
    source = source.replace("'", '"')
    assert [term for term in dictionary(file, "terms") if f'"{term}"' not in source] == []


# Errors that only programs meet: of requests that the page never sends, or from libraries.
ONLY_FOR_PROGRAMS = {
    *("bad_forwarded", "bad_host", "bad_length", "bad_origin", "invalid_json", "invalid_parameter"),
    *("range_not_satisfiable", "wrong_host"),
}


def messages_of_the_server() -> set[str]:
    """The messages of every `ServerError` that the page may show, with {} for values."""
    messages = set()
    for path in PAGE.parent.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            values = {
                ast.unparse(each.targets[0]): each.value
                for each in ast.walk(function)
                if isinstance(each, ast.Assign)
            }
            for call in ast.walk(function):
                if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "ServerError"):
                    continue
                code, message = call.args[1:3]
                if isinstance(code, ast.Constant) and code.value in ONLY_FOR_PROGRAMS:
                    continue
                messages.add(template(message, values))
    return {message for message in messages if re.search("[a-z]{2}", message)}


def template(message: ast.expr, values: dict[str, ast.expr]) -> str:
    """A message with {} for each value; text from another function counts as a value."""
    match message:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(inserted(part, values) for part in parts)
        case ast.BinOp(left=left, right=right):
            return template(left, values) + template(right, values)
        case ast.Name(id=name) if name in values:
            return template(values[name], values)
    return "{}"


def inserted(part: ast.expr, values: dict[str, ast.expr]) -> str:
    """A part of an f-string: its text, or the template of a variable that is an f-string."""
    if not isinstance(part, ast.FormattedValue):
        return template(part, values)
    value = values.get(ast.unparse(part.value))
    return template(value, values) if isinstance(value, ast.JoinedStr) else "{}"


@pytest.mark.parametrize("file", DICTIONARIES, ids=lambda file: file.name)
def test_every_fault_that_a_page_meets_has_an_entry(file: Path) -> None:
    messages = messages_of_the_server()
    assert len(messages) > 40
    entries = {re.sub(r"\{\w+\}", "{}", entry) for entry in dictionary(file, "faults")}
    assert sorted(messages - entries) == []
    for text, entry in dictionary(file, "faults").items():
        assert set(re.findall(r"\{\w+\}", entry)) <= set(re.findall(r"\{\w+\}", text)), text


@pytest.mark.slow
def test_a_fault_of_the_server_is_shown_in_german(open_tab: Callable[..., Any], address: str) -> None:
    page = open_tab(**GERMAN)
    page.watched.expected.append("404")
    page.goto(f"{address}?q=crown+jewels&stream=nonsense")
    expect(page.locator("#fault")).to_contain_text("dieser Korpus hat keinen Strom 'nonsense'")


def sentences_of_the_server() -> list[str]:
    """Every form of the sentences on why an answer is in doubt and what was searched."""
    some = {"subtitle": 3, "vision": 3}
    covered = (
        Coverage(8, {"subtitle": 3}, {"vision": 8}, silent=5, unseen=5),
        Coverage(8, some, {"vision": 2, "speaker": 1}, silent=1),
        Coverage(8, {"subtitle": 8, "sound": 2}, {}, silent=2),
        Coverage(3, some, {"sound": 3, "face": 3, "likeness": 3, "screen_text": 3, "speaker": 3}),
        Coverage(1, {"subtitle": 0}, {"subtitle": 1, "vision": 1}, silent=1, unseen=1),
        Coverage(1, {"subtitle": 1}, {"vision": 1}),
    )
    doubts = (
        doubt_of(0.5, (0.4, 0.6), ""),
        doubt_of(None, None, ""),
        *(judged_alike([alike])[1] for alike in (ScoredMoment(Moment("a", 0, 1), 1, c) for c in (None, 0.5))),
    )
    return [*(each.line for each in covered), *doubts]


@pytest.mark.slow
def test_sentences_of_the_server_are_read_in_german(page: Any, address: str) -> None:
    page.goto(address)
    read = (
        "async (lines) => { const { read } = await import('./static/words.de.js'); return lines.map(read); }"
    )
    texts = page.evaluate(read, sentences_of_the_server())
    assert texts[0] == (
        "durchsucht: Worte von 3 der 8 Videos (die anderen haben keine); Bilder wurden nicht nach ihrem "
        "Inhalt durchsucht (Bilder indizieren mit --vision MODELL); 5 von 8 Videos haben keine Worte und "
        "keine durchsuchbaren Bilder: Was dort nur zu sehen ist, lässt sich nicht finden"
    )
    english = re.compile(r"\b(of|the|are|is|has|have|not|were|to|with|and|cannot|said)\b")
    assert [text for text in texts if english.search(text)] == []


@pytest.mark.slow
def test_a_german_browser_is_answered_in_german(open_tab: Callable[..., Any], address: str) -> None:
    page = open_tab(**GERMAN, **PHONE)
    page.goto(address)
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(page.locator("#answer")).to_have_text(re.compile(r"^\d+ Videos durchsuchen$"))
    expect(page.get_by_label("Sortieren")).to_have_value("name")
    expect(page.locator(".card").first).to_contain_text("indiziert")
    assert no_sideways(page)
    page.get_by_role("searchbox").fill("crown jewels")
    page.get_by_role("button", name="Suchen", exact=True).tap()
    expect(page.locator("#line")).to_contain_text("durchsucht")
    expect(page.locator(".badge").first).to_contain_text("hier")
    page.locator("#reasons-open").tap()
    expect(page.locator("#beneath")).to_contain_text(re.compile(r"^Durchsucht: Worte von \d+ der \d+ Videos"))
    assert no_sideways(page)
    page.locator(".card-link").first.tap()
    standing(page)
    expect(page.locator("#cues-title")).to_have_text("Was gesagt wird")
    expect(page.locator("#length")).to_have_text(re.compile(r"^\d,\d\d s lang$"))
    field = page.get_by_label("Start", exact=True)
    field.fill("0:02,5")
    field.press("Enter")
    expect(field).to_have_value("0:02,500")
    field.fill("bald")
    field.press("Enter")
    expect(page.locator("#message")).to_contain_text("„bald“ ist keine Zeit")
    for menu in ("#export", "#collect"):
        page.locator(f"{menu} > summary").tap()
        box = page.locator(f"{menu} .menu-body").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.get_by_label("In die Sammlung").fill("deutsch")
    page.get_by_role("button", name="Moment aufnehmen").tap()
    expect(page.locator("#message")).to_have_text("In „deutsch“, jetzt mit 1 Moment.")
    page.get_by_role("link", name="Sammlungen").tap()
    page.locator(".shelf", has_text="deutsch").tap()
    expect(page.locator(".status", has_text="1 Moment")).to_be_visible()
    assert no_sideways(page)
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Löschen …").tap()
    expect(page.locator(".shelf", has_text="deutsch")).to_have_count(0)


@pytest.mark.slow
def test_another_language_is_chosen_and_remembered(open_tab: Callable[..., Any], address: str) -> None:
    page = open_tab(locale="fr-FR")
    page.goto(f"{address}?q=crown+jewels")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    page.get_by_role("button", name="Deutsch").click()
    expect(page.get_by_role("button", name="Suche merken")).to_be_visible()
    page.reload()
    expect(page.locator("#query")).to_have_value("crown jewels")
    expect(page.get_by_role("button", name="Suche merken")).to_be_visible()
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("button", name="Save search")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "en")


@pytest.mark.slow
def test_without_its_dictionary_the_page_is_english(open_tab: Callable[..., Any], address: str) -> None:
    page = open_tab(**GERMAN)
    page.watched.expected.append("ERR_FAILED")
    page.route("**/static/words.de.js", lambda route: route.abort())
    page.goto(address)
    expect(page.locator("#answer")).to_contain_text("Search")
    expect(page.locator("html")).to_have_attribute("lang", "en")


@pytest.mark.slow
def test_no_text_of_the_page_is_left_out_of_the_catalogue(
    open_tab: Callable[..., Any], address: str, ids: dict[str, str]
) -> None:
    """The dictionary brackets every text, so a visible text without brackets is not in the catalogue."""
    page = open_tab(**GERMAN)
    file = PAGE / "words.de.js"
    words = {text: "|".join(f"⟦{form}⟧" for form in text.split("|")) for text in dictionary(file, "words")}
    terms = {term: f"⟦{term}⟧" for term in dictionary(file, "terms")}
    read = f"const terms = {json.dumps(terms)}; export const read = (text) => terms[text] ?? text;"
    script = f"export const words = {json.dumps(words)}; {read}"
    page.route(
        "**/static/words.de.js", lambda route: route.fulfill(body=script, content_type="text/javascript")
    )
    page.goto(address)
    expect(page.locator(".card-link").first).to_be_visible()
    page.locator("#filters > summary").click()
    page.locator(".choose input").first.check()
    assert page.evaluate(LEFT_OUT) == []
    page.evaluate("() => document.querySelector('#keys').showModal()")
    assert page.evaluate(LEFT_OUT) == []
    answered(page, error_of("unsure", [0.97, 0.5, 0.1]))
    page.goto(f"{address}?q=first+words&literal=first&by=video")
    expect(page.locator(".badge").first).to_be_visible()
    assert page.evaluate(LEFT_OUT) == []
    page.unroute("**/api/search?*")
    page.goto(f"{address}?q=crown+jewels&v={ids['friday.mp4']}&s=2.000&e=3.000")
    standing(page)
    page.keyboard.press("w")
    expect(page.locator("#why-title")).to_be_visible()
    page.locator("#export > summary").click()
    assert page.evaluate(LEFT_OUT) == []
    page.goto(f"{address}?c=all")
    expect(page.locator("#collections-title")).to_be_visible()
    assert page.evaluate(LEFT_OUT) == []


# Visible texts and names without brackets, except those of videos and those in every language.
LEFT_OUT = """() => {
  const data = '.card-title, .card-body .evidence, .quote, .path, .cue-text, .chip.double, .shelf, #title,'
    + '#screen *, #language, .facet-groups, .brand, code, mark, .crumbs, datalist, .lost, #notes, '
    + '[value=otio], [value=fcpxml], [value=json]';
  const isLeft = (text, of) => /[A-Za-z]{2}/.test(text) && !text.includes('⟦') && text !== 'Esc'
    && of.checkVisibility() && !of.closest(data);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const left = [];
  while (texts.nextNode()) {
    const { data: text, parentElement: of } = texts.currentNode;
    if (isLeft(text.trim(), of)) left.push(text.trim());
  }
  for (const name of ['aria-label', 'placeholder', 'title']) {
    for (const of of document.querySelectorAll(`[${name}]`)) {
      if (isLeft(of.getAttribute(name), of)) left.push(of.getAttribute(name));
    }
  }
  return left;
}"""
