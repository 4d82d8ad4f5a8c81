"""QVHighlights: vlogs and news, several moments per query, with saliency grades of clips."""

from __future__ import annotations

from whenabouts_bench.datasets.declaration import AnnotationFile, Declaration, FeatureFile, Split, Statistics

_HOW = "jayleicn/moment_detr links to an archive of 8 GB (moment_detr_features)."
_WHO = "the authors of Moment-DETR"
_NPZ = "a folder of npz, {video id}.npz with features (clips, width)"
_UNKNOWN = Statistics()


def _files(split: str, holds: Statistics = _UNKNOWN, fingerprint: str = "") -> tuple[AnnotationFile, ...]:
    return (AnnotationFile(f"highlight_{split}_release.jsonl", "qvhighlights", holds, fingerprint),)


DATASET = Declaration(
    name="qvhighlights",
    title="QVHighlights",
    tasks=("SVMR",),
    citation=(
        "Lei, Berg, Bansal. QVHighlights: Detecting Moments and Highlights in Videos via Natural Language "
        "Queries. NeurIPS 2021."
    ),
    licence="CC BY-NC-SA 4.0 (the annotations); the videos are on YouTube, under their owners' terms.",
    how="The folder data/ of jayleicn/moment_detr holds the three files.",
    mark=rb'"qid"',
    splits=(
        Split("train", _files("train"), Statistics(queries=7_218)),
        Split(
            "val",
            _files("val", Statistics(1_519, 1_550, 2_803), "f668a1eaea156ec5"),
            Statistics(queries=1_550),
        ),
        Split(
            "test",
            _files("test", Statistics(1_529, 1_542, 0), "0462f0cb582b5491"),
            Statistics(queries=1_542),
            "Its answers are not public: queries only.",
        ),
    ),
    features=(
        FeatureFile(("clip_features",), "video", _NPZ, 512, f"{_WHO}: CLIP ViT-B/32", _HOW, 2.0, needed=True),
        FeatureFile(("slowfast_features",), "video", _NPZ, 2304, f"{_WHO}: SlowFast", _HOW, 2.0, needed=True),
        FeatureFile(
            ("clip_text_features",),
            "query",
            "a folder of npz, qid{query id}.npz with last_hidden_state (words, width)",
            512,
            f"{_WHO}: CLIP ViT-B/32",
            _HOW,
            needed=True,
        ),
    ),
    notes=(
        "A video is a piece of at most 150 s of a YouTube video: its id is {YouTube id}_{start}_{end}.",
        "Over all splits the papers say: 10,310 queries, 10,148 videos, 18,367 moments, 1.78 a query.",
        "Saliency scores (three annotators, 0 very bad to 4 very good) belong to clips of 2 s; they are "
        "in each query's metadata.",
    ),
)
