"""How hard a vector index is searched: chosen by sample queries, kept with the index, shown by `stats`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.uncalibrated import uncalibrated

from whenabouts.corpus import Corpus
from whenabouts.index import effort, lookup, memory, upkeep
from whenabouts.index.progress import Progress
from whenabouts.index.records import ClipColumns, StoreError, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.index.vector_index import Effort
from whenabouts.types import UsageError

WIDTH, CLIPS, VIDEOS = 32, 50, 200
Matrix = NDArray[np.float32]


def unit(rows: Matrix) -> Matrix:
    lengths: Matrix = np.linalg.norm(rows, axis=1, keepdims=True).astype(np.float32)
    return rows / lengths


def normal(seed: int, count: int) -> Matrix:
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)


def pictures() -> Matrix:
    """Clips around 40 topics, all in one cone: their mean cosine is about a half."""
    topics = normal(0, 40)[np.repeat(np.arange(VIDEOS) % 40, CLIPS)]
    rest = unit(topics + normal(1, VIDEOS * CLIPS))
    rest[:, 0] = 1.0
    return unit(rest)


def sentences(seed: int, count: int) -> Matrix:
    """Queries outside that cone, whose direction inside it is any."""
    rows = unit(normal(seed, count))
    rows[:, 0] = -1.0
    return unit(rows)


@pytest.fixture(scope="module")
def small_limits() -> Iterator[None]:
    """Ten thousand clips get an index of a hundred partitions, of which few must be probed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "INDEX_ROWS", 5_000)
        patch.setattr(memory, "INDEX_ROWS", 5_000)
        patch.setattr(upkeep, "PARTITION_ROWS", 100)
        patch.setattr(lookup, "LEAST_PROBES", 1)
        yield


@pytest.fixture(scope="module")
def built(small_limits: None, tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store.open(tmp_path_factory.mktemp("effort") / "my.corpus", create=True)
    store.add_stream(StreamInfo("vision", "clip", "clip@1", WIDTH))
    rows, start = pictures(), np.arange(CLIPS, dtype=np.float64)
    store.put_videos(
        (
            VideoRecord(f"{n:03d}", f"/videos/{n:03d}.mp4", size=1, streams={"vision": "clip@1"}),
            {"vision": ClipColumns(start, start + 1, vectors=rows[n * CLIPS : (n + 1) * CLIPS])},
        )
        for n in range(VIDEOS)
    )
    store.optimize()
    return store


@pytest.fixture
def store(built: Store, tmp_path: Path) -> Store:
    """A copy of that corpus, which a test may change."""
    return Store.open(shutil.copytree(built.place, tmp_path / "my.corpus"))


@pytest.fixture(scope="module")
def once_measured(built: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    copy = shutil.copytree(built.place, tmp_path_factory.mktemp("measured") / "my.corpus")
    store = Store.open(copy)
    store.measure_effort("vision", sentences(4, 200))
    return store


@pytest.fixture
def measured(once_measured: Store, tmp_path: Path) -> Store:
    """A copy of the corpus whose effort for sentences was measured."""
    return Store.open(shutil.copytree(once_measured.place, tmp_path / "my.corpus"))


def recall(store: Store, queries: Matrix) -> float:
    """Share of the 20 nearest clips that a search for 200 finds."""
    found = 0
    for query in queries:
        best = store.nearest("vision", query, 20, exact=True).score.min()
        found += int((store.nearest("vision", query, 200).score[:20] >= best - 1e-5).sum())
    return found / (20 * len(queries))


@pytest.mark.slow
def test_sentences_outside_the_cone_find_what_the_aim_says_once_the_effort_is_measured(store: Store) -> None:
    asked = sentences(5, 100)
    before = recall(store, asked)
    assert list(store.streams_without_effort) == ["vision"]
    store.measure_effort("vision", sentences(4, 200))
    assert not store.streams_without_effort
    chosen = store._indices["vision"]
    assert chosen.effort is not None and chosen.recall is not None
    assert chosen.effort.share > lookup.CLIPS_EFFORT.share
    assert chosen.recall >= effort.AIM
    assert before < 0.9
    assert recall(store, asked) >= effort.AIM - 0.03
    assert store.stats().streams["vision"].recall == chosen.recall


@pytest.mark.slow
def test_what_was_measured_is_kept_with_the_index_and_used_by_each_reader(
    once_measured: Store, measured: Store
) -> None:
    store, reader = once_measured, measured
    assert reader._indices == store._indices and reader._indices["vision"].effort is not None
    asked = sentences(5, 30)
    assert recall(reader, asked) == pytest.approx(recall(store, asked))
    reader.keep_at_most(1 << 30)
    for query in asked[:3]:
        reader.nearest("vision", query, 20)
    together = reader.nearest_of_each("vision", list(asked), 20)
    assert together is not None
    alone = [reader.nearest("vision", query, 20) for query in asked]
    assert [hits.index.tolist() for hits in together] == [hits.index.tolist() for hits in alone]


@pytest.mark.slow
def test_clips_are_found_with_less_effort_than_sentences(measured: Store) -> None:
    of_sentences = measured._indices["vision"]
    measured.measure_effort("vision", None)
    of_clips = measured._indices["vision"]
    assert of_clips.effort is not None and of_sentences.effort is not None
    assert of_clips.effort.share < of_sentences.effort.share
    assert of_clips.recall is not None and of_clips.recall >= effort.AIM


@pytest.mark.slow
def test_what_is_like_clips_is_searched_by_the_effort_of_clips(measured: Store) -> None:
    store, index = measured, measured._indices["vision"]
    assert lookup.effort_of(index) == index.effort
    assert lookup.effort_of(index, like_clips=True) == lookup.CLIPS_EFFORT
    query = sentences(5, 1)[0]
    with_less, exact = (
        store.nearest("vision", query, 200, like_clips=True),
        store.nearest("vision", query, 200),
    )
    assert with_less.score.sum() < exact.score.sum()
    store.measure_effort("vision", None)
    index = store._indices["vision"]
    assert lookup.effort_of(index, like_clips=True) == lookup.effort_of(index) == index.effort


def test_equal_clips_count_as_one_another(store: Store) -> None:
    start = np.arange(300, dtype=np.float64)
    black = np.repeat(sentences(9, 1), 300, axis=0)
    store.put_video(
        VideoRecord("black", "/videos/black.mp4", size=1, streams={"vision": "clip@1"}),
        {"vision": ClipColumns(start, start + 1, vectors=black)},
    )
    store.measure_effort("vision", black[:1])
    chosen = store._indices["vision"]
    assert (chosen.effort, chosen.recall) == (lookup.CLIPS_EFFORT, 1.0)


def test_the_greatest_effort_is_kept_if_none_is_enough(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "AIM", 1.1)
    store.measure_effort("vision", sentences(4, 5))
    assert store._indices["vision"].effort == Effort(1.0, 200, 8)


def test_queries_without_length_measure_nothing(store: Store) -> None:
    store.measure_effort("vision", np.zeros((3, WIDTH), np.float32))
    assert list(store.streams_without_effort) == ["vision"]


@pytest.mark.slow
def test_an_index_that_is_trained_again_is_measured_again(store: Store) -> None:
    store.measure_effort("vision", sentences(4, 20))
    start = np.arange(CLIPS * VIDEOS, dtype=np.float64)
    more = VideoRecord("more", "/videos/more.mp4", size=1, streams={"vision": "clip@1"})
    store.put_video(more, {"vision": ClipColumns(start, start + 1, vectors=pictures()[::-1])})
    store.optimize(force=True)
    assert store._indices["vision"].rows == 2 * CLIPS * VIDEOS
    assert list(store.streams_without_effort) == ["vision"]


def test_an_index_of_an_earlier_version_is_searched_by_the_constant(store: Store) -> None:
    earlier = {"rows": 10_000, "partitions": 100, "distance": "cosine"}
    store._describe({"index:vision": earlier})
    reader = Store.open(store.place)
    assert lookup.effort_of(reader._indices["vision"]) == lookup.CLIPS_EFFORT
    assert reader.stats().streams["vision"].recall is None


@pytest.mark.parametrize(
    "kept",
    [
        {"share": 0, "answers": 200, "refine": 2},
        {"share": 0.5, "answers": 200, "refine": 10**9},
        {"share": 1},
    ],
)
def test_an_effort_that_nobody_measures_is_refused(store: Store, kept: dict[str, float]) -> None:
    index = {"rows": 10_000, "partitions": 100, "distance": "cosine", "effort": kept, "recall": 0.9}
    rows = store._description.search().limit(100).to_list()
    assert any(row["key"] == "index:vision" for row in rows)
    store._description.update(where="key = 'index:vision'", values={"value": json.dumps(index)})
    with pytest.raises(StoreError, match="index:vision"):
        Store.open(store.place)


def test_an_effort_says_what_it_may_be() -> None:
    with pytest.raises(UsageError, match=r"share in \(0, 1\]"):
        Effort(float("nan"), 200, 2)


@pytest.mark.slow
def test_an_index_run_measures_the_effort_and_stats_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "INDEX_ROWS", 100)
    monkeypatch.setattr(upkeep, "PARTITION_ROWS", 20)
    for number in range(4):
        cues = [
            f"00:{n // 2:02d}:{n % 2 * 30:02d}.000 --> 00:{n // 2:02d}:{n % 2 * 30 + 29:02d}.000\n{word} {n}"
            for n, word in enumerate(["rain", "engine", "bread", "choir"] * 25)
        ]
        (tmp_path / f"{number}.vtt").write_text("WEBVTT\n\n" + "\n\n".join(cues) + "\n", encoding="utf-8")
    corpus, told = Corpus(tmp_path / "my.corpus", create=True), list[Progress]()
    with uncalibrated():
        corpus.add(*sorted(tmp_path.glob("*.vtt")), processes=1, progress=told.append)
    assert "measuring what the vector index finds" in {progress.step for progress in told}
    assert corpus.store.streams_without_effort == ()
    stats = corpus.stats()
    measured = stats.to_json()["streams"]["subtitle"]["vector_index_recall"]
    assert effort.AIM <= measured <= 1
    assert any(
        f"by vector index (finds {100 * measured:.0f} of the best 100)" in line for line in stats.lines()
    )
    told.clear()
    with uncalibrated():
        corpus.add(tmp_path / "0.vtt", processes=1, progress=told.append)
    assert "measuring what the vector index finds" not in {progress.step for progress in told}
