"""ActivityNet Captions: YouTube videos of all kinds of activities; each caption of a video is a query."""

from __future__ import annotations

from whenabouts_bench.datasets.declaration import AnnotationFile, Declaration, FeatureFile, Split, Statistics

C3D = FeatureFile(
    ("sub_activitynet_v1-3.c3d.hdf5",),
    "video",
    "HDF5, a group for each video id with c3d_features (rows, width), a row every 8 frames",
    500,
    "the ActivityNet challenge: C3D, reduced by PCA",
    "The ActivityNet challenge published these; microsoft/2D-TAN and MCG-NJU/MMN say where to get them.",
    needed=True,
)

DATASET = Declaration(
    name="activitynet-captions",
    title="ActivityNet Captions",
    tasks=("SVMR", "VCMR"),
    citation="Krishna, Hata, Ren, Fei-Fei, Niebles. Dense-Captioning Events in Videos. ICCV 2017.",
    licence="Not stated with the annotations; the videos are on YouTube, under their owners' terms.",
    how=(
        "train.json, val.json and test.json are in dataset/ of MCG-NJU/MMN; the first release (train.json, "
        "val_1.json, val_2.json) comes from the project page of the paper."
    ),
    mark=rb'"v_[\w-]{11}"\s*:',
    splits=(
        Split(
            "train",
            (AnnotationFile("train.json", "2d-tan", Statistics(10_009, 37_421, 37_421), "704536b2779011c1"),),
            Statistics(queries=37_417),
            "Papers count 37,417: they leave out the 4 queries with an empty or reversed moment.",
        ),
        Split(
            "val_1",
            (
                AnnotationFile("val_1.json", "2d-tan"),
                AnnotationFile("val.json", "2d-tan", Statistics(4_917, 17_505, 17_505), "466aaccb9ebe45c6"),
            ),
            Statistics(videos=4_917, queries=17_505),
        ),
        Split(
            "val_2",
            (
                AnnotationFile("val_2.json", "2d-tan"),
                AnnotationFile("test.json", "2d-tan", Statistics(4_885, 17_031, 17_031), "08fe56568bc92dd0"),
            ),
            Statistics(4_885, 17_031, video_seconds=118.20, moment_seconds=40.25, words_per_query=12.02),
            "Papers report on this split and call it test.",
        ),
    ),
    features=(C3D,),
    notes=(
        "val_2 has other captions of most videos of val_1: never mix the two into one corpus. Both use the "
        "same query ids, video#i, for different sentences.",
        "Many sentences begin with a space, which the reader removes.",
        "Captions of a video tell one story: many, as 'then he jumps again', need the caption before.",
    ),
    shared_query_ids=(("val_1", "val_2"),),
)
