"""HERO on a data set with sentences: trained by an experiment, gone on with, validated, and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from tests.number_words import write_number_words, write_words

from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench.formats.sentences import Sentence
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.units import Units
from whenabouts_systems.training.data import DataSettings, ExperimentData, FeatureSettings
from whenabouts_systems.training.devices import open_device
from whenabouts_systems.training.experiment import load_experiment
from whenabouts_systems.training.hard_negatives import refuse_other_reading
from whenabouts_systems.training.launch import launch

DATA = DataSettings(train="train.jsonl", validation="val.jsonl")
SILENT = "v6"
MODEL = """\
system = "hero"
hidden = 16
heads = 2
cross_modal = { layers = 1, heads = 2, feedforward = 20, vocabulary = 50 }
temporal = { layers = 1, heads = 2, feedforward = 20 }
"""

pytestmark = pytest.mark.usefixtures("no_picture")


@pytest.fixture()
def hero(tiny: Any) -> Any:
    """The tiny data set with sentences of four seconds, and an experiment of the whole HERO."""
    write_number_words(tiny.folder / "numbers", 50)
    with h5py.File(tiny.folder / "vision.h5") as clips:
        lengths = {name: len(clips[name]) for name in clips if name != SILENT}
    lines = [
        {
            "video_id": name,
            "sentences": [
                {"start": 2.0 * at, "end": 2.0 * at + 3.9, "text": f"{int(name[1:]) + at + 4} {at + 20}"}
                for at in range(0, length, 3)
            ],
        }
        for name, length in lengths.items()
    ]
    (tiny.folder / "said.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = tiny.experiment.read_text()
    text = text.replace('system = "xml"\nhidden = 16\nheads = 2\n', MODEL)
    text = text.replace(
        'query = "query.h5"', f'query = "tokenizer:{tiny.folder / "numbers"}"\nsentences = "said.jsonl"'
    )
    tiny.experiment.write_text(text.replace("epochs = 3", 'epochs = 3\noptimizer = "adamw"'))
    return tiny


def _features(hero: Any) -> FeatureSettings:
    return load_experiment(hero.experiment).features


def test_videos_come_with_their_sentences(hero: Any) -> None:
    with ExperimentData.open(DATA, _features(hero), hero.folder) as material:
        train, validation = material.split("train"), material.split("validation")
        batch = train.video_batch([1, 0])
        said = batch.sentences
        assert said is not None
        assert said.of_clips.tolist() == [[0, 0, -1, 1, 1, -1, 2], [0, 0, -1, 1, 1, -1, -1]]
        assert said.words[0].tolist() == [[5, 20], [8, 23], [11, 26]]
        assert said.mask[1].tolist() == [[True, True], [True, True], [False, False]]
        # A video without any has groups of five clips without words.
        silent = validation.video_batch([1])
        assert silent.sentences is not None and silent.silent is not None
        assert silent.sentences.of_clips.tolist() == [[0] * 5 + [1] * 5 + [2] * 2]
        assert not silent.sentences.mask.any()
        assert validation.summary.counts["videos have no sentences"] == 1
        # "sentence 13": a word that the tokenizer does not know, and no special tokens.
        assert train.query_batch([13]).tokens.tolist() == [[3, 13]]


def test_a_stretch_of_a_video_has_the_sentences_that_are_said_in_it(hero: Any) -> None:
    with ExperimentData.open(DATA, _features(hero), hero.folder) as material:
        units = Units.cut(material.split("train"), 8.0)
        said = units.clip_batch(np.array([1])).sentences
        assert said is not None
        # Clips 4 and 5 of the first video: its second sentence has the first of them.
        assert said.of_clips.tolist() == [[0, -1]]
        assert said.words[0, 0].tolist() == [7, 23]


@pytest.mark.slow
def test_hero_trains_is_kept_and_goes_on(hero: Any, tmp_path: Path) -> None:
    experiment = load_experiment(hero.experiment)
    whole = launch(experiment, hero.folder, tmp_path / "whole", open_device("cpu"))
    assert whole.score is not None
    trained = Trained.from_pretrained(tmp_path / "whole")
    assert trained.inputs.reads_sentences
    videos = trained.inputs.clips(
        [{"vision": torch.zeros(4, 8).numpy()}], transcripts=[[Sentence(0.0, 3.0, "4 20")]]
    )
    assert trained.model.encode_videos(videos).parts["frames"].shape == (1, 4, 16)
    shorter = replace(experiment, training=replace(experiment.training, epochs=3, evaluate_every=1.0))
    again = launch(shorter, hero.folder, tmp_path / "whole", open_device("cpu"), resume=True)
    assert again.score == whole.score


@pytest.mark.slow
def test_a_pre_training_on_sentences_is_gone_on_with(hero: Any, tmp_path: Path) -> None:
    """Videos and their words alone; then queries, from these weights."""
    place = tmp_path / "pretrained"
    tasks = "model.pretraining={ mlm = 2, mfm = 2, fom = 1, vsm = 2 }"
    settings = ["data.train=said.jsonl", 'data.batch_of="videos"', "training.batch_size=2"]
    settings += [tasks, "model.mask_token=49", "training.learning_rate=3e-3", "training.epochs=4"]
    experiment = load_experiment(hero.experiment, settings)
    assert launch(experiment, hero.folder, place, open_device("cpu")).score is not None
    terms = set()
    for line in (place / "curves.jsonl").read_text().splitlines():
        terms |= set(json.loads(line)["losses"])
    assert {"mlm", "mfm", "fom", "vsm_spans"} <= terms
    more = [f"data.first_stage={place}", "data.negatives.videos=0", "data.negatives.queries=0"]
    second = load_experiment(hero.experiment, [*more, "training.epochs=1"])
    words = write_words(tmp_path / "words", [f"word{number}" for number in range(50)])
    other = load_experiment(hero.experiment, [*more, f"features.query=tokenizer:{words}"])
    with pytest.raises(UsageError, match="their files differ; name the first stage's"):
        launch(other, hero.folder, tmp_path / "other", open_device("cpu"))
    assert launch(second, hero.folder, tmp_path / "tuned", open_device("cpu")).score is not None
    tuned, first = (Trained.from_pretrained(one).model for one in (tmp_path / "tuned", place))
    assert first.pretraining_heads is not None and tuned.pretraining_heads is None
    apart = tuned.encoder.cross_modal.words.weight - first.encoder.cross_modal.words.weight
    assert 0 < apart.abs().max() < 0.1


def _tokenizer_of(hero: Any, name: str) -> str:
    features = replace(_features(hero), query=f"tokenizer:{name}")
    return ExperimentData.check(DATA, features, hero.folder).tokenizer


def test_a_tokenizer_is_sought_below_the_features_then_as_it_is_given(
    hero: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    below, here = hero.folder / "numbers", write_number_words(tmp_path / "here" / "words", 50)
    assert _tokenizer_of(hero, "numbers") == str(below)
    assert _tokenizer_of(hero, "here/words") == str(here)
    write_number_words(tmp_path / "numbers", 50)
    assert _tokenizer_of(hero, "numbers") == str(below)
    with pytest.raises(
        UsageError, match=r"no folder .*/tiny/gone/x, no folder .*/gone/x, .*models get gone/x`"
    ):
        _tokenizer_of(hero, "gone/x")
    with pytest.raises(UsageError, match=r"there is no folder .*give the folder of the tokenizer$"):
        _tokenizer_of(hero, "../gone")
    with pytest.raises(UsageError, match=r"here: has no tokenizer\.json, no vocab\.txt"):
        _tokenizer_of(hero, "here")


def test_a_first_stages_tokenizer_is_told_by_its_content(hero: Any, tmp_path: Path) -> None:
    inputs = ExperimentData.check(DATA, _features(hero), hero.folder)
    copy, other = write_number_words(tmp_path / "copy", 50), write_number_words(tmp_path / "other", 49)
    refuse_other_reading(replace(inputs, tokenizer=str(copy)), inputs)
    with pytest.raises(UsageError, match=r"the tokenizer .*other, this training .*numbers, and their files"):
        refuse_other_reading(replace(inputs, tokenizer=str(other)), inputs)
    with pytest.raises(WhenaboutsError, match=r"gone: there is no such folder; .*config\.json"):
        refuse_other_reading(replace(inputs, tokenizer=str(tmp_path / "gone")), inputs)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("model.pretraining={ mlm = 1, vsm = 1000000 }", "model.mask_token is 50264, and the model knows 50"),
        ("model.cross_modal.vocabulary=49", r"words up to id 49; .* set model.cross_modal.vocabulary = 50"),
    ],
)
def test_words_that_the_model_does_not_know_are_named_before_the_first_step(
    hero: Any, tmp_path: Path, setting: str, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        launch(load_experiment(hero.experiment, [setting]), hero.folder, tmp_path / "run", open_device("cpu"))
    assert not (tmp_path / "run" / "state.safetensors").exists()


def test_what_is_missing_is_named(hero: Any) -> None:
    features = _features(hero)
    with pytest.raises(UsageError, match=r"gone\.jsonl: no such file; .* must name a file of sentences"):
        ExperimentData.check(DATA, replace(features, sentences="gone.jsonl"), hero.folder)
    with pytest.raises(
        UsageError, match='needs a tokenizer; in an experiment write query = "tokenizer:NAME"'
    ):
        ExperimentData.open(DATA, replace(features, query="query.h5"), hero.folder)
    with ExperimentData.open(DATA, features, hero.folder) as material:
        inputs = material.inputs
    with pytest.raises(UsageError, match="the checkpoint reads speech; name its file"):
        ExperimentData.open(DATA, replace(features, sentences=""), hero.folder, inputs=inputs)
    with pytest.raises(UsageError, match="give the videos' sentences"):
        inputs.clips([{"vision": torch.zeros(4, 8).numpy()}])
