"""How well queries match videos: the best clip of each."""

from __future__ import annotations

import torch
from torch import Tensor

from whenabouts.models._parts.packing import Packing


def best_clip(vectors: Tensor, rows: Tensor, packing: Packing) -> Tensor:
    """(Q, V): the largest dot product of each vector (Q, D) with a real clip of each video.

    `rows` (N, D) are the packed clips of V videos; cosines where both are unit vectors.
    """
    products = packing.unpack(rows @ vectors.T, fill=-torch.inf)
    if packing.index is None:
        products = packing.without_padding(products, -torch.inf)
    return products.max(1).values.T
