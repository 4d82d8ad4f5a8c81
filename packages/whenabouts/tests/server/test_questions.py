"""Interpreted questions over REST: the rules in the answer, and the parameter that turns rules off."""

from __future__ import annotations

from typing import get_args

import pytest

from whenabouts.search.questions import EVERY_RULE, RULES
from whenabouts.server.schemas import SearchParameters

from .conftest import Client, error_of

QUESTION = 'the first time "crown jewels" in friday.mp4'


def test_an_answer_says_what_was_understood(client: Client) -> None:
    answer = client.json("/api/search", query=QUESTION)
    assert answer["understood"] == [
        {"name": "first", "label": "first"},
        {"name": "in", "label": "in: friday"},
    ]
    assert (answer["query"], answer["words"], answer["answer"]) == (QUESTION, '"crown jewels"', "match")
    assert answer["searched"]["videos"] == 1
    assert len(answer["data"]) == 1 and "partner" not in answer["data"][0]
    plain = client.json("/api/search", query="crown jewels")
    assert (plain["understood"], plain["words"]) == ([], "")


def test_a_mistyped_word_is_spelt_as_the_corpus_spells_it(client: Client) -> None:
    assert client.json("/api/search", query="crown jewles")["spelling"] == "crown jewels"
    assert "spelling" not in client.json("/api/search", query="crown jewels")


def test_a_video_whose_name_has_the_words_is_told(client: Client) -> None:
    [video_id] = client.json("/api/search", query="friday")["titled"]
    assert video_id.startswith("friday-")
    assert "titled" not in client.json("/api/search", query="crown jewels")


def test_two_events_come_with_both_times(client: Client) -> None:
    (moment,) = client.json("/api/search", query='"crown jewels" after "Hildy"')["data"]
    assert moment["partner"]["end"] <= moment["start"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_rules_are_turned_off_by_name(client: Client, method: str) -> None:
    def names(*literal: str) -> list[str]:
        given = {"query": QUESTION, "literal": list(literal)}
        sent = {"params": given} if method == "GET" else {"json": given}
        return [rule["name"] for rule in client(method, "/api/search", **sent).json()["understood"]]

    assert names() == ["first", "in"]
    assert names("in") == ["first"]
    assert names("first", "in") == names(EVERY_RULE) == names(*RULES) == []


def test_a_name_of_no_rule_is_refused(client: Client) -> None:
    answer = client.get("/api/search", params={"query": QUESTION, "literal": "second"})
    status, code, field = error_of(answer)
    assert (status, code, field and field.split(".")[0]) == (400, "invalid_parameter", "literal")
    assert "recorded" in answer.json()["error"]["message"]


def test_pages_and_exports_heed_the_rules(client: Client) -> None:
    first = client.json("/api/search", query='every time "the"', page_limit=1)
    assert first["page_info"]["total_results"] > 1
    token = first["page_info"]["next_page_token"]
    second = client.json("/api/search", query='every time "the"', page_limit=1, page_token=token)
    assert second["data"][0]["rank"] == 2
    listed = client.get("/api/export", params={"query": QUESTION, "format": "json"}).json()
    assert len(listed["moments"]) == 1
    plain = client.get("/api/export", params={"query": QUESTION, "literal": "all", "format": "json"})
    assert plain.status_code in (200, 404)


def test_the_schema_knows_every_rule() -> None:
    (names,) = get_args(SearchParameters.model_fields["literal"].annotation)
    assert get_args(names) == (*RULES, EVERY_RULE)
