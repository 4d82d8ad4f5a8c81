"""The head of HERO (Li et al., EMNLP 2020): videos and moments from frames that are encoded already.

HERO's pretrained encoders are large; what makes a retriever and a localizer of them is small, and is this
system. It is given one vector for each frame (or clip), whatever made them, and compares them with one vector
of the query: a video scores its best frame's cosine, a moment's borders come from two convolutions over the
dot products of its frames with a linear map of the query. `frames` of the width `hidden` are taken as they
are; those of another width, or of several streams, are projected first (LayerNorm, linear layer, ReLU, and
the sum over the streams), as HERO's encoder does with what it is given.

Where the released program differs, and `as_released` restores it: it convolves what lies in the padding, so
that the last frames' logits depend on it; a video's queries must stand next to each other and be equally
many; and of the batch only a query's own video is spared as a negative. Here every pair that is known to be
positive is spared, whatever the order. Like XML's, the borders' convolutions begin as edges here, and at
random there (`_parts/borders.py`).

HERO's program writes video scores as exp(20 * cosine). Here a video scores the cosine, and a moment the
logarithm of that product: span + 20 * cosine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from whenabouts.models._parts.borders import BorderConvolution, at_truth, log_probabilities
from whenabouts.models._parts.layers import (
    AttentionBlock,
    InputProjection,
    ModularPooling,
    PositionEmbedding,
    initialise,
    unit,
)
from whenabouts.models._parts.packing import in_turn
from whenabouts.models._parts.ranking_loss import shortfall, weighted_mean
from whenabouts.models._parts.renaming import OF_LAYERS, renamed_parameters
from whenabouts.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    Named,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
    max_over_keys,
)
from whenabouts.models.settings import NamedStreams, NotNegative, Share, Size, check_settings

__all__ = ["Config", "Model", "released_names"]

_KEYS = "frames"


@dataclass(frozen=True)
class Config:
    """The settings of HERO's head; defaults are the released ones for TVR."""

    streams: NamedStreams = field(default_factory=lambda: {"frames": 768})
    """Name and width of the given representations; one stream of the width `hidden` is not projected."""
    query_width: Size = 768
    hidden: Size = 768
    heads: Size = 12
    max_tokens: Size = 100
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    span_kernel: Size = 5
    initializer_range: NotNegative = 0.02
    margin: NotNegative = 0.1
    weight_negative_videos: float = 8.0
    weight_negative_queries: float = 8.0
    lambda_tl: float = 0.01
    alpha: NotNegative = 20.0
    """How often the video's cosine counts in a moment's score."""
    pool: Size | None = None
    """So many of the hardest negatives of each query and video count `hard_weight` times, the others
    `rest_weight` times; None: all count alike."""
    hard_weight: NotNegative = 10.0
    rest_weight: NotNegative = 0.1
    pool_from_epoch: int = 0
    """The first epoch in which `pool` counts."""
    as_released: bool = False

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        check_settings(self, "hero")

    @property
    def takes_frames(self) -> bool:
        """Whether frames are taken as they are given."""
        return list(self.streams.values()) == [self.hidden]


class Model(nn.Module):
    """HERO's head with fresh weights: retriever and localizer (see `protocol`)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        hidden, dropout = config.hidden, config.input_dropout
        self.frame_projections = nn.ModuleDict(
            {}
            if config.takes_frames
            else {name: InputProjection(width, hidden, dropout) for name, width in config.streams.items()}
        )
        self.query_projection = InputProjection(config.query_width, hidden, dropout)
        self.query_positions = PositionEmbedding(config.max_tokens, hidden, dropout, "tokens")
        self.query_encoder = AttentionBlock(hidden, config.heads, config.dropout)
        self.pooling = ModularPooling(hidden, 1)
        self.span_query = nn.Linear(hidden, hidden)
        self.borders = BorderConvolution(config.span_kernel, as_released=config.as_released)
        initialise(self, config.initializer_range)
        if not config.as_released:
            self.borders.begin_at_edges()

    @property
    def video_weight(self) -> float:
        """Alpha: moments score log P(start) + log P(end) + alpha * cosine."""
        return self.config.alpha

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """A unit vector to search with; parts `span` (Q, D) and `words` (Q, L), what each word counts."""
        words = in_turn(
            queries.tokens, queries.mask, self.query_projection, self.query_positions, self.query_encoder
        )
        vectors, weights = self.pooling(words, queries.mask)
        pooled = vectors[:, 0]
        parts = {"span": self.span_query(pooled), "words": weights[:, :, 0]}
        return QueryEncoding({_KEYS: unit(pooled)}, parts)

    def word_weights(self, queries: QueryEncoding) -> Named:
        """(Q, L) the same for every stream: how much each word counts in the query's vector."""
        return dict.fromkeys(self.config.streams, queries.parts["words"])

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys `frames`: unit vectors (V, T, D); part `frames` (V, T, D), not normalised."""
        frames = self._frames(videos)
        return VideoEncoding(
            mask=videos.mask,
            keys={_KEYS: unit(frames)},
            key_masks={_KEYS: videos.mask},
            parts={_KEYS: frames},
        )

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V): the cosine of the best frame."""
        return max_over_keys(queries, videos)

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """log P(start) and log P(end) of P pairs."""
        start, end = log_probabilities(self.border_logits(queries, videos))
        return SpanScores(start, end, videos.mask)

    def border_logits(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(2, P, T) logits of start and end, -1e10 where there is no frame."""
        logits: Tensor = self.borders([queries.parts["span"]], [videos.parts[_KEYS]], videos.mask)
        return logits

    def loss(self, batch: Batch) -> Losses:
        """Terms `negative_videos`, `negative_queries` (hinges) and `spans`; one whose weight is 0 is 0."""
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        scores, own = self.score_videos(queries, videos).float(), batch.video_of
        logits = self.border_logits(queries, videos.take(own))
        spans = -at_truth(log_probabilities(logits), batch.spans)
        terms = {"spans": self.config.lambda_tl * weighted_mean(spans, batch.weight)}
        for name, lacking in self.ranking_losses(batch, scores).items():
            terms[name] = getattr(self.config, f"weight_{name}") * weighted_mean(lacking, batch.weight)
        return terms

    def ranking_losses(self, batch: Batch, scores: Tensor) -> Mapping[str, Tensor]:
        """(Q,) twice: how far each query's own video fails to stand above others, and against other queries.

        `scores` (Q, V). Weights of the terms are not applied.
        """
        config, own = self.config, batch.video_of
        positive = scores.gather(1, own[:, None])[:, 0]
        answers = batch.positives
        if config.as_released:
            answers = own[:, None] == torch.arange(scores.shape[1], device=own.device)
        weights = None
        if config.pool is not None and batch.epoch >= config.pool_from_epoch:
            weights = HardWeights(config.pool, config.hard_weight, config.rest_weight)
        return {
            "negative_videos": against_all(positive, scores, ~answers, config.margin, weights),
            "negative_queries": against_all(
                positive, scores[:, own].T, ~answers[:, own].T, config.margin, weights
            ),
        }

    def _frames(self, videos: ClipBatch) -> Tensor:
        """(V, T, D) the given frames, or the sum of the projected streams; zeros in the padding."""
        if self.config.takes_frames:
            (name,) = self.config.streams
            given = videos.streams[name]
            return given if self.config.as_released else given.masked_fill(~videos.mask[..., None], 0.0)
        projected = [
            projection(videos.streams[name], videos.mask)
            for name, projection in self.frame_projections.items()
        ]
        return torch.stack(projected).sum(0)


@dataclass(frozen=True)
class HardWeights:
    """The `pool` hardest negatives of each anchor count `hard` times, all others `rest` times."""

    pool: int
    hard: float = 10.0
    rest: float = 0.1


def against_all(
    positive: Tensor, scores: Tensor, allowed: Tensor, margin: float, weights: HardWeights | None = None
) -> Tensor:
    """(A,): the mean hinge of each positive (A,) against its allowed negatives among `scores` (A, C).

    `allowed` (A, C) bool. An anchor without a negative loses 0. With `weights` what each negative loses
    counts by its place among the anchor's negatives, the highest score first (equal scores: the first one).
    """
    lacking = shortfall(positive[:, None], scores, margin=margin)
    if weights is not None:
        lacking = lacking * _by_place(scores.detach(), allowed, weights)
    return lacking.masked_fill(~allowed, 0.0).sum(1) / allowed.sum(1).clamp(min=1)


def _by_place(scores: Tensor, allowed: Tensor, weights: HardWeights) -> Tensor:
    """(A, C): how much each negative counts."""
    order = scores.masked_fill(~allowed, -torch.inf).argsort(dim=1, descending=True, stable=True)
    counts = torch.full_like(scores, weights.rest)
    return counts.scatter(1, order[:, : weights.pool], weights.hard)


def released_names(config: Config) -> Mapping[str, str]:
    """Our name of each parameter -> its name in HERO's program; for given frames (no projection)."""
    return renamed_parameters(lambda: Model(config), (*_RELEASED, *OF_LAYERS))


_RELEASED = (
    (r"^query_projection\.", "q_feat_attn.query_input_proj."),
    (r"^query_positions\.", "q_feat_attn.query_pos_embed."),
    (r"^query_encoder\.", "q_feat_attn.query_self_attention."),
    (r"^pooling\.linear\.", "q_feat_attn.modular_vector_mapping."),
    (r"^span_query\.", "video_query_linear."),
    (r"^borders\.start\.", "video_st_predictor."),
    (r"^borders\.end\.", "video_ed_predictor."),
)
