"""`whenabouts search --check` with a chat server: verdicts are shown, and its faults keep the answer."""

from __future__ import annotations

import pytest
from tests.chat_server import Reply, chat_server, says
from tests.cli.commands import Whenabouts

QUERY = "the glacier melts"
NO = '{"match": false, "start": null, "end": null, "reason": "a jar of beetles, \\u001b[31mred"}'


def test_what_the_checker_says_stands_below_each_moment_that_it_saw(whenabouts: Whenabouts) -> None:
    with chat_server(says(NO)) as server:
        shown = whenabouts("search", QUERY, "--check", server.address, "--check-best", "2", "--table")
        assert len(server.requests) == 2
        told = whenabouts("search", QUERY, "--check", server.address, "--check-best", "1").json
    assert shown.code == 0, shown.err
    assert shown.out.count("a jar of beetles") == 1 and "\x1b[31m" not in shown.out
    assert shown.out.count("checked: how often tiny is wrong has not been measured") == 1
    assert told["moments"][0]["verdict"]["matches"] is False
    assert (told["check"]["model"], told["check"]["moments"]) == ("tiny", 1)


def test_a_checker_needs_a_question_to_be_measured(whenabouts: Whenabouts) -> None:
    with chat_server(says("{}")) as server:
        done = whenabouts("calibrate", "--check", server.address, "--check-questions", "0")
    assert (done.code, done.out) == (2, "")
    assert "0 questions: give 1 or more" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("reply", [Reply(b"{}", 500), Reply(b"<html>", 200), Reply(hangs=True)])
def test_where_no_moment_was_checked_none_is_said_to_be(whenabouts: Whenabouts, reply: Reply) -> None:
    plain = whenabouts("search", QUERY).json
    with chat_server(reply) as server:
        options = ("--check", server.address, "--check-best", "1", "--check-seconds", "0.5")
        shown = whenabouts("search", QUERY, *options, "--table")
        told = whenabouts("search", QUERY, *options).json
    assert shown.code == 0
    assert "checked:" not in shown.out
    assert any("checked" in note for note in told["notes"]) and told["check"]["moments"] == 0
    assert told["moments"] == plain["moments"]


def test_frames_go_to_another_machine_only_if_that_is_said(whenabouts: Whenabouts) -> None:
    done = whenabouts("search", QUERY, "--check", "https://gpu.example/v1#m")
    assert (done.code, "--send-frames" in done.err) == (2, True)
