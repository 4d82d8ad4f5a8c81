"""Predictors of borders: logits that a moment starts, and that it ends, at each clip of a video.

`BorderConvolution` and `BorderLinear` compare queries with clips, in one stream, or in several whose
similarities are averaged first ("merged"): queries and clips are sequences with one tensor for each stream.
`BorderNetworks` and `BorderScore` read clips that have already been mixed with the query.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.protocol import pair_products

Streams = Sequence[Tensor]
MASKED = -1e10
"""The logit of a padded clip, as in the released programs."""


class BorderConvolution(nn.Module):
    """Two convolutions without bias over the similarity of query and clips, one for each border.

    The similarity is the dot product. That of padded clips counts as zero, so that the logits of the last
    clips do not depend on the length of the padding; with `convolve_padding` the computed value counts.

    Fresh kernels detect edges: a start is where the similarity rises (weights negative before, positive from
    there on), an end where it falls. The released programs draw kernels at random, within 0.45, and at the
    released learning rate of 1e-4 they change by less than 0.2 in 3,000 steps. So ten random numbers decide
    how well a trained system localizes (`benchmarks/results/simulated_studies.md`).
    """

    def __init__(self, kernel: int, *, convolve_padding: bool = False) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, 1, kernel, padding=kernel // 2, bias=False)
        self.end = nn.Conv1d(1, 1, kernel, padding=kernel // 2, bias=False)
        self.convolve_padding = convolve_padding

    def begin_at_edges(self) -> None:
        """Replace the kernels by ones that detect edges."""
        step = _step(self.start.kernel_size[0])
        self.start.weight.data.copy_(step)
        self.end.weight.data.copy_(step.flip(0))

    def forward(self, queries: Streams, clips: Streams, mask: Tensor) -> Tensor:
        """(2, P, T) logits of start and end for P pairs: queries (P, D) with clips (P, T, D)."""
        similarities = [pair_products(query, clip) for query, clip in zip(queries, clips, strict=True)]
        return self._convolved(_mean(similarities), mask)

    def some(self, queries: Streams, clips: Streams, mask: Tensor, pairs: tuple[Tensor, Tensor]) -> Tensor:
        """(2, P, T) logits for P `pairs` of a query and a video, of Q queries (Q, D) and V videos (V, T, D).

        All similarities come from one product; only the pairs are convolved.
        """
        joint = _mean([clip @ query.T for query, clip in zip(queries, clips, strict=True)])
        return self._convolved(joint.permute(2, 0, 1)[pairs], mask[pairs[1]])

    def at(self, queries: Streams, clips: Streams, places: tuple[Tensor, Tensor]) -> Tensor:
        """(2, Q, M) logits of every query at the start and the end of M moments.

        `places` are the moments' videos (M,) and first and last clips (M, 2). Convolution and dot product
        are swapped: the clips around each border are weighted and added first, then one product of Q x D with
        D x M follows.
        """
        videos, spans = places
        reach = self.start.kernel_size[0] // 2
        kernels = torch.stack([self.start.weight[0, 0], self.end.weight[0, 0]])
        near = spans[:, :, None] + torch.arange(-reach, reach + 1, device=spans.device)
        steps = clips[0].shape[1]
        # Clips beyond the ends of the batch have similarity 0; so have padded clips, which are zero.
        weights = kernels * ((near >= 0) & (near < steps))
        near = near.clamp(0, steps - 1)
        logits = [
            torch.einsum(
                "qd,mbd->bqm",
                query,
                torch.einsum("mbk,mbkd->mbd", weights, clip[videos[:, None, None], near]),
            )
            for query, clip in zip(queries, clips, strict=True)
        ]
        return _mean(logits)

    def _convolved(self, similarity: Tensor, mask: Tensor) -> Tensor:
        """(2, P, T): both convolutions of (P, T), padding masked."""
        seen = similarity if self.convolve_padding else similarity.masked_fill(~mask, 0.0)
        kernels = torch.cat([self.start.weight, self.end.weight])
        logits = functional.conv1d(seen[:, None], kernels, padding=self.start.padding[0])
        return logits.transpose(0, 1).masked_fill(~mask, MASKED)


class BorderLinear(nn.Module):
    """The sum of a linear function of the query and one of the clip, for each border ("cat linear")."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.start_of_query = nn.Linear(width, 1)
        self.start_of_clip = nn.Linear(width, 1)
        self.end_of_query = nn.Linear(width, 1)
        self.end_of_clip = nn.Linear(width, 1)

    def forward(self, queries: Streams, clips: Streams, mask: Tensor) -> Tensor:
        """(2, P, T) logits of start and end for P pairs: queries (P, D) with clips (P, T, D)."""
        logits = self._of_queries(queries)[:, :, None] + self._of_clips(clips)
        return logits.masked_fill(~mask, MASKED)

    def some(self, queries: Streams, clips: Streams, mask: Tensor, pairs: tuple[Tensor, Tensor]) -> Tensor:
        """(2, P, T) logits for P pairs of (query, video); see `BorderConvolution.some`."""
        logits = self._of_queries(queries)[:, pairs[0], None] + self._of_clips(clips)[:, pairs[1]]
        return logits.masked_fill(~mask[pairs[1]], MASKED)

    def at(self, queries: Streams, clips: Streams, places: tuple[Tensor, Tensor]) -> Tensor:
        """(2, Q, M) logits of every query at the start and the end of M moments."""
        videos, spans = places
        at_borders = torch.stack(
            [of_clips[videos, spans[:, border]] for border, of_clips in enumerate(self._of_clips(clips))]
        )
        return self._of_queries(queries)[:, :, None] + at_borders[:, None]

    def _of_queries(self, queries: Streams) -> Tensor:
        return _averaged(self.start_of_query, self.end_of_query, queries)

    def _of_clips(self, clips: Streams) -> Tensor:
        return _averaged(self.start_of_clip, self.end_of_clip, clips)


class BorderNetworks(nn.Module):
    """A network for each border: a convolution over clips to `inner` values, ReLU, linear layer to a logit.

    Both networks are computed together. Clips after the end of a video count as zero.
    """

    def __init__(self, width: int, inner: int, kernel: int) -> None:
        super().__init__()
        self.wide = nn.Conv1d(width, 2 * inner, kernel, padding=kernel // 2)
        self.narrow = nn.Conv1d(2 * inner, 2, 1, groups=2)

    def forward(self, clips: Tensor, mask: Tensor) -> Tensor:
        """(2, P, T) logits of start and end from clips (P, T, D), which are zero in the padding.

        -1e10 in the padding, where `mask` (P, T) is false.
        """
        logits: Tensor = self.narrow(self.wide(clips.transpose(1, 2)).relu())
        return logits.transpose(0, 1).masked_fill(~mask, MASKED)


class BorderScore(nn.Module):
    """Two convolutions over clips without bias, ReLU between them: a logit for each clip."""

    def __init__(self, width: int, inner: int, kernel: int) -> None:
        super().__init__()
        self.wide = nn.Conv1d(width, inner, kernel, padding=kernel // 2, bias=False)
        self.narrow = nn.Conv1d(inner, 1, 1, bias=False)

    def forward(self, clips: Tensor) -> Tensor:
        """(P, T) from clips (P, T, D), zero in the padding unless padding is computed."""
        logits: Tensor = self.narrow(self.wide(clips.transpose(1, 2)).relu())
        return logits[:, 0]


def _step(length: int) -> Tensor:
    """(length,): -1 / (number before the middle), then 1 / (number from the middle on); 1 for length 1."""
    before = length // 2
    weights = torch.full((length,), 1 / (length - before))
    weights[:before] = -1 / max(before, 1)
    return weights


def begin_at_edges(model: nn.Module) -> None:
    """Let all convolutions of borders in a fresh model detect edges."""
    for module in model.modules():
        if isinstance(module, BorderConvolution):
            module.begin_at_edges()


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-softmax over the clips of a video (last axis); logits of padding are -1e10."""
    return logits.float().log_softmax(-1)


def at_truth(log_probabilities: Tensor, spans: Tensor) -> Tensor:
    """(P,) log P(start) + log P(end) of the true first and last clips (P, 2); from (2, P, T)."""
    return log_probabilities.gather(2, spans.T[:, :, None])[:, :, 0].sum(0)


def _averaged(start: nn.Linear, end: nn.Linear, streams: Streams) -> Tensor:
    """(2, …): both functions of each stream, averaged over the streams."""
    return _mean([torch.stack([start(rows)[..., 0], end(rows)[..., 0]]) for rows in streams])


def _mean(tensors: Streams) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.stack(list(tensors)).mean(0)
