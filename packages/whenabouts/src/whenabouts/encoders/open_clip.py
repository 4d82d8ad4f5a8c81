"""Encoders of pictures and sentences from OpenCLIP: `open_clip:ARCHITECTURE/TAG` (or `/FILE.safetensors`).

A family of encoders, loaded by name in `encoders/__init__.py`. OpenCLIP needs torchvision. Many of its models
also exist for `transformers`: opened by hub name, these need neither OpenCLIP nor torchvision.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.encoders import weight_files
from whenabouts.encoders._dual import DualEncoder
from whenabouts.encoders.protocol import (
    EncoderSettings,
    EncoderStatus,
    EncoderUnavailable,
    ImageEncoder,
    TextEncoder,
    fingerprint,
)

if TYPE_CHECKING:
    import torch
    from PIL import Image

PREFIX = "open_clip"
ORDER = 70
_NEEDS = ("open_clip", "torch", "torchvision", "PIL")
_SAFE_FILE = "open_clip_model.safetensors"


def recognises(name: str) -> bool:
    """False: these models need the prefix, because hub names belong to `transformers`."""
    return False


def open_images(name: str, settings: EncoderSettings) -> ImageEncoder:
    """The encoder `ARCHITECTURE/TAG` or `ARCHITECTURE/FILE.safetensors`. Raises EncoderUnavailable."""
    architecture, _, source = name.partition("/")
    if not architecture or not source:
        raise EncoderUnavailable(
            f"{PREFIX}:{name}: give {PREFIX}:ARCHITECTURE/TAG or {PREFIX}:ARCHITECTURE/FILE.safetensors"
        )
    weight_files.require(f"{PREFIX}:{name}", _NEEDS, "open-clip")
    with weight_files.loading(f"{PREFIX}:{name}", "open-clip"):
        import open_clip

        if architecture not in open_clip.list_models():
            raise EncoderUnavailable(
                f"{PREFIX}:{name}: OpenCLIP has no architecture {architecture!r}; see open_clip.list_models()"
            )
        return OpenClipEncoder(_find(architecture, source), settings)


def open_text(name: str, settings: EncoderSettings) -> TextEncoder:
    """The same encoder; only its text half is used."""
    return open_images(name, settings)


def status() -> EncoderStatus:
    """Whether the packages are installed; a model needs its weights as well."""
    detail = "OpenCLIP's models as open_clip:ARCHITECTURE/TAG (`whenabouts models get`) or by path"
    return weight_files.status("OpenCLIP models", ("images", "text"), _NEEDS, "open-clip", detail)


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A weight file of an architecture; `options` has a tag's settings of pictures and activation."""

    architecture: str
    file: Path
    name: str
    options: dict[str, Any] = field(default_factory=dict)


def _find(architecture: str, source: str) -> _Checkpoint:
    """The checkpoint of a path to a safetensors file, or of a tag."""
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

    published = open_clip.get_pretrained_cfg(architecture, tag)
    if not published:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(architecture)) or "none"
        raise EncoderUnavailable(f"{whole}: no such tag; {architecture} has {tags}")
    repository = "/".join(published.get("hf_hub", "").split("/")[:2])
    if not repository:
        raise EncoderUnavailable(
            f"{whole}: OpenCLIP has these weights only as a pickle, which can run code when it is opened; "
            "take another tag, or a model of transformers by its hub name (openai/clip-vit-base-patch32)"
        )
    options = {
        "image_mean": published.get("mean"),
        "image_std": published.get("std"),
        "image_interpolation": published.get("interpolation"),
        "image_resize_mode": published.get("resize_mode"),
        "force_quick_gelu": bool(published.get("quick_gelu")),
    }
    return _Checkpoint(architecture, weight_files.hub_file(repository, _SAFE_FILE, whole), whole, options)


class OpenClipEncoder(DualEncoder):
    """A model of OpenCLIP with its tokenizer and its picture transform."""

    def __init__(self, checkpoint: _Checkpoint, settings: EncoderSettings) -> None:
        import open_clip

        super().__init__(checkpoint.name, settings)
        self._checkpoint = checkpoint
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
        size = self._model.visual.image_size
        self.image_size = int(size if isinstance(size, int) else size[0])
        self.dimension = int(self._text_features([""]).shape[1])

    @cached_property
    def fingerprint(self) -> str:
        import open_clip

        inputs = json.dumps(open_clip.get_model_config(self._checkpoint.architecture), sort_keys=True)
        with suppress(AttributeError):
            inputs += json.dumps(self._model.visual.preprocess_cfg, sort_keys=True, default=str)
        return fingerprint(
            "open_clip",
            model=self._checkpoint.architecture,
            weights=weight_files.weights_hash([self._checkpoint.file]),
            inputs=hashlib.blake2b(inputs.encode(), digest_size=8).hexdigest(),
            dimension=self.dimension,
            pooling="own",
            normalisation="l2",
            dtype="float32",
            pixels=self.image_size,
        )

    def _text_features(self, texts: list[str]) -> torch.Tensor:
        features: torch.Tensor = self._model.encode_text(self._tokenizer(texts).to(self._device))
        return features

    def _image_features(self, pictures: list[Image.Image]) -> torch.Tensor:
        import torch

        pixels = torch.stack([self._transform(picture) for picture in pictures])
        features: torch.Tensor = self._model.encode_image(pixels.to(self._device, self._dtype))
        return features
