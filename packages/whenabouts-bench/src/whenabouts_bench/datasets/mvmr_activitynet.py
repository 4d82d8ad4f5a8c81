"""MVMR on ActivityNet Captions: a pool of 50 videos per query, up to 5 of which answer it."""

from __future__ import annotations

from whenabouts_bench.datasets.activitynet_captions import C3D
from whenabouts_bench.datasets.declaration import AnnotationFile, Declaration, Split
from whenabouts_bench.datasets.mvmr_charades_sta import CITATION, FULL, HOW, LICENCE, OWN, pool_statistics

DATASET = Declaration(
    name="mvmr-activitynet",
    title="MVMR (ActivityNet Captions)",
    tasks=("MVMR",),
    citation=CITATION,
    licence=LICENCE.format(source="ActivityNet Captions"),
    how=f"{HOW} The file of ActivityNet was announced there and could not be found in it; ask its authors.",
    mark=rb'"(pos_moments|retrieval_pool|timestamps)"',
    splits=(
        Split(
            "test",
            (AnnotationFile("activitynet_test_mvmr.json", "mvmr"),),
            pool_statistics(4_885, 16_941, 118.20, 40.32, 12.03, 1.11),
        ),
    ),
    features=(C3D,),
    notes=(FULL, OWN, "Its queries are those of val_2, 17,031 before pools that stayed short are left out."),
    pool_size=50,
)
