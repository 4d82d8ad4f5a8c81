"""Small judgements and runs, drawn at random, and made by hand where a case is odd."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import RANKED_CORPUS, MemoryRun, RunBlock

Row = tuple[str, float, float]
"""Video, start, end; NaN for a row that names a video only."""
Truth = Mapping[str, Sequence[tuple[str, float, float, float]]]
"""Query -> (video, start, end, relevance)."""


@dataclass(frozen=True)
class Case:
    """Judgements and a run as plain lists, and as what the code reads."""

    truth: Truth
    answers: Mapping[str, Sequence[Row]]
    annotations: Annotations
    run: MemoryRun


def block_of(answers: Mapping[str, Sequence[Row]]) -> RunBlock:
    """Rows in the order given, scores falling."""
    rows = [row for own in answers.values() for row in own]
    videos = sorted({row[0] for row in rows})
    return RunBlock(
        query_ids=tuple(answers),
        offsets=np.cumsum([0, *(len(own) for own in answers.values())]).astype(np.int64),
        video_ids=tuple(videos),
        video=np.array([videos.index(row[0]) for row in rows], np.int32),
        start=np.array([row[1] for row in rows], np.float64),
        end=np.array([row[2] for row in rows], np.float64),
        score=-np.arange(len(rows), dtype=np.float64),
    )


def make_case(
    truth: Truth,
    *runs: Mapping[str, Sequence[Row]],
    durations: Mapping[str, float | None] | None = None,
    texts: Mapping[str, str] | None = None,
    types: Mapping[str, str] | None = None,
    names: Sequence[str] = ("first.jsonl", "second.jsonl"),
) -> tuple[Annotations, list[MemoryRun]]:
    """Annotations and runs; a run comes in blocks of two queries, so that blocks have to be joined."""
    collector = AnnotationBuilder("truth.jsonl", cut=False)
    for video, duration in (durations or {}).items():
        collector.add_video(video, duration)
    for query, judgements in truth.items():
        metadata = {"type": types[query]} if types else {}
        collector.add_query(query, (texts or {}).get(query, f"somebody does {query}"), **metadata)
        for video, start, end, relevance in judgements:
            collector.judge(query, video, start, end, relevance)
    sources = []
    for name, answers in zip(names, runs, strict=False):
        ids = list(answers)
        blocks = [
            block_of({query: answers[query] for query in ids[at : at + 2]}) for at in range(0, len(ids), 2)
        ]
        sources.append(MemoryRun(name, {"VCMR": tuple(blocks)}, RANKED_CORPUS))
    return collector.annotations(), sources


def draw_case(seed: int, queries: int = 40, *, graded: bool = False, several: bool = False) -> Case:
    """Times lie on half seconds, so that an IoU is often exactly a threshold."""
    rng = random.Random(seed)
    videos = [f"v{number}" for number in range(6)]

    def span() -> tuple[float, float]:
        start = rng.randrange(0, 40) / 2
        return start, start + rng.randrange(1, 16) / 2

    truth: dict[str, list[tuple[str, float, float, float]]] = {}
    answers: dict[str, list[Row]] = {}
    for number in range(queries):
        query = f"q{number}"
        count = rng.randrange(1, 5) if several or graded else 1
        truth[query] = [
            (rng.choice(videos), *span(), float(rng.randrange(0, 4)) if graded else 1.0) for _ in range(count)
        ]
        if rng.random() < 0.1:
            continue
        rows: list[Row] = [(rng.choice([*videos, "elsewhere"]), *span()) for _ in range(rng.randrange(0, 15))]
        for video, start, end, _ in truth[query]:
            if rows and rng.random() < 0.6:
                rows[rng.randrange(len(rows))] = (video, start, end + rng.randrange(0, 10) / 2)
        answers[query] = rows
    annotations, (run,) = make_case(truth, answers, durations=dict.fromkeys(videos, 30.0))
    return Case(truth, answers, annotations, run)


@pytest.fixture()
def case() -> Callable[..., Case]:
    """Draws a case."""
    return draw_case


@pytest.fixture()
def made() -> Callable[..., tuple[Annotations, list[MemoryRun]]]:
    """Makes annotations and runs from plain lists."""
    return make_case
