"""MVMR on TACoS: a pool of 5 of the 25 test videos per query, up to 5 of which answer it."""

from __future__ import annotations

from whenabouts_bench.datasets.declaration import AnnotationFile, Split, Statistics
from whenabouts_bench.datasets.mvmr_charades_sta import pool_statistics, pools_of
from whenabouts_bench.datasets.tacos import C3D

DATASET = pools_of(
    "TACoS",
    Split(
        "test",
        (AnnotationFile("tacos_test_mvmr.json", "mvmr", Statistics(25, 4_001, full_pools=2_055)),),
        pool_statistics(25, 2_055, 367.15, 28.55, 7.31, 2.24),
        "Pools are full for 2,055 of the 4,001 sentences of the file.",
    ),
    C3D,
    "Its times are frames, those of the positives in other videos too; the released evaluation takes the "
    "latter for seconds (protocol mvmr-as-released), here they are seconds.",
    pool_size=5,
)
