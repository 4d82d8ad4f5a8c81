"""TVR-Ranking: imprecise queries, each with a graded list of moments, over nearly all of TVR."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from whenabouts.intake.files import read_json, sibling_file
from whenabouts_bench.datasets import tvr
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

CORPUS = "video_corpus.json"


def complete(annotations: Annotations, path: Path, split: str) -> Annotations:
    """The annotations with all videos of the corpus from the side file."""
    corpus = sibling_file(path, CORPUS)
    if corpus is None:
        return annotations
    whole = Origin(corpus)
    videos = whole.object(read_json(corpus), "an object, video -> seconds (or [seconds, index])")
    rows = {
        name: whole.at(name).convert(row[0] if isinstance(row, list) and row else row, NotNegative)
        for name, row in videos.items()
    }
    return tvr.with_corpus(annotations, rows)


def _files(name: str) -> tuple[AnnotationFile, ...]:
    return tuple(AnnotationFile(f"{name}.{suffix}", "tvr-ranking") for suffix in ("json", "jsonl"))


def _graded(
    queries: int, judgements: int, videos: int, moment: float, words: float, relevant: float
) -> Statistics:
    """The paper's numbers of a graded split; `moment` is the mean length in seconds."""
    return Statistics(
        19_614, queries, judgements, videos, None, None, moment, 0.11, words, relevant_per_query=relevant
    )


_TRAIN_NOTE = "Made by a program: the moments whose caption is most similar to the query; nobody judged them."
_WHO = (
    "The paper counts, for {name}, {n} annotations in agreement; its section 3.2 names the number of videos "
    "({videos}) where it speaks of annotations."
)

DATASET = Declaration(
    name="tvr-ranking",
    title="TVR-Ranking",
    tasks=("RVMR",),
    citation=(
        "Liang, Li, Zhang, Wang, Zhu, Sun. TVR-Ranking: A Dataset for Ranked Video Moment Retrieval with "
        "Imprecise Queries. arXiv:2407.06597, 2024."
    ),
    licence="MIT (its repository, as TVR's); the section on the data's own licence was left open there.",
    how="Ranking-VMR/TVR-Ranking names a repository on the Hugging Face hub (axgroup/TVR-Ranking).",
    mark=rb'"query_id"',
    splits=(
        Split(
            "val",
            _files("val"),
            _graded(500, 14_382, 9_272, 8.71, 14.11, 27.1),
            _WHO.format(name="val", n="14,382", videos="9,272"),
        ),
        Split(
            "test",
            _files("test"),
            _graded(2_781, 80_060, 18_146, 8.61, 13.97, 27.0),
            _WHO.format(name="test", n="80,060", videos="18,146"),
        ),
        *(
            Split(
                f"train_top{top:02d}",
                _files(f"train_top{top:02d}"),
                Statistics(videos=19_614, queries=69_317, judgements=69_317 * top),
                _TRAIN_NOTE,
            )
            for top in (1, 20, 40)
        ),
    ),
    beside=(SideFile(CORPUS, "all videos with their lengths: the corpus to search"),),
    features=(
        replace(tvr.VIDEOS[2], needed=True),
        tvr.SUBTITLES,
        FeatureFile(
            ("query_bert.h5",),
            "query",
            "HDF5, query_id -> (words, width)",
            768,
            "the authors of TVR-Ranking",
            "In the same hub repository as the annotations.",
            needed=True,
        ),
    ),
    notes=(
        "All splits search the same 19,614 videos.",
        "The released evaluation departs from the paper: gain 2^relevance - 1 for the relevance, IoU "
        "above the threshold for at or above it, and unanswered queries left out.",
    ),
    # The three training sets are the same queries with more and more moments.
    shared_query_ids=(
        ("train_top01", "train_top20"),
        ("train_top01", "train_top40"),
        ("train_top20", "train_top40"),
    ),
    complete=complete,
)
