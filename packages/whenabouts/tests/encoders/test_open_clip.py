"""OpenCLIP's models with random weights; skipped where OpenCLIP or its torchvision cannot be imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.encoders import EncoderUnavailable, open_image_encoder

try:
    import open_clip
except (ImportError, RuntimeError, OSError) as error:  # torchvision of another build fails with RuntimeError
    pytest.skip(f"open_clip cannot be imported: {error}", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")  # OpenCLIP and timm warn of their own affairs

TINY = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 1},
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An architecture of our own, and a file of random weights for it."""
    import json

    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("open_clip")
    (folder / "whenabouts-tiny.json").write_text(json.dumps(TINY))
    open_clip.add_model_config(folder)
    model = open_clip.create_model("whenabouts-tiny")
    save_file(
        {name: value.contiguous() for name, value in model.state_dict().items()}, folder / "tiny.safetensors"
    )
    return folder / "tiny.safetensors"


def _reference(weights: Path) -> tuple[Any, Any]:
    model, _, transform = open_clip.create_model_and_transforms("whenabouts-tiny", pretrained=str(weights))
    return model.eval(), transform


def test_vectors_equal_open_clips_own(weights: Path, pictures: list[NDArray[np.uint8]]) -> None:
    import torch
    from PIL import Image

    model, transform = _reference(weights)
    pixels = torch.stack([transform(Image.fromarray(picture)) for picture in pictures])
    encoder = open_image_encoder(f"open_clip:whenabouts-tiny/{weights}")
    with torch.no_grad():
        shown = model.encode_image(pixels, normalize=True).numpy()
        said = model.encode_text(open_clip.tokenize(["dogs", ""]), normalize=True).numpy()
    np.testing.assert_allclose(encoder.encode_images(pictures), shown, atol=2e-6)
    np.testing.assert_allclose(encoder.encode_text(["dogs", ""]), said, atol=2e-6)
    assert (encoder.image_size, encoder.dimension) == (32, 16)
    assert open_image_encoder(encoder.name).fingerprint == encoder.fingerprint


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("open_clip:ViT-B-32", "ARCHITECTURE/TAG"),
        ("open_clip:ViT-Z-99/openai", "no architecture"),
        ("open_clip:ViT-B-32/no_such_tag", "no such tag; ViT-B-32 has openai"),
        ("open_clip:ViT-B-32/no/such.safetensors", "no file"),
        ("open_clip:ViT-B-32/weights.pt", "can run code"),
    ],
)
def test_a_wrong_name_is_refused_with_what_is_right(name: str, reason: str) -> None:
    with pytest.raises(EncoderUnavailable, match=reason):
        open_image_encoder(name)


def test_a_perception_encoder_opens_by_architecture_and_file(
    tmp_path: Path, pictures: list[NDArray[np.uint8]]
) -> None:
    """PE-Core, the smallest that OpenCLIP knows, with random weights."""
    from safetensors.torch import save_file

    names = [name for name in open_clip.list_models() if name.startswith("PE-Core-T")]
    if not names:
        pytest.skip("this OpenCLIP has no small PE-Core")
    model = open_clip.create_model(names[0])
    save_file(
        {name: value.contiguous() for name, value in model.state_dict().items()}, tmp_path / "pe.safetensors"
    )
    encoder = open_image_encoder(f"open_clip:{names[0]}/{tmp_path / 'pe.safetensors'}")
    vectors = encoder.encode_images(pictures[:2])
    assert vectors.shape == (2, encoder.dimension) and encoder.image_size >= 224
    assert encoder.encode_text(["dogs"]).shape == (1, encoder.dimension)
