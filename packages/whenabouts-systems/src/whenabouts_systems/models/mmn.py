"""MMN, mutual matching (Wang et al., 2022): cells of a 2-D map and sentences in two joint spaces.

A video's clips are averaged to the clips of a map; a cell (first, last) of the sparse map is the maximum of
its clips, and convolutions over the map let moments see each other. Each cell and each sentence has a vector
in an IoU space, trained to predict how far a moment overlaps the truth, and one in a contrastive space, where
moments and sentences of the whole batch are contrasted. A moment scores (0.5 cos + 0.5)^p * sigmoid(10 cos):
the contrastive cosine to the power p, times the IoU; `SpanScores.spans` holds its logarithm.

What differs from the released program by default (`as_released` restores it): cells of the sentence's own
video that overlap the truth are left out of the sentence's sum, as the paper says (the program adds 1 for
each); a positive cell is never a negative of its own sentence (in the program it is, where its IoU is below
0.5, as that of moments shorter than a cell); and batch normalisation in training takes its statistics from
places that see something (the program: from the padded square as well). The program's batches are split over
GPUs and negatives stay within a part; here they are the whole batch.

The cells of a video of n clips are those of `parts/moment_map.py`; videos of a batch may differ in length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.layers import unit
from whenabouts_systems.models.parts.moment_map import (
    Cells,
    ChainMap,
    Counts,
    MaxMap,
    Pointwise,
    ProposalConvolution,
    cells_of,
    iou,
    joint,
)
from whenabouts_systems.models.parts.mutual_matching import Keep, Rule, Truth, mutual_matching, scaled_bce
from whenabouts_systems.models.parts.renaming import renamed_parameters
from whenabouts_systems.models.parts.text_encoder import Words, check_sizes, mean_of_words
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
    max_over_keys,
    pair_products,
)
from whenabouts_systems.models.settings import NotNegative, Positive, Size, Streams, check_fields

__all__ = ["Config", "Model", "released_names"]

SHARPNESS = 10.0
"""What a cosine of the IoU space is multiplied by before the sigmoid."""
_SMALLEST = 1e-6
"""(0.5 cos + 0.5) is clamped to no less than this before its logarithm is taken."""
KEYS = "moments"
"""The stream of the cells' vectors that are searched."""


Fraction = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class Config:
    """The settings of MMN; defaults are those of Charades-STA."""

    streams: Streams = field(default_factory=lambda: {"video": 4096})
    """Name and width of the streams; several are put side by side."""
    query_width: Size = 768
    """Width of words' features; not used where there is a `text_encoder`."""
    text_encoder: str = ""
    """A DistilBERT by the name of a folder or of a hub's repository, from which a training begins ("": the
    words come as features)."""
    text: Mapping[str, Size] = field(default_factory=dict)
    """Its sizes where they are not those of distilbert-base: vocab_size, dim, n_layers, n_heads, hidden_dim,
    max_position_embeddings."""
    hidden: Size = 512
    map_hidden: Size | None = None
    """Width of the map's convolutions (released: PREDICTOR; `hidden` is FEATPOOL); none: `hidden`."""
    joint: Size | None = None
    """Width of the joint spaces; none: half of `hidden`."""
    clips_per_cell: Size = 1
    """How many clips are averaged to one of the map's (the pooling kernel); 2 on Charades-STA and TACoS, 4 on
    ActivityNet. An experiment takes it from [features]."""
    pooling_counts: Counts = (15, 8, 8)
    """Which cells the map has; see `parts/moment_map.py`. Charades-STA: 15, ActivityNet: 15, 8, 8, TACoS:
    15, 8, 8, 8."""
    map: Literal["pool", "conv"] = "pool"
    map_kernel: Size = 5
    map_layers: Size = 8
    lowest_iou: Fraction = 0.5
    highest_iou: Fraction = 1.0
    positives: Size = 1
    negative_iou: Fraction = 0.5
    same_iou: Fraction = 0.5
    temperature_moments: Positive = 0.1
    temperature_sentences: Positive = 0.1
    margin: float = 0.4
    lambda_contrast: NotNegative = 0.05
    contrast_epochs: int | None = 7
    """For so many epochs contrast has its full weight, then `later_contrast` of it (none: always)."""
    later_contrast: NotNegative = 0.01
    score_power: Positive = 0.5
    """p in a moment's score."""
    as_released: bool = False

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        self.check("mmn")

    def check(self, system: str) -> None:
        """Raise UsageError, naming the system, where a setting makes no model."""
        object.__setattr__(self, "pooling_counts", tuple(self.pooling_counts))
        check_fields(self, system)
        if self.map_kernel % 2 == 0:
            raise UsageError(f"{system}: map_kernel is {self.map_kernel}; accepted: an odd number")
        if self.lowest_iou >= self.highest_iou:
            raise UsageError(
                f"{system}: lowest_iou is {self.lowest_iou}; accepted: less than highest_iou, which is "
                f"{self.highest_iou}"
            )
        check_sizes(self.text, system)

    @property
    def map_width(self) -> int:
        """Width of the map's convolutions."""
        return self.map_hidden or self.hidden

    @property
    def joint_width(self) -> int:
        """Width of the two joint spaces."""
        return self.joint or max(1, self.hidden // 2)


@dataclass(frozen=True)
class Encoded:
    """Cells of V videos in both spaces, unit vectors (V, P, D); `there` (V, P), `clips` (V,) on the map."""

    cells: Cells
    there: Tensor
    clips: Tensor
    iou: Tensor
    contrast: Tensor


class TextEncoder(Words):
    """Sentences to vectors of both spaces: mean over the words, LayerNorm, two linear layers."""

    def __init__(self, width: int, joint: int, sizes: Mapping[str, int] | None = None) -> None:
        super().__init__(width, sizes)
        self.norm = nn.LayerNorm(self.width)
        self.to_iou = nn.Linear(self.width, joint)
        self.to_contrast = nn.Linear(self.width, joint)

    def forward(self, queries: QueryBatch) -> Tensor:
        """(2, Q, joint) unit vectors: of the IoU space, and of the contrastive space."""
        pooled = self.norm(mean_of_words(self.features(queries), queries.mask))
        return torch.stack([unit(layer(pooled).float()) for layer in (self.to_iou, self.to_contrast)])


class Model(nn.Module):
    """MMN with fresh weights: retriever and localizer (see `protocol`)."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        hidden, width = config.hidden, config.joint_width
        self.projection = nn.Conv1d(sum(config.streams.values()), hidden, 1)
        counts = config.pooling_counts
        self.map = MaxMap(counts) if config.map == "pool" else ChainMap(counts, hidden)
        self.convolution = ProposalConvolution(
            counts,
            (hidden, config.map_width),
            (config.map_kernel, config.map_layers),
            square=2 / (3 * sum(config.streams.values())),  # of a unit vector's projection by fresh weights
            as_released=config.as_released,
        )
        self.to_iou = Pointwise(config.map_width, width)
        self.to_contrast = Pointwise(config.map_width, width)
        self.text = TextEncoder(config.query_width, width, config.text if config.text_encoder else None)

    @property
    def video_weight(self) -> float:
        """Moments of all videos are compared as they are."""
        return 0.0

    def begin(self) -> None:
        """Read the pretrained text encoder, where there is one, before a training's first step."""
        self.text.begin(self.config.text_encoder)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Unit vectors: to search with `moments` (Q, D) of the contrastive space; part `iou` (Q, D)."""
        of_iou, of_contrast = self.text(queries)
        return QueryEncoding({KEYS: of_contrast}, {"iou": of_iou})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys `moments` (V, P, D): the cells in the contrastive space; part `iou` (V, P, D).

        The mask (V, N) is the grid of the map: a cell lasts `clips_per_cell` clips.
        """
        encoded = self.encoded(videos)
        mask = torch.arange(encoded.cells.clips, device=encoded.clips.device) < encoded.clips[:, None]
        return VideoEncoding(mask, {KEYS: encoded.contrast}, {KEYS: encoded.there}, {"iou": encoded.iou})

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V): the best cell's cosine in the contrastive space."""
        return max_over_keys(queries, videos)

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """Logarithms of the moments' scores for P pairs; -inf where the map has no cell."""
        cells = cells_of(self.config.pooling_counts, videos.mask.shape[1])
        contrast = pair_products(queries.search[KEYS], videos.keys[KEYS])
        overlap = pair_products(queries.parts["iou"], videos.parts["iou"])
        scores = span_score(contrast, overlap, self.config.score_power)
        scores = scores.masked_fill(~videos.key_masks[KEYS], -torch.inf)
        nothing = torch.zeros_like(videos.mask, dtype=scores.dtype)
        return SpanScores(nothing, nothing, videos.mask, cells.square(scores, -torch.inf))

    def loss(self, batch: Batch) -> Losses:
        """Cross-entropy of the IoU, and the two contrastive terms with their weight."""
        queries, videos = self.encode_queries(batch.queries), self.encoded(batch.videos)
        truth = truth_of(batch, videos)
        keep = Keep.of_pairs(~batch.positives, batch.video_of)
        return self.terms(batch, queries, videos, truth, keep)

    def terms(
        self, batch: Batch, queries: QueryEncoding, videos: Encoded, truth: Truth, keep: Keep
    ) -> Losses:
        """The three terms; `keep` says which pairs may be negatives.

        The first rows of `queries` are those of the batch; others are negatives only.
        """
        moments, sentences = self.contrast(batch, queries, videos, truth, keep)
        weight = contrast_weight(self.config, batch.epoch)
        return {
            "iou": self.iou_loss(batch, queries, videos, truth),
            "moments": weight * moments,
            "sentences": weight * sentences,
        }

    def contrast(
        self, batch: Batch, queries: QueryEncoding, videos: Encoded, truth: Truth, keep: Keep
    ) -> tuple[Tensor, Tensor]:
        """The two contrastive terms, not weighted."""
        return mutual_matching(queries.search[KEYS], videos.contrast, truth, rule_of(self.config), keep)

    def iou_loss(self, batch: Batch, queries: QueryEncoding, videos: Encoded, truth: Truth) -> Tensor:
        """The scaled cross-entropy of each sentence with the cells of its own video."""
        own, cells = queries.parts["iou"][: len(batch)], videos.iou[batch.video_of]
        logits = SHARPNESS * torch.einsum("sd,spd->sp", own, cells)
        there, config = truth.cells[batch.video_of], self.config
        return scaled_bce(logits, truth.iou, there, config.lowest_iou, config.highest_iou)

    def encoded(self, videos: ClipBatch) -> Encoded:
        """All cells of V videos in both spaces."""
        clips, mask = self.clips(videos)
        cells = cells_of(self.config.pooling_counts, clips.shape[1])
        count = mask.sum(1)
        there = cells.there(count)
        rows = self.convolution(self.map(clips), there, cells.clips)
        real = there[..., None]
        return Encoded(
            cells, there, count, joint(self.to_iou, rows) * real, joint(self.to_contrast, rows) * real
        )

    def clips(self, videos: ClipBatch) -> tuple[Tensor, Tensor]:
        """(V, N, hidden) the map's clips, zero where a video has none, and their mask (V, N)."""
        together = torch.cat([videos.streams[name] for name in self.config.streams], -1)
        rows = functional.linear(together, self.projection.weight[:, :, 0], self.projection.bias).relu()
        return averaged(rows, videos.mask, self.config.clips_per_cell)


def averaged(rows: Tensor, mask: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """(V, N, D) means of every `size` real rows of (V, T, D), and (V, N) whether there are any."""
    rows = rows * mask[..., None]
    if size == 1:
        return rows, mask
    over = -mask.shape[1] % size
    rows, mask = functional.pad(rows, (0, 0, 0, over)), functional.pad(mask, (0, over))
    count = mask.view(len(mask), -1, size).sum(2)
    total = rows.view(len(rows), -1, size, rows.shape[2]).sum(2)
    return total / count.clamp(min=1)[..., None], count > 0


def span_score(contrast: Tensor, overlap: Tensor, power: float) -> Tensor:
    """log((0.5 contrast + 0.5)^power * sigmoid(10 overlap)) of cosines."""
    share = (0.5 * contrast.float() + 0.5).clamp(min=_SMALLEST)
    return power * share.log() + functional.logsigmoid(SHARPNESS * overlap.float())


def truth_of(batch: Batch, videos: Encoded) -> Truth:
    """How far the batch's moments overlap cells and each other.

    Moments are `labels["moments"]`, shares of the video; the cells of `spans` where a batch has none.
    """
    clips = videos.clips[batch.video_of]
    moments = batch.labels.get("moments")
    if moments is None:
        moments = torch.stack([batch.spans[:, 0] / clips, (batch.spans[:, 1] + 1) / clips], 1)
    moments = moments.float()
    return Truth(
        videos.cells.overlaps(moments, clips),
        batch.video_of,
        videos.there,
        iou(moments[:, None], moments[None]),
    )


def rule_of(config: Config) -> Rule:
    """The contrast that settings ask for."""
    return Rule(
        config.margin,
        config.temperature_moments,
        config.temperature_sentences,
        config.positives,
        config.negative_iou,
        config.same_iou,
        config.as_released,
    )


def contrast_weight(config: Config, epoch: int) -> float:
    """What the contrastive terms are multiplied by in an epoch (0 is the first)."""
    late = config.contrast_epochs is not None and epoch >= config.contrast_epochs
    return config.lambda_contrast * (config.later_contrast if late else 1.0)


def released_names(config: Config) -> dict[str, str]:
    """Our name of each parameter -> its name in the released program."""
    return renamed_parameters(lambda: Model(config), _RELEASED)


_RELEASED = (
    (r"^projection\.", "featpool.conv."),
    (r"^map\.convs\.", "feat2d.convs."),
    (r"^convolution\.convs\.", "proposal_conv.convs."),
    (r"^convolution\.norms\.", "proposal_conv.bn."),
    (r"^to_iou\.", "proposal_conv.conv1x1_iou."),
    (r"^to_contrast\.", "proposal_conv.conv1x1_contrastive."),
    (r"^text\.bert\.", "text_encoder.bert."),
    (r"^text\.norm\.", "text_encoder.layernorm."),
    (r"^text\.to_iou\.", "text_encoder.fc_out1."),
    (r"^text\.to_contrast\.", "text_encoder.fc_out2."),
)
