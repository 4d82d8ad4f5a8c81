"""Writes a CLIP model with small random weights, in the format of its publishers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def write_clip(folder: Path, *, width: int = 16, seed: int = 1) -> Path:
    """Write a folder with a CLIPModel, a tokenizer of bytes without merges, and an image processor."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("PIL")
    from tokenizers import pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, *(f"{a}</w>" for a in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = json.dumps({token: place for place, token in enumerate(tokens)})
    (folder / "vocab.json").write_text(vocabulary)
    (folder / "merges.txt").write_text("#version: 0.2\n")
    files = {"vocab": str(folder / "vocab.json"), "merges": str(folder / "merges.txt")}
    transformers.CLIPTokenizer(**files).save_pretrained(folder)
    (folder / "vocab.json").write_text(vocabulary)
    torch.manual_seed(seed)
    shape = {
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "initializer_factor": 8.0,
    }
    text = {
        "vocab_size": len(tokens), "hidden_size": 32, "max_position_embeddings": 40,
        "bos_token_id": len(tokens) - 2, "eos_token_id": len(tokens) - 1, "pad_token_id": len(tokens) - 1,
    }  # fmt: skip
    vision = {"hidden_size": 48, "image_size": 32, "patch_size": 8}
    config = transformers.CLIPConfig(
        text_config=text | shape, vision_config=vision | shape, projection_dim=width
    )
    transformers.CLIPModel(config).save_pretrained(folder)
    settings = {
        "image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": 32},
        "resample": 3, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28], "do_convert_rgb": True,
        "do_center_crop": True, "crop_size": {"height": 32, "width": 32},
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder
