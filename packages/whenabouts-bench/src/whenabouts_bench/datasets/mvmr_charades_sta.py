"""MVMR on Charades-STA: a pool of 50 videos per query, up to 5 of which answer it.

Also has what the declarations of MVMR on other data sets share.
"""

from __future__ import annotations

from typing import Any

from whenabouts_bench.datasets.charades_sta import VGG
from whenabouts_bench.datasets.declaration import (
    AnnotationFile,
    Declaration,
    FeatureFile,
    Split,
    Statistics,
)

_CITATION = (
    "Yang, Kim, Yoon, Shin, Jung. MVMR: A New Framework for Evaluating Faithfulness of Video Moment "
    "Retrieval against Multiple Distractors. CIKM 2024."
)
HOW = (
    "yny0506/Massive-Videos-Moment-Retrieval has the files in CROCS/crocs/mvmr/samples (in earlier versions "
    "in RMMN/rmmn/mvmr/samples)."
)
_FULL = (
    "Only queries with a full pool are evaluated. The papers' counts and means cover these queries only; so "
    "do this card's means over queries and moments."
)
_OWN = (
    "The papers average only the moment in each query's own video; the card averages all positive moments, "
    "so its mean differs."
)


def pool_statistics(
    videos: int, full_pools: int, video: float, moment: float, words: float, relevant: float
) -> Statistics:
    """A split's numbers in the papers; `video` and `moment` are mean lengths in seconds."""
    means: dict[str, Any] = {"video_seconds": video, "moment_seconds": moment, "words_per_query": words}
    return Statistics(videos, full_pools=full_pools, relevant_per_query=relevant, **means)


def pools_of(
    source: str, split: Split, features: FeatureFile, *notes: str, pool_size: int = 50, how: str = HOW
) -> Declaration:
    """The pools on the data set `source`, with its one split and its features."""
    return Declaration(
        name=f"mvmr-{source.partition(' ')[0].lower()}",
        title=f"MVMR ({source})",
        tasks=("MVMR",),
        citation=_CITATION,
        licence=f"MIT (the pools' repository); the sentences and times are those of {source}.",
        how=how,
        mark=rb'"(pos_moments|retrieval_pool|timestamps)"',
        splits=(split,),
        features=(features,),
        notes=(_FULL, _OWN, *notes),
        pool_size=pool_size,
    )


_HOLDS = Statistics(1_334, 3_720, 11_411, full_pools=3_716)
DATASET = pools_of(
    "Charades-STA",
    Split(
        "test",
        (AnnotationFile("charades_test_mvmr.json", "mvmr", _HOLDS, "f3148a3ff9f5c4bb"),),
        pool_statistics(1_334, 3_716, 29.48, 7.83, 6.23, 3.07),
        "4 of its 3,720 queries have a pool of 38 to 45 videos.",
    ),
    VGG,
)
