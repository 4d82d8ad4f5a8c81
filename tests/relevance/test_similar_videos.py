"""Which videos may answer a query: those of which one sentence is similar, however many others are not."""

from __future__ import annotations

import numpy as np
import pytest

from cuepoint.formats.columns import Annotations
from cuepoint.relevance.pairs import ListedPairs, PairSettings, PairsOfCaptions, RelevantPairs, VectorPairs
from cuepoint.relevance.similar_videos import similar_videos
from cuepoint.types import Query, UsageError, Video

TEXTS = ("open a door", "opens the door", "cook rice", "open a door", "run", "sit down")
"""Queries 0 and 3 have one text; that of 1 is similar to theirs; 5 is judged by nobody."""
VIDEO_OF = (0, 1, 1, 2, 3)


def split(texts: tuple[str, ...] = TEXTS) -> Annotations:
    count = len(VIDEO_OF)
    return Annotations(
        "split",
        tuple(Video(f"v{row}", 10.0) for row in range(4)),
        tuple(Query(f"q{row}", text) for row, text in enumerate(texts)),
        np.arange(count),
        np.array(VIDEO_OF),
        np.zeros(count),
        np.ones(count),
        np.ones(count),
    )


def listed() -> PairsOfCaptions:
    """Captions 0 and 1 are similar."""
    return ListedPairs(np.array([0, 1, 1, 1, 1, 1]), np.array([1], np.int32), np.array([0.95], np.float16))


def vectors() -> PairsOfCaptions:
    """The same of vectors: two that lie close, three that lie apart."""
    made = np.eye(5, dtype=np.float32)
    made[1] = [0.95, np.sqrt(1 - 0.95**2), 0, 0, 0]
    return VectorPairs(np.arange(6), np.arange(5, dtype=np.int32), made, 0.9)


def relevant(kept: PairsOfCaptions) -> RelevantPairs:
    captions = ("open a door", "opens the door", "cook rice", "run", "sit down")
    return RelevantPairs(
        tuple(f"q{row}" for row in range(6)),
        np.array([0, 1, 2, 0, 3, 4], np.int32),
        captions,
        PairSettings("sent", 0.9, "made", "made"),
        kept,
    )


@pytest.mark.parametrize("kept", [listed, vectors], ids=["a list", "vectors"])
def test_a_video_is_similar_where_one_of_its_sentences_is(kept: object) -> None:
    assert callable(kept)
    query, video = similar_videos(relevant(kept()), split())
    found = list(zip(query.tolist(), video.tolist(), strict=True))
    assert found == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 1), (3, 0), (3, 1), (3, 2), (4, 3)]


def test_a_pair_of_confidence_0_is_none() -> None:
    nothing = ListedPairs(np.array([0, 1, 1, 1, 1, 1]), np.array([1], np.int32), np.zeros(1, np.float16))
    query, video = similar_videos(relevant(nothing), split())
    assert list(zip(query.tolist(), video.tolist(), strict=True)) == [
        (0, 0), (0, 2), (1, 1), (2, 1), (3, 0), (3, 2), (4, 3)
    ]  # fmt: skip


def test_pairs_of_other_texts_are_refused() -> None:
    with pytest.raises(UsageError, match="'q4': the relevant pairs were made of 'run'"):
        similar_videos(relevant(listed()), split((*TEXTS[:4], "walk", "sit down")))


def test_pairs_that_lack_a_query_are_refused() -> None:
    fewer = relevant(listed())
    lacking = RelevantPairs(
        fewer.query_ids[:4], fewer.caption_of[:4], fewer.captions, fewer.settings, fewer.kept
    )
    with pytest.raises(UsageError, match="query 'q4' is not among the 4 queries"):
        similar_videos(lacking, split())
