"""MVMR on Charades-STA: a pool of 50 videos a query, with up to 5 that answer it."""

from __future__ import annotations

from whenabouts_bench.datasets.charades_sta import VGG
from whenabouts_bench.datasets.declaration import AnnotationFile, Declaration, Split, Statistics

CITATION = (
    "Yang, Kim, Yoon, Shin, Jung. MVMR: A New Framework for Evaluating Faithfulness of Video Moment "
    "Retrieval "
    "against Multiple Distractors. CIKM 2024."
)
HOW = (
    "yny0506/Massive-Videos-Moment-Retrieval, folder CROCS/crocs/mvmr/samples; earlier versions have it as "
    "RMMN/rmmn/mvmr/samples."
)
LICENCE = "MIT (the pools' repository); the sentences and times are those of {source}."
FULL = (
    "Only queries with a full pool belong into the evaluation; the papers' counts and means are over "
    "them, and so "
    "are the means of this card."
)
OWN = (
    "The papers' mean moment is over the queries' own moments; the card's is over all positives, so it "
    "differs."
)

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
            Statistics(
                videos=1_334,
                full_pools=3_716,
                video_seconds=29.48,
                moment_seconds=7.83,
                words_per_query=6.23,
                relevant_per_query=3.07,
            ),
            "4 of its 3,720 queries have a pool of 38 to 45 videos.",
        ),
    ),
    features=(VGG,),
    notes=(FULL, OWN),
    pool_size=50,
)
