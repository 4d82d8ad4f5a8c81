"""The second look at moments with words: what it counts, what it puts first, and that its file is whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts import Corpus
from whenabouts.index.records import ClipBlock
from whenabouts.moments.zero_shot import Moments
from whenabouts.search import reranking
from whenabouts.search.reranking import (
    FEATURES,
    BrokenWeights,
    Reranking,
    features_of,
    learned_reranking,
    reranked,
)
from whenabouts.search.word_units import Rarity

LENGTH = 15.0
FILLER = "we talk about the weather and the garden"
WHOLE: dict[str, Any] = {part: dict.fromkeys(FEATURES, 0.5) for part in ("weights", "usual")}


def block_of(*videos: list[str]) -> ClipBlock:
    """Videos of passages of 15 seconds each."""
    texts = [text for video in videos for text in video]
    index = np.concatenate([np.arange(len(video)) for video in videos])
    return ClipBlock(
        [f"v{number}" for number in range(len(videos))],
        np.cumsum([0, *map(len, videos)]),
        index.astype(np.int32),
        index * LENGTH,
        index * LENGTH + LENGTH,
        texts,
        np.zeros((len(texts), 0), np.float32),
    )


def moments_at(*places: tuple[int, int, float]) -> Moments:
    """Moments of one passage each: video, passage, score."""
    video, clip = np.array([place[0] for place in places]), np.array([place[1] for place in places])
    score = np.array([place[2] for place in places])
    return Moments(video, clip * LENGTH, (clip + 1) * LENGTH, score, clip, clip)


def rarity_in(block: ClipBlock) -> Rarity:
    return Rarity.in_texts(block.text)


@pytest.fixture
def talks() -> ClipBlock:
    """One talk says a part of the query, the other one all of it, here and half a minute on."""
    said, partly = [FILLER] * 40, [FILLER] * 40
    partly[10] = "the mempool is full"
    said[10], said[12] = "the mempool has a policy", "so blockspace fills up in a mempool policy"
    return block_of(partly, said)


def test_a_moment_near_which_all_of_the_query_is_said_comes_before_one_with_a_part(talks: ClipBlock) -> None:
    moments = moments_at((0, 10, 9.0), (1, 10, 8.5))
    scores = np.zeros(len(talks))
    order = reranked("mempool policy", talks, scores, moments, rarity_in(talks))
    assert order.video.tolist() == [1, 0]
    assert order.score.tolist() == sorted(order.score.tolist(), reverse=True)
    # What scores far more stays before it.
    far = moments_at((0, 10, 29.0), (1, 10, 8.5))
    assert reranked("mempool policy", talks, scores, far, rarity_in(talks)).video.tolist() == [0, 1]


def test_each_feature_counts_what_it_says(talks: ClipBlock) -> None:
    scores = np.zeros(len(talks))
    scores[40:60] = 3.0
    moments = moments_at((0, 10, 1.0), (1, 10, 1.0), (1, 17, 1.0))
    values = features_of("mempool policy", talks, scores, moments, rarity_in(talks))
    columns = dict(zip(FEATURES, values.T.tolist(), strict=True))
    part, whole, behind = columns["near"]
    assert 0 < part < whole == 1 and behind == 0
    # Passage 12 is a minute before 17: around it, not near it.
    assert columns["around"] == [part, 1.0, 1.0]
    # "Has a" lies between them in passage 10; in 12 they stand together, out of reach of passage 17.
    assert columns["phrase"] == [0.0, 1.0, 0.0]
    assert columns["topic"][0] == 0 < columns["topic"][2] < columns["topic"][1] < 3.0
    joined = features_of("block space", talks, scores, moments, rarity_in(talks))
    assert joined[1, FEATURES.index("near")] == 1


def test_a_window_does_not_reach_into_the_video_before() -> None:
    block = block_of([FILLER] * 19 + ["the mempool policy"], [FILLER] * 20)
    values = features_of("mempool policy", block, np.ones(40), moments_at((1, 0, 1.0)), rarity_in(block))
    assert values[0].tolist() == [0.0, 0.0, 0.0, 1.0]


def test_chinese_is_compared_by_its_signs() -> None:
    block = block_of(["我们今天谈比特币的价格", "天气很好"] * 20)
    moments = moments_at((0, 0, 1.0))
    values = features_of("比特币", block, np.zeros(40), moments, rarity_in(block))
    assert values[0, FEATURES.index("near")] == 1


@pytest.mark.parametrize("query", ["🦁", "the", "nothing of this is said", " ".join(["mempool"] * 250)])
def test_equal_moments_keep_their_order_whatever_is_asked(talks: ClipBlock, query: str) -> None:
    moments = moments_at(*((1, clip, 2.0) for clip in (25, 33, 29)))
    order = reranked(query, talks, np.zeros(len(talks)), moments, rarity_in(talks))
    assert order.first_clip.tolist() == [25, 33, 29]
    assert np.isfinite(order.score).all()


def test_a_stream_without_moments_stays_without(talks: ClipBlock) -> None:
    none = moments_at((0, 0, 1.0)).take(np.zeros(0, np.int64))
    assert len(reranked("a query", talks, np.zeros(len(talks)), none, rarity_in(talks))) == 0


def test_a_search_answers_in_the_same_order_again_and_within_its_scores(samples_corpus: Path) -> None:
    corpus = Corpus(samples_corpus)
    for query in ("the space telescope in a cleanroom", "crown jewels", "nothing of all this"):
        answers = [Corpus(samples_corpus).search(query).moments, corpus.search(query).moments]
        assert answers[0] == answers[1]
        scores = [scored.score for scored in answers[0]]
        assert scores == sorted(scores, reverse=True)


# The file -----------------------------------------------------------------------------------------


def test_the_weights_that_are_shipped_are_of_the_sign_that_they_must_have() -> None:
    shipped = learned_reranking()
    assert all(weight >= 0 for weight in shipped.weights.values())
    assert sum(shipped.weights.values()) > 1
    assert shipped.usual["phrase"] < 0.1


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ([], "weights must have a number for each of near, around, phrase, topic"),
        ({"weights": WHOLE["weights"]}, "usual must have"),
        (WHOLE | {"weights": {"near": 1.0}}, "weights must have"),
        (WHOLE | {"usual": WHOLE["usual"] | {"more": 1.0}}, "usual must have"),
        (WHOLE | {"weights": WHOLE["weights"] | {"near": "1"}}, "weights of near is '1'"),
        (WHOLE | {"weights": WHOLE["weights"] | {"topic": True}}, "weights of topic is True"),
        (WHOLE | {"usual": WHOLE["usual"] | {"near": float("nan")}}, "usual of near is nan"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(broken: Any, message: str) -> None:
    with pytest.raises(BrokenWeights, match=message):
        Reranking.from_json(broken)
    assert Reranking.from_json(WHOLE).weights["near"] == 0.5


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in the place of the package's own."""
    monkeypatch.setattr(reranking, "files", lambda name: tmp_path)
    learned_reranking.cache_clear()
    yield tmp_path
    learned_reranking.cache_clear()


def test_the_file_is_read_from_the_package_and_a_damaged_one_is_named(package: Path) -> None:
    file = package / "reranking.json"
    with pytest.raises(BrokenWeights, match=r"reranking\.json cannot be read"):
        learned_reranking()
    file.write_text("{")
    with pytest.raises(BrokenWeights, match="install whenabouts again"):
        learned_reranking()
    file.write_text(json.dumps(WHOLE))
    assert learned_reranking().usual == WHOLE["usual"]
