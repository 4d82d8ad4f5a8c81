"""Parts that a format declares to keep survive, and all losses are reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts_bench import formats
from whenabouts_bench.formats import keeps_of
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations, judgement_rows
from whenabouts_bench.formats.parts import PARTS
from whenabouts_bench.formats.runs import UNSAID, MemoryRun, RunBlock

MODULES = {module.NAME: module for module in formats.all_formats()}
TRUTHS = [*formats.format_names("write_annotations"), "jsonl in a folder"]
RUNS = formats.format_names("write_run")

Fill = Callable[[Any], Any]
Read = Callable[[Annotations], Any]


def metadata_of(key: str) -> Read:
    return lambda annotations: [query.metadata.get(key) for query in annotations.queries]


HELD: dict[str, tuple[Fill, Read]] = {
    "texts": (lambda c: c.add_query("a#0", "a dog"), lambda a: [query.text for query in a.queries]),
    "durations": (lambda c: c.add_video("a", 30.0), lambda a: [video.duration for video in a.videos]),
    "grades": (lambda c: (c.add_query("a#0"), c.judge("a#0", "a", 1, 2, 3.0)), lambda a: list(a.relevance)),
    "similarities": (
        lambda c: (c.add_query("a#0"), c.judge("a#0", "a", 1, 2, similarity=0.5)),
        lambda a: None if a.similarity is None else a.similarity.tolist()[:1],
    ),
    "captions": (
        lambda c: (c.add_query("a#0"), c.judge("a#0", "a", 1, 2, caption="a dog")),
        lambda a: a.captions,
    ),
    "pools": (
        lambda c: (c.add_query("a#0"), c.set_pool("a#0", ("a", "b"))),
        lambda a: dict(a.pools),
    ),
    "most grade": (lambda c: setattr(c, "most_grade", 4.0), lambda a: a.most_grade),
    "given videos": (
        lambda c: (c.add_query("a#0"), c.add_query("b#0"), c.set_pool("b#0", ("b",))),
        lambda a: ([query.id for query in a.queries], dict(a.pools)),
    ),
    "unjudged queries": (
        lambda c: (c.add_query("a#0"), c.add_query("b#0")),
        lambda a: [query.id for query in a.queries],
    ),
    "unjudged videos": (
        lambda c: (c.add_video("a"), c.add_video("b")),
        lambda a: [video.id for video in a.videos],
    ),
    "video metadata": (
        lambda c: c.add_video("a", camera="left"),
        lambda a: [dict(video.metadata) for video in a.videos],
    ),
    "query metadata": (lambda c: c.add_query("a#0", asked_by="me"), metadata_of("asked_by")),
    "query metadata type": (lambda c: c.add_query("a#0", type="vt"), metadata_of("type")),
    "query metadata saliency_scores": (
        lambda c: c.add_query("a#0", saliency_scores=[[1, 2, 3]]),
        metadata_of("saliency_scores"),
    ),
    "query metadata relevant_clip_ids": (
        lambda c: c.add_query("a#0", relevant_clip_ids=[4]),
        metadata_of("relevant_clip_ids"),
    ),
}
"""Part -> a function that adds it to judgements, and one that tests for it."""


def target(name: str, tmp_path: Path) -> tuple[Any, Path, str]:
    """(module, where to write, name of the format); our JSON lines also into a folder."""
    path = tmp_path / "out"
    if name.endswith(" in a folder"):
        path.mkdir()
    name = name.removesuffix(" in a folder")
    return MODULES[name], path, name


def annotations_with(fill: Fill) -> Annotations:
    collector = AnnotationBuilder("test")
    fill(collector)
    collector.add_query("a#0")
    collector.judge("a#0", "a", 1.0, 4.5)
    return collector.annotations()


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("part", HELD)
def test_a_part_of_judgements_comes_back_or_its_loss_is_told(
    part: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module, path, format_ = target(name, tmp_path)
    fill, read = HELD[part]
    made = annotations_with(fill)
    formats.write_annotations(made, path, format_)
    kept = read(formats.read_annotations(path, format_)) == read(made)
    declared = keeps_of(module, path)
    assert kept == bool(declared & {part, " ".join(part.split()[:2])})
    called = next(PARTS[known] for known in PARTS if part.startswith(known))
    told = [message for message in caplog.messages if called in message and "left out" in message]
    assert len(told) == (not kept)


@pytest.mark.parametrize("name", TRUTHS)
def test_nothing_is_told_where_nothing_is_lost(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, path, format_ = target(name, tmp_path)
    formats.write_annotations(annotations_with(lambda collector: None), path, format_)
    assert caplog.messages == []


@pytest.mark.parametrize("name", sorted({*formats.format_names("write_annotations"), *RUNS}))
def test_what_is_declared_is_known(name: str) -> None:
    known = {*PARTS, *HELD}
    assert known >= MODULES[name].KEEPS
    assert known >= getattr(MODULES[name], "KEEPS_IN_FOLDER", frozenset())


def test_every_part_is_tried_here() -> None:
    assert {*PARTS} - {*HELD} == {"confidences", "lists", "saliency"}


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("times", [(1 / 3, 2.0), (2.0, 2.0), (3.0, 1.0), (0.0001, 0.0002)])
def test_times_of_judgements_come_back_or_their_change_is_told(
    times: tuple[float, float], name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, path, format_ = target(name, tmp_path)
    made = annotations_with(lambda c: (c.add_query("a#0"), c.judge("a#0", "a", *times)))
    formats.write_annotations(made, path, format_)
    again, expected = (
        [(video, start, end) if start < end else video for _, video, start, end, _ in judgement_rows(a)]
        for a in (formats.read_annotations(path, format_), made)
    )
    assert again == expected or caplog.messages


def test_metadata_is_told_by_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = annotations_with(lambda c: c.add_query("a#0", type="vt", saliency_scores=[[1, 2, 3]]))
    formats.write_annotations(made, tmp_path / "out", "tvr")
    assert caplog.messages == [f"{tmp_path / 'out'}: 1 queries' values of 'saliency_scores' are left out"]


def block(*rows: tuple[str, float, float, float]) -> RunBlock:
    """A query "a#0" with rows, and "b#0" with one."""
    every = [*rows, ("b", 1.0, 2.0, 5.0)]
    ids = sorted({row[0] for row in every})
    return RunBlock(
        ("a#0", "b#0"),
        np.array([0, len(rows), len(every)]),
        tuple(ids),
        np.array([ids.index(row[0]) for row in every], np.int32),
        *(np.array([row[column] for row in every], np.float64) for column in (1, 2, 3)),
    )


NAN = float("nan")
ODD = {
    "nothing odd": block(("a", 1.0, 2.0, 1.0)),
    "a video without a moment": block(("a", 1.0, 2.0, 1.0), ("a", NAN, NAN, 0.5)),
    "a span without length": block(("a", 1.0, 2.0, 1.0), ("a", 3.0, 3.0, 0.5)),
    "no answers": block(),
    "scores that rise": block(("a", 1.0, 2.0, 1.0), ("a", 3.0, 4.0, 2.0)),
    "scores that tie": block(("a", 3.0, 4.0, 1.0), ("a", 1.0, 2.0, 1.0)),
    "times of many digits": block(("a", 1 / 3, 2.0, 1.0)),
    "another video": block(("a", 1.0, 2.0, 1.0), ("b", 3.0, 4.0, 0.5)),
    "many answers": block(*(("a", 1.0, 2.0, -float(number)) for number in range(101))),
}


def truth() -> Annotations:
    return annotations_with(lambda c: (c.add_query("b#0"), c.judge("b#0", "b", 0.0, 1.0)))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("odd", ODD)
def test_rows_of_a_run_come_back_or_their_change_is_told(
    odd: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, rows: Callable[..., Any]
) -> None:
    run = MemoryRun("run", {"VCMR": (ODD[odd],)}, UNSAID)
    formats.write_run(run, tmp_path / "out", name, truth())
    written = formats.open_run(tmp_path / "out", name)
    again = rows(written, written.tasks[0])
    if odd == "nothing odd":
        assert (again, caplog.messages) == (rows(run), [])
    assert again == rows(run) or caplog.messages


@pytest.mark.parametrize("name", RUNS)
def test_lists_of_a_run_come_back_or_their_loss_is_told(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moments = block(("a", 1.0, 2.0, 1.0))
    run = MemoryRun("run", {"VCMR": (moments,), "SVMR": (moments,), "VR": (moments,)})
    formats.write_run(run, tmp_path / "out", name, truth())
    kept = formats.open_run(tmp_path / "out", name).tasks == run.tasks
    assert kept == ("lists" in MODULES[name].KEEPS)
    assert sum("list left out" in message for message in caplog.messages) == (0 if kept else 2)


@pytest.mark.parametrize("name", RUNS)
def test_the_task_of_a_run_comes_back_or_its_loss_is_told(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = MemoryRun("run", {"SVMR": (block(("a", 1.0, 2.0, 1.0)),)})
    formats.write_run(run, tmp_path / "out", name, truth())
    kept = {*(formats.open_run(tmp_path / "out", name).answered or ())} == {"SVMR"}
    assert kept == (name not in ("trec", "tvr-ranking"))
    assert sum("1 task left out: SVMR" in message for message in caplog.messages) == (not kept)


@pytest.mark.parametrize("name", RUNS)
def test_confidences_come_back_or_their_loss_is_told(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sure = replace(block(("a", 1.0, 2.0, 1.0)), confidence=np.array([0.5, NAN]))
    formats.write_run(MemoryRun("run", {"SVMR": (sure,)}), tmp_path / "out", name, truth())
    again = formats.open_run(tmp_path / "out", name)
    kept = any(part.confidence is not None for part in again.blocks(again.tasks[0]))
    assert kept == ("confidences" in MODULES[name].KEEPS)
    assert sum("1 confidences of queries' first" in message for message in caplog.messages) == (not kept)


@pytest.mark.parametrize("name", RUNS)
def test_predicted_saliency_comes_back_or_its_loss_is_told(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = {"qid": "a#0", "query": "", "vid": "a", "pred_relevant_windows": [[1.0, 2.0, 1.0]]}
    other = line | {"qid": "b#0", "vid": "b"}
    lines = [line | {"pred_saliency_scores": [0.5, 0.25]}, other]
    (tmp_path / "in").write_text("".join(json.dumps(each) + "\n" for each in lines))
    formats.write_run(formats.open_run(tmp_path / "in"), tmp_path / "out", name, truth())
    again: Any = formats.open_run(tmp_path / "out", name)
    kept = hasattr(again, "saliency") and {k: list(v) for k, v in again.saliency().items()} == {
        "a#0": [0.5, 0.25]
    }
    assert kept == ("saliency" in MODULES[name].KEEPS)
    told = [
        message for message in caplog.messages if "1 queries' predicted saliency scores are left" in message
    ]
    assert len(told) == (not kept)
