"""Arrays of pixels to the pictures that image processors take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import UsageError

if TYPE_CHECKING:
    from PIL import Image


def check_image(image: NDArray[np.uint8], place: int) -> None:
    """Raise UsageError, naming where it stands, for what is no uint8 picture."""
    shape = getattr(image, "shape", None)
    if shape is None:
        found = type(image).__name__
    elif (
        image.dtype == np.uint8
        and 0 not in shape
        and (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4)))
    ):
        return
    else:
        found = f"{shape} of {image.dtype}"
    raise UsageError(f"images[{place}] is {found}; a picture is a uint8 array (H, W, 3), (H, W, 4) or (H, W)")


def to_picture(image: NDArray[np.uint8]) -> Image.Image:
    """An RGB picture; grey becomes three equal channels, transparency is dropped."""
    from PIL import Image

    flat = image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image
    return Image.fromarray(np.ascontiguousarray(flat)).convert("RGB")
