"""Reranking and rewriting over REST: only the owner's models are used, and answers hide their addresses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.chat_server import Reply, chat_server, says
from tests.server.conftest import Open, error_of

from whenabouts.checkers import CheckerError
from whenabouts.checkers.reranker import Document
from whenabouts.server import answer_models
from whenabouts.types import UsageError

QUERY = "the largest clean room"
WORDS = says(json.dumps({"queries": ["somebody stole the crown jewels"]}))


class Shortest:
    """A reranker that puts the shortest words first, and remembers the frames it got."""

    name, fingerprint, reads_words, sees = "shortest", "shortest 1", True, True

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.frames = fails, 0

    def score(self, query: str, documents: Sequence[Document]) -> list[float]:
        if self.fails:
            raise CheckerError("/srv/models/secret cannot score")
        self.frames += sum(document.picture is not None for document in documents)
        return [-float(len(document.words)) for document in documents]


@pytest.mark.slow
def test_models_are_the_owners_to_offer(opened: Open, indexed: Path) -> None:
    client = opened(indexed)
    assert client.error("/api/search", query=QUERY, rerank=True) == (404, "no_reranker", "rerank")
    assert client.error("/api/search", query=QUERY, rewrite=True) == (404, "no_rewriter", "rewrite")
    stats = client.json("/api/stats")
    assert (stats["reranker"], stats["rewriter"]) == (None, None)
    for name in ("rerank", "rewrite"):
        answer = client.get("/api/search", params={"query": QUERY, name: "http://127.0.0.1:1/v1#m"})
        assert error_of(answer)[0] == 400


@pytest.mark.slow
def test_moments_come_in_the_order_of_the_model(
    opened: Open, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortest = Shortest()
    monkeypatch.setattr(answer_models, "open_reranker", lambda name: shortest)
    client = opened(indexed, rerank="some/model", show_paths=False)
    assert client.json("/api/stats")["reranker"] == "shortest"
    plain = client.json("/api/search", query=QUERY)
    assert "rerank" not in plain and "reranked" not in plain["data"][0]
    answer = client.json("/api/search", query=QUERY, rerank=True)
    scores = [moment["reranked"]["score"] for moment in answer["data"]]
    assert scores == sorted(scores, reverse=True) and answer["rerank"]["model"] == "shortest"
    assert shortest.frames, "frames come through the processes that decode"
    posted = client("POST", "/api/search", json={"query": QUERY, "rerank": True}).json()
    assert posted["data"] == answer["data"]
    assert client.error("/api/search", query=QUERY, rerank=True, all=True) == (400, "invalid", "rerank")
    shortest.fails = True
    failed = client.json("/api/search", query=QUERY, k=9, rerank=True)
    assert [m["video_id"] for m in failed["data"]] == [m["video_id"] for m in plain["data"]][:9]
    assert "/srv/models" not in json.dumps(failed)
    assert any("the model gave no usable answer" in note for note in failed["notes"])


@pytest.mark.slow
def test_other_words_are_searched_and_told(opened: Open, indexed: Path) -> None:
    with chat_server(WORDS) as server:
        client = opened(indexed, rewrite=server.address, show_paths=False)
        assert client.json("/api/stats")["rewriter"] == "tiny"
        client.json("/api/search", query=QUERY)
        assert server.requests == []
        answer = client.json("/api/search", query=QUERY, rewrite=True)
        server.answer = lambda _: Reply(b"{}", 500)
        failed = client.get("/api/search", params={"query": "another query", "rewrite": True})
        assert str(server.port) not in failed.text
    assert answer["rewrite"] == {"model": "tiny", "queries": ["somebody stole the crown jewels"]}
    assert any("searched with your words alone" in note for note in failed.json()["notes"])


def test_words_that_sound_alike_are_searched_and_told(opened: Open, indexed: Path) -> None:
    client = opened(indexed, rewrite="sound")
    assert client.json("/api/stats")["rewriter"] == "sound"
    misheard = "largist cleen rume"
    assert "rewrite" not in client.json("/api/search", query=misheard)
    answer = client.json("/api/search", query=misheard, rewrite=True)
    assert answer["rewrite"] == {"model": "sound", "queries": ["largest cleanrooms"]}


def test_a_rewriter_on_another_machine_needs_a_yes_at_the_start(opened: Open, indexed: Path) -> None:
    with pytest.raises(UsageError, match="--send-query"):
        opened(indexed, rewrite="https://gpu.example/v1#m")
    assert opened(indexed, rewrite="https://gpu.example/v1#m", send_query=True).json("/api/stats")["rewriter"]


@pytest.mark.slow
def test_a_reranker_has_scored_before_the_memory_is_divided(
    opened: Open, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortest = Shortest()
    monkeypatch.setattr(answer_models, "open_reranker", lambda name: shortest)
    opened(indexed, rerank="some/model").application.service.measured_parts()
    assert shortest.frames
