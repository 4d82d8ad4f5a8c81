"""TVR: moments of six TV series, with subtitles; one moment per query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from whenabouts.intake.files import read_json, sibling_file
from whenabouts.types import Video
from whenabouts_bench.datasets.declaration import (
    AnnotationFile,
    Declaration,
    FeatureFile,
    SideFile,
    Split,
    Statistics,
)
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.json_records import NotNegative, Origin

CORPUS = "tvr_video2dur_idx.json"
_SecondsIndex = Annotated[tuple[NotNegative, Any], Meta(title="[seconds, index]")]
_CORPUS_ACCEPTED = "an object, split -> {video: [seconds, index]}"

REQUEST = (
    "The features come in one archive of 33 GB (tvr_feature_release) that jayleicn/TVRetrieval links to; its "
    "host refuses downloads for a day when too many ask. The videos are not given out."
)
_XML = "the authors of TVR (XML)"
_HERO = "the authors of HERO, as CONQUER released them"
_HDF5 = "HDF5, video id -> (clips, width)"
_LMDB = "LMDB with msgpack, video id -> features"
_CONQUER_HOW = "houzhijian/CONQUER links to an archive of 21 GB (also named tvr_feature_release)."

SUBTITLES = FeatureFile(
    ("tvr_sub_pretrained_w_sub_query_max_cl-1.5.h5",), "subtitle", _HDF5, 768, _XML, REQUEST, 1.5, needed=True
)
VIDEOS = (
    FeatureFile(
        ("tvr_resnet152_rgb_max_i3d_rgb600_avg_cat_cl-1.5.h5",),
        "video",
        _HDF5,
        3072,
        f"{_XML}: ResNet-152 (2048) and I3D (1024), each normalised",
        REQUEST,
        1.5,
        needed=True,
    ),
    FeatureFile(
        ("tvr_resnet152_rgb_max_cl-1.5.h5",), "video", _HDF5, 2048, f"{_XML}: ResNet-152", REQUEST, 1.5
    ),
    FeatureFile(("tvr_i3d_rgb600_avg_cl-1.5.h5",), "video", _HDF5, 1024, f"{_XML}: I3D", REQUEST, 1.5),
    FeatureFile(
        ("resnet_slowfast_1.5",), "video", _LMDB, 4352, f"{_HERO}: SlowFast and ResNet", _CONQUER_HOW, 1.5
    ),
)


def complete(annotations: Annotations, path: Path, split: str) -> Annotations:
    """The annotations with all videos of the split from the side file, which are the corpus to search."""
    return with_corpus(annotations, _corpus_beside(path, split))


def with_corpus(annotations: Annotations, corpus: Mapping[str, float]) -> Annotations:
    """The annotations with all videos of a corpus (id -> seconds)."""
    annotated = {video.id for video in annotations.videos}
    more = tuple(Video(name, seconds) for name, seconds in corpus.items() if name not in annotated)
    return replace(annotations, videos=annotations.videos + more)


def _corpus_beside(path: Path, split: str) -> dict[str, float]:
    corpus = sibling_file(path, CORPUS)
    if corpus is None:
        return {}
    whole = Origin(corpus)
    splits = whole.object(read_json(corpus), _CORPUS_ACCEPTED)
    if split not in splits:
        problem = f"is missing (found: {', '.join(splits)[:80]!r})"
        raise whole.at(split).error(problem, accepted=_CORPUS_ACCEPTED)
    videos = whole.at(split).object(splits[split], _CORPUS_ACCEPTED)
    rows = {name: whole.at(split, name).convert(row, _SecondsIndex) for name, row in videos.items()}
    return {name: seconds for name, (seconds, *_) in rows.items()}


def _file(split: str) -> tuple[AnnotationFile, ...]:
    return (AnnotationFile(f"tvr_{split}_release.jsonl", "tvr"),)


DATASET = Declaration(
    name="tvr",
    title="TVR",
    tasks=("VCMR", "SVMR", "VR"),
    citation=(
        "Lei, Yu, Berg, Bansal. TVR: A Large-Scale Dataset for Video-Subtitle Moment Retrieval. ECCV 2020."
    ),
    licence="MIT (the annotations' repository); the videos and subtitles belong to their broadcasters.",
    how="The folder data/ of jayleicn/TVRetrieval holds the annotations and the list of videos.",
    mark=rb'"desc_id"',
    splits=(
        Split("train", _file("train"), Statistics(videos=17_435, queries=87_175)),
        Split("val", _file("val"), Statistics(videos=2_179, queries=10_895, judgements=10_895)),
        Split(
            "test_public",
            _file("test_public"),
            Statistics(videos=1_089, queries=5_445, judgements=0),
            "Its answers are not public: queries only. The submission server was shut.",
        ),
    ),
    beside=(SideFile(CORPUS, "every video of each split with its length: the corpus to search"),),
    features=(
        *VIDEOS,
        SUBTITLES,
        FeatureFile(
            ("tvr_query_pretrained_w_sub_query.h5",),
            "query",
            "HDF5, desc_id -> (words, width)",
            768,
            _XML,
            REQUEST,
            needed=True,
        ),
    ),
    notes=(
        "A search over the corpus is over the videos of one split: 2,179 for val.",
        "Over all splits, the papers say: videos 76.2 s, moments 9.1 s, 13.4 words a query, 5 queries a "
        "video.",
        "The features were made from pictures at 15 a second that were never published; features computed "
        "from the published ones (3 a second) are different features.",
    ),
    complete=complete,
)
