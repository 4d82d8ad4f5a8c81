"""Charades-STA: household activities, one moment per sentence."""

from __future__ import annotations

from whenabouts_bench.datasets.declaration import (
    AnnotationFile,
    Declaration,
    FeatureFile,
    SideFile,
    Split,
    Statistics,
)

VGG = FeatureFile(
    ("vgg_rgb_features.hdf5",),
    "video",
    "HDF5, video id -> (rows, width), rows spread evenly over the video",
    4096,
    "the authors of 2D-TAN: VGG-16",
    "microsoft/2D-TAN and MCG-NJU/MMN link to a folder of features.",
    needed=True,
)

DATASET = Declaration(
    name="charades-sta",
    title="Charades-STA",
    tasks=("SVMR", "VCMR"),
    citation="Gao, Sun, Yang, Nevatia. TALL: Temporal Activity Localization via Language Query. ICCV 2017.",
    licence=(
        "Charades is for non-commercial research under its own licence; its sentences are given out with "
        "jiyanggao/TALL without one."
    ),
    how=(
        "charades_train.json and charades_test.json are in dataset/ of MCG-NJU/MMN. The text files "
        "were linked from jiyanggao/TALL; Charades_v1_train.csv and Charades_v1_test.csv, which say how "
        "long the videos are, belong to the Charades annotations of the Allen Institute."
    ),
    mark=rb'"timestamps"|##',
    splits=(
        Split(
            "train",
            (
                AnnotationFile(
                    "charades_train.json", "2d-tan", Statistics(5_336, 12_404, 12_404), "9d36c7f4204c2b92"
                ),
                AnnotationFile("charades_sta_train.txt", "charades", Statistics(5_338, 12_408)),
            ),
            Statistics(videos=5_338, queries=12_408),
            "The json of 2D-TAN and MMN leaves out 4 of the 12,408 sentences, and with them 2 videos.",
        ),
        Split(
            "test",
            (
                AnnotationFile(
                    "charades_test.json", "2d-tan", Statistics(1_334, 3_720, 3_720), "1189d2784acd45b4"
                ),
                AnnotationFile("charades_sta_test.txt", "charades", Statistics(1_334, 3_720)),
            ),
            Statistics(
                videos=1_334, queries=3_720, video_seconds=29.48, moment_seconds=7.83, words_per_query=6.24
            ),
        ),
    ),
    beside=(
        SideFile("Charades_v1_train.csv", "lengths of the train videos, for the text files", needed=False),
        SideFile("Charades_v1_test.csv", "lengths of the test videos, for the text files", needed=False),
    ),
    features=(VGG,),
    notes=(
        "There is no validation split: papers that choose their epoch on test say so, or should.",
        "Many sentences fit many videos (person opens a door); one video is counted as right.",
    ),
)
