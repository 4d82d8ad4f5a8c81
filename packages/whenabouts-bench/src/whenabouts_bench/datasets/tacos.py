"""TACoS: cooking in one kitchen, long videos, many sentences each."""

from __future__ import annotations

from whenabouts_bench.datasets.declaration import AnnotationFile, Declaration, FeatureFile, Split, Statistics

C3D = FeatureFile(
    ("tall_c3d_features.hdf5",),
    "video",
    "HDF5, video id (with .avi) -> (rows, width), rows spread evenly over the video",
    4096,
    "the authors of TALL and 2D-TAN: C3D",
    "microsoft/2D-TAN and MCG-NJU/MMN link to a folder of features.",
    needed=True,
)

_NOTE = (
    "Papers count {paper}, those of the release of TALL; the files of 2D-TAN and MMN are another release, so "
    "numbers on them do not compare with papers that use the first."
)

DATASET = Declaration(
    name="tacos",
    title="TACoS",
    tasks=("SVMR",),
    citation=(
        "Regneri, Rohrbach, Wetzel, Thater, Schiele, Pinkal. Grounding Action Descriptions in Videos. "
        "TACL 2013."
    ),
    licence="MPII Cooking is for research, on its owners' terms; none is stated with the json files.",
    how="train.json, val.json and test.json are in dataset/ of MCG-NJU/MMN and in microsoft/2D-TAN.",
    mark=rb'"s\d+-d\d+(\.avi)?"\s*:',
    splits=(
        Split(
            "train",
            (AnnotationFile("train.json", "2d-tan", Statistics(75, 9_790, 9_790), "ee5e1527885122f0"),),
            Statistics(queries=10_146),
            _NOTE.format(paper="10,146"),
        ),
        Split(
            "val",
            (AnnotationFile("val.json", "2d-tan", Statistics(27, 4_436, 4_436), "f8f350e5727e8c0a"),),
            Statistics(queries=4_589),
            _NOTE.format(paper="4,589"),
        ),
        Split(
            "test",
            (AnnotationFile("test.json", "2d-tan", Statistics(25, 4_001, 4_001), "1c64c8a5ada2b812"),),
            Statistics(25, 4_083, video_seconds=367.15, moment_seconds=31.87, words_per_query=8.53),
            _NOTE.format(paper="4,083")
            + " Its 25 videos are too few for a corpus: VCMR on them is too easy to compare systems.",
        ),
    ),
    features=(C3D,),
    notes=(
        "Times in the files are frame numbers at 29.4 frames a second; here they are seconds.",
        "Several people described each video: one query in eight repeats another of its video, word for "
        "word, with the same moment.",
    ),
)
