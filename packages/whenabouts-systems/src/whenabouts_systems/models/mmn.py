"""MMN, mutual matching (Wang et al., 2022): cells of a 2-D map and sentences in two joint spaces.

A video's clips are averaged to the clips of a sparse map (`parts/moment_map.py`). A cell (first, last) is the
maximum of its clips, and convolutions over the map let moments see each other. Each cell and each sentence
has two vectors: in the IoU space, which learns the overlap of a moment with the truth, and in the contrastive
space, where all moments and sentences of a batch are contrasted.

A moment scores (0.5 c + 0.5)^p * sigmoid(10 o) with its contrastive cosine c and its IoU cosine o.
`SpanScores.spans` holds the logarithm.

The program splits batches over GPUs and takes negatives within a part; here they come from the whole batch.
`released/mmn.py` has the program's other departures.
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
)
from whenabouts_systems.models.parts.mutual_matching import Keep, Rule, Truth, mutual_matching, scaled_bce
from whenabouts_systems.models.parts.renaming import names_by
from whenabouts_systems.models.parts.text_encoder import Words, check_sizes, mean_of_words
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    PaperModel,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
    max_over_keys,
    pair_products,
)
from whenabouts_systems.models.settings import (
    NotNegative,
    Positive,
    ProgramSetting,
    Size,
    Streams,
    name_of_system,
)

__all__ = ["Config", "Model", "released_names"]

SHARPNESS = 10.0
"""Factor of a cosine of the IoU space before the sigmoid."""
_SMALLEST = 1e-6
"""(0.5 cos + 0.5) is clamped to this minimum before its logarithm is taken."""
KEYS = "moments"
"""The stream of the cells' vectors that are searched."""

Fraction = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class Config(ProgramSetting):
    """The settings of MMN; defaults are those of Charades-STA."""

    ignores_weights = True
    streams: Streams = field(default_factory=lambda: {"video": 4096})
    """Stream -> width of its features; streams are concatenated."""
    query_width: Size = 768
    """Width of words' features; unused with a `text_encoder`."""
    text_encoder: str = ""
    """Folder or hub repository of the DistilBERT that a training begins with; "": words come as features."""
    text: Mapping[str, Size] = field(default_factory=dict)
    """Sizes of the text encoder that differ from distilbert-base: vocab_size, dim, n_layers, n_heads,
    hidden_dim, max_position_embeddings."""
    hidden: Size = 512
    map_hidden: Size | None = None
    """Width of the map's convolutions (the program's PREDICTOR; `hidden` is FEATPOOL); None: `hidden`."""
    joint: Size | None = None
    """Width of the joint spaces; None: half of `hidden`."""
    clips_per_cell: Size = 1
    """The number of clips that are averaged to one of the map: 2 on Charades-STA and TACoS, 4 on ActivityNet.
    An experiment takes it from [features]."""
    pooling_counts: Counts = (15, 8, 8)
    """The cells of the map (`parts/moment_map.py`). Charades-STA: 15; ActivityNet: 15, 8, 8; TACoS: 15, 8, 8,
    8."""
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
    """Epochs with the full weight of contrast; afterwards it is multiplied by `later_contrast`. None: all."""
    later_contrast: NotNegative = 0.01
    score_power: Positive = 0.5
    """p in a moment's score."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "pooling_counts", tuple(self.pooling_counts))
        system = name_of_system(self)
        if self.lowest_iou >= self.highest_iou:
            raise UsageError(
                f"{system}: lowest_iou is {self.lowest_iou}; accepted: less than highest_iou, which is "
                f"{self.highest_iou}"
            )
        check_sizes(self.text, system)


@dataclass(frozen=True)
class Encoded:
    """Cells of V videos as unit vectors (V, P, D); `there` (V, P): real cells, `clips` (V,): on the map."""

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
        """(2, Q, joint) unit vectors in the IoU space and in the contrastive space."""
        pooled = self.norm(mean_of_words(super().forward(queries), queries.mask))
        return torch.stack([unit(layer(pooled).float()) for layer in (self.to_iou, self.to_contrast)])


class Model(PaperModel):
    """MMN with fresh weights: retriever and localizer (see `protocol`)."""

    rule_class = Rule
    whole_square = False
    """Whether normalisation counts the padded square (`ProposalConvolution`)."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        hidden, inside = config.hidden, config.map_hidden or config.hidden
        width = config.joint or max(1, hidden // 2)
        self.projection = nn.Conv1d(sum(config.streams.values()), hidden, 1)
        counts = config.pooling_counts
        self.map = MaxMap(counts) if config.map == "pool" else ChainMap(counts, hidden)
        square = 2 / (3 * sum(config.streams.values()))  # the mean square of a freshly projected unit vector
        shape = (hidden, inside, config.map_kernel, config.map_layers)
        self.convolution = ProposalConvolution(counts, *shape, square, whole_square=self.whole_square)
        self.to_iou = Pointwise(inside, width)
        self.to_contrast = Pointwise(inside, width)
        self.text = TextEncoder(config.query_width, width, config.text if config.text_encoder else None)

    @property
    def video_weight(self) -> float:
        """0: the score of a moment is comparable between videos."""
        return 0.0

    def begin(self) -> None:
        """Before the first step: load the pretrained text encoder, if one is set."""
        self.text.begin(self.config.text_encoder)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Unit vectors: search vector `moments` (Q, D) in the contrastive space; part `iou` (Q, D)."""
        of_iou, of_contrast = self.text(queries)
        return QueryEncoding({KEYS: of_contrast}, {"iou": of_iou})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys `moments` (V, P, D): the cells in the contrastive space; part `iou` (V, P, D).

        The mask (V, N) is that of the map's clips, of `clips_per_cell` clips each.
        """
        encoded = self.encoded(videos)
        mask = torch.arange(encoded.cells.clips, device=encoded.clips.device) < encoded.clips[:, None]
        return VideoEncoding(mask, {KEYS: encoded.contrast}, {KEYS: encoded.there}, {"iou": encoded.iou})

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V): the best cell's cosine in the contrastive space."""
        return max_over_keys(queries, videos)

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """The logarithms of the moments' scores for P pairs; -inf for moments without a cell."""
        cells = cells_of(self.config.pooling_counts, videos.mask.shape[1])
        contrast = pair_products(queries.search[KEYS], videos.keys[KEYS])
        overlap = pair_products(queries.parts["iou"], videos.parts["iou"])
        scores = span_score(contrast, overlap, self.config.score_power)
        scores = scores.masked_fill(~videos.key_masks[KEYS], -torch.inf)
        nothing = torch.zeros_like(videos.mask, dtype=scores.dtype)
        return SpanScores(nothing, nothing, videos.mask, cells.square(scores, -torch.inf))

    def loss(self, batch: Batch) -> Losses:
        """Cross-entropy of the IoU, and the two contrastive terms, weighted."""
        queries, videos = self.encode_queries(batch.queries), self.encoded(batch.videos)
        truth = truth_of(batch, videos)
        keep = Keep.of_pairs(~batch.positives, batch.video_of)
        return self.terms(batch, queries, videos, truth, keep)

    def terms(
        self, batch: Batch, queries: QueryEncoding, videos: Encoded, truth: Truth, keep: Keep
    ) -> Losses:
        """The three terms; `keep` restricts the negatives.

        `queries` are those of the batch, followed by negatives.
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
        return mutual_matching(queries.search[KEYS], videos.contrast, truth, self.rule, keep)

    def iou_loss(self, batch: Batch, queries: QueryEncoding, videos: Encoded, truth: Truth) -> Tensor:
        """The scaled cross-entropy of each sentence with the cells of its own video."""
        own, cells = queries.parts["iou"][: len(batch)], videos.iou[batch.video_of]
        logits = SHARPNESS * torch.einsum("sd,spd->sp", own, cells)
        there, config = truth.cells[batch.video_of], self.config
        return scaled_bce(logits, truth.iou, there, config.lowest_iou, config.highest_iou)

    @property
    def rule(self) -> Rule:
        """The settings of the contrast."""
        config = self.config
        return self.rule_class(
            config.margin,
            config.temperature_moments,
            config.temperature_sentences,
            config.positives,
            config.negative_iou,
            config.same_iou,
        )

    def encoded(self, videos: ClipBatch) -> Encoded:
        """All cells of V videos in both spaces."""
        clips, mask = self.clips(videos)
        cells = cells_of(self.config.pooling_counts, clips.shape[1])
        count = mask.sum(1)
        there = cells.there(count)
        rows = self.convolution(self.map(clips), there, cells.clips)
        real = there[..., None]
        return Encoded(cells, there, count, self.to_iou(rows) * real, self.to_contrast(rows) * real)

    def clips(self, videos: ClipBatch) -> tuple[Tensor, Tensor]:
        """(V, N, hidden) the map's clips, zero in the padding, and their mask (V, N)."""
        together = torch.cat([videos.streams[name] for name in self.config.streams], -1)
        rows = functional.linear(together, self.projection.weight[:, :, 0], self.projection.bias).relu()
        return averaged(rows, videos.mask, self.config.clips_per_cell)


def averaged(rows: Tensor, mask: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """(V, N, D) means of every `size` rows of (V, T, D), without padding, and their mask (V, N)."""
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
    """The IoU of the batch's moments with cells and with each other.

    Moments are `labels["moments"]`, shares of the video; without these they are the cells of `spans`.
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


def contrast_weight(config: Config, epoch: int) -> float:
    """The weight of the contrastive terms in an epoch; 0 is the first."""
    late = config.contrast_epochs is not None and epoch >= config.contrast_epochs
    return config.lambda_contrast * (config.later_contrast if late else 1.0)


released_names = names_by(
    Model,
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
