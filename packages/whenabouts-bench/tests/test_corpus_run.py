"""Answers of a corpus as a run: names of videos, blocks, confidence of the first answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from whenabouts.types import Moment, Query, ScoredMoment, UsageError, Video
from whenabouts_bench import corpus_run
from whenabouts_bench.corpus_run import CorpusRun, names_of
from whenabouts_bench.formats.runs import moments_of


@dataclass(frozen=True)
class Row:
    """The used fields of a ledger row."""

    video_id: str
    path: str


ROWS: Any = [
    Row("dogs-1", "/films/dogs.mp4"),
    Row("cats-2", "/films/cats.mp4"),
    Row("cats-3", "/more/cats.mov"),
    Row("birds-4", "/films/birds.mp4"),
]


@pytest.mark.parametrize("name", ["dogs-1", "/films/dogs.mp4", "dogs.mp4", "dogs"])
def test_videos_are_named_by_id_path_file_name_or_stem(name: str) -> None:
    assert names_of(ROWS, [Video(name, None), Video("elsewhere", None)], "c") == {"dogs-1": name}


def test_a_name_that_fits_several_and_two_names_for_one_are_errors() -> None:
    with pytest.raises(UsageError, match="'cats' fits 2 videos of c: cats-2, cats-3; use their ids"):
        names_of(ROWS, [Video("cats", None)], "c")
    with pytest.raises(UsageError, match=r"'dogs' and 'dogs\.mp4' are both 'dogs-1' in c"):
        names_of(ROWS, [Video("dogs", None), Video("dogs.mp4", None)], "c")


def answer(text: str) -> Any:
    count = int(text)
    found = [
        ScoredMoment(Moment(f"v{at % 2}", float(at), at + 1.0), score=5.0 - at, confidence=0.5 + 0.1 * count)
        for at in range(count)
    ]
    return SimpleNamespace(moments=tuple(found))


def test_answers_come_in_blocks_under_the_names_of_the_judgements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_run, "QUERIES_AT_ONCE", 2)
    queries = [Query("a", "2"), Query("b", "0"), Query("c", "1")]
    run = CorpusRun("run", queries, answer, {"v0": "dogs.mp4"})
    blocks = list(run.blocks())
    assert [block.query_ids for block in blocks] == [("a", "b"), ("c",)]
    found = {name: [m.moment.video_id for m in moments] for name, moments in moments_of(run)}
    assert found == {"a": ["dogs.mp4", "v1"], "b": [], "c": ["dogs.mp4"]}
    first, second = (block.confidence for block in blocks)
    assert first is not None
    assert second is not None
    assert first[0] == pytest.approx(0.7)
    assert math.isnan(first[1])
    assert second.tolist() == pytest.approx([0.6])
