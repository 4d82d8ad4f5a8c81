"""What the systems of the DETR family have alike: settings, inputs, what they answer, most of their losses.

A system of the family looks at a query and a video together, so that nothing but features and words is
kept, and there are no keys to search by: another system chooses the videos. It answers with windows on no
grid. Beside them it gives each clip a saliency: how much it is worth seeing for the query.

Shapes as in `protocol`; N predicted windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.detr_layers import (
    AnchorDecoder,
    Projection,
    inverse_sigmoid,
)
from whenabouts_systems.models.parts.transformer import perceptron
from whenabouts_systems.models.parts.window_targets import (
    FOREGROUND,
    Weights,
    Windows,
    borders_of,
    saliency_hinge,
    saliency_pairs,
    true_windows,
    window_losses,
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
)
from whenabouts_systems.models.settings import (
    NamedStreams,
    NotNegative,
    ProgramSetting,
    Share,
    Size,
)

_ROWS = 1 << 15
"""Clips and words that go through the layers at once where pairs are scored: some 300 MB."""


@dataclass(frozen=True)
class WindowSettings(ProgramSetting):
    """Settings that the family shares; defaults are those for QVHighlights with CLIP features.

    `streams` are laid side by side in their order, and `tef` appends where each clip begins and ends, as
    shares of the video. `windows`: how many are predicted. A video of more than `longest_clips` (150 s in
    QVHighlights) is read in pieces that overlap by half. `cost_...`: what true windows are matched by,
    however much the terms weigh in the loss. `each_layer`: the decoder's layers before the last learn too.
    `alpha`: how often the score of the video, which another system gives, counts in a moment's score; these
    systems never saw a video without an answer, so that their own probabilities say little about which video
    is right.
    """

    streams: NamedStreams = field(default_factory=lambda: {"vision": 512})
    query_width: Size = 512
    hidden: Size = 256
    heads: Size = 8
    feedforward: Size = 1024
    projections: Size = 2
    encoder_layers: Size = 2
    decoder_layers: Size = 2
    windows: Size = 10
    longest_clips: Size = 75
    tef: bool = True
    dropout: Share = 0.1
    input_dropout: Share = 0.5
    weight_span: NotNegative = 10.0
    weight_giou: NotNegative = 1.0
    weight_label: NotNegative = 4.0
    weight_background: NotNegative = 0.1
    weight_saliency: NotNegative = 1.0
    cost_span: NotNegative = 10.0
    cost_giou: NotNegative = 1.0
    cost_label: NotNegative = 4.0
    each_layer: bool = True
    saliency_margin: NotNegative = 0.2
    alpha: NotNegative = 20.0

    @property
    def weights(self) -> Weights:
        """Of the terms of windows in the loss."""
        return Weights(self.weight_span, self.weight_giou, self.weight_label)

    @property
    def costs(self) -> Weights:
        """Of the same in the matching."""
        return Weights(self.cost_span, self.cost_giou, self.cost_label)


@dataclass(frozen=True)
class Detected:
    """What a system finds in P pairs: `layers`, the windows of each decoder layer, the last one's last.

    `saliency` (P, T), of which what lies behind a video's end means nothing.
    """

    layers: tuple[Windows, ...]
    saliency: Tensor


class WindowModel(PaperModel, ABC):
    """A localizer (see `protocol`) that answers windows."""

    lays_side_by_side = True
    """The order of its streams counts (see `Trained.fingerprint`)."""

    def __init__(self, config: WindowSettings) -> None:
        super().__init__()
        self.config = config
        width = sum(config.streams.values()) + 2 * config.tef
        layers, dropout = config.projections, config.input_dropout
        self.clip_projection = Projection(width, config.hidden, layers, dropout)
        self.word_projection = Projection(config.query_width, config.hidden, layers, dropout)
        self.classes = nn.Linear(config.hidden, 2)

    @property
    def video_weight(self) -> float:
        """Alpha: moments score log p + alpha * video."""
        return self.config.alpha

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Parts `words` (Q, L, D) and `mask` (Q, L)."""
        return QueryEncoding({}, {"words": self.word_projection(queries.tokens), "mask": queries.mask})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Part `rows` (V, T, D'): the features themselves, because a long video is read piece by piece."""
        rows = torch.cat([videos.streams[name] for name in self.config.streams], -1)
        return VideoEncoding(videos.mask, parts={"rows": rows})

    def clips_of(self, videos: VideoEncoding) -> Tensor:
        """(V, T, D) clips of the width inside, which know where in their video they are.

        Part `clips`, where they have been made: a step may look at them several times.
        """
        if "clips" in videos.parts:
            return videos.parts["clips"]
        clips: Tensor = self.clip_projection(self.with_endpoints(videos))
        return clips

    def with_endpoints(self, videos: VideoEncoding) -> Tensor:
        """(V, T, D'') the features, and with `tef` where each clip begins and ends."""
        rows = videos.parts["rows"]
        return torch.cat([rows, endpoints(videos.mask).to(rows)], -1) if self.config.tef else rows

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """Windows (P, M, 3) of P pairs: borders in clips, and log p of the foreground.

        Of a video of more than `longest_clips`, those of all its pieces.
        """
        pieces = Pieces.of(videos.mask, self.config.longest_clips)
        windows = [
            self._windows_of(
                self.detect(queries.take(pieces.pair[some]), pieces.take(videos, some)), pieces, some
            )
            for some in self._some(pieces, queries)
        ]
        return SpanScores.of_windows(pieces.joined(torch.cat(windows)), videos.mask)

    def saliency(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(P, T) how much each clip is worth seeing for its query; 0 where there is no clip.

        Where pieces of a long video overlap it is the mean of theirs.
        """
        pieces = Pieces.of(videos.mask, self.config.longest_clips)
        curves = [
            self.detect(queries.take(pieces.pair[some]), pieces.take(videos, some)).saliency.float()
            for some in self._some(pieces, queries)
        ]
        return pieces.averaged(torch.cat(curves))

    def loss(self, batch: Batch) -> Losses:
        """Terms `span`, `giou`, `label` of the last layer, those of each layer before, and `saliency`."""
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        own = videos.take(batch.video_of)
        own = VideoEncoding(own.mask, parts={**own.parts, "clips": WindowModel.clips_of(self, own)})
        return self.losses_of(batch, self.detect(queries, own), queries, own)

    def losses_of(
        self, batch: Batch, detected: Detected, queries: QueryEncoding, videos: VideoEncoding
    ) -> Losses:
        """The terms of `loss`, of what was found in a batch's pairs; `queries` and `videos` are theirs."""
        losses = self.losses_of_layers(detected.layers, true_windows(batch, videos.mask.sum(1)))
        saliency = self.saliency_loss(batch, detected, queries, videos)
        losses["saliency"] = self.config.weight_saliency * saliency
        return {**losses, **self.other_losses(batch, detected, videos)}

    def other_losses(self, batch: Batch, detected: Detected, videos: VideoEncoding) -> Losses:
        """Terms that a system has beside; `videos` are those of the pairs (Q)."""
        return {}

    def losses_of_layers(self, layers: tuple[Windows, ...], truth: Tensor) -> dict[str, Tensor]:
        """The terms of windows of all layers that learn; those before the last carry their number."""
        terms, config = {}, self.config
        for number, windows in enumerate(layers):
            is_last = number == len(layers) - 1
            if not (is_last or config.each_layer):
                continue
            suffix = "" if is_last else f"_{number}"
            losses = window_losses(windows, truth, config.weights, config.costs, self.class_loss)
            terms.update({f"{name}{suffix}": loss for name, loss in losses.items()})
        return terms

    def saliency_loss(
        self, batch: Batch, detected: Detected, queries: QueryEncoding, videos: VideoEncoding
    ) -> Tensor:
        """What the saliency of clips lacks; `queries` and `videos` are those of the pairs (Q)."""
        higher, lower = saliency_pairs(batch, videos.mask)
        return saliency_hinge(detected.saliency.float(), higher, lower, self.config.saliency_margin)

    def class_loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        """What the classes (Q, N) lack, of logits (Q, N, 2) in float32; weight not applied.

        A plain mean of cross-entropies, in which those of the background count `weight_background`, as in
        the released programs.
        """
        counts = logits.new_tensor([1.0, self.config.weight_background])
        entropy = functional.cross_entropy(logits.flatten(0, 1), classes.flatten(), counts, reduction="none")
        return entropy.mean()

    @abstractmethod
    def detect(self, queries: QueryEncoding, videos: VideoEncoding) -> Detected:
        """What is found in P pairs: row p of `queries` with row p of `videos`."""

    def _some(self, pieces: Pieces, queries: QueryEncoding) -> tuple[Tensor, ...]:
        """The numbers of pieces, as many at a time as memory is meant to hold."""
        rows = pieces.length + queries.parts["mask"].shape[1]
        numbers = torch.arange(len(pieces.pair), device=pieces.pair.device)
        return torch.split(numbers, max(1, _ROWS // rows))

    def _windows_of(self, detected: Detected, pieces: Pieces, some: Tensor) -> Tensor:
        """(S, N, 3) the windows of some pieces, in clips of their videos."""
        last = detected.layers[-1]
        begin, clips = pieces.begin[some][:, None, None], pieces.clips[some][:, None, None]
        borders = borders_of(last.spans.float()) * clips + begin
        score = last.logits.float().log_softmax(-1)[..., FOREGROUND]
        return torch.cat([borders, score[..., None]], -1)


class AnchoredModel(WindowModel):
    """A localizer whose windows have anchors that each layer of its decoder mends (DAB-DETR)."""

    def __init__(self, config: WindowSettings, *, path: bool = False) -> None:
        super().__init__(config)
        sizes = (config.hidden, config.heads, config.feedforward, config.dropout)
        self.decoder = AnchorDecoder(config.decoder_layers, config.windows, *sizes, path=path)
        self.span = perceptron(config.hidden, 2)

    def windows_in(
        self,
        clips: Tensor,
        places: Tensor,
        mask: Tensor,
        windows: Tensor | None = None,
        *,
        mended: bool = False,
    ) -> tuple[Windows, ...]:
        """The windows of each layer in clips (P, T, D), with their places and mask.

        `windows` (P, N, D): what they hold first (None: nothing). Their spans are counted from the anchors
        that a layer began with, or from those that it `mended`.
        """
        windows, anchors = self.decoder(clips, places, mask, windows)
        anchors = anchors[1:] if mended else anchors[:-1]
        spans = (self.span(windows) + inverse_sigmoid(anchors)).sigmoid()
        return tuple(Windows(*layer) for layer in zip(self.classes(windows), spans, strict=True))

    def _unseen(self, mask: Tensor, word_mask: Tensor) -> Tensor | None:
        """What each head leaves out besides padding, as `padding_of_others`; None for nothing."""
        return None

    def _answering(self, batch: Batch) -> Tensor:
        """(Q, Q) bool: whether query i is known to be true for the video of query j."""
        return batch.positives[:, batch.video_of]

    def _mean_of_clips(self, values: Tensor, mask: Tensor) -> Tensor:
        """The mean of (P, T) over clips."""
        return (values * mask).sum() / mask.sum()


@dataclass(frozen=True)
class Pieces:
    """The videos of P pairs (T clips) in pieces of at most `length` clips that overlap by half.

    `longest` is that bound. A shorter video is one piece; the last
    piece of a longer one ends with it. `pair`, `begin`, `clips` (S,)
    int64: whose it is, its first clip, and how many it has. `mask` (P, T).
    """

    pair: Tensor
    begin: Tensor
    clips: Tensor
    longest: int
    mask: Tensor

    @classmethod
    def of(cls, mask: Tensor, longest: int) -> Pieces:
        """Of videos with that mask (P, T)."""
        counts, step = mask.sum(1), max(1, longest // 2)
        beyond = (counts - longest).clamp(min=0)
        number = (beyond + step - 1) // step + 1
        pair = torch.arange(len(mask), device=mask.device).repeat_interleave(number)
        place = torch.arange(len(pair), device=mask.device) - (number.cumsum(0) - number)[pair]
        begin = torch.minimum(place * step, beyond[pair])
        return cls(pair, begin, counts[pair].clamp(max=longest), longest, mask)

    @property
    def length(self) -> int:
        """The most clips that a piece has."""
        return min(self.longest, self.mask.shape[1])

    def take(self, videos: VideoEncoding, some: Tensor) -> VideoEncoding:
        """Some pieces as videos of their own, (S, length)."""
        steps = torch.arange(self.length, device=some.device)
        pair, at = self.pair[some], (self.begin[some][:, None] + steps).clamp(max=self.mask.shape[1] - 1)
        rows = videos.parts["rows"][pair[:, None], at]
        mask = steps < self.clips[some][:, None]
        return VideoEncoding(mask, parts={"rows": rows.where(mask[..., None], 0.0)})

    def joined(self, windows: Tensor) -> Tensor:
        """(P, M, 3) of windows (S, N, 3) of the pieces; where a pair has fewer pieces, some of no score."""
        counts = torch.bincount(self.pair, minlength=len(self.mask))
        most, number = _pieces_in(self.mask.shape[1], self.longest), windows.shape[1]
        place = torch.arange(len(self.pair), device=windows.device) - (counts.cumsum(0) - counts)[self.pair]
        whole = windows.new_zeros((len(self.mask), most, number, 3))
        whole[..., 2] = -torch.inf
        whole[self.pair, place] = windows
        return whole.flatten(1, 2)

    def averaged(self, curves: Tensor) -> Tensor:
        """(P, T) of curves (S, length) of the pieces."""
        steps = torch.arange(self.length, device=curves.device)
        real = steps < self.clips[:, None]
        cell = (self.pair * self.mask.shape[1] + self.begin)[:, None] + steps
        total = curves.new_zeros(self.mask.numel()).index_add(0, cell[real], curves[real])
        count = curves.new_zeros(self.mask.numel()).index_add(0, cell[real], torch.ones_like(curves[real]))
        return (total / count.clamp(min=1)).view(self.mask.shape)


def _pieces_in(clips: int, longest: int) -> int:
    """How many pieces a video of so many clips has; see `Pieces.of`."""
    return -(-max(0, clips - longest) // max(1, longest // 2)) + 1


def endpoints(mask: Tensor) -> Tensor:
    """(V, T, 2) where each clip begins and ends, as shares of its video of n clips: i/n and i/n + 1/n."""
    count = mask.sum(1, keepdim=True, dtype=torch.float32).clamp(min=1)
    begins = torch.arange(mask.shape[1], device=mask.device, dtype=torch.float32) / count
    return torch.stack([begins, begins + 1 / count], -1).masked_fill(~mask[..., None], 0.0)
