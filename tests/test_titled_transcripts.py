"""`benchmarks/titled_transcripts.py`: what counts as a hit, the features alone, and the table of outcomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("whenabouts_systems", reason="benchmarks of research")

from benchmarks.packed import packed_text
from benchmarks.study_outcomes import Outcomes, opened, write_answers, written
from benchmarks.titled_transcripts import METRICS, outcomes_of, table, unit

from whenabouts.types import Moment, ScoredMoment
from whenabouts_bench.evaluation.several_trainings import over_trainings, pooled_variance
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun, Task


def _truth() -> Annotations:
    builder = AnnotationBuilder("two talks")
    for name in ("first", "second"):
        builder.add_video(name, 600.0)
    builder.add_query("first#0", "the plan")
    builder.judge("first#0", "first", 100.0, 200.0)
    return builder.annotations()


@pytest.mark.parametrize(
    ("video", "start", "end", "hit"),
    [
        ("first", 0.0, 110.0, 1.0),  # its middle is 45 s before the part
        ("first", 0.0, 109.0, 0.0),
        ("first", 100.0, 200.0, 1.0),
        ("second", 100.0, 200.0, 0.0),
    ],
)
def test_a_hit_is_a_moment_of_the_video_whose_middle_is_near_the_part(
    video: str, start: float, end: float, hit: float
) -> None:
    answer = {"first#0": [ScoredMoment(Moment(video, start, end), 1.0)]}
    blocks = MemoryRun.from_run(answer).lists["VCMR"]
    answered: dict[Task, Task] = {"VCMR": "VCMR", "VR": "VCMR", "SVMR": "SVMR"}
    rows = outcomes_of(_truth(), MemoryRun("both", {"VCMR": blocks, "SVMR": blocks}, answered))
    values = dict(zip(METRICS, rows["first#0"], strict=True))
    assert values["hit@1"] == values["hit@10"] == values["given hit@5"] == hit
    assert values["VR R@1"] == (video == "first")


def test_the_first_moments_of_both_lists_are_kept(tmp_path: Path) -> None:
    moments = [ScoredMoment(Moment("first", 0.0, 10.126), 1.0), ScoredMoment(Moment("second", 5.0, 6.0), 2.0)]
    run = MemoryRun.from_run({"first#0": moments, "first#1": []})
    run = MemoryRun("both", {"VCMR": run.lists["VCMR"], "VR": run.lists["VCMR"], "SVMR": run.lists["VCMR"]})
    write_answers([("xml", "2", run)], tmp_path / "answers.csv.xz")
    lines = packed_text(tmp_path / "answers.csv.xz").splitlines()
    assert lines == [
        "system,seed,list,query,video,start,end",
        "xml,2,SVMR,first#0,second,5.00,6.00",
        "xml,2,VCMR,first#0,second,5.00,6.00",
    ]


def test_vectors_get_length_1_and_silence_stays() -> None:
    rows = unit(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32))
    assert rows.flatten().tolist() == pytest.approx([0.6, 0.8, 0, 0])


def test_the_table_is_made_of_the_file_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    hits = {
        ("whenabouts", "1"): rng.random((40, len(METRICS))) < 0.3,
        **{("xml", seed): rng.random((40, len(METRICS))) < 0.9 for seed in "123"},
        ("prem", "1"): np.zeros((40, len(METRICS))),
    }
    videos = tuple(f"talk{number % 10}" for number in range(40))
    queries = tuple(f"{video}#{number}" for number, video in enumerate(videos))
    made = Outcomes(
        METRICS, queries, videos, {training: np.array(own, float) for training, own in hits.items()}
    )
    written(made, tmp_path / "outcomes.csv.xz")
    lines = list(table(opened(tmp_path / "outcomes.csv.xz")))
    assert lines == list(table(made))
    means = {line.split(" | ")[0]: line.split(" | ") for line in lines}
    assert set(means) >= {"| whenabouts", "| xml", "| prem", "| xml - whenabouts"}
    assert "| prem - whenabouts" not in means  # one training says nothing about others
    assert means["| xml"][2].startswith(f"{100 * np.mean([hits['xml', seed][:, 0] for seed in '123']):.1f} (")
    gains = made.of("xml") - made.of("whenabouts")
    clusters = np.unique(videos, return_inverse=True)[1]
    # Only xml's trainings vary: whenabouts answers the same each time.
    low, high = over_trainings(gains, clusters, pooled_variance([made.of("xml")])).ends[0]
    told = f"{100 * gains[:, :, 0].mean():+.1f} ({100 * low:+.1f} to {100 * high:+.1f}; p = "
    assert means["| xml - whenabouts"][1].startswith(told)
