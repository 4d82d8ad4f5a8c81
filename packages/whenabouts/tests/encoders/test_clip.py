"""CLIP and SigLIP against what `transformers` itself computes, and their refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.encoders import (
    EncoderSettings,
    EncoderUnavailable,
    encode_tokens,
    open_image_encoder,
    open_text_encoder,
)

TEXTS = ["a person pours batter", "", "dogs", "🦊 and more words than the model can take " * 5]


@pytest.fixture(params=["clip_folder", "siglip_folder", "naflex_folder"])
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def _reference(folder: Path) -> tuple[Any, Any, Any]:
    transformers = pytest.importorskip("transformers")
    return (
        transformers.AutoModel.from_pretrained(folder).eval(),
        transformers.AutoTokenizer.from_pretrained(folder),
        transformers.AutoImageProcessor.from_pretrained(folder, backend="pil"),
    )


def _unit(output: Any) -> NDArray[np.float32]:
    features = getattr(output, "pooler_output", output)
    unit: NDArray[np.float32] = (features / features.norm(dim=-1, keepdim=True)).detach().numpy()
    return unit


def test_pictures_equal_the_model_behind_its_own_processor(
    folder: Path, pictures: list[NDArray[np.uint8]]
) -> None:
    model, _, processor = _reference(folder)
    pixels = processor(images=pictures, return_tensors="pt")
    expected = _unit(model.get_image_features(**pixels))
    np.testing.assert_allclose(open_image_encoder(str(folder)).encode_images(pictures), expected, atol=2e-6)


def test_sentences_equal_the_model_behind_its_own_tokenizer(folder: Path) -> None:
    model, tokenizer, _ = _reference(folder)
    limit = model.config.text_config.max_position_embeddings
    tokens = tokenizer(TEXTS, padding="max_length", truncation=True, max_length=limit, return_tensors="pt")
    expected = _unit(model.get_text_features(**tokens))
    np.testing.assert_allclose(open_image_encoder(str(folder)).encode_text(TEXTS), expected, atol=2e-6)


def test_preparation_by_hand_gives_the_processors_pixels(
    clip_folder: Path, pictures: list[NDArray[np.uint8]]
) -> None:
    """An oracle that shares no code with transformers: Pillow's resize, the middle, mean and deviation."""
    from PIL import Image

    _, _, processor = _reference(clip_folder)
    mean, deviation = (np.array(getattr(processor, name), np.float32) for name in ("image_mean", "image_std"))
    for pixels in pictures:
        picture = Image.fromarray(pixels)
        short = min(picture.size)
        width, height = (int(32 * side / short) for side in picture.size)
        resized = np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC), np.float32)
        top, left = (height - 32) // 2, (width - 32) // 2
        expected = (resized[top : top + 32, left : left + 32] / 255 - mean) / deviation
        found = processor(images=[pixels], return_tensors="np")["pixel_values"][0]
        np.testing.assert_allclose(found.transpose(1, 2, 0), expected, atol=1e-5)


def test_batch_size_does_not_move_vectors(folder: Path, pictures: list[NDArray[np.uint8]]) -> None:
    large = open_image_encoder(str(folder))
    small = open_image_encoder(str(folder), EncoderSettings(batch_size=1))
    np.testing.assert_allclose(large.encode_images(pictures), small.encode_images(pictures), atol=2e-6)
    np.testing.assert_allclose(large.encode_text(TEXTS), small.encode_text(TEXTS), atol=2e-6)


def test_half_precision_stays_near_and_keeps_the_fingerprint(
    clip_folder: Path, pictures: list[NDArray[np.uint8]]
) -> None:
    full = open_image_encoder(str(clip_folder))
    half = open_image_encoder(str(clip_folder), EncoderSettings(half_precision=True))
    cosines = (full.encode_images(pictures) * half.encode_images(pictures)).sum(axis=1)
    assert cosines.min() > 0.995
    assert half.encode_text(["a"]).dtype == np.float32
    assert half.fingerprint == full.fingerprint


def test_the_text_side_alone_opens_with_the_prefix_or_by_folder(clip_folder: Path) -> None:
    expected = open_image_encoder(str(clip_folder)).encode_text(["dogs"])
    np.testing.assert_array_equal(open_text_encoder(f"clip:{clip_folder}").encode_text(["dogs"]), expected)
    np.testing.assert_array_equal(open_text_encoder(str(clip_folder)).encode_text(["dogs"]), expected)


@pytest.fixture
def copied(clip_folder: Path, tmp_path: Path) -> Path:
    """A copy of the CLIP model to break."""
    return Path(shutil.copytree(clip_folder, tmp_path / "copy"))


def test_a_copy_has_the_same_fingerprint_and_another_processor_a_new_one(
    clip_folder: Path, copied: Path
) -> None:
    original = open_image_encoder(str(clip_folder)).fingerprint
    assert open_image_encoder(str(copied)).fingerprint == original
    settings = copied / "preprocessor_config.json"
    settings.write_text(settings.read_text().replace("0.48", "0.5"))
    assert open_image_encoder(str(copied)).fingerprint != original


def _delete(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _cut(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.truncate(1000)


def _deeper(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["num_hidden_layers"] = 3
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (_delete("model.safetensors"), "weights are missing"),
        (_pickled, "pytorch_model.bin, which can run code"),
        (_cut, "cannot be loaded"),
        (_deeper, "the weights lack vision_model"),
        (_delete("preprocessor_config.json"), "cannot be loaded"),
    ],
)
def test_a_broken_folder_is_refused_with_the_reason(
    copied: Path, harm: Callable[[Path], None], reason: str
) -> None:
    harm(copied)
    with pytest.raises(EncoderUnavailable, match=reason):
        open_image_encoder(str(copied))


def test_a_model_without_pictures_is_refused(bert_folder: Callable[..., Path]) -> None:
    with pytest.raises(EncoderUnavailable, match="not both a text and an image side"):
        open_image_encoder(f"clip:{bert_folder()}")


def test_a_device_that_is_not_there_is_refused(clip_folder: Path) -> None:
    with pytest.raises(EncoderUnavailable, match="give cpu, cuda"):
        open_image_encoder(str(clip_folder), EncoderSettings(device="quantum"))


def test_nothing_is_printed_while_a_model_loads(clip_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_image_encoder(str(clip_folder)).encode_text(["dogs"])
    assert capfd.readouterr() == ("", "")


def test_tokens_equal_the_text_model_behind_its_last_norm(folder: Path) -> None:
    """One text at a time; what was padded to the model's length is cut to the text's own tokens."""
    model, tokenizer, _ = _reference(folder)
    limit = model.config.text_config.max_position_embeddings
    found = encode_tokens(open_text_encoder(str(folder)), TEXTS)
    pieces = open_text_encoder(str(folder)).word_pieces(TEXTS)  # type: ignore[attr-defined]
    for text, rows, names in zip(TEXTS, found, pieces, strict=True):
        own = tokenizer(text, truncation=True, max_length=limit)["input_ids"]
        padded = tokenizer(
            [text], padding="max_length", truncation=True, max_length=limit, return_tensors="pt"
        )
        expected = model.text_model(**padded).last_hidden_state[0, : len(own)].detach().numpy()
        assert len(names) == len(own)
        np.testing.assert_allclose(rows, expected, atol=5e-6)
        assert rows.flags.owndata  # a view would keep its whole batch
