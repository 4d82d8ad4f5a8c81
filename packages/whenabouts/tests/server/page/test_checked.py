"""Checking moments on the page: a filter turns it on, and each moment shows the checker's verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from tests.chat_server import ChatServer, Reply, chat_server, says

from whenabouts.corpus import Corpus

playwright_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect = playwright_api.expect
HOSTILE = "<img src=x onerror=hacked()>"


@pytest.fixture(scope="module")
def checker() -> Iterator[ChatServer]:
    answer = f'{{"match": true, "start": null, "end": null, "reason": "a burrow {HOSTILE}"}}'
    with chat_server(says(answer)) as server:
        yield server


@pytest.fixture(scope="module")
def checking(
    corpus: Corpus,
    checker: ChatServer,
    tmp_path_factory: pytest.TempPathFactory,
    serving: Callable[..., AbstractContextManager[str]],
) -> Iterator[str]:
    """The address of a page whose server has a checker."""
    with serving(corpus, tmp_path_factory.mktemp("cache"), check=checker.address) as at:
        yield at


@pytest.mark.slow
def test_the_filter_asks_for_a_second_look_and_each_moment_shows_it(
    open_tab: Callable[..., Any], checking: str, checker: ChatServer
) -> None:
    tab = open_tab(checking)
    tab.goto(checking + "?q=rabbits dig a burrow")
    expect(tab.locator("#cards .card").first).to_be_visible()
    expect(tab.locator("#checked")).to_be_hidden()
    assert checker.requests == []
    tab.locator("#filters summary").click()
    tab.get_by_label("Look twice").select_option("tiny")
    expect(tab.locator("#cards .verdict.yes").first).to_contain_text(
        f"✓ match a burrow {HOSTILE}", timeout=60_000
    )
    expect(tab.locator("#checked")).to_contain_text("how often tiny is wrong has not been measured")
    assert checker.requests and "check=true" in tab.url
    checker.answer, before = (lambda _: Reply(b"{}", 500)), checker.answer
    tab.reload()
    expect(tab.locator("#notes")).to_contain_text("checked", timeout=60_000)
    expect(tab.locator("#checked")).to_be_hidden()
    assert tab.locator("#cards .verdict").count() == 0
    checker.answer = before


@pytest.mark.slow
def test_filters_ask_for_another_order_and_for_other_words(
    open_tab: Callable[..., Any],
    corpus: Corpus,
    tmp_path_factory: pytest.TempPathFactory,
    serving: Callable[..., AbstractContextManager[str]],
) -> None:
    with (
        chat_server(says('{"queries": ["conejos hacen un hoyo"]}')) as writer,
        serving(
            corpus, tmp_path_factory.mktemp("cache"), rerank="tokens:minilm", rewrite=writer.address
        ) as at,
    ):
        tab = open_tab(at)
        tab.goto(at + "?q=rabbits dig a burrow")
        expect(tab.locator("#cards .card").first).to_be_visible()
        tab.locator("#filters summary").click()
        expect(tab.get_by_label("Look twice")).to_be_hidden()
        tab.get_by_label("Order anew").select_option("tokens:minilm")
        expect(tab.locator("#checked")).to_contain_text("put in order by tokens:minilm", timeout=60_000)
        assert "rerank=true" in tab.url and writer.requests == []
        tab.get_by_label("Search in other words too").select_option("tiny")
        expect(tab.locator("#checked")).to_contain_text("(tiny): conejos hacen un hoyo")
        tab.reload()
        expect(tab.get_by_label("Search in other words too")).to_have_value("true")
        expect(tab.locator("#checked")).to_contain_text("conejos hacen un hoyo")
