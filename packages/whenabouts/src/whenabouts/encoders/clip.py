"""Encoders of pictures and sentences in one space: CLIP, SigLIP and similar models of `transformers`.

A family of encoders, loaded by name in `encoders/__init__.py`, for any model that `AutoModel` opens and that
has `get_text_features` and `get_image_features`. Pictures go through the model's processor (its Pillow form,
so that torchvision is not needed).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import on_torch, weight_files
from whenabouts.encoders._dual import DualEncoder
from whenabouts.encoders.protocol import (
    EncoderSettings,
    EncoderStatus,
    ImageEncoder,
    TextEncoder,
    check_texts,
)
from whenabouts.intake.hub import ModelCard, is_name

if TYPE_CHECKING:
    import torch
    from PIL import Image

PREFIX = "clip"
ORDER = 60
_NEEDS = ("torch", "transformers", "PIL")
MODELS = (
    ModelCard("openai/clip-vit-base-patch32", "pictures, small"),
    ModelCard("google/siglip2-base-patch16-224", "pictures, better, many languages"),
)
"""Entries of `whenabouts models list`; other CLIP and SigLIP models work by name as well."""


def recognises(name: str) -> bool:
    """True for a hub name, and for a folder whose configuration has a text and a vision part."""
    folder = weight_files.local_folder(name)
    if folder is None:
        return is_name(name)
    return {"vision_config", "text_config"} <= (weight_files.model_config(folder) or {}).keys()


def open_images(name: str, settings: EncoderSettings) -> ImageEncoder:
    """Open the encoder `name`, a hub name or folder. Raises EncoderUnavailable with a remedy."""
    weight_files.require(name, _NEEDS, "vision")
    folder = weight_files.locate(name)
    with weight_files.loading(name, "vision"):
        return ClipEncoder(folder, settings)


def open_text(name: str, settings: EncoderSettings) -> TextEncoder:
    """The same encoder; only its text half is used."""
    return open_images(name, settings)


def status() -> EncoderStatus:
    """Whether the packages are installed; a model needs its weights as well."""
    detail = "any CLIP or SigLIP model by name (`whenabouts models get`) or by path"
    return weight_files.status("CLIP and SigLIP models", ("images", "text"), _NEEDS, "vision", detail)


class ClipEncoder(DualEncoder):
    """A dual encoder of `transformers` with its tokenizer and its image processor."""

    def __init__(self, folder: weight_files.ModelFolder, settings: EncoderSettings) -> None:
        from transformers import AutoImageProcessor, AutoTokenizer

        super().__init__(folder.name, settings)
        self._folder = folder.path
        with on_torch.quiet_transformers():
            self._model = (
                weight_files.dual_model(folder, self._dtype, "image", "give a CLIP or SigLIP model")
                .to(self._device)
                .eval()
            )
            self._tokenizer = weight_files.pretrained(AutoTokenizer, folder)
            self._processor = weight_files.pretrained(AutoImageProcessor, folder, backend="pil")
        self._most_tokens = int(self._model.config.text_config.max_position_embeddings)
        self.image_size = _image_size(self._processor, self._model.config.vision_config)
        self.dimension = int(self._padded_features([""], "max_length").shape[1])

    @cached_property
    def fingerprint(self) -> str:
        return weight_files.model_fingerprint(
            "clip",
            self._model,
            self._folder,
            dimension=self.dimension,
            pooling="own",
            normalisation="l2",
            dtype="float32",
            pixels=self.image_size,
        )

    @cached_property
    def _padding(self) -> str:
        """The padding of texts: "longest" if that changes no vector (CLIP), else "max_length" (SigLIP)."""
        # One short text alone: in a batch with a long text it would be padded in both modes.
        full, short = (self._padded_features(["a"], padding).float() for padding in ("max_length", "longest"))
        scale = float(full.norm(dim=-1).max())
        return "longest" if float((full - short).abs().max()) <= 1e-5 * scale else "max_length"

    def _text_features(self, texts: list[str]) -> torch.Tensor:
        return self._padded_features(texts, self._padding)

    def _padded_features(self, texts: list[str], padding: str) -> torch.Tensor:
        import torch

        tokens = on_torch.tokenized(self._tokenizer, texts, padding, self._most_tokens)
        with torch.inference_mode():
            return on_torch.pooled(self._model.get_text_features(**self._on_device(tokens)))

    def encode_tokens(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """The text model's hidden states after its last LayerNorm, before the projection (`TokenEncoder`).

        The tokens of start and end are included. Trained systems of the DETR family read these features.
        """
        check_texts(texts)
        parts = range(0, len(texts), self._batch_size)
        return [row for at in parts for row in self._token_features(list(texts[at : at + self._batch_size]))]

    def _token_features(self, texts: list[str]) -> list[NDArray[np.float32]]:
        import torch

        tokens = on_torch.tokenized(self._tokenizer, texts, self._padding, self._most_tokens)
        lengths = [len(pieces) for pieces in self.word_pieces(texts)]
        with torch.inference_mode():
            hidden = self._model.text_model(**self._on_device(tokens)).last_hidden_state.float().cpu().numpy()
        return [row[:length].copy() for row, length in zip(hidden, lengths, strict=True)]

    def word_pieces(self, texts: Sequence[str]) -> list[list[str]]:
        check_texts(texts)
        rows = self._tokenizer(list(texts), truncation=True, max_length=self._most_tokens)["input_ids"]
        return [list(self._tokenizer.convert_ids_to_tokens(ids)) for ids in rows]

    def _image_features(self, pictures: list[Image.Image]) -> torch.Tensor:
        pixels = self._processor(images=pictures, return_tensors="pt")
        return on_torch.pooled(self._model.get_image_features(**self._on_device(pixels)))

    def _on_device(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return on_torch.moved(inputs, self._device, self._dtype)


def _image_size(processor: Any, vision: Any) -> int:
    """Pixels of the shorter edge: of the processor's crop or size, else of the vision configuration."""
    for size in (getattr(processor, "crop_size", None), getattr(processor, "size", None)):
        for key in ("height", "shortest_edge"):
            value = getattr(size, key, None) if not isinstance(size, Mapping) else size.get(key)
            if value:
                return int(value)
    fixed = getattr(vision, "image_size", None)
    return int(fixed) if fixed else int(math.isqrt(vision.num_patches) * vision.patch_size)
