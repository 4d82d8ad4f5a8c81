"""The golden construction in our types, and a small data set with known pools."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden_folder import Settings

from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.released.mvmr_pools import ReleasedFrames
from whenabouts_bench.relevance.emscore import EMScore, Frames, Words

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class GivenSimilarity:
    """Similarities from a file."""

    matrix: NDArray[np.float32]
    made_by: str = "given"

    def between(self, queries: NDArray[np.int64], sentences: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.matrix[np.ix_(queries, sentences)]


@dataclass(frozen=True)
class Construction:
    """One golden run of the released construction program."""

    arrays: Arrays
    annotations: Annotations
    words: Words
    frames: Frames
    pool_size: int

    @property
    def similarity(self) -> GivenSimilarity:
        return GivenSimilarity(self.arrays["sentence_similarity"])

    @property
    def scorer(self) -> EMScore:
        return EMScore.of(self.words, self.frames)


def construction(path: Path) -> Construction:
    with np.load(path, allow_pickle=False) as opened:
        arrays = {name: opened[name] for name in opened.files}
    lengths = arrays["token_lengths"]
    inside = np.arange(arrays["token_ids"].shape[1]) < lengths[:, None]
    vectors = arrays["token_features_normalised"]
    words = Words(
        np.cumsum([0, *lengths.tolist()]),
        arrays["token_ids"][inside],
        vectors[inside],
        vectors[np.arange(len(lengths)), lengths - 1],
        "stand-in",
        np.ones(len(lengths), np.int64),
    )
    config = Settings(json.loads(str(arrays["config"])))
    size = config["pool"]
    borders = np.cumsum(arrays["frame_counts"])[:-1]
    frames = ReleasedFrames.of(np.split(arrays["frames_raw"], borders), config["nclips"])
    config.refuse_unread("V", "D", "topics", "simdim", "noise", "smin", "smax")  # of the made-up data
    return Construction(arrays, annotated(json.loads(str(arrays["annotations"]))), words, frames, size)


def annotated(videos: dict[str, Any], name: str = "made") -> Annotations:
    """Annotations of {video: {duration, timestamps, sentences}}."""
    collector = AnnotationBuilder(name)
    for video_id, video in videos.items():
        collector.add_video(video_id, video["duration"], **video.get("metadata", {}))
        for number, (span, text) in enumerate(zip(video["timestamps"], video["sentences"], strict=True)):
            collector.add_query(f"{video_id}#{number}", text)
            collector.judge(f"{video_id}#{number}", video_id, *span)
    return collector.annotations()


THINGS = ["opens the door", "reads a book", "pours the milk", "cuts an onion"]


def household(videos: int = 24) -> Annotations:
    """Video i shows thing i % 4, every sixth a second time at another moment; all videos differ in length."""
    made = {}
    for number in range(videos):
        thing = THINGS[number % 4]
        spans, texts = [[1.0, 4.0 + number % 3]], [f"person {thing}"]
        if number % 6 == 0:
            spans.append([8.0, 10.0])
            texts.append(f"person {thing}.")
        made[f"v{number:02d}"] = {"duration": 20.0 + number, "timestamps": spans, "sentences": texts}
    return annotated(made)
