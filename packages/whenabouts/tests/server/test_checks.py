"""Checking moments over REST: only the owner's checker is used, and answers hide its address."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chat_server import Reply, chat_server, says
from tests.server.conftest import Open, error_of

from whenabouts.server.settings import Limits
from whenabouts.types import UsageError

pytestmark = pytest.mark.slow

QUERY = "the largest clean room"
YES = '{"match": true, "start": null, "end": null, "reason": "<b>a clean room</b>"}'


def test_a_check_is_the_owners_to_offer(opened: Open, indexed: Path) -> None:
    client = opened(indexed)
    assert client.error("/api/search", query=QUERY, check=True) == (404, "no_checker", "check")
    assert client.json("/api/stats")["checker"] is None


@pytest.mark.parametrize("value", ["http://127.0.0.1:1/v1#m", "/etc/passwd", "owner/model"])
def test_clients_name_no_checker(opened: Open, indexed: Path, value: str) -> None:
    answer = opened(indexed).get("/api/search", params={"query": QUERY, "check": value})
    assert error_of(answer)[0] == 400


def test_what_the_checker_says_stands_beside_each_moment(opened: Open, indexed: Path) -> None:
    with chat_server(says(YES)) as server:
        client = opened(indexed, check=server.address, show_paths=False)
        assert client.json("/api/stats")["checker"] == "tiny"
        plain = client.json("/api/search", query=QUERY)
        assert server.requests == []
        assert "check" not in plain and "verdict" not in plain["data"][0]
        answer = client.json("/api/search", query=QUERY, check=True, check_best=2)
        assert len(server.requests) == 2
        posted = client("POST", "/api/search", json={"query": QUERY, "check": True, "check_best": 2}).json()
    assert [moment.get("verdict") is not None for moment in answer["data"][:3]] == [True, True, False]
    assert answer["data"][0]["verdict"]["reason"] == "<b>a clean room</b>"
    assert (answer["check"]["model"], answer["check"]["counts"]) == ("tiny", False)
    assert posted["check"] == answer["check"]
    assert [m["confidence"] for m in answer["data"]] == [m["confidence"] for m in plain["data"]]
    pictures = [part for part in server.requests[0]["messages"][1]["content"] if part["type"] == "image_url"]
    assert pictures, "frames come through the processes that decode"


@pytest.mark.parametrize("reply", [Reply(hangs=True), Reply(b"{}", 500), Reply(b"no", 200)])
def test_a_checker_that_fails_leaves_the_answer_and_its_address_is_not_told(
    opened: Open, indexed: Path, reply: Reply
) -> None:
    with chat_server(reply) as server:
        limits = Limits(check_seconds=1.0)
        client = opened(indexed, check=server.address, show_paths=False, limits=limits)
        answer = client.json("/api/search", query=QUERY, check=True, check_best=1)
        plain = client.json("/api/search", query=QUERY)
        assert str(server.port) not in client.get("/api/search", params={"query": QUERY, "check": True}).text
    assert answer["data"] == plain["data"]
    assert any("not every moment was checked" in note for note in answer["notes"])


def test_a_check_needs_words(opened: Open, indexed: Path) -> None:
    with chat_server(says(YES)) as server:
        client = opened(indexed, check=server.address)
        assert client.error("/api/search", query=QUERY, check=True, all=True)[0] == 400


def test_a_checker_on_another_machine_needs_a_yes_at_the_start(opened: Open, indexed: Path) -> None:
    with pytest.raises(UsageError, match="--send-frames"):
        opened(indexed, check="https://gpu.example/v1#m")
