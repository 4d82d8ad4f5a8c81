"""A query of a data set: whose words, whose truth, whose moments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.small_split import save_run, write_split

from whenabouts.types import Moment, UsageError
from whenabouts_systems.explain.split import InSplit, explain, query_row, truth_of
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.ranker import Ranker
from whenabouts_systems.ranking.split import rank_split
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.experiment import load_experiment

Open = Callable[..., InSplit]


@pytest.fixture
def features(tmp_path: Path) -> Path:
    return write_split(tmp_path / "features")


@pytest.fixture
def opened(features: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens a system with a seed on the split."""
    with ExitStack() as files:

        def open_one(seed: int = 0, **decoding: object) -> InSplit:
            trained = Trained.from_pretrained(save_run(features, tmp_path / f"run{seed}", seed, **decoding))
            experiment = load_experiment(features / "tiny.toml")
            material = ExperimentData.open(
                experiment.data, experiment.features, features, inputs=trained.inputs, splits=("test",)
            )
            return InSplit(f"run{seed}", trained, files.enter_context(material).split("test"))

        yield open_one


def test_a_query_is_told_with_its_words_its_truth_and_its_video(opened: Open) -> None:
    told = explain([opened()], query_id="q1", k=3)
    assert (told.query, told.query_id, told.video_id) == ("the red door.", "q1", "v1")
    assert told.duration == 15.5
    assert told.truth == (Moment("v1", 2.0, 5.0),)
    (system,) = told.systems
    assert system.token_weights is not None
    assert system.token_weights.words == ("the", "red", "door.")
    assert sum(system.token_weights.weights["vision"]) == pytest.approx(1, abs=1e-5)
    assert [one.rank for one in system.moments] == [1, 2, 3]


def test_weights_and_borders_are_those_of_the_model(opened: Open) -> None:
    system = opened()
    told = explain([system], query_id="q2").systems[0]
    model, split = system.trained.model, system.split
    with torch.no_grad():
        query = model.encode_queries(split.query_batch([2]))  # type: ignore[arg-type]
        scores = model.score_spans(query, model.encode_videos(split.video_batch([2])))  # type: ignore[arg-type]
    assert told.token_weights is not None
    assert told.borders is not None
    expected = query.parts["words/vision"][0].tolist()
    assert told.token_weights.weights["vision"] == pytest.approx(tuple(expected), abs=1e-6)
    torch.testing.assert_close(
        torch.tensor(told.borders.start).float(), scores.start[0].exp(), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(torch.tensor(told.borders.end).float(), scores.end[0].exp(), atol=1e-5, rtol=0)


def test_the_moments_are_those_of_a_run_and_none_shares_half_with_a_better_one(opened: Open) -> None:
    system = opened()
    found = [one.moment for one in explain([system], query_id="q0", k=6).systems[0].moments]
    decoding = replace(system.trained.decoding, nms=0.5, spans_per_query=6, spans_before_nms=2000)
    run = rank_split(system.trained, system.split, decoding=decoding)
    block = next(iter(run.blocks("VCMR")))
    rows = range(int(block.offsets[0]), int(block.offsets[1]))
    expected = [
        Moment(block.video_ids[int(block.video[row])], float(block.start[row]), float(block.end[row]))
        for row in rows
    ]
    assert found == expected
    assert len(found) == 6
    assert all(a.iou(b) <= 0.5 for a in found for b in found if a is not b)


def test_a_systems_own_suppression_is_kept(opened: Open) -> None:
    loose = explain([opened(nms=0.9)], query_id="q0", k=8).systems[0].moments
    assert any(a.moment.iou(b.moment) > 0.5 for a in loose for b in loose if a is not b)


def test_windows_after_the_end_of_their_video_are_left_out(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [ranked.moment for ranked in explain([opened()], query_id="q1", k=3).systems[0].moments]
    answers = Ranker.answers

    def with_an_empty_one(self: Ranker, *given: Any, **more: Any) -> Iterator[Any]:
        for lists in answers(self, *given, **more):
            ends = {task: block.end.copy() for task, block in lists.items()}
            for task, block in lists.items():
                ends[task][0] = block.start[0]
            yield {task: replace(block, end=ends[task]) for task, block in lists.items()}

    monkeypatch.setattr(Ranker, "answers", with_an_empty_one)
    moments = explain([opened()], query_id="q1", k=3).systems[0].moments
    assert [(ranked.rank, ranked.moment) for ranked in moments] == [(1, expected[1]), (2, expected[2])]


def test_two_systems_are_told_of_the_same_video(opened: Open) -> None:
    told = explain([opened(0), opened(1)], query_id="q3")
    first, second = told.systems
    assert (first.name, second.name) == ("run0", "run1")
    assert first.borders is not None
    assert second.borders is not None
    assert first.borders.start.tolist() != second.borders.start.tolist()
    assert len(first.borders.low) == len(second.borders.low) == 8


def test_borders_can_be_told_along_another_video(opened: Open) -> None:
    system = opened()
    own, other = (explain([system], query_id="q0", video_id=name) for name in ("v0", "v4"))
    assert other.video_id == "v4"
    assert other.truth_here == ()
    assert own.systems[0].borders.start.tolist() != other.systems[0].borders.start.tolist()  # type: ignore[union-attr]


def test_a_video_that_is_not_there_is_named(opened: Open) -> None:
    with pytest.raises(UsageError, match="'v99' is not among the 6 videos"):
        explain([opened()], query_id="q0", video_id="v99")


def test_systems_of_other_annotations_are_refused(opened: Open) -> None:
    first, second = opened(0), opened(1)
    examples: Any = second.split
    examples.annotations = replace(
        examples.annotations, queries=tuple(reversed(examples.annotations.queries))
    )
    with pytest.raises(UsageError, match="run1 reads other annotations"):
        explain([first, second], query_id="q0")


def test_no_moments_cannot_be_asked_for(opened: Open) -> None:
    with pytest.raises(UsageError, match="k is 0"):
        explain([opened()], query_id="q0", k=0)


def test_a_query_is_found_by_its_words_however_they_are_spaced(opened: Open) -> None:
    split = opened().split
    assert query_row(split, None, " The red  DOOR") == 1
    assert query_row(split, "q1", "the red door") == 1


@pytest.mark.parametrize(
    ("query_id", "text", "told"),
    [
        (None, None, "--query-id"),
        ("q11", None, "test has no query 'q11'; did you mean 'q1'?"),
        (None, "the red doors", "did you mean 'the red door.'?"),
        (None, "something else", "there are features only for its queries"),
        (None, "the same words", "2 queries of test have these words: q6, q7; give --query-id"),
        ("q1", "dogs run away", "leave out one of the two"),
    ],
)
def test_a_query_that_is_not_there_is_refused_with_those_near_to_it(
    opened: Open, query_id: str | None, text: str | None, told: str
) -> None:
    with pytest.raises(UsageError) as error:
        query_row(opened().split, query_id, text)
    assert told in str(error.value)


def test_judgements_without_a_moment_are_no_truth(opened: Open) -> None:
    annotations = opened().split.annotations
    empty = replace(annotations, end=annotations.start.copy())
    assert truth_of(annotations, 4) == (Moment("v4", 2.0, 5.0),)
    assert truth_of(empty, 4) == ()
    assert truth_of(replace(annotations, relevance=annotations.relevance * 0), 4) == ()
