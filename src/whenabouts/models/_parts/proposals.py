"""Proposals of clips: the mean of every stretch of neighbouring clips (MS-SL's multi-scale clips).

Not to be mixed up with `whenabouts.proposals`, which chooses among scored spans.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def count_of(clips: int) -> int:
    """How many stretches there are.

    >>> count_of(32)
    528
    """
    return clips * (clips + 1) // 2


def means_of_stretches(clips: Tensor) -> Tensor:
    """(V, K, D) of clips (V, T, D): the shortest stretches first, those of one width by their start."""
    shares = _shares(clips.shape[1]).to(clips.device, clips.dtype)
    return shares @ clips


@lru_cache(maxsize=4)
def _shares(clips: int) -> Tensor:
    """(K, T): what each clip has of each stretch."""
    first, last = torch.ones(clips, clips).triu().nonzero().unbind(1)
    order = (last - first).argsort(stable=True)
    first, last = first[order, None], last[order, None]
    place = torch.arange(clips)
    return ((place >= first) & (place <= last)) / (last - first + 1)
