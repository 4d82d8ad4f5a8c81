"""A diarizer of `transformers` against what it says of a whole recording, and its refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("transformers")

from tests.planted_people import diarizer_folder

from whenabouts.encoders import EncoderUnavailable, open_voice_encoder
from whenabouts.encoders.protocol import EncoderOutOfMemory
from whenabouts.streams.speaker import diarized_turns
from whenabouts.video.voices import Diarized, Diarizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return diarizer_folder(tmp_path_factory.mktemp("sortformer"))


@pytest.fixture(scope="module")
def sound() -> NDArray[np.float32]:
    rng = np.random.default_rng(5)
    loudness = np.repeat(rng.random(21), 16_000)
    return (rng.normal(size=len(loudness)) * loudness / 9).astype(np.float32)


def opened(folder: Path) -> Diarizer:
    diarizer = open_voice_encoder(str(folder))
    assert isinstance(diarizer, Diarizer)
    return diarizer


def followed(diarizer: Diarizer, sound: NDArray[np.float32], step: int) -> list[Diarized]:
    stretches: list[Diarized] = []
    for at in range(0, len(sound), step):
        before = stretches[-1] if stretches else None
        stretches.append(diarizer.follow(sound[at : at + step], at / 16_000, before))
    return stretches


@pytest.mark.parametrize("step", [777, 48_000, 21 * 16_000])
def test_pieces_of_sound_give_what_the_whole_recording_gives(
    folder: Path, sound: NDArray[np.float32], step: int
) -> None:
    import torch
    import transformers

    diarizer = opened(folder)
    stretches = followed(diarizer, sound, step)
    speaks = np.concatenate([*(each.speaks for each in stretches), diarizer.rest(stretches[-1])])
    processor = transformers.AutoProcessor.from_pretrained(str(folder))
    model = transformers.AutoModelForAudioFrameClassification.from_pretrained(str(folder)).eval()
    with torch.no_grad():
        logits = model(**processor(sound, sampling_rate=16_000)).logits[0]
    assert len(speaks) == 2100 and 0.05 < speaks.mean() < 0.95
    np.testing.assert_array_equal(speaks, (logits[:2100] > 0).numpy())


@pytest.mark.parametrize("step", [48_000, 21 * 16_000])
def test_silence_that_is_not_stored_delays_the_speakers_after_it(
    folder: Path, sound: NDArray[np.float32], step: int
) -> None:
    diarizer = opened(folder)
    stretches = followed(diarizer, sound, step)
    alone = np.concatenate([*(each.speaks for each in stretches), diarizer.rest(stretches[-1])])
    after = diarizer.follow(sound, 121.0, stretches[-1])
    speaks = np.concatenate([*(each.speaks for each in (*stretches, after)), diarizer.rest(after)])
    assert len(speaks) == 14_200
    np.testing.assert_array_equal(speaks[:2100], alone)
    assert not speaks[2100:12_100].any() and speaks[12_100:].any()


@pytest.mark.parametrize("length", [0, 10, 511, 512, 5000])
def test_little_sound_is_no_fault(folder: Path, sound: NDArray[np.float32], length: int) -> None:
    diarizer = opened(folder)
    assert len(diarizer.rest(diarizer.follow(sound[:length], 0.0, None))) == (length >= 512) * length // 160


def test_turns_join_pauses_overlap_and_leave_out_what_is_too_short() -> None:
    speaks = np.zeros((1000, 3), np.bool_)
    speaks[100:200, 1] = speaks[250:300, 1] = speaks[450:500, 1] = True
    speaks[180:260, 0] = True
    speaks[900:910, 0] = True

    class Silent(Diarizer):
        name, fingerprint, frame_seconds = "planted", "planted", 0.01

        def follow(self, samples: Any, start: float, before: Any) -> Diarized:
            raise NotImplementedError

        def rest(self, last: Diarized) -> NDArray[np.bool_]:
            return speaks[600:]

    turns = diarized_turns([Diarized(2.0, speaks[:240]), Diarized(4.4, speaks[240:600])], Silent())
    assert [(round(turn.start, 2), round(turn.end, 2), turn.speaker) for turn in turns] == [
        (3.0, 5.0, "voice 2"),
        (3.8, 4.6, "voice 1"),
        (6.5, 7.0, "voice 2"),
    ]
    assert diarized_turns([], Silent()) == []


def test_the_name_opens_the_same_model_again(folder: Path, tmp_path: Path) -> None:
    diarizer = opened(folder)
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert opened(Path(diarizer.name)).fingerprint == opened(copied).fingerprint == diarizer.fingerprint


def _changed(file: Path, changes: dict[str, Any]) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def _weights(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _other_rate(folder: Path) -> None:
    file = folder / "processor_config.json"
    extractor = json.loads(file.read_text())["feature_extractor"]
    _changed(file, {"feature_extractor": extractor | {"sampling_rate": 8000}})


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "weights are missing"),
        (
            lambda folder: _weights(folder, lambda of: of.pop("classifier.out_proj.bias")),
            "the weights lack classifier.out_proj.bias",
        ),
        (
            lambda folder: _weights(folder, lambda of: of["classifier.out_proj.bias"].fill(np.nan)),
            "not finite",
        ),
        (_other_rate, "hears 8000 samples a second, not 16000"),
        (lambda folder: (folder / "processor_config.json").unlink(), "cannot be loaded"),
    ],
)
def test_a_broken_folder_is_refused_with_the_reason(
    folder: Path, tmp_path: Path, harm: Callable[[Path], None], reason: str
) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    harm(copied)
    with pytest.raises(EncoderUnavailable, match=reason):
        opened(copied)


def test_too_little_memory_says_what_to_take_instead(
    folder: Path, sound: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    diarizer = opened(folder)

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(diarizer._model, "forward", full)  # type: ignore[attr-defined]
    with pytest.raises(EncoderOutOfMemory, match="take a smaller model than"):
        diarizer.follow(sound, 0.0, None)
