"""Checkers behind an address: what leaves the machine, and what a server's faults become."""

from __future__ import annotations

import time

import pytest
from tests.chat_server import Reply, chat_server, says

from whenabouts.checkers import CheckerError, CheckerUnavailable, open_checker
from whenabouts.types import UsageError

ANSWER = '{"match": true, "start": null, "end": null, "reason": "yes"}'


def test_a_server_on_this_machine_is_asked_with_pictures_and_a_form() -> None:
    with chat_server(says(ANSWER)) as server:
        checker = open_checker(server.address)
        assert checker.answer("Look.", ["Frame:", b"\xff\xd8", "Well?"], 5.0) == ANSWER
    (request,) = server.requests
    assert [part["type"] for part in request["messages"][1]["content"]] == ["text", "image_url", "text"]
    assert request["response_format"]["type"] == "json_schema"
    assert (checker.name, request["temperature"]) == ("tiny", 0.0)


def test_frames_do_not_leave_the_machine_without_a_yes() -> None:
    with pytest.raises(UsageError, match=r"another machine: frames.*without encryption.*--send-frames"):
        open_checker("http://gpu.example:8000/v1#m")
    with pytest.raises(UsageError, match="--send-frames") as caught:
        open_checker("https://gpu.example/v1#m")
    assert "without encryption" not in str(caught.value)
    assert open_checker("https://gpu.example/v1#m", send_frames=True).name == "m"


def test_a_checker_names_no_address_and_its_fingerprint_tells_models_apart() -> None:
    first, second = (open_checker(f"http://127.0.0.1:1/v1#{name}") for name in ("a", "b"))
    assert "127" not in first.name
    assert first.fingerprint != second.fingerprint


def test_what_cannot_be_asked_for_now_is_told_from_one_bad_answer() -> None:
    with chat_server(Reply(hangs=True)) as server, pytest.raises(CheckerUnavailable, match=r"within 0\.5 s"):
        began = time.monotonic()
        open_checker(server.address).answer("", ["?"], 0.5)
    assert time.monotonic() - began < 4
    with chat_server(says(None)) as server, pytest.raises(CheckerError, match="no answer") as caught:
        open_checker(server.address).answer("", ["?"], 5.0)
    assert not isinstance(caught.value, CheckerUnavailable)


def test_what_is_no_name_of_a_checker_says_what_would_be() -> None:
    with pytest.raises(CheckerUnavailable, match="give a folder, a hub's name"):
        open_checker("what is this?")
    with pytest.raises(CheckerUnavailable, match="'': no such model to check with"):
        open_checker("")
    with pytest.raises(CheckerUnavailable, match=r"models get owner/none|pip install 'whenabouts\[vision\]'"):
        open_checker("owner/none")
