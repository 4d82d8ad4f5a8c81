"""Models of sentence-transformers that see: real classes with random weights, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.encoders import (
    ClipEncoder,
    EncoderUnavailable,
    multimodal,
    open_image_encoder,
    open_text_encoder,
)
from whenabouts.encoders.protocol import EncoderOutOfMemory, ImageEncoder, VideoClip
from whenabouts.types import UsageError


def clip(frames: list[NDArray[np.uint8]], every: float = 0.5) -> VideoClip:
    return VideoClip(frames, [10.0 + every * place for place in range(len(frames))])


@pytest.fixture(scope="module")
def frames() -> list[NDArray[np.uint8]]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, (48, 64, 3), dtype=np.uint8) for _ in range(8)]


@pytest.fixture(scope="module")
def watching(qwen_folder: Path) -> ImageEncoder:
    return open_image_encoder(str(qwen_folder))


def encode(encoder: ImageEncoder, clips: list[VideoClip]) -> NDArray[np.float32]:
    assert isinstance(encoder, ClipEncoder)
    return encoder.encode_clips(clips)


def test_a_model_that_takes_video_watches_and_says_how(watching: ImageEncoder, qwen_folder: Path) -> None:
    assert isinstance(watching, ClipEncoder)
    settings = watching.clip_settings
    assert (settings.frames, settings.seconds, settings.step_seconds) == (8, 4.0, 2.0)
    assert settings.cost_seconds > 0
    again = open_image_encoder(watching.name)
    assert again.fingerprint == watching.fingerprint
    assert open_text_encoder(watching.name).fingerprint == watching.fingerprint


def test_the_order_and_the_times_of_frames_count(
    watching: ImageEncoder, frames: list[NDArray[np.uint8]]
) -> None:
    forth, back, slowly = encode(watching, [clip(frames), clip(frames[::-1]), clip(frames, 3.0)])
    assert np.abs(forth - back).max() > 1e-3 and np.abs(forth - slowly).max() > 1e-4
    assert watching.encode_images(frames[:2]).shape == (2, watching.dimension)


def test_clips_equal_what_sentence_transformers_computes(
    watching: ImageEncoder, qwen_folder: Path, frames: list[NDArray[np.uint8]]
) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(qwen_folder), device="cpu", local_files_only=True)
    metadata = {"fps": 2.0, "total_num_frames": 8, "duration": 4.0, "frames_indices": list(range(8))}
    expected = model.encode_document(
        [{"video": {"array": np.stack(frames), "video_metadata": metadata}}],
        processing_kwargs={"video": {"do_sample_frames": False}},
    )
    np.testing.assert_allclose(encode(watching, [clip(frames)]), expected, atol=2e-6)


def test_neither_batch_mates_nor_frames_of_another_size_do_harm(
    watching: ImageEncoder, frames: list[NDArray[np.uint8]]
) -> None:
    clips = [clip(frames), clip(frames[:4]), clip(frames[2:])]
    together = encode(watching, clips)
    alone = np.concatenate([encode(watching, [one]) for one in clips])
    np.testing.assert_allclose(together, alone, atol=2e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    larger = [*frames[:7], np.repeat(np.repeat(frames[7], 2, 0), 2, 1)]
    assert encode(watching, [clip(larger)]).shape == (1, watching.dimension)
    assert encode(watching, []).shape == (0, watching.dimension)


def test_what_is_no_clip_is_named_with_its_place(
    watching: ImageEncoder, frames: list[NDArray[np.uint8]]
) -> None:
    for wrong in (VideoClip([], []), VideoClip(frames, [0.0])):
        with pytest.raises(UsageError, match=r"clips\[1\] has"):
            encode(watching, [clip(frames), wrong])


def test_weights_that_are_missing_are_refused(qwen_folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(qwen_folder, tmp_path / "copy"))
    (copied / "model.safetensors").unlink()
    with pytest.raises(EncoderUnavailable, match="weights are missing"):
        open_image_encoder(str(copied))


@pytest.fixture
def says(tmp_path: Path) -> Callable[[object], Path]:
    """A folder that says so of what its model takes, and holds nothing else."""

    def make(takes: object) -> Path:
        (tmp_path / "modules.json").write_text(json.dumps([{"path": "", "type": "Transformer"}]))
        (tmp_path / "sentence_bert_config.json").write_text(json.dumps(takes))
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("takes", "sees"),
    [
        ({"modality_config": {"text": {}, "image": {}}}, True),
        ({"modality_config": {"text": {}, "video": {}, "message": {}}}, True),
        ({"modality_config": {"text": {}}}, False),
        ({"max_seq_length": 20}, False),
        ([], False),
        ({"modality_config": 3}, False),
    ],
)
def test_what_a_model_takes_is_read_from_its_own_files(
    says: Callable[[object], Path], takes: object, sees: bool
) -> None:
    assert multimodal.recognises(str(says(takes))) == sees


def test_a_model_of_sentences_alone_is_refused_with_what_it_takes(bert_folder: Callable[..., Path]) -> None:
    with pytest.raises(EncoderUnavailable, match="the model in this folder is of another kind"):
        open_image_encoder(str(bert_folder()))


def test_a_model_that_does_not_say_what_it_takes_is_refused_as_such(
    bert_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multimodal, "_NEEDS", ())
    folder = bert_folder()
    with pytest.raises(EncoderUnavailable, match="takes text, but no pictures; give a model that does"):
        open_image_encoder(f"sentence-transformers:{folder}")
    (folder / "modules.json").unlink()
    with pytest.raises(EncoderUnavailable, match="its files do not say that it takes pictures"):
        open_image_encoder(f"sentence-transformers:{folder}")


def test_the_remedy_for_a_lack_of_memory_fits_what_was_encoded(
    frames: list[NDArray[np.uint8]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    encoder = object.__new__(multimodal._WatchingEncoder)  # without a model, which would need torchvision
    encoder.name, encoder.dimension, encoder._batch_size = "large", 4, 1
    monkeypatch.setattr(encoder, "_features", lambda items: np.empty(1 << 55))
    smaller = "a smaller model than large, or a device with more memory"
    with pytest.raises(EncoderOutOfMemory, match=rf"take fewer frames a clip \(--clip-frames\), {smaller}"):
        encoder.encode_clips([clip(frames)])
    with pytest.raises(EncoderOutOfMemory, match=f"take {smaller}"):
        encoder.encode_images(frames[:1])


def test_a_name_that_is_not_on_this_machine_is_not_asked_for() -> None:
    assert not multimodal.recognises("Qwen/Qwen3-VL-Embedding-2B")
