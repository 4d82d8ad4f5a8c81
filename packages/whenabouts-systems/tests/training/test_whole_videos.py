"""What MMN asks of the way of an example: whole videos, shares, ids, frozen parts, milestones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from whenabouts.types import UsageError
from whenabouts_bench.relevance.pairs import ListedPairs, PairSettings, RelevantPairs
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.training.data import DataSettings, ExperimentData, FeatureSettings
from whenabouts_systems.training.devices import open_device
from whenabouts_systems.training.examples import epoch_batches
from whenabouts_systems.training.experiment import load_experiment
from whenabouts_systems.training.labels import joined_by
from whenabouts_systems.training.launch import TrainingResult, launch

pytestmark = pytest.mark.usefixtures("no_picture")

DATA = DataSettings(train="train.jsonl", validation="val.jsonl", batch_of="videos")
FEATURES = FeatureSettings(
    query="query.h5", streams={"vision": "vision.h5"}, clip_seconds=2.0, max_clips=8, long_videos="even"
)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "sentence", *(str(number) for number in range(40))]
SIZES = {
    "vocab_size": len(WORDS),
    "dim": 8,
    "n_heads": 2,
    "n_layers": 1,
    "hidden_dim": 12,
    "max_position_embeddings": 16,
}


@pytest.fixture()
def mmn(tiny: Any) -> Any:
    """The tiny data set with an experiment of MMN."""
    text = tiny.experiment.read_text()
    text = text.replace(
        'system = "xml"\nhidden = 16\nheads = 2', 'system = "mmn"\nhidden = 8\nmap_layers = 2'
    )
    text = text.replace("max_clips = 16", 'max_clips = 8\nlong_videos = "even"\nclips_per_cell = 2')
    text = text.replace('val.jsonl"\n', 'val.jsonl"\nbatch_of = "videos"\n')
    text = text.replace("batch_size = 8", 'batch_size = 2\noptimizer = "adamw"\nbetas = [0.9, 0.99]')
    tiny.experiment.write_text(text)
    return tiny


@pytest.fixture()
def bert(tmp_path: Path) -> Path:
    """A small random DistilBERT with the words of the tiny data set."""
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(0)
    transformers.DistilBertModel(transformers.DistilBertConfig(**SIZES)).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return tmp_path / "bert"


def begun(tiny: Any, out: Path, settings: Sequence[str] = (), **more: Any) -> TrainingResult:
    experiment = load_experiment(tiny.experiment, settings)
    return launch(experiment, tiny.folder, out, open_device("cpu"), **more)


def with_text(bert: Path) -> list[str]:
    sizes = ", ".join(f"{name} = {size}" for name, size in SIZES.items())
    return [f"features.query=tokenizer:{bert}", f"model.text={{ {sizes} }}"]


# --- whole videos


@pytest.mark.parametrize("order", ["random", "by-length"])
def test_every_video_comes_once_an_epoch_with_all_its_examples(order: Any) -> None:
    random = np.random.default_rng(0)
    groups = random.integers(0, 101, 400)
    lengths = random.integers(1, 60, 101)[groups]
    for epoch in (0, 1):
        plan = epoch_batches(lengths, 8, 3, epoch, order, groups)
        assert sorted(np.concatenate(plan).tolist()) == list(range(400))
        held = [np.unique(groups[batch]) for batch in plan]
        assert sorted(np.concatenate(held).tolist()) == np.unique(groups).tolist()
        assert max(map(len, held)) <= 9
        assert len(plan) == -(-len(np.unique(groups)) // 8)
    assert not np.array_equal(plan[0], epoch_batches(lengths, 8, 3, 0, order, groups)[0])


def test_a_batch_of_videos_has_all_their_queries(tiny: Any) -> None:
    with ExperimentData.open(DATA, FEATURES, tiny.folder) as material:
        examples = material.split("train")
        made = list(examples.batches(size=2, seed=1))
    assert [len(batch.videos) for batch in made] == [2, 3]
    assert [len(batch) for batch in made] == [8, 12]
    for batch in made:
        assert batch.video_of.bincount().tolist() == [4] * len(batch.videos)


# --- the truth


def test_moments_are_shares_of_their_video_held_inside_it(tiny: Any) -> None:
    lines = [json.loads(line) for line in (tiny.folder / "train.jsonl").read_text().splitlines()]
    lines[0]["ts"] = [3.0, 99.0]
    (tiny.folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with ExperimentData.open(DATA, FEATURES, tiny.folder) as material:
        examples = material.split("train")
        batch = examples.batch(np.arange(len(examples)))
    expected = [[one["ts"][0] / one["duration"], min(1, one["ts"][1] / one["duration"])] for one in lines]
    found = batch.labels["moments"]
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_steps_of_the_grid_are_cells_of_the_map(tiny: Any) -> None:
    features = replace(FEATURES, clips_per_cell=2)
    with ExperimentData.open(DATA, features, tiny.folder) as material:
        examples = material.split("train")
    assert examples.clips.tolist() == [4] * 5
    np.testing.assert_allclose(examples.clip_seconds, [2 * (6 + at) / 4 for at in range(5)])
    told = examples.summary.counts
    assert told["videos of more than 8 clips are pooled to 8"] == 2
    assert told["videos of fewer than 8 clips are spread over 8"] == 2


# --- pairs that are no negatives


def test_all_pairs_of_two_relations_are_found() -> None:
    random = np.random.default_rng(0)
    left, right = random.integers(0, 6, (2, 30)), random.integers(0, 6, (2, 20))
    found = joined_by((left[0], left[1]), (right[0], right[1]))
    expected = [(a, c) for a, b in left.T.tolist() for d, c in right.T.tolist() if b == d]
    assert sorted(zip(*(column.tolist() for column in found), strict=True)) == sorted(expected)


def similar_pairs(folder: Path) -> None:
    """Sentence 0 of video 0 is like sentence 8 of video 2."""
    ids = tuple(str(number) for number in range(20))
    starts = np.zeros(21, np.int64)
    starts[1:] = 1
    kept = ListedPairs(starts, np.array([8], np.int32), np.array([0.95], np.float16))
    captions = tuple(f"sentence {number}" for number in range(20))
    pairs = RelevantPairs(
        ids, np.arange(20, dtype=np.int32), captions, PairSettings("sent", 0.9, "made", "made"), kept
    )
    pairs.save(folder / "pairs.safetensors")


def test_videos_of_similar_sentences_are_known_both_ways(tiny: Any) -> None:
    similar_pairs(tiny.folder)
    data = replace(DATA, positives="similar", pairs="pairs.safetensors")
    with ExperimentData.open(data, FEATURES, tiny.folder) as material:
        examples = material.split("train")
        batch = examples.batch(np.arange(20))
        known = set(zip(*(rows.tolist() for rows in examples.positive_pairs), strict=True))
    own = {(query, query // 4) for query in range(20)}
    assert known == own | {(0, 2), (8, 0)}
    assert {(int(q), int(v)) for q, v in batch.positives.nonzero()} == known


def test_similar_positives_without_pairs_are_refused() -> None:
    with pytest.raises(UsageError, match="positives is 'similar' and pairs is missing"):
        replace(DATA, positives="similar")


def test_known_pairs_of_other_rules(tiny: Any) -> None:
    for positives in ("own", "judged", "sentence"):
        with ExperimentData.open(replace(DATA, positives=positives), FEATURES, tiny.folder) as material:
            found = material.split("train").positive_pairs
        assert set(zip(*(rows.tolist() for rows in found), strict=True)) == {(q, q // 4) for q in range(20)}


# --- ids of a tokenizer


def test_queries_become_ids_of_the_tokenizer(tiny: Any, bert: Path) -> None:
    features = replace(FEATURES, query=f"tokenizer:{bert}", max_tokens=4)
    with ExperimentData.open(DATA, features, tiny.folder) as material:
        batch = material.split("train").query_batch([0, 13])
        assert material.inputs.tokenizer == str(bert)
    assert batch.tokens.tolist() == [[2, 4, 5, 3], [2, 4, 18, 3]]
    assert material.split("train").summary.counts.get("queries of more than 4 tokens are cut") is None


def test_a_checkpoint_of_the_other_kind_of_queries_is_refused(tiny: Any, bert: Path) -> None:
    ids = replace(FEATURES, query=f"tokenizer:{bert}")
    for mine, other in ((ids, FEATURES), (FEATURES, ids)):
        with ExperimentData.open(DATA, mine, tiny.folder) as material:
            inputs = material.inputs
        with pytest.raises(UsageError, match="query is of the wrong kind: the checkpoint needs"):
            ExperimentData.open(DATA, other, tiny.folder, inputs=inputs)


def test_a_text_encoder_is_trained_within_the_system_and_opened_without_its_files(
    mmn: Any, bert: Path, tmp_path: Path
) -> None:
    frozen = 'training.frozen={ "text.bert" = 2 }'
    begun(mmn, tmp_path / "run", [*with_text(bert), frozen, "training.learning_rate=1e-2"])
    (bert / "model.safetensors").unlink()
    trained = Trained.from_pretrained(tmp_path / "run")
    assert trained.inputs.tokenizer == str(bert)
    weights = trained.model.text.bert.state_dict()
    asked = trained.inputs.sentences(["sentence 3"])
    assert trained.model.encode_queries(asked).search["moments"].shape == (1, 4)
    assert weights["embeddings.word_embeddings.weight"].shape == (len(WORDS), 8)


# --- frozen parts, milestones


@pytest.mark.slow
def test_a_frozen_part_begins_to_learn_in_its_epoch(mmn: Any, bert: Path, tmp_path: Path) -> None:
    weights = load_file(bert / "model.safetensors")
    name = "transformer.layer.0.ffn.lin1.weight"
    settings = [*with_text(bert), "training.learning_rate=1e-2", "training.schedule=constant"]
    for epochs, learns in ((2, False), (3, True)):
        out = tmp_path / f"run-{epochs}"
        frozen = 'training.frozen={ "text.bert" = 2 }'
        begun(mmn, out, [*settings, frozen, f"training.epochs={epochs}"])
        last = load_file(out / "state.safetensors")
        assert torch.equal(last[f"model.text.bert.{name}"], weights[name]) != learns


def test_a_frozen_part_that_there_is_not_is_named(mmn: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"training\.frozen: no parameter's name begins with 'words'"):
        begun(mmn, tmp_path / "run", ["training.frozen.words=2"])


def test_the_learning_rate_falls_at_each_milestone(mmn: Any, tmp_path: Path) -> None:
    begun(mmn, tmp_path / "run", ["training.schedule=constant", "training.milestones=[1, 2]"])
    lines = (tmp_path / "run" / "curves.jsonl").read_text().splitlines()
    rates = [json.loads(line)["learning_rate"] for line in lines]
    assert rates == pytest.approx([1e-3, 1e-4, 1e-5])


def test_the_betas_are_the_optimizers(mmn: Any, tmp_path: Path) -> None:
    for name, betas in (("a", "[0.9, 0.99]"), ("b", "[0.5, 0.99]")):
        begun(mmn, tmp_path / name, ["training.epochs=2", f"training.betas={betas}"])
    one, other = (load_file(tmp_path / name / "state.safetensors") for name in "ab")
    assert any(not torch.equal(value, other[key]) for key, value in one.items() if key.startswith("model."))


# --- MMN from its experiment to its folder


@pytest.mark.slow
def test_a_training_of_mmn_that_is_broken_off_goes_on_to_the_same_numbers(mmn: Any, tmp_path: Path) -> None:
    settings = ["training.schedule=constant", "training.milestones=[1]", 'training.frozen={ "text" = 1 }']
    begun(mmn, tmp_path / "whole", settings)

    class Killed(BaseException):
        """Stands for the end of a process."""

    def kill(progress: Any) -> None:
        if progress.state.step == 4:
            raise Killed

    with pytest.raises(Killed):
        begun(mmn, tmp_path / "parts", settings, show=kill)
    begun(mmn, tmp_path / "parts", settings, resume=True)
    one, other = (load_file(tmp_path / name / "state.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(value, other[key]) for key, value in one.items())


@pytest.mark.slow
def test_mmn_learns_which_moment_a_sentence_means(mmn: Any, tmp_path: Path) -> None:
    settings = ["training.epochs=40", "training.learning_rate=1e-2", "data.validation=train.jsonl"]
    settings += ["training.evaluate_every=40", "training.metric=SVMR R@1,IoU=0.5"]
    begun(mmn, tmp_path / "run", [*settings, "model.lambda_contrast=0.5", "model.contrast_epochs=none"])
    lines = (tmp_path / "run" / "curves.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["metrics"]["SVMR R@1,IoU=0.5"] > 0.6
