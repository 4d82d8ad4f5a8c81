"""Speech models of onnx-asr by name: its real classes with small random weights, and what is refused."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from whenabouts.indexing import _speech_model
from whenabouts.video import onnx_recogniser
from whenabouts.video.sound import SAMPLE_RATE, sound_pieces
from whenabouts.video.speech import transcribe
from whenabouts.video.speech_guard import UNGUARDED
from whenabouts.video.speech_models import SpeechUnavailableError, languages_of, load_recogniser

TOKENS = ("<unk>", "▁clean", "▁room", "s", "▁the", "▁tele", "scope", "<blk>")


@pytest.fixture(autouse=True)
def loaded_anew() -> Iterator[None]:
    load_recogniser.cache_clear()
    yield
    load_recogniser.cache_clear()


@pytest.fixture()
def model(tmp_path: Path) -> Path:
    """A NeMo CTC model of one layer: features (B, 80, T) -> log probabilities of tokens for each 8 frames."""
    pytest.importorskip("onnx_asr", reason="the extra `onnx-asr` is not installed")
    pytest.importorskip("faster_whisper", reason="the extra `speech` is not installed")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(5).normal(size=(80, len(TOKENS))).astype(np.float32)
    numbers = {"starts": [0], "ends": [1 << 30], "axes": [1], "steps": [8]}
    constants = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in numbers.items()]
    nodes = [
        helper.make_node("Transpose", ["audio_signal"], ["frames"], perm=[0, 2, 1]),
        helper.make_node("Slice", ["frames", *numbers], ["every_eighth"]),
        helper.make_node("MatMul", ["every_eighth", "weights"], ["logits"]),
        helper.make_node("LogSoftmax", ["logits"], ["logprobs"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info("audio_signal", TensorProto.FLOAT, ["batch", 80, "time"]),
            helper.make_tensor_value_info("length", TensorProto.INT64, ["batch"]),
        ],
        [helper.make_tensor_value_info("logprobs", TensorProto.FLOAT, ["batch", "steps", len(TOKENS)])],
        [numpy_helper.from_array(weights, "weights"), *constants],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder = tmp_path / "parakeet"
    folder.mkdir()
    onnx.save(made, folder / "model.onnx")
    (folder / "config.json").write_text(json.dumps({"model_type": "nemo-conformer-ctc"}), encoding="utf-8")
    lines = [f"{token} {number}\n" for number, token in enumerate(TOKENS)]
    (folder / "vocab.txt").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_a_model_of_onnx_asr_gives_words_with_times_and_probabilities(model: Path, samples: Path) -> None:
    path = samples / "nasa_audio_only.mp3"
    track = transcribe(path, f"onnx-asr:{model}", guard=UNGUARDED)
    end = sum(len(piece.samples) for piece in sound_pieces(path)) / SAMPLE_RATE
    words = [word for cue in track.cues for word in cue.words]
    assert len(words) > 3
    assert all(set(word.text) <= set("".join(TOKENS)) for word in words)
    starts = [word.start for word in words]
    assert starts == sorted(starts)
    assert starts[0] >= 0
    assert words[-1].end <= end + 0.1
    assert all(cue.confidence is not None and 0 < cue.confidence <= 1 for cue in track.cues)
    assert track.source == f"speech:onnx-asr:{model}"
    assert languages_of(f"onnx-asr:{model}") == ()


@pytest.mark.slow
def test_sound_without_a_voice_is_not_recognised(model: Path) -> None:
    recogniser = onnx_recogniser.OnnxRecogniser(model)
    hum = (0.1 * np.sin(np.arange(30 * SAMPLE_RATE) / 40)).astype(np.float32)
    heard_with, about = recogniser.transcribe(hum)
    assert list(heard_with) == []
    assert about.duration_after_vad == 0
    pieces, _ = recogniser.transcribe(hum, vad_filter=False)
    assert [(piece.start, piece.end) for piece in pieces] == [(0.0, 20.0), (20.0, 30.0)]


def test_words_begin_with_a_space_and_end_where_the_next_begins() -> None:
    result = SimpleNamespace(
        text="clean rooms",
        tokens=[" clean", " room", "s"],
        timestamps=[0.5, 1.0, 1.2],
        logprobs=[0.0, -1.0, 0.0],
    )
    words = onnx_recogniser._words(result, 10.0, 11.6)
    assert words is not None
    assert [(word.start, word.end, word.word) for word in words] == [
        (10.5, 11.0, " clean"),
        (11.0, 11.6, " rooms"),
    ]
    assert [round(word.probability, 3) for word in words] == [1.0, round((np.exp(-1) + 1) / 2, 3)]
    without_times = SimpleNamespace(text="clean", tokens=None, timestamps=None, logprobs=None)
    assert onnx_recogniser._words(without_times, 0.0, 1.0) is None


def test_a_broken_model_is_refused_with_its_cause(model: Path) -> None:
    (model / "vocab.txt").unlink()
    with pytest.raises(
        SpeechUnavailableError, match=r"onnx-asr cannot load this model .*vocab.*config\.json"
    ):
        load_recogniser(f"onnx-asr:{model}")


def test_a_folder_with_the_small_variant_alone_is_loaded(model: Path) -> None:
    (model / "model.onnx").rename(model / "model.int8.onnx")
    assert load_recogniser(f"onnx-asr:{model}").supported_languages == ()


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    pytest.importorskip("onnx_asr", reason="the extra `onnx-asr` is not installed")
    pytest.importorskip("faster_whisper", reason="the extra `speech` is not installed")
    with pytest.raises(SpeechUnavailableError, match=r"no model 'parrot'.*nemo-parakeet-tdt-0\.6b-v3"):
        load_recogniser("onnx-asr:parrot")
    with pytest.raises(SpeechUnavailableError, match=r"istupakov/parakeet-tdt-0\.6b-v3-onnx"):
        load_recogniser("onnx-asr:nemo-parakeet-tdt-0.6b-v3")


@pytest.mark.parametrize("missing", ["onnx_asr", "faster_whisper"])
def test_a_missing_package_is_named_with_its_command(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == missing else find(name, *more)
    )
    with pytest.raises(SpeechUnavailableError, match=r"pip install 'whenabouts\[onnx-asr\]'"):
        _speech_model("onnx-asr:nemo-parakeet-tdt-0.6b-v3")
