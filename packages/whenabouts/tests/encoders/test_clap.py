"""CLAP against what `transformers` itself computes, and its refusals."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.encoders import EncoderSettings, EncoderUnavailable, open_sound_encoder

TEXTS = ["a person pours batter", "", "dogs", "🦊 and more words than the model can take " * 5]


@pytest.fixture(params=["clap_folder", "fused_clap_folder"])
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def _unit(output: Any) -> NDArray[np.float32]:
    features = output.pooler_output
    unit: NDArray[np.float32] = (features / features.norm(dim=-1, keepdim=True)).detach().numpy()
    return unit


@pytest.mark.slow
def test_sounds_equal_the_model_behind_its_own_extractor(
    folder: Path, sounds: list[NDArray[np.float32]]
) -> None:
    import torch
    from transformers import ClapFeatureExtractor, ClapModel

    model, extractor = ClapModel.from_pretrained(folder).eval(), ClapFeatureExtractor.from_pretrained(folder)
    for sound in sounds:
        inputs = extractor(sound[:480_000], sampling_rate=48_000, return_tensors="np")
        features = torch.from_numpy(inputs["input_features"]).float()
        expected = _unit(model.get_audio_features(features, is_longer=torch.tensor([[False]])))
        np.testing.assert_allclose(
            open_sound_encoder(str(folder)).encode_sounds([sound]), expected, atol=2e-6
        )


def test_sentences_equal_the_model_behind_its_own_tokenizer(folder: Path) -> None:
    from transformers import AutoTokenizer, ClapModel

    model, tokenizer = ClapModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(TEXTS, padding=True, truncation=True, max_length=39, return_tensors="pt")
    expected = _unit(model.get_text_features(**tokens))
    np.testing.assert_allclose(open_sound_encoder(str(folder)).encode_text(TEXTS), expected, atol=2e-6)


def test_the_model_says_what_it_hears(clap_folder: Path) -> None:
    encoder = open_sound_encoder(str(clap_folder))
    assert (encoder.sampling_rate, encoder.longest_seconds, encoder.dimension) == (48_000, 10.0, 16)


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _cut(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.truncate(1000)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "weights are missing"),
        (_pickled, "pytorch_model.bin, which can run code"),
        (_cut, "cannot be loaded"),
        (lambda folder: (folder / "preprocessor_config.json").unlink(), "cannot be loaded"),
    ],
)
def test_a_broken_folder_is_refused_with_the_reason(
    clap_folder: Path, tmp_path: Path, harm: Callable[[Path], None], reason: str
) -> None:
    copied = Path(shutil.copytree(clap_folder, tmp_path / "copy"))
    harm(copied)
    with pytest.raises(EncoderUnavailable, match=reason):
        open_sound_encoder(str(copied))


def test_a_model_of_another_kind_is_refused_by_what_it_is(
    bert_folder: Callable[..., Path], clip_folder: Path
) -> None:
    for other, kind in ((bert_folder(), "bert"), (clip_folder, "clip")):
        with pytest.raises(EncoderUnavailable, match=f"type {kind} hears nothing; give a CLAP model"):
            open_sound_encoder(str(other))


def test_a_device_that_is_not_there_is_refused(clap_folder: Path) -> None:
    with pytest.raises(EncoderUnavailable, match="give cpu, cuda"):
        open_sound_encoder(str(clap_folder), EncoderSettings(device="quantum"))


def test_nothing_is_printed_while_a_model_loads(clap_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_sound_encoder(str(clap_folder)).encode_text(["dogs"])
    assert capfd.readouterr() == ("", "")
