"""Waiting questions are prepared in one batch; each keeps its own turn, client, error and answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.server.conftest import Client

from whenabouts.corpus import Corpus
from whenabouts.index.filters import make_filter
from whenabouts.index.stream import Stream
from whenabouts.search.understand import NOT_ENCODED
from whenabouts.server.blocks import LONGEST_BLOCK, BlockExecutor
from whenabouts.server.work import ClientGone

QUERIES = ["crown jewels", "a flower opens", "wait for me", "the moon", "newspaper", "a train of words"]


class Held:
    """An executor of one thread that is busy until `free` is set; records the batches in order."""

    def __init__(self) -> None:
        self.free, self.busy = threading.Event(), threading.Event()
        self.blocks: list[list[str]] = []
        self.executor = BlockExecutor("tests", 1, 60, 30.0, 60.0, self.share)

    def share(self, queries: Sequence[str]) -> dict[str, str]:
        self.blocks.append(list(queries))
        if "broken" in queries:
            raise ValueError("cannot be shared")
        return {query: query.upper() for query in queries}

    async def hold(self) -> asyncio.Task[None]:
        def wait(_: Any) -> None:
            self.busy.set()
            self.free.wait(60)

        task = asyncio.ensure_future(self.executor.ask("", wait))
        while not self.busy.is_set():
            await asyncio.sleep(0.005)
        return task


def ask(held: Held, query: str) -> asyncio.Future[str]:
    def read(shared: dict[str, str] | None) -> str:
        if query == "fails":
            raise KeyError(query)
        return "by itself" if shared is None else shared[query]

    return asyncio.ensure_future(held.executor.ask(query, read))


def test_those_that_wait_are_made_ready_together_and_a_failing_one_fails_alone() -> None:
    held = Held()

    async def crowd() -> list[Any]:
        first = await held.hold()
        waiting = [ask(held, query) for query in ("one", "fails", "two")]
        await asyncio.sleep(0.02)
        held.free.set()
        await first
        return await asyncio.gather(*waiting, ask(held, "later"), return_exceptions=True)

    one, failed, two, later = asyncio.run(crowd())
    assert (one, two, later) == ("ONE", "TWO", "LATER")
    assert isinstance(failed, KeyError)
    assert held.blocks[0][:3] == ["one", "fails", "two"]
    assert sorted(query for block in held.blocks for query in block) == ["fails", "later", "one", "two"]
    assert held.executor.inside == 0
    held.executor.close()


def test_an_idle_executor_answers_at_once_and_shares_nothing_that_nobody_asked_for() -> None:
    held = Held()
    assert asyncio.run(held.executor.ask("one", lambda shared: shared)) == {"one": "ONE"}
    assert asyncio.run(held.executor.ask("", lambda shared: shared)) is None
    assert held.blocks == [["one"]]
    held.executor.close()


def test_who_leaves_drops_out_of_the_block_and_a_block_that_cannot_be_shared_is_answered_one_by_one() -> None:
    held, ran = Held(), threading.Event()

    async def leave() -> None:
        await asyncio.sleep(0.01)

    async def crowd() -> list[str]:
        first = await held.hold()
        gone = held.executor.ask("gone", lambda shared: ran.set(), leave)
        waiting = [ask(held, query) for query in ("broken", "one")]
        with pytest.raises(ClientGone):
            await gone
        held.free.set()
        await first
        return await asyncio.gather(*waiting)

    assert asyncio.run(crowd()) == ["by itself", "by itself"]
    assert held.blocks == [["broken", "one"]]
    assert not ran.is_set()
    held.executor.close()


def test_a_block_is_bounded_however_many_wait() -> None:
    held = Held()

    async def crowd() -> list[str]:
        first = await held.hold()
        waiting = [ask(held, str(number)) for number in range(40)]
        await asyncio.sleep(0.02)
        held.free.set()
        await first
        return await asyncio.gather(*waiting)

    assert asyncio.run(crowd()) == [str(number) for number in range(40)]
    assert [len(block) for block in held.blocks] == [LONGEST_BLOCK, LONGEST_BLOCK, 40 - 2 * LONGEST_BLOCK]
    held.executor.close()


def test_closing_calls_off_what_waits() -> None:
    held = Held()

    async def crowd() -> None:
        first = await held.hold()
        waiting = ask(held, "one")
        await asyncio.sleep(0.02)
        held.executor.close()
        held.free.set()
        await first
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(crowd())
    assert held.blocks == []


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of each real call of the packaged encoder; elsewhere in the tests its vectors are cached."""
    calls: list[list[str]] = []

    def query_vectors(self: Stream, texts: Sequence[str], encoder: Any) -> NDArray[np.float32]:
        calls.append(list(texts))
        vectors: NDArray[np.float32] = encoder.encode_text(texts)
        return vectors

    monkeypatch.setattr(Stream, "query_vectors", query_vectors)
    return calls


def test_answers_are_the_same_alone_and_together(samples_corpus: Any, calls: list[list[str]]) -> None:
    """The moments are the same; scores differ by at most 1e-5, the rounding of another order of sums."""
    corpus = Corpus(samples_corpus)
    encoded = corpus.encoded(QUERIES)
    assert calls == [QUERIES] * len(calls)
    calls.clear()
    together = [corpus.search(query, encoded=encoded) for query in QUERIES]
    assert calls == []
    for query, found in zip(QUERIES, together, strict=True):
        alone = corpus.search(query)
        assert alone.moments
        assert [scored.moment for scored in found.moments] == [scored.moment for scored in alone.moments]
        assert [scored.text for scored in found.moments] == [scored.text for scored in alone.moments]
        scores = [[scored.score for scored in result.moments] for result in (found, alone)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5, abs=1e-5)
        assert found.answer == alone.answer
        assert found.interval == pytest.approx(alone.interval, abs=1e-5)


def test_what_was_encoded_before_the_corpus_was_described_anew_is_encoded_again(
    samples_corpus: Any, calls: list[list[str]]
) -> None:
    corpus = Corpus(samples_corpus)
    encoded = corpus.encoded(["the moon"])
    calls.clear()
    assert encoded.at(corpus.store.description_version + 1) is NOT_ENCODED
    corpus.search("the moon", encoded=None)
    assert calls


def test_clips_that_were_found_together_answer_until_the_corpus_changes(samples_corpus: Any) -> None:
    corpus = Corpus(samples_corpus)
    store, plain = corpus.store, corpus.encoded(["the moon"])
    [(key, vector)] = plain.vectors.items()
    hits = store.nearest(key[0], vector, 1)
    state = (store.version, store.state_of(key[0]))
    searcher = corpus.searcher()
    for found, is_used in (((state, hits), True), (((state[0] - 1, state[1]), hits), False)):
        answers = searcher.find_all("the moon", encoded=replace(plain, nearest={key: found}))
        assert (answers[0].nearest is hits) == is_used
    within = make_filter([hits.video_ids[0]])
    [answer] = searcher.find_all("the moon", within, encoded=replace(plain, nearest={key: (state, hits)}))
    assert answer.nearest is not hits


@pytest.mark.slow
def test_clients_that_come_together_are_answered_as_if_each_came_alone(
    client: Client, calls: list[list[str]]
) -> None:
    service, free = client.application.service, threading.Event()

    async def crowd() -> list[httpx.Response]:
        held = [
            asyncio.ensure_future(service.searches.run(free.wait)) for _ in range(service.limits.searches)
        ]
        transport = httpx.ASGITransport(client.application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            asked = [
                asyncio.ensure_future(http.get("/api/search", params={"query": query})) for query in QUERIES
            ]
            async with asyncio.timeout(60):
                while service.searches.inside < len(held) + len(asked):
                    await asyncio.sleep(0.005)
            free.set()
            await asyncio.gather(*held)
            return await asyncio.gather(*asked)

    together = asyncio.run(crowd())
    assert set(map(frozenset, calls)) == {frozenset(QUERIES)}
    for query, answer in zip(QUERIES, together, strict=True):
        alone = client.get("/api/search", params={"query": query})
        for ours, other in zip(answer.json()["data"], alone.json()["data"], strict=True):
            assert ours.pop("score") == pytest.approx(other.pop("score"), rel=1e-5)
            assert ours.pop("confidence") == pytest.approx(other.pop("confidence"), abs=1e-5)
            assert [ours[name] for name in ("video_id", "start", "end", "text")] == [
                other[name] for name in ("video_id", "start", "end", "text")
            ]
