"""HERO begins as every second layer of a RoBERTa, where its weights are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.models.test_hero_whole import SIZES
from torch import Tensor

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.hero import Config, Model


def _roberta(folder: Path, layers: int = 4, width: int = 16, **more: Tensor) -> dict[str, Tensor]:
    """Random weights, by the names of transformers, of 25 words and 24 places."""
    generator = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (25, width),
        "embeddings.position_embeddings.weight": (24, width),
        "embeddings.token_type_embeddings.weight": (1, width),
        **{f"embeddings.LayerNorm.{kind}": (width,) for kind in ("weight", "bias")},
    }
    for number in range(layers):
        parts: dict[str, tuple[int, ...]]
        parts = {f"attention.self.{name}": (width, width) for name in ("query", "key", "value")}
        parts |= {"attention.output.dense": (width, width), "intermediate.dense": (20, width)}
        parts |= {
            "output.dense": (width, 20),
            "attention.output.LayerNorm": (width,),
            "output.LayerNorm": (width,),
        }
        for name, shape in parts.items():
            shapes[f"encoder.layer.{number}.{name}.weight"] = shape
            shapes[f"encoder.layer.{number}.{name}.bias"] = shape[:1]
    weights = {f"roberta.{name}": torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    folder.mkdir(exist_ok=True)
    save_file({**weights, **more}, folder / "model.safetensors")
    return weights


def _model(folder: Path, **settings: Any) -> Model:
    torch.manual_seed(1)
    return Model(Config(**{**SIZES, "text_encoder": str(folder), **settings})).eval()


@pytest.mark.parametrize("released", [False, True])
def test_every_second_layer_is_taken(tmp_path: Path, released: bool) -> None:
    weights, model = _roberta(tmp_path), _model(tmp_path, as_released=released)
    projection = model.encoder.cross_modal.clip_projection.weight.clone()  # type: ignore[union-attr]
    model.begin()
    assert model.encoder is not None
    cross = model.encoder.cross_modal
    for ours, theirs in ((0, 1), (1, 3)):
        layer: Any = cross.encoder.layers[ours]
        place = f"roberta.encoder.layer.{theirs}"
        assert torch.equal(layer.wide.weight, weights[f"{place}.intermediate.dense.weight"])
        assert torch.equal(layer.norm.bias, weights[f"{place}.output.LayerNorm.bias"])
        assert torch.equal(layer.attention.attention.key.bias, weights[f"{place}.attention.self.key.bias"])
    words = weights["roberta.embeddings.word_embeddings.weight"]
    assert torch.equal(cross.words.weight[:25], words)
    assert not cross.words.weight[25:].any()
    places = weights["roberta.embeddings.position_embeddings.weight"]
    first = 0 if released else 2
    assert torch.equal(cross.word_places.weight, places[first : first + 20])
    assert torch.equal(cross.types.weight[0], cross.types.weight[1])
    assert torch.equal(cross.clip_projection.weight, projection)


def test_without_weights_it_begins_fresh(tmp_path: Path) -> None:
    model = _model(tmp_path)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    model.begin()
    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    _roberta(tmp_path, layers=3)
    with pytest.raises(UsageError, match="has 3 layers; cross_modal takes 2 or 4"):
        _model(tmp_path).begin()
    _roberta(tmp_path, width=8)
    with pytest.raises(UsageError, match=r"_embeddings.weight is \(25, 8\), the model needs \(30, 16\)"):
        _model(tmp_path).begin()
    weights = _roberta(tmp_path)
    del weights["roberta.embeddings.LayerNorm.bias"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match=r"lacks 'embeddings.LayerNorm.bias'; accepted: the weights"):
        _model(tmp_path).begin()
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(FormatError, match="cannot be read"):
        _model(tmp_path).begin()
