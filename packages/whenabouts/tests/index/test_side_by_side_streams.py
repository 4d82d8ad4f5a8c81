"""Side by side, pictures, examples, people and the server answer as one corpus of all streams does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts import Corpus, SearchResult
from whenabouts.calibration.measuring import measure
from whenabouts.confidence.background import SENTENCES
from whenabouts.index.lookup import search_words
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.server.app import Application
from whenabouts.server.settings import Settings

pytestmark = pytest.mark.slow
WIDTH = 26
CLIPS = 20
STREAMS = ("subtitle", "vision", "speaker")


class Letters:
    """A quick encoder: the direction of how often each letter is in a text, each shade in a picture."""

    dimension, image_size = WIDTH, 8

    def __init__(self, name: str) -> None:
        self.name, self.fingerprint = name, f"{name}:1"

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return unit(np.array([[text.lower().count(chr(97 + n)) for n in range(WIDTH)] for text in texts]))

    def encode_images(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        shades = [np.histogram(image, WIDTH, (0, 256))[0] for image in images]
        return unit(np.array(shades))


def unit(rows: NDArray[Any]) -> NDArray[np.float32]:
    rows = rows.astype(np.float32) + 0.01
    directions: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return directions


def entry(number: int) -> tuple[VideoRecord, dict[str, ClipColumns]]:
    """A film with words, pictures and two who speak in turn."""
    chosen, name = random.Random(number), f"film{number:02}"
    said = [chosen.choice(SENTENCES) for _ in range(CLIPS)]
    shown = np.random.default_rng(number).random((CLIPS, WIDTH)) ** 6
    start = np.linspace(0, 10.0 * (CLIPS - 1), CLIPS)
    end = start + 10
    speakers = [("Ada", f"voice 1 ({name})")[(clip // 5) % 2] for clip in range(CLIPS)]
    columns = {
        "subtitle": ClipColumns(
            start, end, said, Letters("letters").encode_text(said), [search_words(own) for own in said]
        ),
        "vision": ClipColumns(start, end, None, unit(shown)),
        "speaker": ClipColumns(start, end, speakers, None, [""] * CLIPS),
    }
    streams = dict.fromkeys(STREAMS, "1")
    record = VideoRecord(
        name,
        f"/films/{name}.mp4",
        size=1,
        duration=200.0,
        streams=streams,
        words="subtitles",
        has_picture=True,
    )
    return record, columns


def make(place: Path, numbers: Sequence[int]) -> Path:
    store = Store.open(place, create=True)
    for stream, width in (("subtitle", WIDTH), ("vision", WIDTH), ("speaker", 0)):
        name = {"subtitle": "letters", "vision": "shades", "speaker": "names"}[stream]
        store.add_stream(StreamInfo(stream, name, f"{name}:1", width, {"clip_seconds": 10.0}))
    store.put_videos(map(entry, numbers))
    store.put_fact(
        "people", {"names": {"speaker": {f"voice 1 (film{n:02})": f"Person {n % 3}" for n in numbers}}}
    )
    store.optimize(force=True)
    return place


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Corpus]:
    """One corpus of all films, and three of a part of them each, side by side."""
    place, encoders = tmp_path_factory.mktemp("streams"), [Letters("letters"), Letters("shades")]
    parts = [make(place / f"{own}.corpus", range(own, 12, 3)) for own in range(3)]
    whole = Corpus(make(place / "all.corpus", range(12)), encoders=encoders)
    measure(whole.store, whole.encoders.usable()[0])
    return whole, Corpus(parts, encoders=encoders)


def assert_equal(beside: SearchResult, whole: SearchResult) -> None:
    """All that two answers say; scores to 1e-4, for what is measured of them is."""
    for one, other in zip(beside.moments, whole.moments, strict=True):
        assert one.moment == other.moment
        assert one.score == pytest.approx(other.score, rel=1e-4, abs=2e-5)
        assert one.confidence == pytest.approx(other.confidence, abs=2e-5)
        assert one.evidence.keys() == other.evidence.keys()
    for name in ("answer", "doubt", "notes", "coverage", "like"):
        assert getattr(beside, name) == getattr(whole, name), name


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"streams": "vision"},
        {"where": "speaker=Ada"},
        {"where": "speaker=Person 1", "streams": "vision"},
        {"like": "film03@50-70"},
        {"like": "film03@50-70", "streams": "vision"},
        {"like": np.full((8, 8, 3), 99, np.uint8)},
    ],
)
def test_streams_answer_as_in_one_corpus(both: tuple[Corpus, Corpus], options: dict[str, Any]) -> None:
    whole, beside = both
    for query in (
        ("",) if "like" in options else ("a boat in the rain", "cooking rice", "the moons of Jupiter")
    ):
        result = whole.search(query, 20, **options)
        assert result.moments
        assert_equal(beside.search(query, 20, **options), result)


def test_people_are_those_of_all(both: tuple[Corpus, Corpus]) -> None:
    one, several = ([person.to_json() for person in corpus.people.listed()] for corpus in both)
    assert len(one) == 4
    assert several == one


def test_a_server_answers_as_of_one_corpus(both: tuple[Corpus, Corpus], tmp_path: Path) -> None:
    asked = [
        {"query": "a boat in the rain", "k": "10"},
        {"query": "cooking rice", "stream": "vision"},
        {"query": "cooking rice", "where": "speaker=Person 2"},
        {"like": "film03@50-70"},
    ]

    async def answers(corpus: Corpus) -> list[Any]:
        application = Application(corpus, Settings(cache=tmp_path / "cache"))
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            replies = await asyncio.gather(*(http.get("/api/search", params=own) for own in asked))
        application.service.close()
        assert [reply.status_code for reply in replies] == [200] * len(asked)
        return [reply.json() for reply in replies]

    one, several = (asyncio.run(answers(corpus)) for corpus in both)
    for ours, other in zip(several, one, strict=True):
        assert other["data"]
        for mine, theirs in zip(ours["data"], other["data"], strict=True):
            assert mine.pop("score") == pytest.approx(theirs.pop("score"), rel=1e-4, abs=2e-5)
            for own in (mine, theirs):
                del own["confidence"], own["chance_percentile"]
                own["evidence"] = {name: piece["text"] for name, piece in own["evidence"].items()}
            assert mine == theirs
        for name in ("answer", "notes", "search_pool", "searched", "stream_titles"):
            assert ours[name] == other[name], name
