"""MS-SL, multi-scale similarity learning for partially relevant videos (Dong et al., ACM Multimedia 2022).

A query is relevant to a video if it describes a part of it. A video has two branches:

- its frames averaged to 32 clips; every run of neighbouring clips is a proposal (528);
- its frames, to which the best proposal, the "key clip", attends ("key-clip guided attention").

A video scores 0.7 times the cosine of the key clip plus 0.3 times that of the attended frames (`clip_share`,
`frame_share`). The attention depends on the query, so search keys cannot include it: proposals retrieve
candidates, and `score_videos` ranks them. There are no spans.

The paper uses only pictures; here the features of several streams are concatenated. The model averages frames
itself, so set [features] max_clips above the longest video: a lower limit averages them before, too.

Departures from the released program by default:

- A video's last frame counts. In the program it is part of no clip, unless the last clip has no other frame.
- Queries of a video are not negatives of each other, and neither is a video that also answers the query. In
  the program's frame branch, all other queries are negatives, even of the same video, and the own pair counts
  twice in the denominator.

`released/ms_sl.py` follows the program. As there, in the clip branch a video's hard negative is its single
hardest query; all others are drawn from the `pool` hardest.

Shapes as in `protocol`; F frames, C clips, K proposals.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from whenabouts_systems.models.parts.branch import OF_BRANCHES, BranchModel, BranchSettings
from whenabouts_systems.models.parts.layers import initialise, unit
from whenabouts_systems.models.parts.partial_relevance import (
    contrast,
    square_contrast,
    square_triplets,
    triplets,
)
from whenabouts_systems.models.parts.renaming import OF_LAYERS, names_by
from whenabouts_systems.models.protocol import Batch, ClipBatch, Losses, QueryEncoding, VideoEncoding, by_rows

KEYS = "proposals"


@dataclass(frozen=True)
class Config(BranchSettings):
    """The settings of MS-SL; defaults are the released ones for TVR."""


@dataclass(frozen=True)
class Videos:
    """Both branches of V videos: `clips` (V, C, D); keys, values (V, F, D) and `mask` (V, F) of frames."""

    clips: Tensor
    frame_keys: Tensor
    frame_values: Tensor
    mask: Tensor


class Model(BranchModel):
    """MS-SL with fresh weights: a retriever (see `protocol`)."""

    keys = KEYS
    counts_own_twice = False
    """Whether the contrast of frames counts a query's own pair twice."""
    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        hidden = config.hidden
        # Attention keys and values of frames; saved systems and indexes use these names.
        self.asked = nn.Linear(hidden, hidden, bias=False)
        self.taken = nn.Linear(hidden, hidden, bias=False)
        initialise(self, config.initializer_range)

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys: proposals as unit vectors (V, K, D). Parts: their `lengths` (V, K), and the
        frames' attention keys `asked` and values `taken` (V, F, D).

        The mask (V, F) is that of the frames, fewer than the rows of a long video.
        """
        seen = self._videos(videos)
        keys = means_of_stretches(seen.clips)
        return VideoEncoding(
            mask=seen.mask,
            keys={KEYS: unit(keys)},
            key_masks={KEYS: torch.ones(keys.shape[:2], dtype=torch.bool, device=keys.device)},
            parts={
                "lengths": torch.linalg.vector_norm(keys, dim=-1),
                "asked": seen.frame_keys,
                "taken": seen.frame_values,
            },
        )

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V): the weighted sum of the key clip's cosine and that of its attended frames."""
        vectors, keys = queries.search[KEYS], videos.keys[KEYS]
        best, at = (keys.flatten(0, 1) @ vectors.T).view(*keys.shape[:2], -1).max(1)
        rows = torch.arange(len(keys), device=keys.device)[:, None]
        chosen = keys[rows, at] * videos.parts["lengths"].gather(1, at)[..., None]
        attended = key_clip_attention(chosen, videos.parts["asked"], videos.parts["taken"], videos.mask)
        seen = (unit(attended) * vectors).sum(-1)
        return (self.config.clip_share * best + self.config.frame_share * seen).T

    def loss(self, batch: Batch) -> Losses:
        """Weighted contrast and triplets of both branches; contrast uses dot products, not cosines."""
        config, own = self.config, batch.video_of
        sentences, videos = self._sentences(batch.queries).vectors[:, 0], self._videos(batch.videos)
        with torch.autocast(own.device.type, enabled=False):  # contrast without temperature needs precision
            scores = self._scores(sentences, videos, own)
        clip_products, clip_cosines, frame_products, frame_cosines = scores
        positives, same = self._positives(batch)
        hard = batch.epoch >= config.pool_from_epoch
        pool = config.pool if hard else None
        return {
            "clip_contrast": config.weight_clip_contrast * contrast(clip_products, own, positives),
            "clip_triplets": triplets(
                clip_cosines, own, positives, config.margin, (pool, 1 if hard else None)
            ),
            "frame_contrast": config.weight_frame_contrast
            * square_contrast(frame_products, same, count_own_twice=self.counts_own_twice),
            "frame_triplets": square_triplets(frame_cosines, same, config.margin, pool),
        }

    def _positives(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Pairs that are not negatives: (Q, V), and (Q, Q) with the videos of the queries."""
        own_video = batch.video_of
        return batch.positives, batch.positives[:, own_video] | (own_video[:, None] == own_video)

    def _scores(
        self, sentences: Tensor, videos: Videos, own: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Dot products and cosines of sentences (Q, D), for the loss, in full precision.

        First with the best proposals of V videos (Q, V), then with the attended frames of the queries' own
        videos (Q, Q).
        """
        vectors, clips = sentences.float(), videos.clips.float()
        keys = means_of_stretches(clips)
        # The product with a mean is the mean of products: 32 products instead of 528 for a video and query.
        products = means_of_stretches((clips.flatten(0, 1) @ vectors.T).view(*clips.shape[:2], -1))
        lengths = torch.linalg.vector_norm(keys, dim=-1, keepdim=True)
        best, at = (products / lengths.clamp(min=1e-12)).max(1)
        chosen = keys[own, at.T.gather(1, own[:, None])[:, 0]]
        frame_keys, frame_values = videos.frame_keys[own].float(), videos.frame_values[own].float()
        attended = key_clip_attention(chosen[:, None], frame_keys, frame_values, videos.mask[own])[:, 0]
        cosines = best.T / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp(min=1e-12)
        return products.amax(1).T, cosines, vectors @ attended.T, unit(vectors) @ unit(attended).T

    @by_rows
    def _videos(self, videos: ClipBatch) -> Videos:
        """The outputs of both branches for V videos."""
        clips, frames, mask = self._averaged(videos)
        # F is the same for all parts of a batch, which processes share.
        more = min(videos.mask.shape[1], self.config.frames) - mask.shape[1]
        frames, mask = pad(frames, (0, 0, 0, more)), pad(mask, (0, more))
        encoded = self.frame(frames, mask)
        every = torch.ones(clips.shape[:2], dtype=torch.bool, device=mask.device)
        return Videos(self.clip(clips, every), self.asked(encoded), self.taken(encoded), mask)


def means_of_stretches(clips: Tensor) -> Tensor:
    """(V, K, D) proposals: the mean of every run of neighbouring clips (V, C, D), K = C (C + 1) / 2.

    They are ordered by width, then by start.
    """
    count, device = clips.shape[1], clips.device
    first, last = torch.triu_indices(count, count, device=device)
    order = (last - first).argsort(stable=True)
    first, last = first[order, None], last[order, None]
    place = torch.arange(count, device=device)
    shares: Tensor = ((place >= first) & (place <= last)) / (last - first + 1)
    return shares.to(clips.dtype) @ clips


def key_clip_attention(clips: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """(V, N, D): attention of N key clips (V, N, D) over the real frames of their video.

    `keys` and `values` (V, F, D) are those of the frames, `mask` is (V, F).
    """
    scores = torch.bmm(clips, keys.transpose(1, 2)).masked_fill(~mask[:, None], -torch.inf)
    return torch.bmm(scores.softmax(-1).to(values.dtype), values)


_RELEASED = (
    (r"^(query|clip|frame)\.encoder\.", r"\1_encoder."),
    (r"^asked\.", "mapping_linear.0."),
    (r"^taken\.", "mapping_linear.1."),
)

released_names = names_by(Model, *_RELEASED, *OF_BRANCHES, *OF_LAYERS)
"""Shapes are equal, except that the program's position table of clips is as long as that of frames."""
