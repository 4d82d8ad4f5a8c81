"""Base classes of PyTorch encoders with a text side: batches, checks of pictures, unit vectors.

Fingerprints do not cover this code, so a change of its arithmetic would mix unlike vectors in stored corpora.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import on_torch
from whenabouts.encoders.protocol import EncoderSettings, check_texts
from whenabouts.types import UsageError

if TYPE_CHECKING:
    import torch
    from PIL import Image


class TextSide(ABC):
    """An encoder in PyTorch that also encodes sentences.

    A subclass loads its model and sets `dimension`; `batches` are the batch sizes on CPU and on accelerator.
    """

    dimension: int
    batches = (16, 128)

    def __init__(self, name: str, settings: EncoderSettings) -> None:
        self.name = name
        self._device = on_torch.choose_device(settings)
        self._dtype = on_torch.choose_dtype(settings, self._device)
        self._batch_size = settings.batch_size or self.batches[self._device.type != "cpu"]

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """See `protocol.Encoder`; the same in half precision, which moves vectors by about 0.001."""

    @abstractmethod
    def _text_features(self, texts: list[str]) -> torch.Tensor:
        """(N, D) vectors of sentences, not normalised."""

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors; texts are truncated to the model's length."""
        check_texts(texts)
        return self._in_batches(texts, lambda part: self._text_features(list(part)))

    def _in_batches(self, items: Sequence[Any], encode: Callable[[Any], torch.Tensor]) -> NDArray[np.float32]:
        remedy = f"take a smaller model than {self.name}, or a device with more memory"
        return on_torch.in_batches(encode, items, self._batch_size, self.dimension, remedy=remedy)


class DualEncoder(TextSide):
    """An encoder of pictures and sentences (`protocol.ImageEncoder`). A subclass sets `image_size`."""

    image_size: int

    @abstractmethod
    def _image_features(self, pictures: list[Image.Image]) -> torch.Tensor:
        """(N, D) vectors of RGB pictures of any size, not normalised."""

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """(N, D) unit vectors of pictures of any size; `check_image` says in which forms."""
        for place, image in enumerate(images):
            check_image(image, place)
        return self._in_batches(
            images, lambda part: self._image_features([picture_of(image) for image in part])
        )


def check_image(image: NDArray[np.uint8], place: int) -> None:
    """Raise UsageError, naming position `place`, if the item is not a uint8 picture, RGB(A) or grey."""
    shape = getattr(image, "shape", None)
    if shape is None:
        kind = type(image).__name__
    else:
        has_picture_shape = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))
        if image.dtype == np.uint8 and 0 not in shape and has_picture_shape:
            return
        kind = f"an array {shape} of {image.dtype}"
    raise UsageError(f"images[{place}] is {kind}; a picture is a uint8 array (H, W, 3), (H, W, 4) or (H, W)")


def picture_of(image: NDArray[np.uint8]) -> Image.Image:
    """An RGB picture; grey becomes three equal channels, transparency is dropped."""
    from PIL import Image

    flat = image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image
    return Image.fromarray(np.ascontiguousarray(flat)).convert("RGB")
