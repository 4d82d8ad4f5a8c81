"""`whenabouts search --rewrite` with a chat server: its queries are shown, its faults change nothing."""

from __future__ import annotations

import json

import pytest
from tests.chat_server import Reply, chat_server, says
from tests.cli.commands import Whenabouts

QUERY = "ice that turns to water"


@pytest.mark.slow
def test_the_words_that_were_searched_as_well_are_shown(whenabouts: Whenabouts) -> None:
    with chat_server(says(json.dumps({"queries": ["the glacier \x1b[31mmelts"]}))) as server:
        shown = whenabouts("search", QUERY, "--rewrite", server.address, "--table")
        told = whenabouts("search", QUERY, "--rewrite", server.address).json
    assert "also searched (tiny): the glacier [31mmelts" in shown.out
    assert "\x1b[31m" not in shown.out
    assert told["rewrite"] == {"model": "tiny", "queries": ["the glacier [31mmelts"]}


@pytest.mark.parametrize("reply", [Reply(b"{}", 500), Reply(b"<html>", 200)])
def test_a_server_that_fails_leaves_the_answer(whenabouts: Whenabouts, reply: Reply) -> None:
    plain = whenabouts("search", QUERY).json
    with chat_server(reply) as server:
        told = whenabouts("search", QUERY, "--rewrite", server.address).json
    assert told["moments"] == plain["moments"] and "rewrite" not in told
    assert any("searched with your words alone" in note for note in told["notes"])


def test_a_query_goes_to_another_machine_only_if_that_is_said(whenabouts: Whenabouts) -> None:
    done = whenabouts("search", QUERY, "--rewrite", "https://gpu.example/v1#m")
    assert (done.code, done.out, "--send-query" in done.err) == (2, "", True)
