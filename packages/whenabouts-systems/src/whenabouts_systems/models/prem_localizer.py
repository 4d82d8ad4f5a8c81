"""PREM's localizer (Hou et al., paper 003, section 3.4): first what matters in each stream, then all of it.

The second of PREM's two stages; `prem_retriever` is the first. It has encoders of its own: one transformer
for the words of the query, one for the clips of all streams of a video together. The words are pooled once
for each stream, and the pooled vector opens a gate for each clip of that stream (equation 9: *focus*). What
the gates let through is joined clip by clip (10: *fuse*). Two layers in which clips look at each other and at
the words follow, and two networks of convolutions that say how well each clip does for a start and for an
end.

A moment scores S = S^R / t + l_st + l_ed (13). l_st and l_ed are the networks' outputs, logits: the softmax
of training runs over several videos, and a logarithm of probabilities within one video would take from them
what makes videos comparable. `video_weight` is 1 / t, for the cosine that PREM's retriever gives a video.

Training (12): L = L^st + L^ed + `gamma` * L^c.

- *Shared-Norm* (11): the start is a softmax over the clips of the own video and of the negatives of the query
  (`Batch.negatives`: 4 of the retriever's first 100 on TVR, 2 on DiDeMo), and so is the end. Those known to
  answer the query are no negatives. Without negatives the softmaxes are over the own video.
- *Adversarial training*: a classifier learns to tell segments that answer from those that do not. Positive
  are all segments of the own video whose IoU with the moment is more than 0.7, in clips, of any length;
  negative are the five moments in each negative video that the localizer itself scores highest at that step
  (without suppressing those that overlap, and within the lengths of `min_moment_clips` and
  `max_moment_clips`). A segment's feature is the maximum over its clips of a transformer of the classifier's
  own; three linear layers follow. Who plays against whom is not printed. Equation 12 adds L^c to what is
  minimised: nothing is maximised, and no gradient is reversed, which would teach the encoders to hide what
  answers, where the paper wants to "heighten the localizer's attention" to it. So it is read here: the
  localizer proposes, by the choice of the negatives, which has no gradient; the classifier must refuse; and
  what both look at (clips after fusion, gates, encoders) learns with the classifier to show the difference.
  The networks of start and end get no gradient of L^c, the classifier none of L^st and L^ed. `adversary` =
  "players" is the other reading, of two players: the classifier learns alone, from features that are cut off;
  and the localizer, start and end included, learns to spread its probability over the query's segments (a
  softmax of l_st + l_ed over positives and negatives) such that the classifier, which is fixed in that term,
  approves. L^c is the mean over a query's segments of the binary cross-entropy, then over queries. A query
  that has no negative has no such term: with positives alone the classifier would learn to say yes.

What the paper leaves open, and how it is read here:

- *Clips without words* have a vector of zeros, as printed, and go the way of all others: LayerNorm, linear
  layer and places make of it "here nobody speaks", and the transformer puts what is said before and after
  beside it. A video without any words is one pause. `pauses` = "nothing": what a clip has nothing of in a
  stream passes no gate there.
- *The classifier's transformer* ("another Transformer") has one layer and reads what start and end are read
  from.
- *Networks of start and end*: a convolution over `span_kernel` clips to `span_hidden` values, ReLU, a linear
  layer.
- *Architecture*: "vanilla transformer", LayerNorm after each part, ReLU inside. Before it features go through
  LayerNorm, linear layer and ReLU, as in XML, HERO and CONQUER; the paper names a fully connected layer.
  The paper names no dropout; it is theirs.
- *Losses* are means over the queries of a batch; `weight` multiplies all terms of a query (paper 004).

There is no released program, and so no `as_released`.

Shapes as in `protocol`; S streams, G gates (one a stream), H the width inside, N real clips of all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.types import UsageError
from whenabouts_systems.models.decoding import Decoding, best_spans
from whenabouts_systems.models.parts.borders import BorderNetworks
from whenabouts_systems.models.parts.joint_streams import JointStreams
from whenabouts_systems.models.parts.layers import (
    InputProjection,
    ModularPooling,
    PositionEmbedding,
    initialise,
    unit,
)
from whenabouts_systems.models.parts.packing import PackedModule, in_turn
from whenabouts_systems.models.parts.ranking_loss import weighted_mean
from whenabouts_systems.models.parts.relevant_segments import overlapping_segments, segment_maxima
from whenabouts_systems.models.parts.shared_norm import CandidateVideos, candidates_of, shared_entropies
from whenabouts_systems.models.parts.transformer import TransformerEncoder, perceptron
from whenabouts_systems.models.parts.words_and_clips import WordsAndClips
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    Named,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
)
from whenabouts_systems.models.settings import (
    NotNegative,
    Positive,
    Share,
    Size,
    UpToTwoStreams,
    check_settings,
)

__all__ = ["Config", "Model", "PairLogits"]

Order = Literal["focus-then-fuse", "fuse-then-focus"]
Fusion = Literal["linear", "mean"]
Adversary = Literal["together", "players"]
Pauses = Literal["context", "nothing"]

_CLIPS = 1 << 12
"""Clips that are scored at once: some 150 MB at the published size."""


@dataclass(frozen=True)
class Config:
    """The settings of PREM's localizer; the defaults are the published ones for TVR.

    Table 6: one of the two `streams`; `gates` off; `gamma` = 0 (no adversarial training); `shared_norm` off.
    """

    streams: UpToTwoStreams = field(default_factory=lambda: {"video": 4352, "sub": 768})
    """Name and width of one stream or of two: what is seen, then what is said."""
    query_width: Size = 768
    hidden: Size = 384
    heads: Size = 4
    feedforward: Size = 1536
    layers: Size = 1
    """Layers of the transformer of words and of that of clips."""
    fusion_layers: Size = 2
    classifier_layers: Size = 1
    span_hidden: Size = 128
    span_kernel: Size = 5
    max_clips: Size = 100
    max_tokens: Size = 30
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    initializer_range: NotNegative = 0.02
    gates: bool = True
    """Equation 9; else all clips pass as they are."""
    order: Order = "focus-then-fuse"
    """"fuse-then-focus": streams are joined first, and one gate follows, opened by all words alike."""
    fusion: Fusion = "linear"
    """Equation 10; or the mean of the streams."""
    pauses: Pauses = "context"
    temperature: Positive = 0.01
    """t of equation 13: the retriever's score is divided by it."""
    shared_norm: bool = True
    """Start and end are softmaxes over the clips of the negatives too; else over the own video's alone."""
    gamma: NotNegative = 0.8
    """Weight of the adversarial loss; 0: there is none, and no classifier."""
    adversary: Adversary = "together"
    positive_iou: Share = 0.7
    """Segments of more overlap with the moment are the classifier's positives."""
    negative_moments: Size = 5
    """How many of the best moments of each negative video are its negatives ..."""
    min_moment_clips: Size = 1
    max_moment_clips: Size | None = 24
    """... and their lengths in clips (none: any)."""

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        check_settings(self, "prem_localizer")
        most = self.max_moment_clips
        if most is not None and most < self.min_moment_clips:
            raise UsageError(
                f"prem_localizer: max_moment_clips is {most}; accepted: "
                f"{self.min_moment_clips} or more, or none"
            )

    @property
    def gated(self) -> int:
        """G, how many gates there are."""
        if not self.gates:
            return 0
        return len(self.streams) if self.order == "focus-then-fuse" else 1

    @property
    def proposed(self) -> Decoding:
        """Which moments of negative videos the classifier sees."""
        return Decoding(min_clips=self.min_moment_clips, max_clips=self.max_moment_clips)


class PairLogits(NamedTuple):
    """Logits of P pairs: `borders` (2, P, T), -1e10 in the padding, from `clips` (P, T, H), `mask` (P, T)."""

    borders: Tensor
    clips: Tensor
    mask: Tensor


class Focus(PackedModule):
    """What of the clips matters to a query: modality-specific gates, and the streams made one.

    In the order of equations 9 and 10, or the other way round.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, count = config.hidden, len(config.streams)
        self.gates = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(config.gated))
        self.linear = nn.Linear(count * hidden, hidden) if config.fusion == "linear" else None
        self.first = config.order == "focus-then-fuse"

    def forward(self, streams: list[Tensor], pooled: Tensor | None, mask: Tensor) -> Tensor:
        """(P, T, H) fused clips from the S streams' (P, T, H) each, with their mask (P, T).

        `pooled` (P, G, H) are the queries' vectors, None without gates.
        """
        packing = self.packing(mask)
        rows, owner = [packing.pack(clips) for clips in streams], packing.sequences()
        if self.first:
            rows = self.gated(rows, pooled, owner)
        fused = self._fused(rows)
        return packing.unpack(fused if self.first else self.gated([fused], pooled, owner)[0])

    def shares(self, streams: list[Tensor], pooled: Tensor | None, mask: Tensor) -> list[Tensor]:
        """(P, T) by stream: its share of what is fused, of streams as in `forward`."""
        packing = self.packing(mask)
        rows = [packing.pack(clips) for clips in streams]
        if self.first:
            rows = self.gated(rows, pooled, packing.sequences())
        lengths = torch.stack([part.norm(dim=1) for part in self._parts_of(rows)])
        shares = lengths / lengths.sum(0).clamp(min=torch.finfo(lengths.dtype).tiny)
        return [packing.unpack(share) for share in shares]

    def gated(self, clips: list[Tensor], pooled: Tensor | None, owner: Tensor) -> list[Tensor]:
        """What the gates let through (equation 9), (N, H) each: norm((W d) * q) * d.

        `clips` (N, H) each; `owner` (N,) is each clip's pair.
        """
        if pooled is None:
            return clips
        queries = pooled.unbind(1)
        return [
            unit(gate(rows) * query.index_select(0, owner)) * rows
            for gate, query, rows in zip(self.gates, queries, clips, strict=True)
        ]

    def _parts_of(self, streams: list[Tensor]) -> list[Tensor]:
        """What each stream adds to the fused clips, (N, H) each."""
        if self.linear is None:
            return [rows / len(streams) for rows in streams]
        # The linear map of streams side by side is the sum of a map of each.
        weights = self.linear.weight.chunk(len(streams), dim=1)
        return [rows @ weight.T for rows, weight in zip(streams, weights, strict=True)]

    def _fused(self, streams: list[Tensor]) -> Tensor:
        if self.linear is None:
            return torch.stack(streams).mean(0)
        fused: Tensor = self.linear(torch.cat(streams, dim=1))
        return fused


class Classifier(nn.Module):
    """Whether a segment answers its query."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = _transformer(config, config.classifier_layers)
        self.layers = perceptron(config.hidden, 1)

    def forward(self, clips: Tensor, mask: Tensor, pairs: Tensor, segments: Tensor) -> Tensor:
        """(M,) logits of the segments (M, 2) of the pairs (M,), from all pairs' clips (P, T, H)."""
        encoded = self.encoder(clips, mask)
        logits: Tensor = self.layers(segment_maxima(encoded, pairs, segments))
        return logits[:, 0].float()


class Model(nn.Module):
    """PREM's localizer with fresh weights: a localizer (see `protocol`)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        hidden, dropout = config.hidden, config.input_dropout
        self.query_projection = InputProjection(config.query_width, hidden, dropout)
        self.query_positions = PositionEmbedding(config.max_tokens, hidden, dropout, "tokens")
        self.query_encoder = _transformer(config, config.layers)
        self.pooling = ModularPooling(hidden, config.gated) if config.gates else None
        self.video_encoder = JointStreams(
            config.streams, hidden, config.max_clips, dropout, _transformer(config, config.layers)
        )
        self.focus = Focus(config)
        self.fusion = WordsAndClips(
            config.fusion_layers, hidden, config.heads, config.feedforward, config.dropout
        )
        self.borders = BorderNetworks(hidden, config.span_hidden, config.span_kernel)
        self.classifier = Classifier(config) if config.gamma else None
        initialise(self, config.initializer_range)

    @property
    def video_weight(self) -> float:
        """1 / t of equation 13."""
        return 1.0 / self.config.temperature

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Parts `words` (Q, L, H), `mask` (Q, L); with gates `pooled` (Q, G, H), `word_weights` (Q, L, G)."""
        mask = queries.mask
        words = in_turn(queries.tokens, mask, self.query_projection, self.query_positions, self.query_encoder)
        parts = {"words": words, "mask": mask}
        if self.pooling is not None:
            pooled, weights = self.pooling(words, mask)
            parts |= {"pooled": pooled, "word_weights": weights}
        return QueryEncoding({}, parts)

    def word_weights(self, queries: QueryEncoding) -> Named:
        """(Q, L) by stream: how much each word counts in what opens the gates of that stream.

        Without gates no word is preferred: all count the same.
        """
        mask, weights = queries.parts["mask"], queries.parts.get("word_weights")
        if weights is None:
            weights = (mask / mask.sum(1, keepdim=True).clamp(min=1))[..., None]
        return {
            name: weights[..., min(at, weights.shape[2] - 1)] for at, name in enumerate(self.config.streams)
        }

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Parts `clips/<stream>` (V, T, H): all that does not depend on a query."""
        encoded = self.video_encoder(videos)
        if self.config.pauses == "nothing":
            encoded = {
                name: clips * (videos.streams[name] != 0).any(2, keepdim=True)
                for name, clips in encoded.items()
            }
        return VideoEncoding(videos.mask, parts={f"clips/{name}": clips for name, clips in encoded.items()})

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """Logits of start and end of P pairs, a few pairs at a time."""
        every = torch.arange(len(queries), device=videos.mask.device)
        size = max(1, _CLIPS // videos.mask.shape[1])
        logits = [
            self.pair_logits(queries.take(some), videos.take(some)).borders
            for some in torch.split(every, size)
        ]
        start, end = torch.cat(logits, dim=1).float()
        return SpanScores(start, end, videos.mask)

    def pair_logits(
        self, queries: QueryEncoding, videos: VideoEncoding, keys_and_values: Tensor | None = None
    ) -> PairLogits:
        """The logits of P pairs: row p of `queries` with row p of `videos`.

        `keys_and_values` (P, L, F, 2 H) are those of the words in each layer of the fusion, where they are
        computed already.
        """
        if keys_and_values is None:
            keys_and_values = self.fusion.keys_and_values(queries.parts["words"])
        fused = self.focus(self._streams(videos), queries.parts.get("pooled"), videos.mask)
        clips = self.fusion(fused, videos.mask, keys_and_values, queries.parts["mask"])
        return PairLogits(self.borders(clips, videos.mask), clips, videos.mask)

    def stream_shares(self, queries: QueryEncoding, videos: VideoEncoding) -> Named:
        """(P, T) by stream: its share of what is fused in each clip; they add up to 1, 0 in the padding.

        Shares of the lengths of what each stream adds to the fused clip, gates included if they come first.
        """
        shares = self.focus.shares(self._streams(videos), queries.parts.get("pooled"), videos.mask)
        return dict(zip(self.config.streams, shares, strict=True))

    def loss(self, batch: Batch) -> Losses:
        """Terms `start` and `end` (11) and, where a classifier has negatives, `adversarial` (12).

        With "players" that term is the classifier's, and `proposals` is the localizer's.
        """
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        candidates = self._candidates(batch)
        query, place = candidates.pairs()
        # A query is paired with several videos, but its words' keys and values are computed once.
        keys_and_values = self.fusion.keys_and_values(queries.parts["words"])
        scored = self.pair_logits(
            queries.take(query),
            videos.take(candidates.rows[query, place]),
            keys_and_values.index_select(0, query),
        )
        # Equation 11: softmaxes over the clips of the own video and of the negatives together.
        entropies = shared_entropies(
            scored.borders, candidates, batch.spans, own_only=not self.config.shared_norm
        )
        terms = dict(zip(("start", "end"), weighted_mean(entropies, batch.weight), strict=True))
        if self.classifier is not None and batch.negatives is not None:
            terms |= self._adversarial(self.classifier, scored, candidates, batch)
        return terms

    def _streams(self, videos: VideoEncoding) -> list[Tensor]:
        """The clips of each stream, (P, T, H)."""
        return [videos.parts[f"clips/{name}"] for name in self.config.streams]

    def _candidates(self, batch: Batch) -> CandidateVideos:
        """All candidates; the own videos alone where nothing asks for more."""
        candidates = candidates_of(batch)
        if self.config.shared_norm or self.classifier is not None:
            return candidates
        return CandidateVideos(candidates.rows[:, :1], candidates.exists[:, :1])

    def _adversarial(
        self, classifier: Classifier, scored: PairLogits, candidates: CandidateVideos, batch: Batch
    ) -> dict[str, Tensor]:
        """The terms that a classifier of segments brings: L^c of equation 12."""
        config = self.config
        query, place = candidates.pairs()
        pairs, segments = _segments(scored, place, batch.spans, config)
        # The own video stands first among a query's candidates: its segments answer, all others do not.
        answers, of_query = (place == 0)[pairs], query[pairs]
        # With positives alone the classifier would learn to say yes.
        usable = _counted(of_query[~answers], len(batch)) > 0
        players = config.adversary == "players"
        # Of two players the classifier learns alone; together, clips, gates and encoders learn with it.
        clips = scored.clips.detach() if players else scored.clips
        logits = classifier(clips, scored.mask, pairs, segments)
        entropy = functional.binary_cross_entropy_with_logits(
            logits, answers.to(logits.dtype), reduction="none"
        )
        # The mean over a query's segments first: a long moment has more positives than a short one.
        each = torch.zeros_like(usable, dtype=logits.dtype).index_add(0, of_query, entropy)
        means = torch.where(usable, each / _counted(of_query, len(batch)), 0.0)
        terms = {"adversarial": config.gamma * weighted_mean(means, batch.weight)}
        if players:
            # The localizer's move: the classifier is fixed in this term, or it would learn to approve.
            approved = _approval(scored.borders, pairs, segments, of_query, logits.detach(), len(batch))
            terms["proposals"] = config.gamma * weighted_mean(
                torch.where(usable, approved, 0.0), batch.weight
            )
        return terms


def _segments(scored: PairLogits, place: Tensor, spans: Tensor, config: Config) -> tuple[Tensor, Tensor]:
    """Pairs (M,) and first and last clips (M, 2) of the classifier's positives, then of its negatives."""
    mask = scored.mask
    own, others = (place == 0).nonzero()[:, 0], (place > 0).nonzero()[:, 0]
    query, positives = overlapping_segments(spans, mask[own], config.positive_iou)
    # The choice of negatives has no gradient: the localizer proposes what it scores highest at this step.
    start, end = scored.borders.detach().float()[:, others]
    best = best_spans(SpanScores(start, end, mask[others]), config.proposed, config.negative_moments)
    video, rank = (best.score > -torch.inf).nonzero().unbind(1)
    negatives = torch.stack([best.first[video, rank], best.last[video, rank]], 1)
    return torch.cat([own[query], others[video]]), torch.cat([positives, negatives])


def _approval(
    borders: Tensor, pairs: Tensor, segments: Tensor, of_query: Tensor, logits: Tensor, queries: int
) -> Tensor:
    """(Q,) how much the classifier (its `logits` (M,)) disapproves of what the localizer proposes.

    The mean of -log sigmoid(logit) over a query's segments, each with its probability: a softmax of the
    localizer's scores over them.
    """
    start, end = borders.float()
    scores = start[pairs, segments[:, 0]] + end[pairs, segments[:, 1]]
    none = scores.new_full((queries,), -torch.inf)
    # A softmax over each query's segments, by hand since their number differs; the highest keeps exp finite.
    highest = none.scatter_reduce(0, of_query, scores.detach(), "amax")
    weights = (scores - highest[of_query]).exp()
    zeros = torch.zeros_like(none)
    refused = zeros.index_add(0, of_query, weights * functional.softplus(-logits))
    return refused / zeros.index_add(0, of_query, weights)


def _counted(rows: Tensor, count: int) -> Tensor:
    """(count,) how often each number is among `rows` (M,)."""
    return torch.bincount(rows, minlength=count)


def _transformer(config: Config, layers: int) -> TransformerEncoder:
    return TransformerEncoder(
        layers, config.hidden, config.heads, config.feedforward, config.dropout, "after"
    )
