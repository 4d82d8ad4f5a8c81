"""CLIP, SigLIP and their like from `transformers`: pictures and sentences in one space.

Whatever `AutoModel` opens and has `get_text_features` and `get_image_features` works; no model's name is
looked at. Pictures go through the model's own processor (its Pillow form, so that torchvision is not needed).
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import _torch, _weights
from whenabouts.encoders._pictures import check_image, to_picture
from whenabouts.encoders.protocol import (
    EncoderSettings,
    EncoderStatus,
    EncoderUnavailable,
    ImageEncoder,
    TextEncoder,
    check_texts,
    fingerprint,
    unit_length,
)

if TYPE_CHECKING:
    import torch

PREFIX = "clip"
ORDER = 60
_NEEDS = ("torch", "transformers", "PIL")
_BATCH = {"cpu": 16}
_BATCH_ON_ACCELERATOR = 128
_INPUT_FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def recognises(name: str) -> bool:
    """True for a hub name, and for a folder whose configuration has a text and a vision part."""
    folder = _weights.local_folder(name)
    if folder is None:
        return _weights.is_hub_name(name)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "vision_config" in config and "text_config" in config


def open_images(name: str, settings: EncoderSettings) -> ImageEncoder:
    """The encoder of that hub name or folder; EncoderUnavailable says what to install, fetch or give."""
    _weights.require(name, _NEEDS, "vision")
    folder = _weights.locate(name)
    with _weights.loading(name, "vision"):
        return ClipEncoder(folder, settings)


def open_text(name: str, settings: EncoderSettings) -> TextEncoder:
    """The same encoder, for its sentences only."""
    return open_images(name, settings)


def status() -> EncoderStatus:
    """Whether the packages are here; a model needs its weights as well."""
    missing = [module for module in _NEEDS if importlib.util.find_spec(module) is None]
    detail = (
        f"{', '.join(missing)} missing: `pip install 'whenabouts[vision]'`"
        if missing
        else "any CLIP or SigLIP model by name (downloaded once) or by path"
    )
    return EncoderStatus("CLIP and SigLIP models", ("images", "text"), not missing, detail)


class ClipEncoder:
    """A dual encoder of `transformers` with its tokenizer and its image processor."""

    def __init__(self, folder: _weights.ModelFolder, settings: EncoderSettings) -> None:
        from transformers import AutoImageProcessor, AutoTokenizer

        self.name = folder.name
        self._folder = folder.path
        self._device = _torch.choose_device(settings)
        self._dtype = _torch.choose_dtype(settings, self._device)
        with _torch.quiet_transformers():
            self._model = _load(folder, self._dtype).to(self._device).eval()
            own: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
            self._tokenizer = AutoTokenizer.from_pretrained(str(folder.path), **own)
            self._processor = AutoImageProcessor.from_pretrained(str(folder.path), backend="pil", **own)
        self._batch_size = settings.batch_size or _BATCH.get(self._device.type, _BATCH_ON_ACCELERATOR)
        self._tokens = int(self._model.config.text_config.max_position_embeddings)
        self.image_size = _image_size(self._processor, self._model.config.vision_config)
        self.dimension = int(self._text_features([""], "max_length").shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """See `TextEncoder`; half precision moves vectors by about 0.001, so it is no part of it."""
        return fingerprint(
            "clip",
            model=type(self._model).__name__,
            weights=_weights.weights_hash(_weights.safetensors_files(self._folder)),
            inputs=_weights.content_mark(self._folder / name for name in _INPUT_FILES),
            dimension=self.dimension,
            pooling="own",
            normalisation="l2",
            dtype="float32",
            pixels=self.image_size,
        )

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors; texts beyond the model's length are cut there."""
        check_texts(texts)
        padding = self._padding if texts else "max_length"
        return self._in_batches(texts, lambda part: self._text_features(part, padding))

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """(N, D) unit vectors of (H, W, 3) RGB pictures of any size."""
        for place, image in enumerate(images):
            check_image(image, place)
        return self._in_batches(images, self._image_features)

    def _in_batches(self, items: Sequence[Any], encode: Callable[[Any], torch.Tensor]) -> NDArray[np.float32]:
        vectors = np.empty((len(items), self.dimension), dtype=np.float32)
        for start in range(0, len(items), self._batch_size):
            part = items[start : start + self._batch_size]
            vectors[start : start + len(part)] = unit_length(encode(part).float().cpu().numpy())
        return vectors

    @cached_property
    def _padding(self) -> str:
        """How to pad: "longest" where that does not move a vector (CLIP), else "max_length" (SigLIP)."""
        probe = ["a", "a person pours batter into a pan"]
        full, short = (self._text_features(probe, padding).float() for padding in ("max_length", "longest"))
        scale = float(full.norm(dim=-1).max())
        return "longest" if float((full - short).abs().max()) <= 1e-5 * scale else "max_length"

    def _text_features(self, texts: Sequence[str], padding: str) -> torch.Tensor:
        import torch

        tokens = self._tokenizer(
            list(texts), padding=padding, truncation=True, max_length=self._tokens, return_tensors="pt"
        )
        with torch.inference_mode():
            return _pooled(self._model.get_text_features(**self._on_device(tokens)))

    def _image_features(self, images: Sequence[NDArray[np.uint8]]) -> torch.Tensor:
        import torch

        pixels = self._processor(images=[to_picture(image) for image in images], return_tensors="pt")
        with torch.inference_mode():
            return _pooled(self._model.get_image_features(**self._on_device(pixels)))

    def _on_device(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            name: tensor.to(self._device, self._dtype if tensor.is_floating_point() else tensor.dtype)
            for name, tensor in inputs.items()
        }


def _load(folder: _weights.ModelFolder, dtype: torch.dtype) -> Any:
    """The model with every weight from the file; transformers would make up missing ones at random."""
    from transformers import AutoModel

    model, found = AutoModel.from_pretrained(
        str(folder.path),
        dtype=dtype,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    if not (hasattr(model, "get_text_features") and hasattr(model, "get_image_features")):
        raise EncoderUnavailable(
            f"{folder.name}: a {type(model).__name__} has not both a text and an image side; "
            "give a CLIP or SigLIP model"
        )
    missing = sorted(found["missing_keys"])
    if missing:
        raise EncoderUnavailable(
            f"{folder.name}: the weights lack {missing[0]}"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            + "; the download may be incomplete, or the configuration belongs to another model"
        )
    return model


def _pooled(output: Any) -> torch.Tensor:
    """The vectors, which transformers gives bare before version 5 and as `pooler_output` since."""
    features: torch.Tensor = getattr(output, "pooler_output", output)
    return features


def _image_size(processor: Any, vision: Any) -> int:
    """Pixels of the shorter edge: from the processor's crop or size, else from the number of patches."""
    for size in (getattr(processor, "crop_size", None), getattr(processor, "size", None)):
        for key in ("height", "shortest_edge"):
            value = getattr(size, key, None) if not isinstance(size, Mapping) else size.get(key)
            if value:
                return int(value)
    fixed = getattr(vision, "image_size", None)
    return int(fixed) if fixed else int(math.isqrt(vision.num_patches) * vision.patch_size)
