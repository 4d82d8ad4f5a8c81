"""Base class and settings of the localizers CONQUER and SQuiDNet, with their layers, scores and loss.

One transformer encodes the clips of all streams (pictures, speech) together, another one the words of the
query. Only clips are stored, and there are no search keys. Each pair of a query and a video is then scored by
itself. The query weighs the streams (NetVLAD, a softmax over streams), and the subclass compares clips with
words (`compared`). Further layers give logits of start and end; the end also sees the start's features. With
the measure `own_score` they also give a logit of the video.

Shapes as in `protocol`; P pairs, S streams, H the setting `hidden`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.bert import BertEncoder, ProjectedEncoder, TypedPositions
from whenabouts_systems.models.parts.borders import MASKED, BorderScore, log_probabilities
from whenabouts_systems.models.parts.joint_streams import JointStreams
from whenabouts_systems.models.parts.layers import Dropout, InputProjection, initialise, unit
from whenabouts_systems.models.parts.ranking_loss import weighted_mean
from whenabouts_systems.models.parts.renaming import OF_BERT, Patterns, renamed_by_place
from whenabouts_systems.models.parts.shared_norm import (
    CandidateVideos,
    candidates_of,
    shared_entropies,
    video_entropies,
)
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    PaperModel,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
    few_pairs,
)
from whenabouts_systems.models.settings import (
    NotNegative,
    ProgramSetting,
    Share,
    Size,
    UpToTwoStreams,
    name_of_system,
)

_WORDS_TYPE = 1


@dataclass(frozen=True)
class PairSettings(ProgramSetting):
    """Settings of both systems; the defaults are the released ones for TVR."""

    streams: UpToTwoStreams = field(default_factory=lambda: {"video": 4352, "sub": 768})
    """Name and width of one stream or two: pictures, then subtitles."""
    query_width: Size = 768
    hidden: Size = 768
    heads: Size = 12
    feedforward: Size | None = None
    """Width inside the feed-forward parts; None: four times `hidden`, as in BERT."""
    layers: Size = 1
    """Layers of each of the encoders."""
    clusters: Size = 32
    """Centres to which words are pooled for the weights of streams."""
    span_hidden: Size = 128
    """Width between a border's two convolutions, and before the last layer of the video's logit."""
    span_kernel: Size = 5
    max_clips: Size = 100
    max_tokens: Size = 30
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    initializer_range: NotNegative = 0.02
    alpha: NotNegative = 1.0
    """Weight of the retriever's score of the video in a moment's score, with a measure that adds the two."""
    lambda_tl: float = 0.01
    """Weight of the loss of start and end."""


class PairLogits(NamedTuple):
    """Logits of P pairs: `borders` (2, P, T), -1e10 in the padding; `video` (P,) or None."""

    borders: Tensor
    video: Tensor | None


class WordClusters(nn.Module):
    """Pools words to their differences from K centres (NetVLAD, Arandjelovic et al., CVPR 2016).

    A word is assigned to centres by the softmax of a LayerNorm of its K products with `assignment`. For each
    centre the weighted differences of all words are added up and normalised, then all centres together.
    """

    def __init__(self, width: int, clusters: int) -> None:
        super().__init__()
        self.assignment = nn.Parameter(torch.randn(width, clusters) / width**0.5)
        self.centres = nn.Parameter(torch.randn(1, width, clusters) / width**0.5)
        self.norm = nn.LayerNorm(clusters)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """(Q, D * K), the K values of each dimension side by side, from words (Q, L, D), `mask` (Q, L)."""
        shares = self.norm(words @ self.assignment).softmax(-1) * mask[..., None]
        gathered = torch.einsum("qld,qlk->qkd", words, shares)
        away = gathered - shares.sum(1)[..., None] * self.centres.transpose(1, 2)
        return unit(unit(away).transpose(1, 2).flatten(1))


class StreamWeights(nn.Module):
    """The weight of each stream for a query; the weights sum to 1."""

    def __init__(self, width: int, clusters: int, streams: int, dropout: float) -> None:
        super().__init__()
        self.clusters = WordClusters(width, clusters)
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(width * clusters, streams, bias=False)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """(Q, S) from words (Q, L, D) with `mask` (Q, L)."""
        weights: Tensor = self.linear(self.dropout(self.clusters(words, mask))).float()
        return weights.softmax(-1)


def attention_flow(
    table: Tensor, clips: Tensor, words: Tensor, clip_mask: Tensor, attended: Tensor
) -> tuple[Tensor, Tensor]:
    """(P, T, D): words as each clip attends to them; and (P, 1, D): clips as the query attends to them.

    Bidirectional attention flow (Seo et al., ICLR 2017), for CONQUER and SQuiDNet. `clips` are (P, T, D),
    `words` (P, L, D), `table` (P, T, L) their similarities. A clip attends to the words by its similarities;
    the query attends to the clips by each clip's best word. `clip_mask` is (P, T); `attended` (P, T or 1, L)
    marks the words that clips attend to. A clip without such words attends to all words equally, padded ones
    included.
    """
    table = table.float().masked_fill(~attended, MASKED)
    of_words = torch.bmm(table.softmax(2).to(words.dtype), words)
    best = table.amax(2).masked_fill(~clip_mask, MASKED).softmax(1)
    return of_words, torch.einsum("pt,ptd->pd", best.to(clips.dtype), clips)[:, None]


class PairModel(PaperModel):
    """A localizer (see `protocol`). A subclass adds the layers of `compared`, then calls `add_heads`."""

    clips_at_once: ClassVar[int] = 1 << 10
    """The most clips, with padding, that are scored at once, to limit the memory."""
    own_score: ClassVar[str]
    """The value of `measure` with which the model itself scores videos, which needs negatives in training."""
    other_measures: ClassVar[str]
    """The other values of `measure`, for messages."""

    def __init__(self, config: Any, weighs: bool) -> None:
        super().__init__()
        self.config = config
        hidden, dropout = config.hidden, config.input_dropout
        self.query_projection = InputProjection(config.query_width, hidden, dropout)
        self.query_positions = TypedPositions(config.max_tokens, hidden, dropout, "tokens")
        self.query_encoder = _encoder(config)
        self.video_encoder = JointStreams(config.streams, hidden, config.max_clips, dropout, _encoder(config))
        self.stream_weights = (
            StreamWeights(hidden, config.clusters, len(config.streams), config.dropout) if weighs else None
        )

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Parts `tokens` (Q, L, H), `mask` (Q, L) and, if streams are weighed, `stream_weights` (Q, S)."""
        tokens, mask = queries.tokens, queries.mask
        words = self.query_positions(self.query_projection(tokens, mask), mask, _WORDS_TYPE)
        words = self.query_encoder(words, mask)
        parts = {"tokens": words, "mask": mask}
        if self.stream_weights is not None:
            parts["stream_weights"] = self.stream_weights(words, self._pooled(mask))
        return QueryEncoding({}, parts)

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Parts `clips/<stream>` (V, T, H)."""
        encoded = self.video_encoder(videos)
        return VideoEncoding(videos.mask, parts={f"clips/{name}": clips for name, clips in encoded.items()})

    def add_heads(self, vectors: int, video_score: Callable[[], nn.Module]) -> None:
        """Add the layers after `compared`, which gives `vectors` vectors for each clip; draw all weights."""
        config, hidden = self.config, self.config.hidden
        self.context = projected(vectors * hidden, config)
        self.start_features = projected((vectors + 1) * hidden, config)
        self.end_features = projected(2 * hidden, config)
        self.start, self.end = (BorderScore(hidden, config.span_hidden, config.span_kernel) for _ in range(2))
        self.video_score = video_score() if config.measure == self.own_score else None
        initialise(self, config.initializer_range)

    def compared(self, clips: Tensor, queries: QueryEncoding, mask: Tensor) -> Tensor:
        """(P, T, vectors * H): clips (P, T, H), with their mask, compared with the words of the same pair."""
        raise NotImplementedError

    def pair_logits(self, queries: QueryEncoding, videos: VideoEncoding) -> PairLogits:
        """The logits of P pairs: row p of `queries` with row p of `videos`."""
        mask = videos.mask
        aware = self.compared(self._fused(queries, videos), queries, mask)
        context = self.context(aware, mask)
        both = torch.cat([aware, context], dim=2)
        start = self.start_features(both, mask)
        # The end also depends on the start's features, because a moment does not end before it starts.
        end = self.end_features(torch.cat([context, start], dim=2), mask)
        logits = torch.stack([self.start(start), self.end(end)])
        video = None if self.video_score is None else self.video_score(both, mask, self._pooled(mask))
        return PairLogits(logits.masked_fill(~mask, MASKED), video)

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """Scores of P pairs, a few at a time; with `own_score` those of start include the video's score."""
        parts = [self.pair_logits(*some) for some in few_pairs(queries, videos, self.clips_at_once)]
        start, end = self.of_borders(torch.cat([part.borders for part in parts], dim=1).float())
        of_videos = [part.video for part in parts if part.video is not None]
        if of_videos:
            start = start + self.of_videos(torch.cat(of_videos).float())[:, None]
        return SpanScores(start, end, videos.mask)

    def _fused(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(P, T, H): the streams of each pair's video, weighted by its query; else their mean."""
        clips = torch.stack([videos.parts[f"clips/{name}"] for name in self.config.streams])
        weights = queries.parts.get("stream_weights")
        return clips.mean(0) if weights is None else (clips * weights.T[:, :, None, None]).sum(0)

    def of_borders(self, logits: Tensor) -> Tensor:
        """(2, P, T): what start and end contribute to a moment's score, from their logits (2, P, T)."""
        return log_probabilities(logits)

    def of_videos(self, logits: Tensor) -> Tensor:
        """(P,): what the videos contribute to a moment's score, from their logits (P,)."""
        return logits

    def loss(self, batch: Batch) -> Losses:
        """Terms `spans` and, if the measure is `own_score`, `videos`.

        Raises UsageError if the measure needs negatives and there are none.
        """
        config = self.config
        if config.measure == self.own_score and batch.negatives is None:
            raise UsageError(
                f'{name_of_system(config)}: measure = "{self.own_score}" needs negatives, and this training '
                f"has none; use {self.other_measures}, or give negatives"
            )
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        candidates = self._candidates(batch)
        query, place = candidates.pairs()
        logits = self.pair_logits(queries.take(query), videos.take(candidates.rows[query, place]))
        # Shared normalisation: one softmax over the clips of the query's video and of the negatives.
        spans = shared_entropies(logits.borders, candidates, batch.spans).sum(0)
        terms = {"spans": config.lambda_tl * weighted_mean(spans, batch.weight)}
        if logits.video is not None:
            of_videos = video_entropies(logits.video, candidates)
            terms["videos"] = config.lambda_video * weighted_mean(of_videos, batch.weight)
        return terms

    def _pooled(self, mask: Tensor) -> Tensor:
        """The mask of the clips or words that are pooled."""
        return mask

    def _attended(self, clip_mask: Tensor, word_mask: Tensor) -> Tensor:
        """(P, T or 1, L): the words that each clip attends to."""
        return word_mask[:, None]

    def _candidates(self, batch: Batch) -> CandidateVideos:
        """The videos over which the loss takes its softmax."""
        return candidates_of(batch)


def _encoder(config: Any) -> BertEncoder:
    hidden = config.hidden
    return BertEncoder(config.layers, hidden, config.heads, config.feedforward or 4 * hidden, config.dropout)


def projected(features: int, config: Any) -> ProjectedEncoder:
    """An encoder of rows of `features` values, which are first projected to `hidden` values."""
    return ProjectedEncoder(features, config.hidden, config.dropout, _encoder(config))


def pair_names(
    model: Callable[[], PairModel],
    streams: Mapping[str, str],
    prefixes: tuple[str, str, str],
    places: Patterns,
) -> Mapping[str, str]:
    """Our name of each parameter -> its name in a released program.

    `streams` has the program's name of each stream's projection. `prefixes` are the program's for the encoder
    of clips, the encoder of words, and the weights of streams. `places` rename the other layers by prefix.
    """
    clips, words, weights = prefixes
    shared = (
        *((f"video_encoder.projections.{stream}.", f"{clips}{kind}.") for stream, kind in streams.items()),
        ("video_encoder.positions.", f"{clips}transformer.embeddings."),
        ("video_encoder.encoder.", f"{clips}transformer.encoder."),
        ("query_projection.", f"{words}linear."),
        ("query_positions.", f"{words}transformer.embeddings."),
        ("query_encoder.", f"{words}transformer.encoder."),
        ("stream_weights.clusters.assignment", f"{weights}text_pooling.clusters"),
        ("stream_weights.clusters.centres", f"{weights}text_pooling.clusters2"),
        ("stream_weights.clusters.norm.", f"{weights}text_pooling.LayerNorm."),
    )
    return renamed_by_place(model, (*shared, *places), OF_BERT)
