"""Speaker models of `transformers` against what it computes itself, and their refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("faster_whisper")
pytest.importorskip("transformers")

from tests.planted_people import voice_encoder, x_vector_folder

from whenabouts.encoders import EncoderUnavailable
from whenabouts.encoders.protocol import EncoderOutOfMemory


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return x_vector_folder(tmp_path_factory.mktemp("wavlm"))


@pytest.fixture(scope="module")
def pieces() -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(5)
    return [(rng.normal(size=24_000) / 9).astype(np.float32) for _ in range(3)]


@pytest.mark.parametrize("kind", ["WavLM", "Wav2Vec2", "UniSpeechSat", "Data2VecAudio"])
def test_vectors_equal_what_transformers_computes(
    kind: str, tmp_path: Path, pieces: list[NDArray[np.float32]]
) -> None:
    import torch
    import transformers

    model = getattr(transformers, f"{kind}ForXVector").from_pretrained(x_vector_folder(tmp_path, kind)).eval()
    encoder = voice_encoder(str(tmp_path))
    assert f"{kind}ForXVector" in encoder.fingerprint and encoder.dimension == 8
    with torch.no_grad():
        expected = torch.nn.functional.normalize(model(torch.tensor(np.stack(pieces))).embeddings, dim=1)
    np.testing.assert_allclose(encoder.embed(pieces), expected, atol=2e-6)


def test_the_name_opens_the_same_model_again(folder: Path, tmp_path: Path) -> None:
    encoder = voice_encoder(str(folder))
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert voice_encoder(encoder.name).fingerprint == encoder.fingerprint
    assert voice_encoder(str(copied)).fingerprint == encoder.fingerprint


def _config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def _without_a_tensor(folder: Path) -> None:
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["projector.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _not_finite(folder: Path) -> None:
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["projector.weight"] = np.full_like(tensors["projector.weight"], np.nan)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _other_rate(folder: Path) -> None:
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"sampling_rate": 8000}))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "weights are missing"),
        (_without_a_tensor, "the weights lack projector.weight"),
        (_not_finite, "not finite"),
        (_other_rate, "hears 8000 samples a second, not 16000"),
        (
            lambda folder: _config(folder, architectures=["WavLMModel"]),
            "a model of type WavLMModel cannot tell",
        ),
        (lambda folder: _config(folder, tdnn_kernel=[5, 3, 3, 1, 9]), "cannot be loaded"),
    ],
)
def test_a_broken_folder_is_refused_with_the_reason(
    folder: Path, tmp_path: Path, harm: Callable[[Path], None], reason: str
) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    harm(copied)
    with pytest.raises(EncoderUnavailable, match=reason):
        voice_encoder(str(copied))


def test_a_model_of_another_kind_is_refused_by_what_it_is(bert_folder: Callable[..., Path]) -> None:
    with pytest.raises(EncoderUnavailable, match="a model of type BertModel cannot tell voices apart; give"):
        voice_encoder(str(bert_folder()))


def test_too_little_memory_says_what_to_take_instead(
    folder: Path, pieces: list[NDArray[np.float32]], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = voice_encoder(str(folder))

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(encoder._model, "forward", full)  # type: ignore[attr-defined]
    with pytest.raises(EncoderOutOfMemory, match="take a smaller model than"):
        encoder.embed(pieces)
