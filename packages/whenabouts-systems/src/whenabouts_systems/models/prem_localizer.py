"""PREM's localizer (Hou et al., paper 003, section 3.4): find a query's moment in a given video.

It is the second of PREM's two stages, after `prem_retriever`, and has its own encoders (`parts/prem.py`).
Words are pooled once for each stream; the pooled vector gates each clip of that stream (equation 9, *focus*).
The gated streams are joined clip by clip (10, *fuse*). Two layers follow in which clips attend to each other
and to words, then two convolutional networks rate each clip as a start and as an end.

A moment scores S = S^R / t + l_st + l_ed (13). l_st and l_ed are the networks' logits, not log-probabilities
within a video: in training the softmax runs over several videos, so logits can be compared between videos.
`video_weight` is 1 / t, for the cosine that PREM's retriever gives a video.

Training (12): L = L^st + L^ed + `gamma` * L^c.

- *Shared-Norm* (11): the start is a softmax over the clips of the query's own video and of its negatives
  (`Batch.negatives`: 4 of the retriever's first 100 on TVR, 2 on DiDeMo), and so is the end. Videos known to
  answer the query are excluded. Without negatives the softmaxes are over the query's own video.
- *Adversarial training*: a classifier learns which segments answer the query. Its positives are all segments
  of the query's own video with an IoU of more than 0.7, in clips. Its negatives are the five moments of each
  negative video that the localizer scores highest at that step (without suppression of overlaps, of
  `min_moment_clips` to `max_moment_clips` clips). A segment's feature is the maximum over its clips after a
  transformer of the classifier's own; three linear layers follow.

  The paper does not say which part is trained against which. Equation 12 minimises L^c, and a reversed
  gradient would teach the encoders to hide the answer, where the paper wants to "heighten the localizer's
  attention" to it. So the localizer's best moments in negative videos are the negatives; their choice has no
  gradient. L^c trains the classifier, the fusion, the gates and the encoders, but not the networks of start
  and end. L^st and L^ed do not train the classifier.

  `adversary` = "players" is the other reading. The classifier learns alone, from detached features. The
  localizer, start and end included, minimises the mean of -log sigmoid(classifier's logit) over the query's
  segments, weighted by a softmax of l_st + l_ed; that term does not train the classifier.

  In both readings L^c is the mean over a query's segments of the binary cross-entropy, then over queries. A
  query without negatives contributes no L^c: the classifier would learn to accept everything.

Readings of what the paper leaves open:

- *Clips without words* have zeros as features, as printed, and are treated like others: LayerNorm, linear
  layer and position embeddings give them a learned vector, and the transformer adds the speech around them.
  With `pauses` = "nothing" the encoded clip is zero in each stream where its features are all zero.
- *The classifier's transformer* ("another Transformer") has one layer and reads the input of the networks of
  start and end.
- *Networks of start and end*: a convolution over `span_kernel` clips to `span_hidden` values, ReLU, a linear
  layer.
- *Losses* are means over the queries of a batch; `weight` multiplies all terms of a query (paper 004).

The authors released no program. Shapes as in `protocol`; S streams, G gates (`Config.gated`), H the width
inside, N real clips of all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.types import UsageError
from whenabouts_systems.models.decoding import Decoding, best_spans
from whenabouts_systems.models.parts.borders import BorderNetworks
from whenabouts_systems.models.parts.layers import ModularPooling, initialise, unit
from whenabouts_systems.models.parts.packing import PackedModule, Packing
from whenabouts_systems.models.parts.prem import PremModel, PremSettings
from whenabouts_systems.models.parts.ranking_loss import weighted_mean
from whenabouts_systems.models.parts.shared_norm import CandidateVideos, candidates_of, shared_entropies
from whenabouts_systems.models.parts.transformer import perceptron
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
    few_pairs,
)
from whenabouts_systems.models.settings import NotNegative, Share, Size

_CLIPS = 1 << 12
"""The most clips that are scored at once: some 150 MB at the published size."""


@dataclass(frozen=True)
class Config(PremSettings):
    """The settings of PREM's localizer.

    The ablations of table 6: one of the two `streams`; `gates` off; `gamma` = 0; `shared_norm` off.
    """

    fusion_layers: Size = 2
    classifier_layers: Size = 1
    span_hidden: Size = 128
    span_kernel: Size = 5
    gates: bool = True
    """Equation 9; else clips pass unchanged."""
    order: Literal["focus-then-fuse", "fuse-then-focus"] = "focus-then-fuse"
    """"fuse-then-focus": streams are joined first, and one gate for all follows."""
    fusion: Literal["linear", "mean"] = "linear"
    """Equation 10; or the mean of the streams."""
    pauses: Literal["context", "nothing"] = "context"
    shared_norm: bool = True
    """Start and end are softmaxes over the clips of negatives too; else over the own video only."""
    gamma: NotNegative = 0.8
    """Weight of the adversarial loss; 0: no classifier."""
    adversary: Literal["together", "players"] = "together"
    positive_iou: Share = 0.7
    """Segments with a higher IoU with the moment are the classifier's positives."""
    negative_moments: Size = 5
    """The number of best moments of each negative video that are the classifier's negatives."""
    min_moment_clips: Size = 1
    max_moment_clips: Size | None = 24
    """Shortest and longest of these moments, in clips; None: no upper limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.max_moment_clips
        if most is not None and most < self.min_moment_clips:
            raise UsageError(
                f"prem_localizer: max_moment_clips is {most}; accepted: "
                f"{self.min_moment_clips} or more, or none"
            )

    @property
    def gated(self) -> int:
        """G, the number of gates."""
        if not self.gates:
            return 0
        return len(self.streams) if self.order == "focus-then-fuse" else 1


class PairLogits(NamedTuple):
    """Logits of P pairs: `borders` (2, P, T), -1e10 in the padding, from `clips` (P, T, H), `mask` (P, T)."""

    borders: Tensor
    clips: Tensor
    mask: Tensor


class Focus(PackedModule):
    """Applies the gates (equation 9) and fuses the streams (10), in this order or the reverse."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, count = config.hidden, len(config.streams)
        self.gates = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(config.gated))
        self.linear = nn.Linear(count * hidden, hidden) if config.fusion == "linear" else None
        self.first = config.order == "focus-then-fuse"

    def forward(self, streams: list[Tensor], pooled: Tensor | None, mask: Tensor) -> Tensor:
        """(P, T, H) fused clips from S `streams` (P, T, H) with `mask` (P, T).

        `pooled` (P, G, H): the queries' vectors, None without gates.
        """
        packing, rows = self._rows(streams, pooled, mask)
        fused = torch.stack(rows).mean(0) if self.linear is None else self.linear(torch.cat(rows, dim=1))
        return packing.unpack(fused if self.first else self.gated([fused], pooled, packing.sequences())[0])

    def shares(self, streams: list[Tensor], pooled: Tensor | None, mask: Tensor) -> list[Tensor]:
        """(P, T) by stream: its share of the fused clips; arguments as in `forward`."""
        packing, rows = self._rows(streams, pooled, mask)
        if self.linear is not None:
            # A linear map of concatenated streams is the sum of one map for each.
            weights = self.linear.weight.chunk(len(rows), dim=1)
            rows = [clips @ weight.T for clips, weight in zip(rows, weights, strict=True)]
        lengths = torch.stack([clips.norm(dim=1) for clips in rows])
        shares = lengths / lengths.sum(0).clamp(min=torch.finfo(lengths.dtype).tiny)
        return [packing.unpack(share) for share in shares]

    def gated(self, clips: list[Tensor], pooled: Tensor | None, owner: Tensor) -> list[Tensor]:
        """(N, H) each: the gated clips of equation 9, norm((W d) * q) * d.

        `clips` (N, H) each; `owner` (N,) is each clip's pair.
        """
        if pooled is None:
            return clips
        queries = pooled.unbind(1)
        return [
            unit(gate(rows) * query.index_select(0, owner)) * rows
            for gate, query, rows in zip(self.gates, queries, clips, strict=True)
        ]

    def _rows(
        self, streams: list[Tensor], pooled: Tensor | None, mask: Tensor
    ) -> tuple[Packing, list[Tensor]]:
        """The streams' packed clips (N, H), gated if gates come first."""
        packing = self.packing(mask)
        rows = [packing.pack(clips) for clips in streams]
        return packing, self.gated(rows, pooled, packing.sequences()) if self.first else rows


class Classifier(nn.Module):
    """Rates by a logit whether a segment answers its query."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = config.transformer(config.classifier_layers)
        self.layers = perceptron(config.hidden, 1)

    def forward(self, clips: Tensor, mask: Tensor, pairs: Tensor, segments: Tensor) -> Tensor:
        """(M,) logits of segments (M, 2) of `pairs` (M,), from the clips (P, T, H) of all pairs."""
        encoded = self.encoder(clips, mask)
        logits: Tensor = self.layers(segment_maxima(encoded, pairs, segments))
        return logits[:, 0].float()


class Model(PremModel):
    """PREM's localizer with fresh weights (see `protocol`)."""

    config: Config

    def __init__(self, config: Config) -> None:
        hidden = config.hidden
        super().__init__(config, ModularPooling(hidden, config.gated) if config.gates else None)
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
        words = self.words(queries)
        parts = {"words": words, "mask": mask}
        if self.pooling is not None:
            pooled, weights = self.pooling(words, mask)
            parts |= {"pooled": pooled, "word_weights": weights}
        return QueryEncoding({}, parts)

    def word_weights(self, queries: QueryEncoding) -> Named:
        """(Q, L) by stream: the weight of each word in the vector of its gates; equal without gates."""
        mask, weights = queries.parts["mask"], queries.parts.get("word_weights")
        if weights is None:
            weights = (mask / mask.sum(1, keepdim=True).clamp(min=1))[..., None]
        return {
            name: weights[..., min(at, weights.shape[2] - 1)] for at, name in enumerate(self.config.streams)
        }

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Parts `clips/<stream>` (V, T, H), which do not depend on a query."""
        encoded = self.video_encoder(videos)
        if self.config.pauses == "nothing":
            encoded = {
                name: clips * (videos.streams[name] != 0).any(2, keepdim=True)
                for name, clips in encoded.items()
            }
        return VideoEncoding(videos.mask, parts={f"clips/{name}": clips for name, clips in encoded.items()})

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """Logits of start and end of P pairs, a few pairs at a time."""
        logits = [self.pair_logits(*some).borders for some in few_pairs(queries, videos, _CLIPS)]
        start, end = torch.cat(logits, dim=1).float()
        return SpanScores(start, end, videos.mask)

    def pair_logits(
        self, queries: QueryEncoding, videos: VideoEncoding, keys_and_values: Tensor | None = None
    ) -> PairLogits:
        """The logits of P pairs: row p of `queries` with row p of `videos`.

        `keys_and_values` (P, L, F, 2 H) of the words in the F layers of the fusion, if computed already.
        """
        if keys_and_values is None:
            keys_and_values = self.fusion.keys_and_values(queries.parts["words"])
        fused = self.focus(self._streams(videos), queries.parts.get("pooled"), videos.mask)
        clips = self.fusion(fused, videos.mask, keys_and_values, queries.parts["mask"])
        return PairLogits(self.borders(clips, videos.mask), clips, videos.mask)

    def stream_shares(self, queries: QueryEncoding, videos: VideoEncoding) -> Named:
        """(P, T) by stream: its share of each fused clip; the shares add up to 1, 0 in the padding.

        A share is the relative length of the vector that a stream adds, after gates if they come first.
        """
        shares = self.focus.shares(self._streams(videos), queries.parts.get("pooled"), videos.mask)
        return dict(zip(self.config.streams, shares, strict=True))

    def loss(self, batch: Batch) -> Losses:
        """Terms `start` and `end` (11) and, with a classifier and negatives, `adversarial` (12).

        With "players" `adversarial` is the classifier's loss and `proposals` the localizer's.
        """
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        candidates = candidates_of(batch)
        if not self.config.shared_norm and self.classifier is None:
            candidates = CandidateVideos(candidates.rows[:, :1], candidates.exists[:, :1])
        query, place = candidates.pairs()
        # A query is paired with several videos; the keys and values of its words are computed once.
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

    def _adversarial(
        self, classifier: Classifier, scored: PairLogits, candidates: CandidateVideos, batch: Batch
    ) -> dict[str, Tensor]:
        """L^c of equation 12 (`adversarial`) and, with "players", the localizer's `proposals`."""
        config = self.config
        query, place = candidates.pairs()
        pairs, segments = _segments(scored, place, batch.spans, config)
        # The own video is the first candidate: only its segments answer.
        answers, of_query = (place == 0)[pairs], query[pairs]
        # With positives alone the classifier would learn to accept everything.
        usable = of_query[~answers].bincount(minlength=len(batch)) > 0
        players = config.adversary == "players"
        # With "players" L^c trains the classifier alone; with "together", fusion, gates and encoders as well.
        clips = scored.clips.detach() if players else scored.clips
        logits = classifier(clips, scored.mask, pairs, segments)
        entropy = functional.binary_cross_entropy_with_logits(
            logits, answers.to(logits.dtype), reduction="none"
        )
        # A mean over a query's segments first: long moments have more positives.
        each = torch.zeros_like(usable, dtype=logits.dtype).index_add(0, of_query, entropy)
        means = torch.where(usable, each / of_query.bincount(minlength=len(batch)), 0.0)
        terms = {"adversarial": config.gamma * weighted_mean(means, batch.weight)}
        if players:
            # The classifier is fixed in the localizer's term, or it would learn to approve.
            proposal_loss = _proposal_loss(
                scored.borders, pairs, segments, of_query, logits.detach(), len(batch)
            )
            terms["proposals"] = config.gamma * weighted_mean(
                torch.where(usable, proposal_loss, 0.0), batch.weight
            )
        return terms


def _segments(scored: PairLogits, place: Tensor, spans: Tensor, config: Config) -> tuple[Tensor, Tensor]:
    """Pairs (M,) and first and last clips (M, 2) of the classifier's positives, then negatives."""
    mask = scored.mask
    own_pairs, others = (place == 0).nonzero()[:, 0], (place > 0).nonzero()[:, 0]
    query, positives = overlapping_segments(spans, mask[own_pairs], config.positive_iou)
    # Negatives are the moments that the localizer scores highest now; the choice has no gradient.
    start, end = scored.borders.detach().float()[:, others]
    decoding = Decoding(min_clips=config.min_moment_clips, max_clips=config.max_moment_clips)
    best = best_spans(SpanScores(start, end, mask[others]), decoding, config.negative_moments)
    video, rank = (best.score > -torch.inf).nonzero().unbind(1)
    negatives = torch.stack([best.first[video, rank], best.last[video, rank]], 1)
    return torch.cat([own_pairs[query], others[video]]), torch.cat([positives, negatives])


def overlapping_segments(spans: Tensor, mask: Tensor, above: float) -> tuple[Tensor, Tensor]:
    """All segments whose IoU with their query's moment is more than `above`: queries (M,), segments (M, 2).

    A segment is its first and last clip, both inclusive. `spans` (Q, 2) int64 are the moments, `mask` (Q, T)
    the clips that their videos have. IoU counts clips: with the moment [5, 8], [4, 8], [5, 7], [6, 8] and
    [5, 9] have more than 0.7 (the paper's example).
    """
    at = torch.arange(mask.shape[1], device=mask.device)
    first, last = at[:, None], at[None, :]
    true_first, true_last = spans[:, 0, None, None], spans[:, 1, None, None]
    shared = torch.minimum(last, true_last) - torch.maximum(first, true_first) + 1
    whole = torch.maximum(last, true_last) - torch.minimum(first, true_first) + 1
    # In float64: a quotient of whole numbers that equals `above` is then the same number.
    answers = (shared.double() / whole > above) & (last >= first) & mask[:, None]
    query, begins, ends = answers.nonzero().unbind(1)
    return query, torch.stack([begins, ends], 1)


def segment_maxima(clips: Tensor, pairs: Tensor, segments: Tensor) -> Tensor:
    """(M, D): the largest value of each dimension over a segment's clips (max-pooling).

    `clips` (P, T, D); `pairs` (M,) and `segments` (M, 2) int64. A segment is covered by two runs of clips
    whose length is a power of two, and maxima of such runs come from those of half the length: a segment
    costs the same however long it is.
    """
    length = segments[:, 1] - segments[:, 0] + 1
    level = (length.double().log2() + 1e-9).long()
    pooled = clips.new_zeros(len(segments), clips.shape[2])
    runs = clips
    for power in range(int(level.max()) + 1 if len(level) else 0):
        if power:
            half = 1 << (power - 1)
            runs = torch.maximum(runs[:, :-half], runs[:, half:])
        mine = (level == power).nonzero()[:, 0]
        begin, end = segments[mine, 0], segments[mine, 1] + 1 - (1 << power)
        rows = pairs[mine] * runs.shape[1]
        flat = runs.flatten(0, 1)
        best = torch.maximum(flat.index_select(0, rows + begin), flat.index_select(0, rows + end))
        pooled = pooled.index_copy(0, mine, best)
    return pooled


def _proposal_loss(
    borders: Tensor, pairs: Tensor, segments: Tensor, of_query: Tensor, logits: Tensor, queries: int
) -> Tensor:
    """(Q,) how much the classifier (`logits` (M,)) disapproves of the localizer's proposals.

    The mean of -log sigmoid(logit) over a query's segments, weighted by a softmax of the localizer's scores.
    """
    start, end = borders.float()
    scores = start[pairs, segments[:, 0]] + end[pairs, segments[:, 1]]
    none = scores.new_full((queries,), -torch.inf)
    # A softmax over each query's segments, whose number differs; subtracting the maximum keeps exp finite.
    highest = none.scatter_reduce(0, of_query, scores.detach(), "amax")
    weights = (scores - highest[of_query]).exp()
    zeros = torch.zeros_like(none)
    refused = zeros.index_add(0, of_query, weights * functional.softplus(-logits))
    return refused / zeros.index_add(0, of_query, weights)
