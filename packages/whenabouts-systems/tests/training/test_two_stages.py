"""CroCs from its first stage to its second: what is taken over, what is drawn, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.training.broken_off import Killed, assert_same_tensors, dying_after

from whenabouts.types import UsageError
from whenabouts_bench.relevance.pairs import ListedPairs, PairSettings, RelevantPairs
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.devices import open_device
from whenabouts_systems.training.experiment import load_experiment
from whenabouts_systems.training.hard_negatives import HardNegatives
from whenabouts_systems.training.launch import TrainingResult, launch

pytestmark = pytest.mark.usefixtures("no_picture")

FIRST = (
    "data.pairs=pairs.safetensors",
    "data.positives=similar",
    "data.batch_of=videos",
    "features.long_videos=even",
    "features.max_clips=8",
    "model.system=crocs",
    "model.pooling_counts=[7]",
    "model.map_layers=2",
    "model.map_kernel=3",
    "training.batch_size=3",
    "training.epochs=2",
    "training.optimizer=adamw",
)
SECOND = (
    *FIRST,
    "model.stage=second",
    "data.negatives.videos=2",
    "data.negatives.queries=3",
    "training.learning_rate=1e-4",
)


@pytest.fixture()
def crocs(tiny: Any) -> Any:
    """The tiny data set with a file of pairs: sentences 0 and 4, of videos 0 and 1, are similar."""
    experiment = tiny.experiment
    experiment.write_text(
        experiment.read_text().replace('system = "xml"\nhidden = 16\nheads = 2', "hidden = 8")
    )
    starts = np.array([0, *[1] * 20])
    RelevantPairs(
        tuple(str(query) for query in range(20)),
        np.arange(20, dtype=np.int32),
        tuple(f"sentence {query}" for query in range(20)),
        PairSettings("sent", 0.9, "made", "made"),
        ListedPairs(starts, np.array([4], np.int32), np.array([0.95], np.float16)),
    ).save(tiny.folder / "pairs.safetensors")
    return tiny


def begun(tiny: Any, out: Path, *settings: str, **more: Any) -> TrainingResult:
    experiment = load_experiment(tiny.experiment, settings)
    return launch(experiment, tiny.folder, out, open_device("cpu"), **more)


def test_a_video_with_a_similar_sentence_is_no_negative(crocs: Any) -> None:
    experiment = load_experiment(crocs.experiment, FIRST)
    with ExperimentData.open(
        experiment.data, experiment.features, crocs.folder, splits=("train",)
    ) as material:
        examples = material.split("train")
        batch = examples.batch(np.arange(len(examples)))
    positives = batch.positives.sum(1)
    for row, query in enumerate(examples.query.tolist()):
        similar = examples.queries[query].id in ("0", "4")
        assert positives[row] == (2 if similar else 1)


def test_the_second_stage_begins_with_the_weights_of_the_first_and_is_another_system(
    crocs: Any, tmp_path: Path
) -> None:
    begun(crocs, tmp_path / "one", *FIRST)
    place = f"data.first_stage={tmp_path / 'one'}"
    begun(crocs, tmp_path / "two", *SECOND, place, "training.learning_rate=1e-12", "training.epochs=1")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    for name, weight in first.items():
        if not name.endswith(statistics):
            torch.testing.assert_close(second[name], weight, rtol=1e-5, atol=1e-7)
    assert Trained.from_pretrained(tmp_path / "two").model.config.stage == "second"


def test_the_second_stage_draws_for_every_batch_and_no_pair_that_is_known(
    crocs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(crocs, tmp_path / "one", *FIRST)
    drawn: list[tuple[int, Any]] = []
    draw: Callable[..., Any] = HardNegatives.drawn

    def heard(self: HardNegatives, query: Any, own: Any, videos: Any, epoch: int) -> Any:
        found = draw(self, query, own, videos, epoch)
        drawn.append((epoch, (query, found)))
        return found

    monkeypatch.setattr(HardNegatives, "drawn", heard)
    begun(crocs, tmp_path / "two", *SECOND, f"data.first_stage={tmp_path / 'one'}")
    assert sorted(epoch for epoch, _ in drawn) == [0, 0, 1, 1]
    for _, (query, found) in drawn:
        chosen = found.videos[found.negatives]
        assert (found.negatives >= 0).all()
        # Query 4 * v + i belongs to video v; those of 0 and 4 are similar.
        assert (chosen != query[:, None] // 4).all()
        assert not (chosen[query == 0] == 1).any()
        assert not (chosen[query == 4] == 0).any()


@pytest.mark.slow
def test_a_second_stage_that_was_broken_off_goes_on_to_the_same_numbers(crocs: Any, tmp_path: Path) -> None:
    begun(crocs, tmp_path / "one", *FIRST)
    settings = (*SECOND, f"data.first_stage={tmp_path / 'one'}")
    begun(crocs, tmp_path / "whole", *settings)

    with pytest.raises(Killed):
        begun(crocs, tmp_path / "broken", *settings, show=dying_after(3))
    begun(crocs, tmp_path / "broken", *settings, resume=True)
    assert_same_tensors(tmp_path / "whole", tmp_path / "broken", "state.safetensors")


def test_a_second_stage_without_a_first_is_refused_before_anything_is_written(
    crocs: Any, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"\[data\] first_stage"):
        begun(crocs, tmp_path / "two", *SECOND)
    assert not (tmp_path / "two" / "experiment.toml").exists()


def test_a_first_stage_that_is_not_there_is_refused_before_anything_is_written(
    crocs: Any, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="nowhere: no such folder"):
        begun(crocs, tmp_path / "two", *SECOND, f"data.first_stage={tmp_path / 'nowhere'}")
    assert not (tmp_path / "two" / "experiment.toml").exists()


def test_the_first_stage_of_a_seed_is_named_by_it(crocs: Any, tmp_path: Path) -> None:
    begun(crocs, tmp_path / "seed-2018", *FIRST)
    outcome = begun(crocs, tmp_path / "two", *SECOND, f"data.first_stage={tmp_path}/seed-{{seed}}")
    assert outcome.reason == "all 2 epochs"


@pytest.mark.slow
def test_a_first_stage_may_be_the_folder_beside_that_of_the_second(crocs: Any, tmp_path: Path) -> None:
    begun(crocs, tmp_path / "one", *FIRST)
    begun(crocs, tmp_path / "by_path", *SECOND, f"data.first_stage={tmp_path / 'one'}")
    begun(crocs, tmp_path / "by_name", *SECOND, "data.first_stage=stage:one")
    ours, theirs = (load_file(tmp_path / name / "state.safetensors") for name in ("by_path", "by_name"))
    assert all(torch.equal(one, theirs[name]) for name, one in ours.items())
    with pytest.raises(UsageError, match=r"'stage:none' is the folder .*none, which holds no trained system"):
        begun(crocs, tmp_path / "more", *SECOND, "data.first_stage=stage:none")
    assert not (tmp_path / "more").exists()


def test_similar_videos_without_pairs_are_refused(crocs: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pairs is missing"):
        begun(crocs, tmp_path / "one", *FIRST, "data.pairs=")


@pytest.mark.parametrize("share", ["query", "batch"])
def test_either_way_to_share_trains_and_tells_its_terms(crocs: Any, tmp_path: Path, share: str) -> None:
    begun(crocs, tmp_path / "one", *FIRST)
    settings = (*SECOND, f"data.first_stage={tmp_path / 'one'}", f"data.negatives.share={share}")
    terms: set[str] = set()
    outcome = begun(crocs, tmp_path / "two", *settings, show=lambda told: terms.update(told.losses))
    assert outcome.reason == "all 2 epochs"
    assert {"iou", "moments", "sentences", "negatives"} <= terms
