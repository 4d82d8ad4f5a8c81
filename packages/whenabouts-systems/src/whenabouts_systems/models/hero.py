"""HERO (Li et al., EMNLP 2020): find moments by the spoken sentences and the clips shown meanwhile.

With `text_encoder` set, the whole system reads the subtitles of a video (`ClipBatch.sentences`). A
cross-modal transformer reads each sentence with its clips, then a temporal transformer reads all clips of the
video (`parts/cross_modal.py`). Queries pass through the cross-modal transformer only. `text_encoder` is the
tokenizer of sentences and queries.

Without it the system is HERO's head: it gets one vector for each clip, and words as features. One stream of
the width `hidden` is used as it is; other streams are projected (LayerNorm, linear layer, ReLU) and added up.

The head compares one vector of the query with every clip. The score of a video is its best clip's cosine. The
borders of a moment come from two convolutions over the dot products of the clips with a linear map of the
query. As in XML the convolutions begin as edge detectors (`parts/borders.py`).

HERO's program writes video scores as exp(20 * cosine). Here a video scores the cosine and a moment the
logarithm of that product: span + 20 * cosine. `released/hero.py` has the program's departures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

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
from whenabouts_systems.models.parts.packing import in_turn
from whenabouts_systems.models.parts.pretraining import (
    Pretraining,
    PretrainingHeads,
    check_shares,
    drawn_task,
    hidden_words,
    matched,
    new_places,
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
from whenabouts_systems.models.parts.roberta_start import FIRST_PLACE, begin_as_roberta
from whenabouts_systems.models.parts.text_encoder import check_words, tokens_of
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    Named,
    PaperModel,
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
    ProgramSetting,
    Share,
    Size,
)

_KEYS = "frames"


@dataclass(frozen=True)
class Config(ProgramSetting):
    """The settings of HERO; defaults are the released ones for TVR, but for `drop_spans` and `pool`."""

    streams: NamedStreams = field(default_factory=lambda: {"frames": 768})
    """Name and width of the streams. The whole system reads them side by side; see above for the head."""
    query_width: Size = 768
    """Width of words' features; unused with a `text_encoder`."""
    text_encoder: str = ""
    """Folder or hub repository of RoBERTa's tokenizer; a training begins with the weights beside it, if any.
    "": the head alone."""
    hidden: Size = 768
    heads: Size = 12
    """Heads of the query's attention."""
    cross_modal: Mapping[str, Size] = field(default_factory=dict)
    """Sizes of the cross-modal transformer that differ from the released ones (`parts/cross_modal.py`)."""
    temporal: Mapping[str, Size] = field(default_factory=dict)
    """The same for the temporal transformer."""
    max_tokens: Size = 100
    query_places: Size | None = None
    """Rows of the query's position table; None: `max_tokens`, plus one for the token before the words."""
    query_token: Count = 0
    """The token that begins a query ([CLS])."""
    sentence_token: Count = 2
    """The token that begins a sentence of a video ([SEP])."""
    context_sentences: Count = 0
    """The number of preceding sentences that are read before each sentence."""
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    span_kernel: Size = 5
    initializer_range: NotNegative = 0.02
    video_loss: VideoLoss = "ranking"
    """"ranking": videos learn to beat negatives by a margin. "relevant-content": PREM's equations 7 and 8,
    with weights of their own (HERO* in PREM's paper)."""
    temperature: Positive = 0.01
    """t of equation 7."""
    lambda_weak: NotNegative = 0.5
    """Lambda of equation 8."""
    ranking: Kind = "hinge"
    margin: NotNegative = 0.1
    negatives: Literal["all", "drawn"] = "all"
    """Compare each query and video with all negatives of the batch, or with one drawn at random."""
    weight_negative_videos: float = 8.0
    weight_negative_queries: float = 8.0
    lambda_tl: float = 0.01
    drop_spans: Share = 0.0
    """The share of steps without the loss of borders (released for TVR: 0.8)."""
    alpha: NotNegative = 20.0
    """Weight of the video's cosine in a moment's score."""
    pool: Size | None = None
    """The `pool` hardest negatives of each query and video count `hard_weight` times, others `rest_weight`
    times; None: all count once (released: 20, from step 2,000). With "drawn" negatives the one is drawn from
    the pool."""
    hard_weight: NotNegative = 10.0
    rest_weight: NotNegative = 0.1
    pool_from_epoch: int = 0
    """The first epoch, from 0, in which `pool` applies."""
    pretraining: Mapping[str, NotNegative] = field(default_factory=dict)
    """Pre-training tasks, each with its share of the steps (`parts/pretraining.py`; released: mlm 2, mfm 2,
    fom 1, vsm 2). Empty: the system learns from queries."""
    hidden_share: Share = 0.15
    """The share of words or clips that a task hides or moves."""
    mask_token: Count = 50264
    """The token that replaces a hidden word."""
    sentences_per_video: Size = 5
    """Queries that video-subtitle matching takes from a video."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_whole:
            _sizes(self)
        check_shares(self.pretraining)
        if self.pretraining and not self.is_whole:
            raise UsageError('hero: pretraining needs words; give query = "tokenizer:NAME" and sentences')

    @property
    def takes_frames(self) -> bool:
        """Whether frames are used without a projection."""
        return list(self.streams.values()) == [self.hidden]

    @property
    def is_whole(self) -> bool:
        """Whether the system reads subtitles; else it is the head alone."""
        return bool(self.text_encoder)


class Model(PaperModel):
    """HERO with fresh weights: retriever and localizer (see `protocol`)."""

    counts_padding = False
    """Whether padding counts in the convolutions of borders."""
    first_place = FIRST_PLACE
    """The row of RoBERTa's table of places that a training takes first."""
    losses_of_tasks = Pretraining
    left_behind = ("pretraining_heads.",)
    """Parameters that a training does not take over from a pre-trained HERO."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        hidden, dropout = config.hidden, config.input_dropout
        features = sum(config.streams.values())
        self.encoder = self.pretraining_heads = None
        if config.is_whole:
            self.encoder = HierarchicalEncoder(features, hidden, dropout, config.dropout, *_sizes(config))
        projected = {} if config.is_whole or config.takes_frames else config.streams
        self.frame_projections = nn.ModuleDict(
            {name: InputProjection(width, hidden, dropout) for name, width in projected.items()}
        )
        width, places = (
            (hidden, config.max_tokens + 1) if config.is_whole else (config.query_width, config.max_tokens)
        )
        self.query_projection = InputProjection(width, hidden, dropout)
        self.query_positions = PositionEmbedding(config.query_places or places, hidden, dropout, "tokens")
        self.query_encoder = AttentionBlock(hidden, config.heads, config.dropout)
        self.pooling = ModularPooling(hidden, 1)
        self.span_query = nn.Linear(hidden, hidden)
        self.borders = BorderConvolution(config.span_kernel, convolve_padding=self.counts_padding)
        if config.pretraining:
            self.pretraining_heads = PretrainingHeads(features, hidden, _sizes(config)[0]["vocabulary"])
        initialise(self, config.initializer_range)
        self._begin()

    def _begin(self) -> None:
        """Set up what `initialise` does not."""
        self.borders.begin_at_edges()

    def begin(self) -> None:
        """Before the first step: load the weights of the RoBERTa beside the tokenizer, if any."""
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
        begin_as_roberta(of_words, config.text_encoder, layers, self.first_place)

    def check_tokenizer(self) -> None:
        """Before the first step: UsageError if the tokenizer has ids that the model does not know."""
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
        """A unit vector for search; parts `span` (Q, D) and `words` (Q, L), the weights of the words.

        Raises UsageError for ids in place of features, and the reverse.
        """
        features, mask = self._words(queries)
        words = in_turn(features, mask, self.query_projection, self.query_positions, self.query_encoder)
        vectors, weights = self.pooling(words, mask)
        pooled, counts = vectors[:, 0], weights[:, :, 0]
        if self.config.is_whole:
            # Without the token before the words.
            counts = counts[:, 1:] / counts[:, 1:].sum(1, keepdim=True).clamp(min=1e-30)
        parts = {"span": self.span_query(pooled), "words": counts}
        return QueryEncoding({_KEYS: unit(pooled)}, parts)

    def word_weights(self, queries: QueryEncoding) -> Named:
        """(Q, L), the same for every stream: the weight of each word in the query's vector."""
        return dict.fromkeys(self.config.streams, queries.parts["words"])

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys `frames` (V, T, D), unit vectors; part `frames` (V, T, D), not normalised."""
        frames = self._frames(videos)
        return VideoEncoding(videos.mask, {_KEYS: unit(frames)}, {_KEYS: videos.mask}, {_KEYS: frames})

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V): the cosine of the best frame."""
        return max_over_keys(queries, videos)

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """log P(start) and log P(end) of P pairs."""
        start, end = log_probabilities(self.border_logits(queries, videos))
        return SpanScores(start, end, videos.mask)

    def border_logits(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(2, P, T) logits of start and end, -1e10 in the padding."""
        return cast("Tensor", self.borders([queries.parts["span"]], [videos.parts[_KEYS]], videos.mask))

    def loss(self, batch: Batch) -> Losses:
        """Terms `negative_videos`, `negative_queries` and `spans`, weighted.

        In pre-training: the terms of a task drawn at random.
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
        """The terms of one task of pre-training on the videos of a batch; 0 if the task has nothing to learn.

        The term has the name of the task; "vsm" has the terms of queries, prefixed with `vsm_`.
        """
        config, videos = self.config, batch.videos
        if task == "vsm":
            spoken = self._matched(videos)
            if spoken is None:
                return {"vsm": _nothing(videos)}
            spoken = replace(spoken, epoch=batch.epoch, progress=batch.progress)
            return {f"vsm_{name}": term for name, term in self._query_terms(spoken).items()}
        assert (
            self.encoder is not None and self.pretraining_heads is not None and videos.sentences is not None
        )
        learned = self.losses_of_tasks(self.encoder, self.pretraining_heads)
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

    def _matched(self, videos: ClipBatch) -> Batch | None:
        """The queries of video-subtitle matching."""
        return matched(videos, self.config.sentences_per_video, self.config.max_tokens)

    def _span_term(self, batch: Batch, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """The negative log-probability of the true borders; 0 in a step that drops this loss."""
        dropped = self.config.drop_spans
        if self.training and dropped and float(torch.rand(())) < dropped:
            return queries.parts["span"].new_zeros(())
        logits = self.border_logits(queries, videos.take(batch.video_of))
        return weighted_mean(-at_truth(log_probabilities(logits), batch.spans), batch.weight)

    def ranking_losses(self, batch: Batch, scores: Tensor) -> Mapping[str, Tensor]:
        """(Q,) twice: the shortfall of each query's own video against other videos, and other queries.

        `scores` (Q, V). Weights are not applied.
        """
        own_video, answers = batch.video_of, self._answers(batch)
        positive = scores.gather(1, own_video[:, None])[:, 0]
        sides = {
            "negative_videos": (scores, ~answers),
            "negative_queries": (scores[:, own_video].T, ~answers[:, own_video].T),
        }
        return {
            name: self._against(positive, side, allowed, batch.epoch)
            for name, (side, allowed) in sides.items()
        }

    def _answers(self, batch: Batch) -> Tensor:
        """(Q, V) bool: the pairs that are no negatives."""
        return batch.positives

    def _against(self, positive: Tensor, scores: Tensor, allowed: Tensor, epoch: int) -> Tensor:
        """(Q,): the shortfall of positives (Q,) against their allowed negatives among `scores` (Q, C).

        A query without negatives has loss 0. A pool weighs "all" negatives by their rank.
        """
        config = self.config
        pool = config.pool if epoch >= config.pool_from_epoch else None
        if config.negatives == "drawn":
            negatives = draw_negatives(scores, allowed, pool)
            return against_negatives(positive, negatives, margin=config.margin, kind=config.ranking)
        lacking = shortfall(positive[:, None], scores, margin=config.margin, kind=config.ranking)
        if pool is not None:
            # Ranks are among the negatives, by score (ties: by column).
            ranked = scores.detach().masked_fill(~allowed, -torch.inf)
            hardest = ranked.argsort(dim=1, descending=True, stable=True)[:, :pool]
            counts = torch.full_like(scores, config.rest_weight).scatter(1, hardest, config.hard_weight)
            lacking = lacking * counts
        return lacking.masked_fill(~allowed, 0.0).sum(1) / allowed.sum(1).clamp(min=1)

    def _words(self, queries: QueryBatch) -> tuple[Tensor, Tensor]:
        """(Q, L, D) the input of the query's attention, and its mask."""
        check_words(queries, reads_ids=self.encoder is not None)
        if self.encoder is None:
            return queries.tokens, queries.mask
        first = torch.full_like(queries.tokens[:, :1], self.config.query_token)
        ids = torch.cat([first, queries.tokens.masked_fill(~queries.mask, 0)], 1)
        mask = torch.cat([torch.ones_like(queries.mask[:, :1]), queries.mask], 1)
        return self.encoder.cross_modal.read(ids, mask), mask

    def sequences(self, videos: ClipBatch) -> Sequences:
        """The input of the cross-modal transformer.

        Raises UsageError for videos without sentences.
        """
        if videos.sentences is None:
            raise UsageError(
                'hero reads sentences: name their file in [features] sentences = "FILE", or the whole system '
                "cannot be used here"
            )
        config = self.config
        return sequences_of(videos.sentences, config.sentence_token, context=config.context_sentences)

    def _frames(self, videos: ClipBatch) -> Tensor:
        """(V, T, D) the clips that queries are compared with, zeros in the padding."""
        config = self.config
        if self.encoder is not None:
            encoded = self.encoder(self._features(videos), videos.mask, self.sequences(videos))
            return cast("Tensor", encoded)
        if config.takes_frames:
            (name,) = config.streams
            given = videos.streams[name]
            return given if self.counts_padding else given.masked_fill(~videos.mask[..., None], 0.0)
        projected = [
            projection(videos.streams[name], videos.mask)
            for name, projection in self.frame_projections.items()
        ]
        return torch.stack(projected).sum(0)

    def _features(self, videos: ClipBatch) -> Tensor:
        """(V, T, F): the streams side by side."""
        return torch.cat([videos.streams[name] for name in self.config.streams], 2)


def _nothing(videos: ClipBatch) -> Tensor:
    """0, for a batch that a task cannot learn from."""
    return torch.zeros((), device=videos.mask.device, requires_grad=True)


def _sizes(config: Config) -> tuple[dict[str, int], dict[str, int]]:
    """All sizes of the cross-modal and the temporal transformer; UsageError for wrong ones."""
    return (
        sizes_of(config.cross_modal, CROSS_MODAL, config.hidden, "hero: cross_modal"),
        sizes_of(config.temporal, TEMPORAL, config.hidden, "hero: temporal"),
    )


def released_names(config: Config) -> Mapping[str, str]:
    """Our name of each parameter -> its name in HERO's program."""
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
