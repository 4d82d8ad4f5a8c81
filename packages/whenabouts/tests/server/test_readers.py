"""Handles on one corpus in many threads, also while another process writes to it."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import Open
from tests.uncalibrated import uncalibrated

from whenabouts.corpus import Corpus
from whenabouts.index.records import StoreError
from whenabouts.indexing import plan_index, run_index
from whenabouts.server.service import Readers, RecentValues
from whenabouts.server.settings import Limits


def test_a_handle_is_lent_to_one_thread_at_a_time(indexed: Path) -> None:
    readers = Readers(Corpus(indexed, create=False), 2)
    with readers.lent() as first, readers.lent() as second:
        assert first is not second
        assert first.store is not second.store
        assert first.encoders._encoders is second.encoders._encoders
    with readers.lent() as again:
        assert again.search("crown jewels", k=1).answer == "match"


def test_handles_share_the_encoder(indexed: Path) -> None:
    readers = Readers(Corpus(indexed, create=False), 2)
    with readers.lent() as first, readers.lent() as second:
        first.search("a")
        second.search("a")
        [mine] = first.encoders.for_queries().values()
        [yours] = second.encoders.for_queries().values()
        assert mine is yours


def test_another_corpus_in_its_place_is_opened_once_and_nothing_kept_of_the_first(
    indexed: Path, one_video: Path, tmp_path: Path
) -> None:
    place, replacing = tmp_path / "c", list[Corpus]()
    shutil.copytree(indexed, place)
    readers = Readers(Corpus(place, create=False), 2, replacing.append)
    with readers.lent() as handle:
        assert len(handle.records()) > 1
    place.rename(tmp_path / "away")
    with pytest.raises(StoreError), readers.lent() as handle:
        handle.records()
    shutil.copytree(one_video / "corpus", place)
    with readers.lent() as first, readers.lent() as second:
        assert len(first.records()) == len(second.records()) == 1
        assert first.encoders._encoders is second.encoders._encoders
    assert [len(corpus.records()) for corpus in replacing] == [1]


@pytest.mark.slow
def test_the_memory_of_a_corpus_that_took_the_place_of_another_is_bounded_too(
    opened: Open, indexed: Path, one_video: Path, tmp_path: Path
) -> None:
    place = tmp_path / "c"
    shutil.copytree(indexed, place)
    client = opened(place)
    service = client.application.service
    parts = service.measured_parts()
    service.divide(parts)
    place.rename(tmp_path / "away")
    shutil.copytree(one_video / "corpus", place)
    client.json("/api/search", query="how are you")
    with service._readers.lent() as corpus:
        assert corpus.store._memory.most_bytes == parts.kept
        assert corpus.library.count == 1 and corpus._library._kept is not None
        service.memory.drop()
        assert corpus._library._kept is None


@pytest.mark.slow
def test_searches_at_once_answer_as_one_alone(opened: Open, indexed: Path) -> None:
    client = opened(indexed, limits=Limits(searches=8))
    words = ["crown jewels", "telescope", "clean room", "humor", "lord of the universe", "lighthouse"]
    alone = {word: client.json("/api/search", query=word, k=5) for word in words}

    async def crowd() -> list[httpx.Response]:
        transport = httpx.ASGITransport(client.application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as many:
            every = [many.get("/api/search", params={"query": w, "k": 5}) for w in words * 5]
            return list(await asyncio.gather(*every))

    for answer in asyncio.run(crowd()):
        assert answer.json() == alone[answer.json()["query"]]


@pytest.mark.slow
def test_searches_go_on_while_videos_come_change_and_go(
    opened: Open, copied: tuple[Path, Path], tmp_path: Path
) -> None:
    client = opened(copied[0], limits=Limits(searches=4))
    stop, wrong = threading.Event(), list[Any]()
    path = tmp_path / "changing.vtt"

    def write() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            cues = "".join(
                f"00:{at:02}:01.000 --> 00:{at:02}:05.000\nThe jewel number {at} of turn {turn}.\n\n"
                for at in range(1, 5 + turn * 17 % 50)
            )
            path.write_text("WEBVTT\n\n" + cues, encoding="utf-8")
            corpus = Corpus(copied[0])
            with corpus.writing(wait=True):
                run_index(corpus, plan_index(corpus, [path]), processes=1)
            if turn % 3 == 0:
                corpus.remove("changing.vtt")

    def read(number: int) -> None:
        for turn in range(4):
            answer = client.get(f"/api/search?query=jewel+{number}+{turn}&k=20")
            if answer.status_code != 200:
                wrong.append(answer.text)

    with uncalibrated():
        writer = threading.Thread(target=write)
        writer.start()
        threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        stop.set()
        writer.join(120)
    assert wrong == []


def test_values_are_not_cleared_while_one_is_looked_up() -> None:
    values = RecentValues[int](2)
    values.get_or_make(("a",), lambda: 1)
    clearing = threading.Thread(target=values.clear)
    with values._lock:
        clearing.start()
        clearing.join(0.1)
        assert values.get(("a",)) == 1
    clearing.join()
    assert not values
