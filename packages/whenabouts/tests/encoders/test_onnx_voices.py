"""Voices by models with planted and small random weights, on real speech."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("faster_whisper")
pytest.importorskip("kaldi_native_fbank")
pytest.importorskip("onnx")

from tests.planted_people import bank_model, face_embedder, voice_encoder, voice_model

from whenabouts.encoders import EncoderUnavailable
from whenabouts.video.sound import sound_pieces
from whenabouts.video.voices import WINDOW_SECONDS


@pytest.fixture(scope="module")
def speech(samples: Path) -> NDArray[np.float32]:
    return next(iter(sound_pieces(samples / "nasa_13013.mp4", 30.0))).samples


@pytest.mark.parametrize("kind", ["kaldi", "nemo", "sound"])
def test_speech_has_windows_with_vectors_whatever_the_model_takes(
    tmp_path: Path, speech: NDArray[np.float32], kind: str
) -> None:
    path = tmp_path / "model.onnx"
    encoder = voice_encoder(
        str(voice_model(path) if kind == "sound" else bank_model(path, nemo=kind == "nemo"))
    )
    assert kind in encoder.fingerprint
    voices = encoder.voices(speech, 100.0)
    assert len(voices.start) > 5 and voices.vectors.shape == (len(voices.start), encoder.dimension)
    assert (voices.start >= 100).all() and (voices.end <= 100 + len(speech) / 16_000 + 1e-6).all()
    assert (voices.end - voices.start <= WINDOW_SECONDS + 1e-6).all()
    np.testing.assert_allclose(np.linalg.norm(voices.vectors, axis=1), 1, atol=1e-3)
    assert len(encoder.voices(np.zeros(32_000, np.float32)).start) == 0


def test_a_file_below_the_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(voice_model(tmp_path / "a.onnx")) == voice_encoder("~/a.onnx").name


@pytest.mark.parametrize("change", ["length", "frames"])
def test_a_model_that_cannot_run_on_a_window_is_refused(tmp_path: Path, change: str) -> None:
    import onnx

    model = onnx.load(bank_model(tmp_path / "a.onnx"))
    if change == "length":  # Kaldi's banks with a length, which NeMo's models take
        model.graph.input.append(onnx.helper.make_tensor_value_info("length", onnx.TensorProto.INT64, ["b"]))
    else:
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 200
    onnx.save(model, tmp_path / "a.onnx")
    with pytest.raises(EncoderUnavailable, match=r"a\.onnx: the model cannot be loaded"):
        voice_encoder(str(tmp_path / "a.onnx"))


def test_what_is_no_model_of_voices_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(EncoderUnavailable, match=r"none\.onnx: there is no such file"):
        voice_encoder(str(tmp_path / "none.onnx"))
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(EncoderUnavailable, match=r"text\.onnx: cannot be opened as an ONNX model"):
        voice_encoder(str(tmp_path / "text.onnx"))
    face_embedder(tmp_path / "face.onnx")
    with pytest.raises(EncoderUnavailable, match=r"face\.onnx: takes data .* as no model of voices does"):
        voice_encoder(str(tmp_path / "face.onnx"))
    with pytest.raises(EncoderUnavailable, match="no vector for each"):
        voice_encoder(str(bank_model(tmp_path / "narrow.onnx", width=1)))
