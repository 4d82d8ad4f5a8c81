"""OpenCLIP's models: `open_clip:ARCHITECTURE/TAG` or `open_clip:ARCHITECTURE/FILE.safetensors`.

OpenCLIP needs torchvision. Many of its weights are also there for `transformers`, under the plain hub name,
which needs neither.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
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

PREFIX = "open_clip"
ORDER = 70
_NEEDS = ("open_clip", "torch", "torchvision", "PIL")
_SAFE_FILE = "open_clip_model.safetensors"
_BATCH = {"cpu": 16}
_BATCH_ON_ACCELERATOR = 128


def recognises(name: str) -> bool:
    """False: these models are asked for by the prefix, because hub names belong to `transformers`."""
    return False


def open_images(name: str, settings: EncoderSettings) -> ImageEncoder:
    """The encoder `ARCHITECTURE/TAG` or `ARCHITECTURE/FILE.safetensors`."""
    architecture, _, source = name.partition("/")
    if not architecture or not source:
        raise EncoderUnavailable(
            f"{PREFIX}:{name}: give {PREFIX}:ARCHITECTURE/TAG or {PREFIX}:ARCHITECTURE/FILE.safetensors"
        )
    _weights.require(f"{PREFIX}:{name}", _NEEDS, "open-clip")
    with _weights.loading(f"{PREFIX}:{name}", "open-clip"):
        import open_clip

        if architecture not in open_clip.list_models():
            raise EncoderUnavailable(
                f"{PREFIX}:{name}: OpenCLIP knows no architecture {architecture!r}; "
                "see open_clip.list_models()"
            )
        return OpenClipEncoder(_find(architecture, source), settings)


def open_text(name: str, settings: EncoderSettings) -> TextEncoder:
    """The same encoder, for its sentences only."""
    return open_images(name, settings)


def status() -> EncoderStatus:
    """Whether the packages are here; a model needs its weights as well."""
    missing = [module for module in _NEEDS if importlib.util.find_spec(module) is None]
    detail = (
        f"{', '.join(missing)} missing: `pip install 'whenabouts[open-clip]'`"
        if missing
        else "OpenCLIP's models as open_clip:ARCHITECTURE/TAG (downloaded once) or by path"
    )
    return EncoderStatus("OpenCLIP models", ("images", "text"), not missing, detail)


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """Weights of an architecture, and how its pictures have to be prepared where a tag says so."""

    architecture: str
    file: Path
    name: str
    options: dict[str, Any] = field(default_factory=dict)


def _find(architecture: str, source: str) -> _Checkpoint:
    """The safetensors file that a path or a tag means."""
    whole = f"{PREFIX}:{architecture}/{source}"
    path = Path(source).expanduser()
    if path.suffix in (".bin", ".pt", ".pth", ".ckpt"):
        raise EncoderUnavailable(
            f"{whole}: this format can run code when it is opened; give a .safetensors file"
        )
    if path.suffix != ".safetensors":
        return _from_tag(architecture, source, whole)
    if not path.is_file():
        raise EncoderUnavailable(f"{whole}: there is no file {path}")
    return _Checkpoint(architecture, path.resolve(), f"{PREFIX}:{architecture}/{path.resolve()}")


def _from_tag(architecture: str, tag: str, whole: str) -> _Checkpoint:
    import open_clip

    known = open_clip.get_pretrained_cfg(architecture, tag)
    if not known:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(architecture)) or "none"
        raise EncoderUnavailable(f"{whole}: no such tag; {architecture} has {tags}")
    repository = "/".join(known.get("hf_hub", "").split("/")[:2])
    if not repository:
        raise EncoderUnavailable(
            f"{whole}: these weights are only there as a pickle, which can run code when it is opened; "
            "take another tag, or the same model by its hub name (openai/clip-vit-base-patch32)"
        )
    options = {
        "image_mean": known.get("mean"),
        "image_std": known.get("std"),
        "image_interpolation": known.get("interpolation"),
        "image_resize_mode": known.get("resize_mode"),
        "force_quick_gelu": bool(known.get("quick_gelu")),
    }
    return _Checkpoint(architecture, _weights.hub_file(repository, _SAFE_FILE, whole), whole, options)


class OpenClipEncoder:
    """A model of OpenCLIP with its tokenizer and its picture transform."""

    def __init__(self, checkpoint: _Checkpoint, settings: EncoderSettings) -> None:
        import open_clip

        self.name = checkpoint.name
        self._checkpoint = checkpoint
        self._device = _torch.choose_device(settings)
        self._dtype = _torch.choose_dtype(settings, self._device)
        precision = "fp16" if self._dtype.itemsize == 2 else "fp32"
        self._model, self._transform = open_clip.create_model_from_pretrained(
            checkpoint.architecture,
            pretrained=str(checkpoint.file),
            precision=precision,
            device=self._device,
            **checkpoint.options,
        )
        self._model.eval()
        self._tokenizer = open_clip.get_tokenizer(checkpoint.architecture)
        self._batch_size = settings.batch_size or _BATCH.get(self._device.type, _BATCH_ON_ACCELERATOR)
        size = self._model.visual.image_size
        self.image_size = int(size if isinstance(size, int) else size[0])
        self.dimension = int(self._text_features([""]).shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """See `TextEncoder`; half precision moves vectors by about 0.001, so it is no part of it."""
        import open_clip

        inputs = json.dumps(open_clip.get_model_config(self._checkpoint.architecture), sort_keys=True)
        with suppress(AttributeError):
            inputs += json.dumps(self._model.visual.preprocess_cfg, sort_keys=True, default=str)
        return fingerprint(
            "open_clip",
            model=self._checkpoint.architecture,
            weights=_weights.weights_hash([self._checkpoint.file]),
            inputs=hashlib.blake2b(inputs.encode(), digest_size=8).hexdigest(),
            dimension=self.dimension,
            pooling="own",
            normalisation="l2",
            dtype="float32",
            pixels=self.image_size,
        )

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors; texts beyond the model's length are cut there."""
        check_texts(texts)
        return self._in_batches(texts, self._text_features)

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

    def _text_features(self, texts: Sequence[str]) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            features: torch.Tensor = self._model.encode_text(self._tokenizer(list(texts)).to(self._device))
        return features

    def _image_features(self, images: Sequence[NDArray[np.uint8]]) -> torch.Tensor:
        import torch

        pixels = torch.stack([self._transform(to_picture(image)) for image in images])
        with torch.inference_mode():
            features: torch.Tensor = self._model.encode_image(pixels.to(self._device, self._dtype))
        return features
