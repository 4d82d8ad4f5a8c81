"""The nearest segments by their nearest keys, over several streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.index.records import ClipHits
from whenabouts_systems.trained_search import indexed_corpus
from whenabouts_systems.trained_search.indexed_corpus import nearest_units


@dataclass
class Table:
    """Keys of streams: (video, segment, vector) rows, asked as `index.keys.Keys` is."""

    rows: dict[str, list[tuple[str, int, NDArray[np.float32]]]]

    def kind_of(self, place: tuple[str, int]) -> tuple[str, ...]:
        return tuple(
            stream for stream, rows in self.rows.items() if any(place == (one[0], one[1]) for one in rows)
        )

    def kinds(self) -> tuple[tuple[str, ...], ...]:
        places = {(one[0], one[1]) for rows in self.rows.values() for one in rows}
        return tuple(sorted({self.kind_of(place) for place in places}))

    def nearest(
        self, stream: str, vector: Any, k: int, video_ids: Any = None, *, kind: Any = None
    ) -> ClipHits:
        told = [
            one
            for one in self.rows[stream]
            if (video_ids is None or one[0] in video_ids) and self.kind_of((one[0], one[1])) == kind
        ]
        scores = np.array([row @ vector for _, _, row in told], np.float32)
        order = np.argsort(-scores, kind="stable")[:k]
        index = np.array([told[at][1] for at in order], np.int32)
        start = 4 * index.astype(np.float64)
        return ClipHits([told[at][0] for at in order], index, start, start + 4, scores[order])


def table(seed: int = 0) -> Table:
    """Six videos of up to eight segments, with up to three keys in each stream."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[tuple[str, int, NDArray[np.float32]]]] = {"seen": [], "said": []}
    for video in range(6):
        for segment in range(int(rng.integers(1, 9))):
            for found in rows.values():
                for _ in range(int(rng.integers(0, 4))):
                    found.append((f"v{video}", segment, rng.standard_normal(5).astype(np.float32)))
    return Table(rows)


def vectors_of(keys: Table) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    return {stream: rng.standard_normal(5).astype(np.float32) for stream in keys.rows}


def by_hand(keys: Table, allowed: list[str] | None = None) -> list[tuple[str, int]]:
    """All segments, best first, by the mean over the streams that each has."""
    vectors = vectors_of(keys)
    scores = {
        stream: [(name, number, float(row @ vectors[stream])) for name, number, row in told]
        for stream, told in keys.rows.items()
    }
    scores = {
        stream: [one for one in told if allowed is None or one[0] in allowed]
        for stream, told in scores.items()
    }
    places = sorted({(name, number) for told in scores.values() for name, number, _ in told})

    def mean(place: tuple[str, int]) -> float:
        of = [[score for *own, score in told if tuple(own) == place] for told in scores.values()]
        best = [max(some) for some in of if some]
        return sum(best) / len(best)

    return sorted(places, key=lambda place: -mean(place))


def found_in(keys: Any, count: int, allowed: list[str] | None = None) -> list[tuple[str, int]]:
    names, numbers, _ = nearest_units(keys, vectors_of(keys), count, allowed, whole=False)
    return list(zip(names.tolist(), numbers.tolist(), strict=True))


@pytest.mark.parametrize("count", [1, 6, 99])
def test_the_nearest_segments_are_those_with_the_best_mean_over_the_streams(count: int) -> None:
    keys = table()
    assert found_in(keys, count) == by_hand(keys)[:count]
    some = ["v1", "v4", "v5"]
    assert found_in(keys, count, some) == by_hand(keys, some)[:count]
    assert len(by_hand(keys)) > 20


def test_more_keys_are_asked_until_they_are_of_enough_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = table()
    every = len(by_hand(keys))
    monkeypatch.setattr(indexed_corpus, "NEAREST_KEYS", 2)
    assert found_in(keys, every) == by_hand(keys)
    assert len(found_in(keys, 1)) == 1


def test_what_has_no_words_is_found_though_all_that_has_is_nearer_by_its_pictures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexed_corpus, "NEAREST_KEYS", 4)
    monkeypatch.setattr(indexed_corpus, "_MAX_KEYS", 4)
    asked = vectors_of(Table({"seen": [], "said": []}))

    def key(stream: str, product: float) -> NDArray[np.float32]:
        return np.asarray(product * asked[stream] / (asked[stream] @ asked[stream]), np.float32)

    rows: dict[str, list[tuple[str, int, NDArray[np.float32]]]] = {"seen": [], "said": []}
    for number in range(20):
        rows["seen"] += [
            ("loud", number, key("seen", 0.9)),
            ("mute", number, key("seen", 0.5 + number / 100)),
        ]
        rows["said"].append(("loud", number, key("said", 0.0)))
    assert found_in(Table(rows), 3) == [("mute", 19), ("mute", 18), ("mute", 17)]


def test_where_there_are_no_keys_there_are_no_segments() -> None:
    assert found_in(Table({"seen": [], "said": []}), 5) == []
