"""MVMR on Charades-STA: a pool of 50 videos per query, up to 5 of which answer it."""

from __future__ import annotations

from typing import Any

from whenabouts_bench.datasets.charades_sta import VGG
from whenabouts_bench.datasets.declaration import AnnotationFile, Declaration, Split, Statistics

CITATION = (
    "Yang, Kim, Yoon, Shin, Jung. MVMR: A New Framework for Evaluating Faithfulness of Video Moment "
    "Retrieval against Multiple Distractors. CIKM 2024."
)
HOW = (
    "yny0506/Massive-Videos-Moment-Retrieval, folder CROCS/crocs/mvmr/samples; earlier versions have it as "
    "RMMN/rmmn/mvmr/samples."
)
LICENCE = "MIT (the pools' repository); the sentences and times are those of {source}."
FULL = (
    "Only queries with a full pool belong into the evaluation; the papers' counts and means are over "
    "them, and so are the means of this card."
)
OWN = (
    "The papers' mean moment is over the queries' own moments; the card's is over all positives, so it "
    "differs."
)


def pool_statistics(
    videos: int, full_pools: int, video: float, moment: float, words: float, relevant: float
) -> Statistics:
    """The papers' numbers of a set of pools; lengths of videos and moments are seconds."""
    means: dict[str, Any] = {"video_seconds": video, "moment_seconds": moment, "words_per_query": words}
    return Statistics(videos, full_pools=full_pools, relevant_per_query=relevant, **means)


DATASET = Declaration(
    name="mvmr-charades-sta",
    title="MVMR (Charades-STA)",
    tasks=("MVMR",),
    citation=CITATION,
    licence=LICENCE.format(source="Charades-STA"),
    how=HOW,
    mark=rb'"(pos_moments|retrieval_pool|timestamps)"',
    splits=(
        Split(
            "test",
            (
                AnnotationFile(
                    "charades_test_mvmr.json",
                    "mvmr",
                    Statistics(1_334, 3_720, 11_411, full_pools=3_716),
                    "f3148a3ff9f5c4bb",
                ),
            ),
            pool_statistics(1_334, 3_716, 29.48, 7.83, 6.23, 3.07),
            "4 of its 3,720 queries have a pool of 38 to 45 videos.",
        ),
    ),
    features=(VGG,),
    notes=(FULL, OWN),
    pool_size=50,
)
