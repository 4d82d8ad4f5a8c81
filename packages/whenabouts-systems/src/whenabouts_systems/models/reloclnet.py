"""ReLoCLNet: find videos and moments by late fusion, trained with two contrastive losses.

Zhang et al., "Video Corpus Moment Retrieval with Contrastive Learning" (SIGIR 2021); its ranked setting is
paper 004, appendix C.1. A query becomes one vector for each stream. Clips attend to their own stream, to the
other stream, then twice to their own. The last encoding finds videos (cosine of the best clip) and moments
(dot product, convolved to logits of start and end). Two contrasts use the encoding before it: a moment's
clips against the video's others (frame contrast), a video against the batch (video contrast).

Differences from the arithmetic of the released programs (`released/reloclnet.py`):

- padding never reaches a score: not through cross-attention, not through the convolution;
- one stream is enough (videos without subtitles);
- known positives (`Batch.positives`) are never negatives, and count as positives in the video contrast;
  released: only the diagonal is positive, the own pair counts twice, a video once for each of its queries;
- `Batch.weight` weights every term of a query, as paper 004 says; released: all but the two ranking terms.

Shapes as in `protocol`; M streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from whenabouts_systems.models.parts.borders import BorderConvolution, at_truth, log_probabilities
from whenabouts_systems.models.parts.contrast import clip_labels, frame_contrast, video_contrast
from whenabouts_systems.models.parts.late_fusion import FusionModel, FusionSettings
from whenabouts_systems.models.parts.layers import (
    AttentionBlock,
    CrossAttentionBlock,
    InputProjection,
    ModularPooling,
    Pooled,
    PositionEmbedding,
    initialise,
    unit,
)
from whenabouts_systems.models.parts.packing import Packing, in_turn
from whenabouts_systems.models.parts.ranking_loss import against_negatives, draw_negatives, weighted_mean
from whenabouts_systems.models.parts.relevant_content import RelevantContent, VideoLoss
from whenabouts_systems.models.parts.renaming import OF_LAYERS, names_by
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
    best_key,
    by_rows,
    scaled_clips,
)
from whenabouts_systems.models.settings import AnyUpToTwoStreams, Size


@dataclass(frozen=True)
class Config(FusionSettings):
    """Settings of ReLoCLNet; the defaults are the published ones.

    `known_positives`: whether `Batch.positives` are never negatives; else only each query's own video is
    positive. The released program has no such setting.
    """

    streams: AnyUpToTwoStreams = field(default_factory=lambda: {"video": 3072, "sub": 768})
    hidden: Size = 384
    heads: Size = 8
    max_clips: Size = 128
    video_loss: VideoLoss = "ranking"
    """"relevant-content": equations 7 and 8 of PREM (paper 003) replace the two ranking terms, with weights
    of their own; t is `temperature`, lambda is `lambda_weak`."""
    weight_spans: float = 0.01
    weight_frame_contrast: float = 0.03
    weight_video_contrast: float = 0.03
    alpha: float = 30.0
    known_positives: bool = True


@dataclass(frozen=True)
class _Clips:
    """Encoded clips of a batch of videos, (V, T, D) for each stream, before and after the last encoder."""

    middle: Sequence[Tensor]
    final: Sequence[Tensor]


class Model(FusionModel):
    """ReLoCLNet; a retriever and a localizer."""

    known_in_contrast = True
    """Whether the video contrast uses the known positives."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width, heads, dropout = config.hidden, config.heads, config.dropout
        self.query_input = InputProjection(config.query_width, width, config.input_dropout)
        self.query_places = PositionEmbedding(config.max_tokens, width, config.input_dropout, "tokens")
        self.query_encoders = nn.ModuleList(AttentionBlock(width, heads, dropout) for _ in range(2))
        self.pooling = ModularPooling(width, len(config.streams))
        self.clip_places = PositionEmbedding(config.max_clips, width, config.input_dropout, "clips")
        self.streams = nn.ModuleList(
            _Stream(config, features, self.counts_padding) for features in config.streams.values()
        )
        self.borders = BorderConvolution(config.span_kernel, convolve_padding=self.counts_padding)
        initialise(self, config.initializer_range)
        self._begin()

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """The final clips: keys are unit vectors; parts `length/<stream>` (V, T, 1) were their lengths.

        The product of both is the vector from which borders are computed, so it is stored only once.
        """
        final = dict(zip(self.config.streams, self._clips(videos).final, strict=True))
        return VideoEncoding(
            videos.mask,
            keys={name: unit(clips) for name, clips in final.items()},
            key_masks=dict.fromkeys(final, videos.mask),
            parts={
                f"length/{name}": torch.linalg.vector_norm(clips, dim=-1, keepdim=True)
                for name, clips in final.items()
            },
        )

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """Log-probabilities that a moment starts and ends at each clip."""
        start, end = log_probabilities(self.border_logits(queries, videos))
        return SpanScores(start, end, videos.mask)

    def border_logits(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(2, P, T) logits of start and end, -1e10 where a clip is masked."""
        names = list(self.config.streams)
        spans = [queries.parts[f"span/{name}"] for name in names]
        clips = [scaled_clips(videos.keys[name], videos.parts[f"length/{name}"]) for name in names]
        return cast("Tensor", self.borders(spans, clips, videos.mask))

    def loss(self, batch: Batch) -> Losses:
        """The five terms, weights applied: frame and video contrast, spans, and the two rankings.

        Each is a mean over the queries; nothing is divided by the sum of `batch.weight`.
        """
        config = self.config
        pooled, clips = self._pooled(batch.queries), self._clips(batch.videos)
        vectors = pooled.vectors.unbind(1)
        terms = {
            "frame_contrast": config.weight_frame_contrast * self._frame_contrast(vectors, clips, batch),
            "video_contrast": config.weight_video_contrast * self._video_contrast(vectors, clips, batch),
            "spans": config.weight_spans * self._span_term(self._for_spans(pooled), clips, batch),
        }
        weighted = {name: weighted_mean(term, batch.weight) for name, term in terms.items()}
        return {**weighted, **self._video_terms(vectors, clips, batch)}

    def _video_terms(self, vectors: Sequence[Tensor], clips: _Clips, batch: Batch) -> Losses:
        """The terms that train the scores of videos: cosines with the final clips."""
        config, names = self.config, self.config.streams
        searched = dict(zip(names, map(unit, vectors), strict=True))
        keys = dict(zip(names, map(unit, clips.final), strict=True))
        masks = dict.fromkeys(names, batch.videos.mask)
        queries, videos = QueryEncoding(searched), VideoEncoding(batch.videos.mask, keys, masks)
        if config.video_loss == "relevant-content":
            rule = RelevantContent(config.temperature, config.lambda_weak)
            return rule.terms(batch, queries, videos)
        of_queries, of_videos = self.ranking_terms(self.score_videos(queries, videos), batch)
        weight = self._ranking_weight(batch)
        return {
            "negative_videos": config.weight_negative_videos * weighted_mean(of_queries, weight),
            "negative_queries": config.weight_negative_queries * weighted_mean(of_videos, weight),
        }

    def ranking_terms(self, cosines: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """(Q,) twice: losses of the own pair against another video for the query, and another query.

        `cosines` (Q, V) score videos.
        """
        scores, video_of, positives = self._compared(cosines, batch)
        columns, related = scores[:, video_of].T, positives[:, video_of].T
        own_scores = scores.gather(1, video_of[:, None])[:, 0]
        config = self.config
        pool = config.pool_in(batch.epoch)
        other_video = draw_negatives(scores, ~positives, pool)
        other_query = draw_negatives(columns, ~related, pool)
        return (
            against_negatives(own_scores, other_video, margin=config.margin, kind=config.ranking),
            against_negatives(own_scores, other_query, margin=config.margin, kind=config.ranking),
        )

    def _compared(self, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, the column of each query's own video in them, and the pairs that are not negatives."""
        own = torch.zeros_like(batch.positives).scatter(1, batch.video_of[:, None], True)
        return scores, batch.video_of, own | batch.positives if self.config.known_positives else own

    def _frame_contrast(self, vectors: Sequence[Tensor], clips: _Clips, batch: Batch) -> Tensor:
        """(Q,): the frame contrast, averaged over the streams."""
        own = batch.video_of
        mask = batch.videos.mask[own]
        labels = clip_labels(batch.spans, mask.shape[1])
        contrasts = [
            frame_contrast(torch.einsum("qd,qtd->qt", vector, middle[own]), labels, mask)
            for vector, middle in zip(vectors, clips.middle, strict=True)
        ]
        return torch.stack(contrasts).mean(0)

    def _video_contrast(self, vectors: Sequence[Tensor], clips: _Clips, batch: Batch) -> Tensor:
        """(Q,): the video contrast of scores averaged over the streams."""
        mask = batch.videos.mask
        scores = [
            best_key(vector, middle, mask) for vector, middle in zip(vectors, clips.middle, strict=True)
        ]
        compared, video_of, positives = self._compared(torch.stack(scores).mean(0), batch)
        return video_contrast(compared, video_of, positives if self.known_in_contrast else None)

    def _span_term(self, vectors: Sequence[Tensor], clips: _Clips, batch: Batch) -> Tensor:
        """(Q,): the negative log-probability of the true start and end."""
        own_clips = [final[batch.video_of] for final in clips.final]
        logits = self.borders(vectors, own_clips, batch.videos.mask[batch.video_of])
        return -at_truth(log_probabilities(logits), batch.spans)

    @by_rows
    def _pooled(self, queries: QueryBatch) -> Pooled:
        encoders = cast("list[AttentionBlock]", list(self.query_encoders))
        words = in_turn(queries.tokens, queries.mask, self.query_input, self.query_places, *encoders)
        return cast("Pooled", self.pooling(words, queries.mask))

    @by_rows
    def _clips(self, videos: ClipBatch) -> _Clips:
        """The encoded clips of each video once, even if it has several queries."""
        packing = self.clip_places.packing(videos.mask)
        streams: list[_Stream] = list(self.streams)
        first = []
        for name, stream in zip(self.config.streams, streams, strict=True):
            clips = stream.input(packing.pack(videos.streams[name]), packing)
            first.append(stream.first(self.clip_places(clips, packing), packing))
        middle = [
            stream.middle(clips, others, packing)
            for stream, clips, others in zip(streams, first, first[::-1], strict=True)
        ]
        final = [stream.last(clips, packing) for stream, clips in zip(streams, middle, strict=True)]
        return _Clips(*([packing.unpack(clips) for clips in encoded] for encoded in (middle, final)))


class _Stream(nn.Module):
    """The encoders of one stream of a video; without a second stream there is no attention across streams."""

    def __init__(self, config: Config, features: int, product_mask: bool) -> None:
        super().__init__()
        width, heads, dropout = config.hidden, config.heads, config.dropout
        self.input = InputProjection(features, width, config.input_dropout)
        self.first = AttentionBlock(width, heads, dropout)
        self.cross = (
            CrossAttentionBlock(width, heads, dropout, product_mask=product_mask)
            if len(config.streams) > 1
            else None
        )
        self.second = AttentionBlock(width, heads, dropout)
        self.last = AttentionBlock(width, heads, dropout)
        self.query = nn.Linear(width, width)

    def middle(self, clips: Tensor, others: Tensor, packing: Packing) -> Tensor:
        """(N, D), packed: the clips that the contrasts use."""
        seen = clips if self.cross is None else self.cross(clips, others, packing)
        return cast("Tensor", self.second(seen, packing))


_RELEASED = (
    (r"^streams\.0\.", "video_"),
    (r"^streams\.1\.", "sub_"),
    (r"^(query|video|sub)_input\.", r"\1_input_proj."),
    (r"^(video|sub)_query\.", r"\1_query_linear."),
    (r"^query_places\.", "query_pos_embed."),
    (r"^clip_places\.", "ctx_pos_embed."),
    (r"^query_encoders\.0\.", "query_encoder."),
    (r"^query_encoders\.1\.", "query_encoder1."),
    (r"_first\.", "_encoder1."),
    (r"_second\.", "_encoder2."),
    (r"_last\.", "_encoder3."),
    (r"^borders\.start\.", "merged_st_predictor."),
    (r"^borders\.end\.", "merged_ed_predictor."),
)

released_names = names_by(Model, *_RELEASED, *OF_LAYERS)
