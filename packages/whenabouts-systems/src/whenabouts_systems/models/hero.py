"""HERO (Li et al., EMNLP 2020): videos and moments from what is seen while sentences are said.

Whole, it reads the words of a video as they are, sentence by sentence (`ClipBatch.sentences`). A cross-modal
transformer sees a sentence together with the clips that it covers, a temporal transformer all clips of the
video (`parts/cross_modal.py`); queries pass through the cross-modal one alone. A setting decides:
`text_encoder` is the tokenizer of words and queries. Without it ("") the system is HERO's head alone: it is
given one vector for each clip, whatever made them, and words as features. `frames` of the width `hidden` are
taken as they are; those of another width, or of several streams, are projected first (LayerNorm, linear
layer, ReLU, and the sum over the streams).

What makes a retriever and a localizer of clips is small: one vector of the query is compared with all of
them. A video scores its best clip's cosine, a moment's borders come from two convolutions over the dot
products of its clips with a linear map of the query.

Where the released program differs, and `as_released` restores it: it convolves what lies in the padding, so
that the last frames' logits depend on it; a video's queries must stand next to each other and be equally
many; and of the batch only a query's own video is spared as a negative. Here every pair that is known to be
positive is spared, whatever the order. Like XML's, the borders' convolutions begin as edges here, and at
random there (`parts/borders.py`).

HERO's program writes video scores as exp(20 * cosine). Here a video scores the cosine, and a moment the
logarithm of that product: span + 20 * cosine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.borders import BorderConvolution, at_truth, log_probabilities
from whenabouts_systems.models.parts.cross_modal import (
    CROSS_MODAL,
    TEMPORAL,
    HierarchicalEncoder,
    Sequences,
    sequences_of,
    sizes_of,
)
from whenabouts_systems.models.parts.layers import (
    AttentionBlock,
    InputProjection,
    ModularPooling,
    PositionEmbedding,
    initialise,
    unit,
)
from whenabouts_systems.models.parts.packing import compute_padding, in_turn
from whenabouts_systems.models.parts.pretraining import (
    Pretraining,
    PretrainingHeads,
    drawn_task,
    hidden_words,
    matched,
    new_places,
    shares_of,
    some_of,
)
from whenabouts_systems.models.parts.ranking_loss import (
    Kind,
    against_negatives,
    draw_negatives,
    shortfall,
    weighted_mean,
)
from whenabouts_systems.models.parts.relevant_content import RelevantContent, VideoLoss
from whenabouts_systems.models.parts.renaming import OF_BERT, renamed_by_place
from whenabouts_systems.models.parts.roberta_start import begin_as_roberta
from whenabouts_systems.models.parts.text_encoder import tokens_of
from whenabouts_systems.models.protocol import (
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
from whenabouts_systems.models.settings import (
    Count,
    NamedStreams,
    NotNegative,
    Positive,
    Share,
    Size,
    check_settings,
)

__all__ = ["Config", "Model", "released_names"]

_KEYS = "frames"


@dataclass(frozen=True)
class Config:
    """The settings of HERO; defaults are the released ones for TVR."""

    streams: NamedStreams = field(default_factory=lambda: {"frames": 768})
    """Name and width of the given representations; the head takes one stream of the width `hidden` as it is.
    The whole system reads all streams of a clip side by side, as one."""
    query_width: Size = 768
    """Width of words' features; not used where there is a `text_encoder`."""
    text_encoder: str = ""
    """The tokenizer (RoBERTa's) of sentences and queries, by the name of a folder or of a hub's repository;
    a training begins with the weights that lie beside it, if any. "": the head alone, which is given frames
    and words as features."""
    hidden: Size = 768
    heads: Size = 12
    """Those of the query's attention."""
    cross_modal: Mapping[str, Size] = field(default_factory=dict)
    """Sizes of the cross-modal transformer where they are not the released ones (`parts/cross_modal.py`)."""
    temporal: Mapping[str, Size] = field(default_factory=dict)
    """The same of the temporal transformer."""
    max_tokens: Size = 100
    query_places: Size | None = None
    """Places of the query's position table; None: `max_tokens`, and one for the token before the words."""
    query_token: Count = 0
    """The token that begins a query ([CLS])."""
    sentence_token: Count = 2
    """The token that begins a sentence of a video ([SEP])."""
    context_sentences: Count = 0
    """So many sentences before it are read in front of each sentence."""
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    span_kernel: Size = 5
    initializer_range: NotNegative = 0.02
    video_loss: VideoLoss = "ranking"
    """What videos learn: to stand above negatives by a margin, or PREM's equations 7 and 8 (HERO* of its
    paper), with their own weights."""
    temperature: Positive = 0.01
    """t of equation 7."""
    lambda_weak: NotNegative = 0.5
    """Lambda of equation 8."""
    ranking: Kind = "hinge"
    margin: NotNegative = 0.1
    negatives: Literal["all", "drawn"] = "all"
    """Each query and video is compared with all negatives of the batch, or with one that is drawn."""
    weight_negative_videos: float = 8.0
    weight_negative_queries: float = 8.0
    lambda_tl: float = 0.01
    drop_spans: Share = 0.0
    """The share of steps that learn no borders (released for TVR: 0.8)."""
    alpha: NotNegative = 20.0
    """How often the video's cosine counts in a moment's score."""
    pool: Size | None = None
    """So many of the hardest negatives of each query and video count `hard_weight` times, the others
    `rest_weight` times; None: all count alike. Where one is drawn, it is one of these."""
    hard_weight: NotNegative = 10.0
    rest_weight: NotNegative = 0.1
    pool_from_epoch: int = 0
    """The first epoch in which `pool` counts."""
    pretraining: Mapping[str, NotNegative] = field(default_factory=dict)
    """Pre-training tasks, each with its share of the steps (`parts/pretraining.py`; released: mlm 2, mfm 2,
    fom 1, vsm 2); none: the system learns from queries."""
    hidden_share: Share = 0.15
    """How many of the words or clips a task hides or moves."""
    mask_token: Count = 50264
    """The token that stands for a hidden word."""
    sentences_per_video: Size = 5
    """Queries of video-subtitle matching."""
    as_released: bool = False

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        check_settings(self, "hero")
        if self.is_whole:
            _sizes(self)
        if shares_of(self.pretraining) and not self.is_whole:
            raise UsageError('hero: pretraining needs words; give query = "tokenizer:NAME" and sentences')

    @property
    def takes_frames(self) -> bool:
        """Whether frames are taken as they are given."""
        return list(self.streams.values()) == [self.hidden]

    @property
    def is_whole(self) -> bool:
        """Whether words are read as they are; else the system is the head alone."""
        return bool(self.text_encoder)


class Model(nn.Module):
    """HERO with fresh weights: retriever and localizer (see `protocol`)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        hidden, dropout = config.hidden, config.input_dropout
        self.encoder = _encoder(config)
        projected = not config.is_whole and not config.takes_frames
        self.frame_projections = nn.ModuleDict(
            {
                name: InputProjection(width, hidden, dropout)
                for name, width in config.streams.items()
                if projected
            }
        )
        width, places = (
            (hidden, config.max_tokens + 1) if config.is_whole else (config.query_width, config.max_tokens)
        )
        self.query_projection = InputProjection(width, hidden, dropout)
        self.query_positions = PositionEmbedding(config.query_places or places, hidden, dropout, "tokens")
        self.query_encoder = AttentionBlock(hidden, config.heads, config.dropout)
        self.pooling = ModularPooling(hidden, 1)
        self.span_query = nn.Linear(hidden, hidden)
        self.borders = BorderConvolution(config.span_kernel, convolve_padding=config.as_released)
        self.pretraining_heads = _heads(config)
        initialise(self, config.initializer_range)
        if not config.as_released:
            self.borders.begin_at_edges()
        elif config.is_whole:
            compute_padding(self)

    left_behind = ("pretraining_heads.",)
    """What a training that begins with a pre-trained HERO does not take over."""

    def begin(self) -> None:
        """Before the first step: take the weights of the RoBERTa beside the tokenizer, if any."""
        config = self.config
        if self.encoder is None:
            return
        names = released_names(config)
        of_words = {
            names[name].removeprefix(_WORDS): parameter
            for name, parameter in self.named_parameters()
            if name.startswith("encoder.cross_modal.") and "clip_" not in name
        }
        layers = len(self.encoder.cross_modal.encoder.layers)
        begin_as_roberta(of_words, config.text_encoder, layers, as_released=config.as_released)

    def check_tokenizer(self) -> None:
        """Before the first step: UsageError where there are words or tokens that the model does not know."""
        if self.encoder is None:
            return
        config, vocabulary = self.config, self.encoder.cross_modal.words.num_embeddings
        largest = tokens_of(config.text_encoder).largest_id
        if largest >= vocabulary:
            raise UsageError(
                f"hero: the tokenizer {config.text_encoder} ([features] query) has words up to id {largest}; "
                f"the model knows {vocabulary}: set model.cross_modal.vocabulary = {largest + 1}, or name "
                "its own tokenizer"
            )
        names = ["query_token", "sentence_token", *(["mask_token"] if config.pretraining.get("mlm") else [])]
        for name in names:
            if (token := getattr(config, name)) >= vocabulary:
                raise UsageError(
                    f"hero: model.{name} is {token}, and the model knows {vocabulary} words "
                    f"(model.cross_modal.vocabulary), 0 to {vocabulary - 1}: set model.{name} to the "
                    "tokenizer's id of that token"
                )

    @property
    def video_weight(self) -> float:
        """Alpha: moments score log P(start) + log P(end) + alpha * cosine."""
        return self.config.alpha

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """A unit vector to search with; parts `span` (Q, D) and `words` (Q, L), what each word counts.

        Raises UsageError for ids where features are expected, and the reverse.
        """
        features, mask = self._words(queries)
        words = in_turn(features, mask, self.query_projection, self.query_positions, self.query_encoder)
        vectors, weights = self.pooling(words, mask)
        pooled, counts = vectors[:, 0], weights[:, :, 0]
        if self.config.is_whole:
            # Of the words alone: the token before them is none.
            counts = counts[:, 1:] / counts[:, 1:].sum(1, keepdim=True).clamp(min=1e-30)
        parts = {"span": self.span_query(pooled), "words": counts}
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
        """Terms `negative_videos`, `negative_queries` and `spans`; one whose weight is 0 is 0.

        Of a pre-training the terms of the task that is drawn.
        """
        if self.config.pretraining:
            return self.task_terms(drawn_task(self.config.pretraining), batch)
        return self._query_terms(batch)

    def _query_terms(self, batch: Batch) -> Losses:
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        terms = {"spans": self.config.lambda_tl * self._span_term(batch, queries, videos)}
        if self.config.video_loss == "relevant-content":
            rule = RelevantContent(self.config.temperature, self.config.lambda_weak)
            return {**terms, **rule.terms(batch, queries, videos)}
        scores = self.score_videos(queries, videos).float()
        for name, lacking in self.ranking_losses(batch, scores).items():
            terms[name] = getattr(self.config, f"weight_{name}") * weighted_mean(lacking, batch.weight)
        return terms

    def task_terms(self, task: str, batch: Batch) -> Losses:
        """The terms of one task of pre-training, of the videos of a batch; one with nothing to do is 0.

        `mlm`, `mfm`, `mffr`, `fom`, or those of queries for "vsm", behind `vsm_`.
        """
        config, videos = self.config, batch.videos
        if task == "vsm":
            spoken = matched(
                videos, config.sentences_per_video, config.max_tokens, as_released=config.as_released
            )
            if spoken is None:
                return {"vsm": _nothing(videos)}
            spoken = replace(spoken, epoch=batch.epoch, progress=batch.progress)
            return {f"vsm_{name}": term for name, term in self._query_terms(spoken).items()}
        assert (
            self.encoder is not None and self.pretraining_heads is not None and videos.sentences is not None
        )
        learned = Pretraining(self.encoder, self.pretraining_heads, config.as_released)
        features, mask = self._features(videos), videos.mask
        if task == "mlm":
            hidden = hidden_words(
                videos.sentences,
                (config.query_token, config.mask_token),
                _sizes(config)[0]["vocabulary"],
                config.hidden_share,
                config.context_sentences,
            )
            return {task: _nothing(videos) if hidden is None else learned.word_loss(features, hidden).mean()}
        drawn = (features, mask, self.sequences(videos))
        if task in ("mfm", "mffr"):
            loss = learned.clip_loss if task == "mfm" else learned.regression_loss
            return {task: loss(*drawn, some_of(mask, config.hidden_share)).mean()}
        return {task: learned.order_loss(*drawn, new_places(mask, config.hidden_share))}

    def _span_term(self, batch: Batch, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """The negative log-probability of the true borders; 0 in a step that learns none."""
        dropped = self.config.drop_spans
        if self.training and dropped and float(torch.rand(())) < dropped:
            return queries.parts["span"].new_zeros(())
        logits = self.border_logits(queries, videos.take(batch.video_of))
        return weighted_mean(-at_truth(log_probabilities(logits), batch.spans), batch.weight)

    def ranking_losses(
        self, batch: Batch, scores: Tensor, ranks: tuple[Tensor, Tensor] | None = None
    ) -> Mapping[str, Tensor]:
        """(Q,) twice: how far each query's own video fails to stand above others, and against other queries.

        `scores` (Q, V). `ranks` name the negatives that are otherwise drawn, 0 the highest. Weights of the
        terms are not applied.
        """
        own, answers = batch.video_of, batch.positives
        positive = scores.gather(1, own[:, None])[:, 0]
        if self.config.as_released:
            answers = own[:, None] == torch.arange(scores.shape[1], device=own.device)
        sides = {
            "negative_videos": (scores, ~answers),
            "negative_queries": (scores[:, own].T, ~answers[:, own].T),
        }
        return {
            name: self._against(positive, *side, batch.epoch, None if ranks is None else ranks[at])
            for at, (name, side) in enumerate(sides.items())
        }

    def _against(
        self, positive: Tensor, scores: Tensor, allowed: Tensor, epoch: int, ranks: Tensor | None
    ) -> Tensor:
        """(Q,): how far positives (Q,) fail to stand above their allowed negatives among `scores` (Q, C)."""
        config = self.config
        pool = config.pool if epoch >= config.pool_from_epoch else None
        if config.negatives == "drawn":
            negatives = draw_negatives(scores, allowed, pool, ranks)
            return against_negatives(positive, negatives, margin=config.margin, kind=config.ranking)
        weights = None if pool is None else HardWeights(pool, config.hard_weight, config.rest_weight)
        return against_all(positive, scores, allowed, config.margin, weights, config.ranking)

    def _words(self, queries: QueryBatch) -> tuple[Tensor, Tensor]:
        """(Q, L, D) what the query's attention reads, and the mask."""
        if (queries.tokens.dim() == 2) != self.config.is_whole:
            raise UsageError(
                "hero: the words of queries are "
                + ("features; the whole system" if self.config.is_whole else "ids; HERO's head")
                + " reads "
                + ('ids: query = "tokenizer:NAME"' if self.config.is_whole else "features")
            )
        if self.encoder is None:
            return queries.tokens, queries.mask
        first = torch.full_like(queries.tokens[:, :1], self.config.query_token)
        ids = torch.cat([first, queries.tokens.masked_fill(~queries.mask, 0)], 1)
        mask = torch.cat([torch.ones_like(queries.mask[:, :1]), queries.mask], 1)
        return self.encoder.cross_modal.read(ids, mask), mask

    def sequences(self, videos: ClipBatch, *, without_clips: bool = False) -> Sequences:
        """The sentences of videos as the cross-modal transformer reads them.

        Raises UsageError where the videos come without sentences.
        """
        if videos.sentences is None:
            raise UsageError(
                'hero reads sentences: name their file in [features] sentences = "FILE", or the whole system '
                "cannot be used here"
            )
        config = self.config
        return sequences_of(
            videos.sentences,
            config.sentence_token,
            context=config.context_sentences,
            without_clips=without_clips,
        )

    def _frames(self, videos: ClipBatch) -> Tensor:
        """(V, T, D) the clips that queries are compared with; zeros in the padding."""
        config = self.config
        if self.encoder is not None:
            encoded: Tensor = self.encoder(self._features(videos), videos.mask, self.sequences(videos))
            return encoded
        if config.takes_frames:
            (name,) = config.streams
            given = videos.streams[name]
            return given if config.as_released else given.masked_fill(~videos.mask[..., None], 0.0)
        projected = [
            projection(videos.streams[name], videos.mask)
            for name, projection in self.frame_projections.items()
        ]
        return torch.stack(projected).sum(0)

    def _features(self, videos: ClipBatch) -> Tensor:
        """(V, T, F): all streams of a clip side by side."""
        return torch.cat([videos.streams[name] for name in self.config.streams], 2)


def _nothing(videos: ClipBatch) -> Tensor:
    """0, for a task that a batch has nothing for."""
    return torch.zeros((), device=videos.mask.device, requires_grad=True)


def _heads(config: Config) -> PretrainingHeads | None:
    if not config.pretraining:
        return None
    vocabulary = _sizes(config)[0]["vocabulary"]
    return PretrainingHeads(sum(config.streams.values()), config.hidden, vocabulary)


def _encoder(config: Config) -> HierarchicalEncoder | None:
    if not config.is_whole:
        return None
    return HierarchicalEncoder(
        sum(config.streams.values()), config.hidden, (config.input_dropout, config.dropout), *_sizes(config)
    )


def _sizes(config: Config) -> tuple[dict[str, int], dict[str, int]]:
    """All sizes of the cross-modal and of the temporal transformer; UsageError for what makes none."""
    return (
        sizes_of(config.cross_modal, CROSS_MODAL, config.hidden, "hero: cross_modal"),
        sizes_of(config.temporal, TEMPORAL, config.hidden, "hero: temporal"),
    )


@dataclass(frozen=True)
class HardWeights:
    """The `pool` hardest negatives of each anchor count `hard` times, all others `rest` times."""

    pool: int
    hard: float = 10.0
    rest: float = 0.1


def against_all(
    positive: Tensor,
    scores: Tensor,
    allowed: Tensor,
    margin: float,
    weights: HardWeights | None = None,
    kind: Kind = "hinge",
) -> Tensor:
    """(A,): the mean shortfall of each positive (A,) against its allowed negatives among `scores` (A, C).

    `allowed` (A, C) bool. An anchor without a negative loses 0. With `weights` what each negative loses
    counts by its place among the anchor's negatives, the highest score first (equal scores: the first one).
    """
    lacking = shortfall(positive[:, None], scores, margin=margin, kind=kind)
    if weights is not None:
        lacking = lacking * _by_place(scores.detach(), allowed, weights)
    return lacking.masked_fill(~allowed, 0.0).sum(1) / allowed.sum(1).clamp(min=1)


def _by_place(scores: Tensor, allowed: Tensor, weights: HardWeights) -> Tensor:
    """(A, C): how much each negative counts."""
    order = scores.masked_fill(~allowed, -torch.inf).argsort(dim=1, descending=True, stable=True)
    counts = torch.full_like(scores, weights.rest)
    return counts.scatter(1, order[:, : weights.pool], weights.hard)


def released_names(config: Config) -> Mapping[str, str]:
    """Our name of each parameter -> its name in HERO's program; of the head for given frames alone."""
    return renamed_by_place(lambda: Model(config), _RELEASED, OF_BERT)


_QUERY, _WORDS, _VIDEO = "q_feat_attn.", "v_encoder.f_encoder.", "v_encoder.c_encoder."
_RELEASED = (
    ("query_projection.", f"{_QUERY}query_input_proj."),
    ("query_positions.table.", f"{_QUERY}query_pos_embed.position_embeddings."),
    ("query_positions.", f"{_QUERY}query_pos_embed."),
    ("query_encoder.attention.", f"{_QUERY}query_self_attention.self."),
    ("query_encoder.output.", f"{_QUERY}query_self_attention.output.dense."),
    ("query_encoder.", f"{_QUERY}query_self_attention.output."),
    ("pooling.linear.", f"{_QUERY}modular_vector_mapping."),
    ("span_query.", "video_query_linear."),
    ("borders.start.", "video_st_predictor."),
    ("borders.end.", "video_ed_predictor."),
    ("encoder.cross_modal.words.", f"{_WORDS}embeddings.word_embeddings."),
    ("encoder.cross_modal.word_places.", f"{_WORDS}embeddings.position_embeddings."),
    ("encoder.cross_modal.types.", f"{_WORDS}embeddings.token_type_embeddings."),
    ("encoder.cross_modal.word_norm.", f"{_WORDS}embeddings.LayerNorm."),
    ("encoder.cross_modal.clip_features_norm.", f"{_WORDS}img_embeddings.img_LayerNorm."),
    ("encoder.cross_modal.clip_projection.", f"{_WORDS}img_embeddings.img_linear."),
    ("encoder.cross_modal.clip_places.", f"{_WORDS}img_embeddings.position_embeddings."),
    ("encoder.cross_modal.clip_norm.", f"{_WORDS}img_embeddings.LayerNorm."),
    ("encoder.cross_modal.", _WORDS),
    ("encoder.temporal.projection.", "v_encoder.frame_transform."),
    ("encoder.temporal.positions.table.", f"{_VIDEO}embeddings.position_embeddings."),
    ("encoder.temporal.positions.", f"{_VIDEO}embeddings."),
    ("encoder.temporal.", _VIDEO),
    ("pretraining_heads.word_dense.", f"{_WORDS}lm_head.dense."),
    ("pretraining_heads.word_norm.", f"{_WORDS}lm_head.LayerNorm."),
    ("pretraining_heads.word_bias", f"{_WORDS}lm_head.bias"),
    ("pretraining_heads.clip_dense.", "v_encoder.feat_regress.net.0."),
    ("pretraining_heads.clip_norm.", "v_encoder.feat_regress.net.2."),
    ("pretraining_heads.clip_out.", "v_encoder.feat_regress.net.3."),
    ("pretraining_heads.hidden_in_sentence.", f"{_WORDS}img_embeddings.mask_embedding."),
    ("pretraining_heads.hidden_in_video.", "v_encoder.mask_embedding."),
    ("pretraining_heads.order_wide.", "v_encoder.fom_output.linear_1."),
    ("pretraining_heads.order_norm.", "v_encoder.fom_output.LayerNorm."),
    ("pretraining_heads.order_out.", "v_encoder.fom_output.linear_2."),
)
