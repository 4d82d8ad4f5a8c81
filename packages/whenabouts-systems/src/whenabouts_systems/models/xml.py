"""XML (Lei et al., TVR): find videos and moments; extended by relevant pairs (Maeoki et al., paper 000).

A query becomes one vector for each stream, a video one vector for each clip and stream. A video's score is
the mean over streams of the largest cosine of the query's vector with a clip after the first encoder. Start
and end come from a convolution over the dot products with the clips after the last encoder.

Departures from the released program by default: nothing depends on padding (the similarity of padded clips is
zero before the convolution; cross-attention and convolutional encoders see only real clips), and a video or
query that is known to be positive is never drawn as a negative. `released/xml.py` follows the program. Not
included: recurrent encoders and the stacked convolutions of the released options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.borders import (
    BorderConvolution,
    BorderLinear,
    at_truth,
    log_probabilities,
)
from whenabouts_systems.models.parts.contrast import Numerator, positive_pair_contrast
from whenabouts_systems.models.parts.late_fusion import FusionModel, FusionSettings
from whenabouts_systems.models.parts.layers import (
    AttentionBlock,
    CrossAttentionBlock,
    Dropout,
    InputProjection,
    MaxPooling,
    ModularPooling,
    Pooled,
    PositionEmbedding,
    initialise,
    unit,
)
from whenabouts_systems.models.parts.packing import PackedBlock, Packing, in_turn
from whenabouts_systems.models.parts.ranking_loss import (
    Levels,
    MomentScores,
    Negatives,
    Pairs,
    Rule,
    draw_negatives,
    moment_relevance,
    pairs_of,
    relevant_likelihood,
    video_ranking_loss,
    weighted_mean,
)
from whenabouts_systems.models.parts.relevant_content import RelevantContent
from whenabouts_systems.models.parts.renaming import OF_LAYERS, renamed_parameters
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
)
from whenabouts_systems.models.settings import Size


@dataclass(frozen=True)
class Config(FusionSettings):
    """The settings of XML; defaults are the released ones, with all terms of paper 000 switched off.

    The rows of the paper's tables: "+PR" sets `lambda_rel_neg_vr`, `lambda_pos_rel_vr` and `lambda_nll_2` to
    1; "+SL" sets `lambda_vcmr` to 1; "+SL+PR" sets these and `lambda_rel_neg_vcmr`, `lambda_pos_rel_vcmr`;
    "C = 1" adds `confidence_is_one`; the ablations of tables 7 and 8 leave out some. The relevant pairs of a
    batch are used only if one of the lambdas that need them is not 0.
    """

    encoder: Literal["transformer", "cnn"] = "transformer"
    encoder_kernel: Size = 5
    merge: bool = True
    """One predictor of borders for both streams; no effect with one stream."""
    cross_attention: bool = True
    """Each stream attends to the other; no effect with one stream."""
    modular: bool = True
    """A query has a vector for each stream; otherwise one, the maximum over words in each dimension."""
    span_predictor: Literal["conv", "linear"] = "conv"
    video_loss: Literal["ranking", "contrast", "contrast-of-scores", "relevant-content"] = "ranking"
    """The loss of video scores. "ranking": the own video above a drawn negative (equation 10). "contrast":
    paper 004, C.1, all known positives in the numerator, all pairs of the batch in the denominator.
    "contrast-of-scores": the same with the numerator taken literally (see `parts/contrast.py`).
    "relevant-content": equations 7 and 8 of PREM (paper 003), with their own weights."""
    lambda_tl: float = 0.01
    spans_from_epoch: int = 0
    lambda_rel_neg_vr: float = 0.0
    lambda_pos_rel_vr: float = 0.0
    lambda_nll_2: float = 0.0
    lambda_vcmr: float = 0.0
    moment_scores: MomentScores = "log"
    """The value that equation 14 adds for a border: the logarithm of its logit, clamped to 1e-6 ("log") or
    shifted so that the lowest of the video is 1e-6 ("shift"), or the logit itself ("logits")."""
    lambda_rel_neg_vcmr: float = 0.0
    lambda_pos_rel_vcmr: float = 0.0
    confidence_is_one: bool = False
    relevant_as_negatives: bool = False
    """Whether equation 10 may draw a relevant pair as a negative, as in XML, which has no relevant pairs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.video_loss != "ranking" and (self.lambda_rel_neg_vr or self.lambda_pos_rel_vr):
            raise UsageError(
                f"xml: video_loss is {self.video_loss!r}, which cannot use relevant pairs; set "
                "lambda_rel_neg_vr and lambda_pos_rel_vr to 0, or video_loss to 'ranking'"
            )

    @property
    def uses_pairs(self) -> bool:
        """Whether the loss uses potentially relevant pairs."""
        of_moments = self.lambda_vcmr and (self.lambda_rel_neg_vcmr or self.lambda_pos_rel_vcmr)
        return bool(self.lambda_rel_neg_vr or self.lambda_pos_rel_vr or self.lambda_nll_2 or of_moments)


Borders = BorderConvolution | BorderLinear


class ConvolutionBlock(PackedBlock):
    """Depthwise and pointwise convolution, ReLU, dropout, residual LayerNorm.

    Steps after the end of a sequence count as zero, unless padding is computed, too.
    """

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.pointwise = nn.Conv1d(width, width, 1)
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(width)

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """The convolved rows (N, D), from packed rows (N, D)."""
        channels = packing.unpack(rows).transpose(1, 2)
        convolved = self.pointwise(self.depthwise(channels)).relu()
        return cast("Tensor", self.norm(self.dropout(packing.pack(convolved.transpose(1, 2))) + rows))


class Stream(nn.Module):
    """The layers of one stream: projection, encoders, and the query's map into its space."""

    def __init__(self, width: int, config: Config, *, crossed: bool, product_mask: bool) -> None:
        super().__init__()
        hidden = config.hidden
        self.projection = InputProjection(width, hidden, config.input_dropout)
        self.encoders = nn.ModuleList(_encoder(config) for _ in range(2 if crossed else 3))
        self.cross = (
            CrossAttentionBlock(hidden, config.heads, config.dropout, product_mask=product_mask)
            if crossed
            else None
        )
        self.query = nn.Linear(hidden, hidden)


class Model(FusionModel):
    """XML with fresh weights: retriever and localizer (see `protocol`)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.watched: dict[str, Tensor] = {}
        hidden, two = config.hidden, len(config.streams) == 2
        self.query_projection = InputProjection(config.query_width, hidden, config.input_dropout)
        self.query_positions = PositionEmbedding(config.max_tokens, hidden, config.input_dropout, "tokens")
        self.query_encoder = _encoder(config)
        self.clip_positions = PositionEmbedding(config.max_clips, hidden, config.input_dropout, "clips")
        crossed = two and config.cross_attention
        self.streams = nn.ModuleDict(
            {
                name: Stream(width, config, crossed=crossed, product_mask=self.counts_padding)
                for name, width in config.streams.items()
            }
        )
        count = len(config.streams)
        self.pooling = ModularPooling(hidden, count) if config.modular else MaxPooling(count)
        self.borders = nn.ModuleDict({name: self._borders() for name in _groups(config)})
        initialise(self, config.initializer_range)
        self._begin()

    def _pooled(self, queries: QueryBatch) -> Pooled:
        words = in_turn(
            queries.tokens, queries.mask, self.query_projection, self.query_positions, self.query_encoder
        )
        return cast("Pooled", self.pooling(words, queries.mask))

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys by stream: unit vectors of clips after the first encoder (V, T, D).

        Parts `clips/<stream>` (V, T, D): clips after the last encoder.
        """
        streams: dict[str, Stream] = dict(self.streams.items())
        packing = self.clip_positions.packing(videos.mask)
        first = {}
        for name, stream in streams.items():
            clips = stream.projection(packing.pack(videos.streams[name]), packing)
            first[name] = stream.encoders[0](self.clip_positions(clips, packing), packing)
        parts = {}
        for name, stream in streams.items():
            clips = first[name]
            if stream.cross is not None:
                # Clips of this stream are the queries, those of the other one keys and values.
                (other,) = (encoded for other_name, encoded in first.items() if other_name != name)
                clips = stream.cross(clips, other, packing)
            for encoder in stream.encoders[1:]:
                clips = encoder(clips, packing)
            parts[f"clips/{name}"] = packing.unpack(clips)
        keys = {name: packing.unpack(unit(clips)) for name, clips in first.items()}
        return VideoEncoding(videos.mask, keys, dict.fromkeys(keys, videos.mask), parts)

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """Log-probabilities of start and end for P pairs; their sum is the logarithm of equation 2."""
        groups = self._predictors(queries, videos)
        logits = [borders(spans, clips, videos.mask) for borders, spans, clips in groups]
        start, end = log_probabilities(torch.stack(logits).mean(0))
        return SpanScores(start, end, videos.mask)

    def loss(self, batch: Batch) -> Losses:
        """The terms of equation 9 (paper 000); terms with weight 0 are absent."""
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        pairs = self._pairs(batch)
        # Equation 1, for every query with every video of the batch.
        video_scores = self.score_videos(queries, videos)
        self.watched = {"own_cosine": video_scores.gather(1, batch.video_of[:, None]).detach().mean()}
        if self.config.video_loss == "relevant-content":
            rule = RelevantContent(self.config.temperature, self.config.lambda_weak)
            terms = dict(rule.terms(batch, queries, videos))
        else:
            terms = dict(self._video_terms(batch, video_scores, pairs))
        # Borders may be learned later than videos, when clips already carry meaning.
        if self.config.lambda_tl and batch.epoch >= self.config.spans_from_epoch:
            terms |= self._span_terms(batch, queries, videos, pairs)
        if self.config.lambda_vcmr:
            terms |= self._moment_terms(batch, queries, videos, video_scores, pairs)
        return terms

    def _pairs(self, batch: Batch) -> Pairs:
        """The potentially relevant pairs of a batch; empty if no term uses them."""
        if batch.confidence is None or not self.config.uses_pairs:
            return pairs_of(torch.zeros(0, 0, device=batch.spans.device))
        return pairs_of(batch.confidence, confidence_is_one=self.config.confidence_is_one)

    def _video_terms(self, batch: Batch, scores: Tensor, pairs: Pairs) -> Losses:
        """The terms of equation 13, or of the contrast of paper 004, from the video scores (Q, V)."""
        config, own = self.config, batch.video_of
        if config.video_loss != "ranking":
            return self._contrast_terms(batch, scores)
        # A pair within a query's own video has the positive's score, so it does not count here.
        apart = pairs.those(~batch.positives[pairs.query, own[pairs.moment]])
        # Relevant pairs are of a query with the video of another query, but negative videos are drawn among
        # all V, each once.
        candidates = self._videos_against(batch, scores)
        levels = self._levels(batch, candidates, scores[:, own], (pairs, apart))
        rule = Rule(config.margin, config.ranking, config.lambda_rel_neg_vr, config.lambda_pos_rel_vr)
        sides = (config.weight_negative_videos, config.weight_negative_queries)
        return video_ranking_loss(levels, rule, self._ranking_weight(batch), sides)

    def _contrast_terms(self, batch: Batch, scores: Tensor) -> Losses:
        """Paper 004, appendix C.1: a query's positive videos among all, its video's queries among all."""
        config = self.config
        scores, allowed, own = self._videos_against(batch, scores)
        positives = (~allowed).scatter(1, own[:, None], True)
        numerator: Numerator = "scores" if config.video_loss == "contrast-of-scores" else "exponentials"
        weight = self._ranking_weight(batch)
        sides = {
            "negative_videos": (config.weight_negative_videos, scores, positives),
            "negative_queries": (config.weight_negative_queries, scores[:, own].T, positives[:, own].T),
        }
        return {
            name: factor * weighted_mean(positive_pair_contrast(side, related, numerator), weight)
            for name, (factor, side, related) in sides.items()
        }

    def _moment_terms(
        self, batch: Batch, queries: QueryEncoding, videos: VideoEncoding, video_scores: Tensor, pairs: Pairs
    ) -> Losses:
        """Equation 15 times lambda_vcmr; `video_scores` are (Q, V)."""
        config = self.config
        logits, lowest = self._moment_logits(batch, self._predictors(queries, videos))
        scores = video_scores[:, batch.video_of]
        relevance = moment_relevance(logits, scores, config.alpha, config.moment_scores, lowest)
        columns = torch.arange(len(batch), device=relevance.device)
        candidates = (relevance, self._moments_allowed(batch), columns)
        levels = self._levels(batch, candidates, relevance, (pairs, pairs))
        rule = Rule(config.margin, config.ranking, config.lambda_rel_neg_vcmr, config.lambda_pos_rel_vcmr)
        terms = video_ranking_loss(levels, rule, self._ranking_weight(batch))
        return {f"moment_{name}": config.lambda_vcmr * term for name, term in terms.items()}

    def _moment_logits(
        self, batch: Batch, groups: Sequence[tuple[Borders, list[Tensor], list[Tensor]]]
    ) -> tuple[Tensor, Tensor | None]:
        """(2, Q, Q) logits at each moment's start and end; with "shift" also its video's lowest."""
        if self.config.moment_scores != "shift":
            # This computes only two logits for each of Q x Q moments, and no softmax.
            places = (batch.video_of, batch.spans)
            logits = [borders.at(spans, last, places) for borders, spans, last in groups]
            return torch.stack(logits).mean(0), None
        # Both come from one tensor: with different rounding, a logit could be below the lowest.
        count, mask = len(batch), batch.videos.mask
        rows = torch.arange(count, device=mask.device)
        pairs = (rows.repeat_interleave(count), batch.video_of.repeat(count))
        logits = [borders.some(spans, last, mask, pairs) for borders, spans, last in groups]
        every = torch.stack(logits).mean(0)
        lowest = every.masked_fill(~mask[pairs[1]], torch.inf).amin(2).view(2, count, count)
        chosen = batch.spans.T.repeat(1, count)[..., None]
        return every.gather(2, chosen).view(2, count, count), lowest

    def _span_terms(
        self, batch: Batch, queries: QueryEncoding, videos: VideoEncoding, pairs: Pairs
    ) -> Losses:
        """Equation 18 times lambda_tl, term by term."""
        config, own, mask = self.config, batch.video_of, batch.videos.mask
        groups = self._predictors(queries, videos)
        # Equation 16: start and end are softmaxes over the clips of the query's own video.
        logits = [
            predictor(spans, [stream[own] for stream in last], mask[own]) for predictor, spans, last in groups
        ]
        truth = at_truth(log_probabilities(torch.stack(logits).mean(0)), batch.spans)
        terms = {"spans": config.lambda_tl * -weighted_mean(truth, batch.weight)}
        if config.lambda_nll_2:
            # Equation 17: the same for query i in the video of moment j, for each relevant pair (i, j).
            chosen = (pairs.query, own[pairs.moment])
            some = [predictor.some(spans, last, mask, chosen) for predictor, spans, last in groups]
            likely = at_truth(log_probabilities(torch.stack(some).mean(0)), batch.spans[pairs.moment])
            relevant = relevant_likelihood(likely, pairs.confidence)
            terms["relevant_spans"] = config.lambda_tl * config.lambda_nll_2 * relevant
        return terms

    def _predictors(
        self, queries: QueryEncoding, videos: VideoEncoding
    ) -> list[tuple[Borders, list[Tensor], list[Tensor]]]:
        """Each predictor of borders with the queries' vectors and the videos' last clips of its streams."""
        return [
            (
                cast("Borders", self.borders[group]),
                [queries.parts[f"span/{name}"] for name in names],
                [videos.parts[f"clips/{name}"] for name in names],
            )
            for group, names in _groups(self.config).items()
        ]

    def _levels(
        self,
        batch: Batch,
        candidates: tuple[Tensor, Tensor, Tensor],
        square: Tensor,
        relevant: tuple[Pairs, Pairs],
    ) -> Levels:
        """The scores that ranking losses compare, with negatives drawn from candidates (Q, C) and R (Q, Q).

        `candidates` are their scores, which are allowed, and each query's own column. `square` is R, whose
        columns give each moment a negative query. `relevant` are pairs that are not drawn, and those of them
        that are compared.
        """
        (scores, every, columns), (excluded, pairs) = candidates, relevant
        pool = self.config.pool_in(batch.epoch)

        def drawn(allowed: Tensor) -> tuple[Negatives, Negatives]:
            # Rows of R are queries, so its columns, transposed, give each moment a negative query.
            return draw_negatives(scores, allowed, pool), draw_negatives(
                square.T, allowed[:, columns].T, pool
            )

        places = (excluded.query, columns[excluded.moment])
        of_queries, of_moments = drawn(every.index_put(places, torch.zeros_like(every[0, 0])))
        return Levels(
            positive=square.diagonal(),
            relevant=square[pairs.query, pairs.moment],
            pairs=pairs,
            of_queries=of_queries,
            of_moments=of_moments,
            of_all=drawn(every) if self.config.relevant_as_negatives and len(excluded) else None,
        )

    def _borders(self) -> Borders:
        if self.config.span_predictor == "linear":
            return BorderLinear(self.config.hidden)
        return BorderConvolution(self.config.span_kernel, convolve_padding=self.counts_padding)

    def _videos_against(self, batch: Batch, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores (Q, C) of candidates for negative videos, the allowed ones, and each query's column (Q,)."""
        return scores, ~batch.positives, batch.video_of

    def _moments_allowed(self, batch: Batch) -> Tensor:
        """(Q, Q): the queries whose moments may be negatives of a query."""
        return ~batch.positives[:, batch.video_of]


def released_names(config: Config) -> Mapping[str, str]:
    """Our name of each parameter -> its name in the released program, for a model with these settings.

    Streams keep their names: the released ones are `video` and `sub`.
    """
    # The convolutional encoder's LayerNorm has another place than that of `layers.py`.
    convolutional = ((r"(_encoder\d?)\.norm\.", r"\1.layer_norm."),) if config.encoder == "cnn" else ()
    return renamed_parameters(lambda: Model(config), (*_RELEASED, *convolutional, *OF_LAYERS))


_RELEASED = (
    (r"^streams\.(\w+)\.encoders\.0\.", r"\1_encoder1."),
    (r"^streams\.(\w+)\.encoders\.1\.", r"\1_encoder2."),
    (r"^streams\.(\w+)\.encoders\.2\.", r"\1_encoder3."),
    (r"^streams\.(\w+)\.cross\.", r"\1_cross."),
    (r"^streams\.(\w+)\.query\.", r"\1_query_linear."),
    (r"^(?:streams\.)?(\w+)[._]projection\.", r"\1_input_proj."),
    (r"_encoder(\d?)\.(depthwise|pointwise)\.", r"_encoder\1.conv.\2_conv."),
    (r"^clip_positions\.", "ctx_pos_embed."),
    (r"^query_positions\.", "query_pos_embed."),
    (r"^borders\.(\w+)\.start\.", r"\1_st_predictor."),
    (r"^borders\.(\w+)\.end\.", r"\1_ed_predictor."),
    (r"^borders\.(\w+)\.start_of_query\.", r"\1_st_predictor.0."),
    (r"^borders\.(\w+)\.start_of_clip\.", r"\1_st_predictor.1."),
    (r"^borders\.(\w+)\.end_of_query\.", r"\1_ed_predictor.0."),
    (r"^borders\.(\w+)\.end_of_clip\.", r"\1_ed_predictor.1."),
)


def _encoder(config: Config) -> PackedBlock:
    if config.encoder == "cnn":
        return ConvolutionBlock(config.hidden, config.encoder_kernel, config.dropout)
    return AttentionBlock(config.hidden, config.heads, config.dropout)


def _groups(config: Config) -> Mapping[str, list[str]]:
    """Predictors of borders by name, with the streams each serves."""
    names = list(config.streams)
    return {"merged": names} if config.merge and len(names) == 2 else {name: [name] for name in names}
