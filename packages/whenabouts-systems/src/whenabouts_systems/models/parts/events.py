"""Find the events of a video from its features alone: stretches between the clips where they change most."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_NEAR = 2
"""Clips before a clip, and after it, that are compared."""
_SURELY = 100.0


def events_of(rows: Tensor, mask: Tensor, *, across_batch: bool = False) -> Tensor:
    """(Q, W, 2) centre and width of the events of each video as shares of it, NaN where there are fewer.

    `rows` are (Q, T, D) features, `mask` is (Q, T) (EaTR, section 3.2). The change at a clip is the squared
    length of the sum of the two unit vectors before it minus the sum of the two after it: what the 5 x 5
    pattern of the paper gives on the diagonal of the self-similarity matrix. A clip is a border if its change
    is at least that of each neighbour and at least the mean; the first and the last clip always are. With
    `across_batch`, padding takes part, and where Q is odd the middle video gets one more event, from the last
    border of the batch's last video to clip 0.
    """
    clips, seen = mask.sum(1), mask | across_batch
    score = _change(rows, mask)
    mean = (score * seen).sum(1, keepdim=True) / seen.sum(1, keepdim=True).clamp(min=1)
    ends = torch.stack([torch.zeros_like(clips), (clips - 1).clamp(min=0)], 1)
    score = score.scatter(1, ends, _SURELY).masked_fill(~seen, -torch.inf)
    border = (score >= score.roll(1, 1)) & (score >= score.roll(-1, 1)) & (score >= mean)
    place = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    last = place.where(border, -1).cummax(1).values
    before = functional.pad(last[:, :-1], (1, 0), value=-1)
    exists = border & (before >= 0)
    spans = torch.stack([(place + before) / 2, (place - before).float()], -1)
    if across_batch and len(mask) % 2:
        wrapped = torch.stack([last[-1, -1] / 2, -last[-1, -1].float()])
        middle = torch.arange(len(mask), device=mask.device) == len(mask) // 2
        spans = torch.cat([wrapped.expand(len(mask), 1, 2), spans], 1)
        exists = torch.cat([middle[:, None], exists], 1)
    shares = (spans / clips.clamp(min=1)[:, None, None]).masked_fill(~exists[..., None], torch.nan)
    order = exists.logical_not().to(torch.int8).argsort(dim=1, stable=True)[:, : int(exists.sum(1).max())]
    return shares.gather(1, order[..., None].expand(-1, -1, 2))


def _change(rows: Tensor, mask: Tensor) -> Tensor:
    """(Q, T) how much the features change at each clip."""
    rows = rows.float().masked_fill(~mask[..., None], 0.0)
    unit = functional.pad(rows / (rows.norm(dim=-1, keepdim=True) + 1e-8), (0, 0, _NEAR, _NEAR))
    steps = rows.shape[1]
    before, behind = (unit[:, at : at + steps] + unit[:, at + 1 : at + 1 + steps] for at in (0, _NEAR + 1))
    return (before - behind).square().sum(-1)
