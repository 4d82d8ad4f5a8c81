"""All keys compared on a device answer as the index does, and are asked where that is quicker."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from whenabouts.index.keys import EncodedVideo, Keys, SystemKeys, add_keys
from whenabouts.index.records import ClipHits
from whenabouts.index.store import Store
from whenabouts.types import UsageError
from whenabouts_systems.trained_search import indexed_corpus
from whenabouts_systems.trained_search.exact_keys import ExactKeys, quicker, quickest
from whenabouts_systems.trained_search.indexed_corpus import IndexedCorpus, nearest_units

WIDTHS = {"said": 8, "seen": 12}
INFO = SystemKeys("0123456789abcdef", "xml", "/runs/xml", WIDTHS)
CPU = torch.device("cpu")


def video(number: int) -> EncodedVideo:
    """Six keys of what is seen, and four of what is said, but nothing of either in some."""
    rng = np.random.default_rng(number)
    counts = {"said": 4 if number % 3 else 0, "seen": 6}
    keys = {name: unit(rng.standard_normal((count, WIDTHS[name]))) for name, count in counts.items()}
    times = {name: np.arange(len(rows), dtype=np.float64) for name, rows in keys.items()}
    ends = {name: start + 1 for name, start in times.items()}
    return EncodedVideo(f"v{number:02d}", "m", 6, 6.0, keys, times, ends, b"all")


def unit(rows: Any) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True), np.float32)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    store = Store.open(tmp_path_factory.mktemp("exact") / "my.corpus", create=True)
    made = add_keys(store, INFO)
    made.put([video(number) for number in range(20)])
    return made


def query(stream: str, seed: int = 5) -> NDArray[np.float32]:
    return unit(np.random.default_rng(seed).standard_normal(WIDTHS[stream]))


def same(found: ClipHits, expected: ClipHits) -> None:
    assert found.video_ids == expected.video_ids
    assert found.index.tolist() == expected.index.tolist()
    np.testing.assert_array_equal(found.start, expected.start)
    np.testing.assert_array_equal(found.end, expected.end)
    np.testing.assert_allclose(found.score, expected.score, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("kind", [None, ("seen",), ("said", "seen")])
@pytest.mark.parametrize("some", [None, ["v03", "v04", "v07", "v99"], []])
def test_the_nearest_of_all_keys_are_those_of_the_index(
    keys: Keys, dtype: torch.dtype, kind: Collection[str] | None, some: list[str] | None
) -> None:
    exact = ExactKeys(keys, CPU, dtype)
    for count in (1, 7, 500):
        same(
            exact.nearest("seen", query("seen"), count, some, kind=kind),
            keys.nearest("seen", query("seen"), count, some, kind=kind),
        )


def test_in_bfloat16_the_best_are_still_the_best(keys: Keys) -> None:
    """Three digits are lost, so that neighbours may change places: nine of ten are the same."""
    exact = ExactKeys(keys, CPU, torch.bfloat16)
    found = [set(_places(one.nearest("seen", query("seen"), 20))) for one in (exact, keys)]
    assert len(found[0] & found[1]) >= 18


def _places(hits: ClipHits) -> list[tuple[str, int]]:
    return list(zip(hits.video_ids, hits.index.tolist(), strict=True))


def test_equal_keys_come_in_the_order_of_videos_and_numbers(tmp_path: Path) -> None:
    made = add_keys(Store.open(tmp_path / "my.corpus", create=True), SystemKeys("a" * 16, "x", "", {"s": 4}))
    rows, at = {"s": unit(np.ones((3, 4)))}, {"s": np.arange(3.0)}
    made.put([EncodedVideo(name, "m", 3, 3.0, rows, at, at, b"all") for name in ("b", "a")])
    found = ExactKeys(made, CPU).nearest("s", unit(np.ones(4)), 5)
    assert _places(found) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


def test_where_there_are_no_keys_nothing_is_near_and_a_wrong_vector_is_an_error(
    keys: Keys, tmp_path: Path
) -> None:
    none = ExactKeys(add_keys(Store.open(tmp_path / "my.corpus", create=True), INFO), CPU)
    assert len(none.nearest("seen", query("seen"), 5)) == 0
    assert len(ExactKeys(keys, CPU).nearest("seen", query("seen"), 0)) == 0
    with pytest.raises(UsageError, match=r"shape \(8,\)"):
        ExactKeys(keys, CPU).nearest("seen", query("said"), 5)
    with pytest.raises(UsageError, match="NaN"):
        ExactKeys(keys, CPU).nearest("seen", np.full(12, np.nan), 5)


def test_units_are_found_by_either(keys: Keys) -> None:
    vectors = {name: query(name) for name in WIDTHS}
    found = [nearest_units(one, vectors, 9, whole=True) for one in (ExactKeys(keys, CPU), keys)]
    assert found[0][0].tolist() == found[1][0].tolist()
    np.testing.assert_allclose(found[0][2], found[1][2], atol=2e-3)


class Slow(Keys):
    """Keys of an index that takes its time."""

    def nearest(self, *some: Any, **more: Any) -> ClipHits:
        time.sleep(0.05)
        return super().nearest(*some, **more)


class SlowExact(ExactKeys):
    """Keys on a device that takes its time."""

    def nearest(self, *some: Any, **more: Any) -> ClipHits:
        time.sleep(0.05)
        return super().nearest(*some, **more)


def test_what_answers_sooner_is_asked(keys: Keys) -> None:
    slow = Slow(keys._store, keys.info)
    exact = ExactKeys(keys, CPU)
    assert quicker(slow, exact) is exact
    assert quicker(keys, SlowExact(keys, CPU)) is keys
    assert quickest(keys, CPU) is keys, "on a processor it is the index"


def test_a_corpus_asks_what_was_chosen(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: Any = SimpleNamespace(model=None)
    vectors = {name: query(name) for name in WIDTHS}
    expected = IndexedCorpus(keys, trained).nearest(vectors, 9)
    made: list[ExactKeys] = []

    def chosen(keys: Keys, device: torch.device) -> ExactKeys:
        made.append(ExactKeys(keys, device))
        return made[-1]

    monkeypatch.setattr(indexed_corpus, "quickest", chosen)
    corpus = IndexedCorpus(keys, trained)
    for _ in range(2):
        assert corpus.nearest(vectors, 9)[0].tolist() == expected[0].tolist()
    assert len(made) == 1, "chosen once"
    IndexedCorpus(keys, trained, stale=["v01"]).nearest(vectors, 9)
    assert len(made) == 1, "one that serves a single query asks the index"
