"""MMN as one would write it down at first: the oracle of its arithmetic and the yardstick of its speed.

Written from the papers' description alone. It shares nothing with the package but the names of parameters, so
that the weights of `whenabouts_systems.models.mmn` load. What makes it plain: maps are whole squares, one
diagonal after the other is pooled and filled in, the square is padded once for all layers and every place of
it is convolved, and the losses go from sentence to sentence.

Shapes: V videos, T clips, N cells of a side, S sentences, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Whole:
    """Videos (V, T, F), their sentences' words (S, L, E), whose video each is, moments (S, 2) as shares."""

    clips: Tensor
    words: Tensor
    video: Tensor
    moments: Tensor


@dataclass(frozen=True)
class Shape:
    """The settings that the plain version knows: those of Charades-STA."""

    features: int = 4096
    words: int = 768
    hidden: int = 512
    joint: int = 256
    clips_per_cell: int = 2
    kernel: int = 5
    layers: int = 8
    margin: float = 0.4
    temperature: float = 0.1
    weight: float = 0.05


class _Map(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.hidden
        self.convs = nn.ModuleList(nn.Conv2d(width, width, shape.kernel) for _ in range(shape.layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(shape.layers))

    def forward(self, square: Tensor, mask: Tensor) -> Tensor:
        """(V, D, N, N) to the same; `mask` (N, N)."""
        side = self.convs[0].kernel_size[0]  # type: ignore[index]
        padding = side // 2 * len(self.convs)
        seen = mask[None, None].float()
        for conv, norm in zip(self.convs, self.norms, strict=True):
            count = functional.conv2d(seen, seen.new_ones(1, 1, side, side), padding=padding)  # type: ignore[arg-type]
            weight = torch.where(count > 0, 1 / count.clamp(min=1), 0.0)
            square = functional.conv2d(square, conv.weight, conv.bias, padding=padding)  # type: ignore[arg-type]
            flat = norm(square.permute(0, 2, 3, 1).flatten(0, 2))
            square = flat.view(len(square), *square.shape[2:], -1).permute(0, 3, 1, 2).relu() * weight
            seen, padding = (weight > 0).float(), 0
        return square


class _Text(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.words)
        self.to_iou = nn.Linear(shape.words, shape.joint)
        self.to_contrast = nn.Linear(shape.words, shape.joint)


class PlainMMN(nn.Module):
    """Every moment of every length has a cell (Charades-STA's map of 16 x 16)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.projection = nn.Conv1d(shape.features, shape.hidden, 1)
        self.convolution = _Map(shape)
        self.to_iou = nn.Conv2d(shape.hidden, shape.joint, 1)
        self.to_contrast = nn.Conv2d(shape.hidden, shape.joint, 1)
        self.text = _Text(shape)

    def forward(self, batch: Whole) -> dict[str, Tensor]:
        """The three terms, weights applied."""
        square, mask = self.square(batch.clips)
        cells = self.convolution(square, mask)
        iou, contrast = (
            functional.normalize(layer(cells), dim=1) for layer in (self.to_iou, self.to_contrast)
        )
        pooled = self.text.norm(batch.words.mean(1))
        for_iou, for_contrast = (
            functional.normalize(layer(pooled), dim=1) for layer in (self.text.to_iou, self.text.to_contrast)
        )
        truth = self.truth(batch.moments, mask)
        logits = torch.stack([10 * (for_iou[s] @ iou[v].flatten(1)) for s, v in enumerate(batch.video)])
        there = mask.flatten()
        target = ((truth - 0.5) / 0.5).clamp(0, 1)
        found = functional.binary_cross_entropy_with_logits(logits[:, there], target[:, there])
        moments, sentences = self.contrast(contrast, for_contrast, truth, there, batch)
        return {
            "iou": found,
            "moments": self.shape.weight * moments,
            "sentences": self.shape.weight * sentences,
        }

    def square(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        """(V, D, N, N) pooled cells, and which are there (N, N)."""
        rows = self.projection(clips.transpose(1, 2)).relu()
        rows = functional.avg_pool1d(rows, self.shape.clips_per_cell)
        side = rows.shape[2]
        square = rows.new_zeros(*rows.shape[:2], side, side)
        mask = torch.zeros(side, side, dtype=torch.bool)
        for apart in range(side):
            if apart:
                rows = functional.max_pool1d(rows, 2, 1)
            first = torch.arange(side - apart)
            square[:, :, first, first + apart] = rows
            mask[first, first + apart] = True
        return square, mask

    def truth(self, moments: Tensor, mask: Tensor) -> Tensor:
        """(S, N * N) IoU of each moment with each cell."""
        side = len(mask)
        first, last = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        start, end = (first / side).flatten(), ((last + 1) / side).flatten()
        shared = torch.minimum(moments[:, 1:], end) - torch.maximum(moments[:, :1], start)
        either = torch.maximum(moments[:, 1:], end) - torch.minimum(moments[:, :1], start)
        return shared.clamp(min=0) / either * mask.flatten()

    def contrast(
        self, cells: Tensor, sentences: Tensor, truth: Tensor, there: Tensor, batch: Whole
    ) -> tuple[Tensor, Tensor]:
        """The two contrastive terms, a sentence at a time."""
        margin, heat = self.shape.margin, self.shape.temperature
        flat = cells.flatten(2)
        of_moments, of_sentences = [], []
        for s, video in enumerate(batch.video.tolist()):
            best = int(truth[s].argmax())
            scores = sentences @ flat[video, :, best]
            own = (scores[s] - margin) / heat
            rival = torch.ones(len(sentences), dtype=torch.bool)
            rival[s] = False
            for t in range(len(sentences)):
                if t != s and int(batch.video[t]) == video and self.overlap(batch, s, t) >= 0.5:
                    rival[t] = False
            of_moments.append(torch.cat([own[None], scores[rival] / heat]).logsumexp(0) - own)
            every = torch.einsum("d,vdp->vp", sentences[s], flat) / heat
            rivals = there.repeat(len(flat), 1)
            rivals[video] &= truth[s] < 0.5
            rivals[video, best] = False
            of_sentences.append(torch.cat([own[None], every[rivals]]).logsumexp(0) - own)
        return torch.stack(of_moments).mean(), torch.stack(of_sentences).mean()

    @staticmethod
    def overlap(batch: Whole, one: int, other: int) -> float:
        """IoU of two moments."""
        (a, b), (c, d) = batch.moments[one].tolist(), batch.moments[other].tolist()
        return float(max(0.0, min(b, d) - max(a, c)) / (max(b, d) - min(a, c)))
