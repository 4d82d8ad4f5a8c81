"""DiDeMo: personal videos of half a minute, moments in steps of 5 seconds, several annotators."""

from __future__ import annotations

from whenabouts_bench.datasets.declaration import AnnotationFile, Declaration, FeatureFile, Split, Statistics

_HERO_HOW = "scripts/download_didemo.sh of linjieli222/HERO names them; not tried here."


def _of_hero(split: str) -> AnnotationFile:
    """The queries of a split as released by HERO's authors."""
    return AnnotationFile(f"didemo_{split}.db/query_data.jsonl", "tvr")


_HOW = "LisaAnne/LocalizingMoments links to them on the project's page."

DATASET = Declaration(
    name="didemo",
    title="DiDeMo",
    tasks=("VCMR", "SVMR", "VR"),
    citation=(
        "Hendricks, Wang, Shechtman, Sivic, Darrell, Russell. Localizing Moments in Video with Natural "
        "Language. ICCV 2017."
    ),
    licence="BSD 2-Clause (the annotations' repository); the Flickr videos have Creative Commons licences of "
    "their own.",
    how=(
        "The folder data/ of LisaAnne/LocalizingMoments holds val_data.json and test_data.json; "
        "train_data.json is no longer in it: ask its authors, take a copy made earlier, or unpack "
        "didemo_train.db of HERO's authors (scripts/download_didemo.sh of linjieli222/HERO)."
    ),
    mark=rb'"annotation_id"|"desc_id"',
    splits=(
        Split(
            "train",
            (AnnotationFile("train_data.json", "didemo"), _of_hero("train")),
            Statistics(videos=8_395, queries=33_005, moment_seconds=6.5),
        ),
        Split(
            "val",
            (
                AnnotationFile(
                    "val_data.json", "didemo", Statistics(1_065, 4_180, 4_511), "b0364cc256553332"
                ),
                _of_hero("val"),
            ),
            Statistics(videos=1_065, queries=4_180, moment_seconds=6.5),
        ),
        Split(
            "test",
            (
                AnnotationFile(
                    "test_data.json", "didemo", Statistics(1_004, 4_021, 4_338), "1891c04ec48b3d36"
                ),
                _of_hero("test"),
            ),
            Statistics(videos=1_004, queries=4_021, moment_seconds=6.5),
        ),
    ),
    features=(
        FeatureFile(
            ("average_fc7.h5",),
            "video",
            "HDF5, file name of the video -> (6, width), a row a segment",
            4096,
            "the authors of DiDeMo: VGG, averaged over a segment",
            _HOW,
            5.0,
            needed=True,
        ),
        FeatureFile(
            ("average_global_flow.h5",),
            "video",
            "HDF5, file name of the video -> (6, width), a row a segment",
            1024,
            "the authors of DiDeMo: optical flow, averaged over a segment",
            _HOW,
            5.0,
        ),
        FeatureFile(
            ("resnet_slowfast_1.5",),
            "video",
            "LMDB with msgpack, video id -> features",
            4352,
            "the authors of HERO: SlowFast and ResNet",
            _HERO_HOW,
            1.5,
        ),
    ),
    notes=(
        "Ground truth is every span that at least two annotators marked alike; one query in 13 has two. The "
        "papers' 6.5 s for the mean moment does not say which spans it is over.",
        "29 videos of val and 33 of test stand under two file names (.mov and .mp4): their id is the name "
        "without its last ending.",
        "HERO's queries (didemo_SPLIT.db/query_data.jsonl) are read where the authors' file is not there. "
        "Their times are taken for seconds, with the same rule of two annotators. HERO's evaluation counts a "
        "span that overlaps the marks of two annotators enough, which is another rule: protocol `didemo`.",
        "The files hold no lengths: a video's is 5 s times its segments, which may be up to 5 s too long.",
    ),
)
