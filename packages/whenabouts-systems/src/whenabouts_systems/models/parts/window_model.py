"""The common base of the DETR family: settings, inputs, outputs and most losses.

A system of this family processes query and video together. So its encodings are only features and words,
there are no search keys, and another system must choose the videos. It predicts windows (start and end at any
time, not only at borders of clips) and a saliency of each clip for the query.

Shapes as in `protocol`; N predicted windows, S pieces of long videos.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.detr_layers import AnchorDecoder, Projection, inverse_sigmoid
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
from whenabouts_systems.models.settings import NamedStreams, NotNegative, ProgramSetting, Share, Size

_ROWS = 1 << 15
"""The most clips and words that pass the layers at a time when pairs are scored: some 300 MB."""


@dataclass(frozen=True)
class WindowSettings(ProgramSetting):
    """Settings that the family shares; the defaults are for QVHighlights with CLIP features.

    - `streams` are concatenated in their order; `tef` appends each clip's begin and end as shares of the
      video.
    - `windows`: the number of predicted windows.
    - `longest_clips` (150 s in QVHighlights): longer videos are searched in pieces that overlap by half. A
      training reads videos whole.
    - `cost_...`: weights of the terms in the matching, independent of their weights in the loss.
    - `each_layer`: also train the decoder's layers before the last.
    - `alpha`: the weight of the video's score, which another system gives, in a moment's score. These systems
      are trained only on videos with an answer, so their probabilities say little about which video is right.
    """

    ignores_weights = True
    streams: NamedStreams = field(default_factory=lambda: {"vision": 512})
    query_width: Size = 512
    hidden: Annotated[int, Meta(ge=2, multiple_of=2, description="an even number, 2 or more")] = 256
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
        """Weights of the windows' terms in the loss."""
        return Weights(self.weight_span, self.weight_giou, self.weight_label)

    @property
    def costs(self) -> Weights:
        """Weights of the windows' terms in the matching."""
        return Weights(self.cost_span, self.cost_giou, self.cost_label)


@dataclass(frozen=True)
class Detected:
    """The output for P pairs: `layers`, the windows of each decoder layer in order, and `saliency` (P, T).

    Saliency in padding has no meaning.
    """

    layers: tuple[Windows, ...]
    saliency: Tensor


class WindowModel(PaperModel, ABC):
    """A localizer (see `protocol`) that predicts windows."""

    lays_side_by_side = True
    """The order of its streams matters (see `Trained.fingerprint`)."""

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
        """Alpha: a moment scores log p + alpha * its video's score."""
        return self.config.alpha

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Parts `words` (Q, L, D) and `mask` (Q, L)."""
        return QueryEncoding({}, {"words": self.word_projection(queries.tokens), "mask": queries.mask})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Part `rows` (V, T, D'): the unchanged features, because long videos are read piece by piece."""
        rows = torch.cat([videos.streams[name] for name in self.config.streams], -1)
        return VideoEncoding(videos.mask, parts={"rows": rows})

    def clips_of(self, videos: VideoEncoding) -> Tensor:
        """(V, T, D): clips projected to the inner width, with `tef` from features and endpoints.

        If the encoding already has a part `clips`, it is returned: a training step may need it repeatedly.
        """
        if "clips" in videos.parts:
            return videos.parts["clips"]
        clips: Tensor = self.clip_projection(self.with_endpoints(videos))
        return clips

    def with_endpoints(self, videos: VideoEncoding) -> Tensor:
        """(V, T, D''): the features, with `tef` also each clip's begin and end."""
        rows = videos.parts["rows"]
        return torch.cat([rows, endpoints(videos.mask).to(rows)], -1) if self.config.tef else rows

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """Windows (P, M, 3) of P pairs: borders in clips, and log p of the foreground.

        A video with more than `longest_clips` clips has the windows of all its pieces.
        """
        pieces = Pieces.of(videos.mask, self.config.longest_clips)
        windows = [
            self._windows_of(detected, pieces, some)
            for some, detected in self._detected(pieces, queries, videos)
        ]
        return SpanScores.of_windows(pieces.joined(torch.cat(windows)), videos.mask)

    def saliency(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(P, T): the saliency of each clip for the query; 0 in padding.

        Where pieces of a long video overlap, it is the mean of their saliencies.
        """
        pieces = Pieces.of(videos.mask, self.config.longest_clips)
        curves = [detected.saliency.float() for _, detected in self._detected(pieces, queries, videos)]
        return pieces.averaged(torch.cat(curves))

    def loss(self, batch: Batch) -> Losses:
        """Terms `span`, `giou`, `label` of the last layer, those of each layer before, and `saliency`."""
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        own_videos = videos.take(batch.video_of)
        clips = WindowModel.clips_of(self, own_videos)
        own_videos = VideoEncoding(own_videos.mask, parts={**own_videos.parts, "clips": clips})
        detected = self.detect(queries, own_videos)
        losses = self.losses_of_layers(detected.layers, true_windows(batch, own_videos.mask.sum(1)))
        saliency = self.saliency_loss(batch, detected, queries, own_videos)
        losses["saliency"] = self.config.weight_saliency * saliency
        return {**losses, **self.other_losses(batch, detected, queries, own_videos)}

    def other_losses(
        self, batch: Batch, detected: Detected, queries: QueryEncoding, videos: VideoEncoding
    ) -> Losses:
        """Further terms of a system; `queries` and `videos` are those of the pairs (Q)."""
        return {}

    def losses_of_layers(self, layers: tuple[Windows, ...], truth: Tensor) -> dict[str, Tensor]:
        """The windows' terms of all trained layers; names of layers before the last end with their number."""
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
        """The loss of saliency; `queries` and `videos` are those of the pairs (Q)."""
        higher, lower = saliency_pairs(batch, videos.mask)
        return saliency_hinge(detected.saliency.float(), higher, lower, self.config.saliency_margin)

    def class_loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        """The unweighted loss of classes (Q, N), from logits (Q, N, 2) in float32.

        It is the plain mean of cross-entropies, after those of the background are multiplied by
        `weight_background`, as in the released programs.
        """
        counts = logits.new_tensor([1.0, self.config.weight_background])
        entropy = functional.cross_entropy(logits.flatten(0, 1), classes.flatten(), counts, reduction="none")
        return entropy.mean()

    @abstractmethod
    def detect(self, queries: QueryEncoding, videos: VideoEncoding) -> Detected:
        """Detect windows in P pairs: row p of `queries` with row p of `videos`."""

    def _detected(
        self, pieces: Pieces, queries: QueryEncoding, videos: VideoEncoding
    ) -> Iterator[tuple[Tensor, Detected]]:
        """The pieces in parts that fit into memory (`_ROWS`): their numbers, and what is detected in them."""
        rows = pieces.length + queries.parts["mask"].shape[1]
        numbers = torch.arange(len(pieces.pair), device=pieces.pair.device)
        for some in torch.split(numbers, max(1, _ROWS // rows)):
            yield some, self.detect(queries.take(pieces.pair[some]), pieces.take(videos, some))

    def _windows_of(self, detected: Detected, pieces: Pieces, some: Tensor) -> Tensor:
        """(S, N, 3): the windows of the pieces `some`, in clips of their videos."""
        last = detected.layers[-1]
        begin, clips = pieces.begin[some][:, None, None], pieces.clips[some][:, None, None]
        borders = borders_of(last.spans.float()) * clips + begin
        score = last.logits.float().log_softmax(-1)[..., FOREGROUND]
        return torch.cat([borders, score[..., None]], -1)


class AnchoredModel(WindowModel):
    """A localizer whose windows have anchors that each decoder layer refines (DAB-DETR)."""

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
        """The windows that each layer predicts in clips (P, T, D), given the clips' places and mask.

        `windows` (P, N, D) are their initial contents (None: zeros). Spans are offsets from the anchors that
        a layer gets or, if `mended`, from those that it has refined.
        """
        windows, anchors = self.decoder(clips, places, mask, windows)
        anchors = anchors[1:] if mended else anchors[:-1]
        spans = (self.span(windows) + inverse_sigmoid(anchors)).sigmoid()
        return tuple(Windows(*layer) for layer in zip(self.classes(windows), spans, strict=True))

    def _unseen(self, mask: Tensor, word_mask: Tensor) -> Tensor | None:
        """(P * heads, T, L) bool: the words that each head masks besides padding; None: only padding."""
        return None

    def _answering(self, batch: Batch) -> Tensor:
        """(Q, Q) bool: whether query i is known to be right for the video of query j."""
        return batch.positives[:, batch.video_of]

    def _mean_of_clips(self, values: Tensor, mask: Tensor) -> Tensor:
        """The mean of values (P, T) over real clips."""
        return (values * mask).sum() / mask.sum()


@dataclass(frozen=True)
class Pieces:
    """The videos of P pairs (T clips) in S pieces of at most `longest` clips that overlap by half.

    A shorter video is one piece; the last piece of a longer one ends with the video. `pair`, `begin`, `clips`
    (S,) int64 are a piece's pair, its first clip, and its number of clips. `mask` is (P, T).
    """

    pair: Tensor
    begin: Tensor
    clips: Tensor
    longest: int
    mask: Tensor

    @classmethod
    def of(cls, mask: Tensor, longest: int) -> Pieces:
        """The pieces of videos with the mask (P, T)."""
        counts, step = mask.sum(1), max(1, longest // 2)
        beyond = (counts - longest).clamp(min=0)
        number = (beyond + step - 1) // step + 1
        pair = torch.arange(len(mask), device=mask.device).repeat_interleave(number)
        place = torch.arange(len(pair), device=mask.device) - (number.cumsum(0) - number)[pair]
        begin = torch.minimum(place * step, beyond[pair])
        return cls(pair, begin, counts[pair].clamp(max=longest), longest, mask)

    @property
    def length(self) -> int:
        """The number of clips in the longest piece."""
        return min(self.longest, self.mask.shape[1])

    def take(self, videos: VideoEncoding, some: Tensor) -> VideoEncoding:
        """The pieces numbered `some` (S,) as separate videos: rows (S, length, D'), mask (S, length)."""
        steps = torch.arange(self.length, device=some.device)
        pair, at = self.pair[some], (self.begin[some][:, None] + steps).clamp(max=self.mask.shape[1] - 1)
        rows = videos.parts["rows"][pair[:, None], at]
        mask = steps < self.clips[some][:, None]
        return VideoEncoding(mask, parts={"rows": rows.where(mask[..., None], 0.0)})

    def joined(self, windows: Tensor) -> Tensor:
        """All windows (P, M, 3) of each pair, from (S, N, 3) of the pieces; missing ones score -inf."""
        counts = torch.bincount(self.pair, minlength=len(self.mask))
        # Padding counts here, so that batches padded to one length have as many windows.
        most = -(-max(0, self.mask.shape[1] - self.longest) // max(1, self.longest // 2)) + 1
        of_pairs = windows.new_zeros((len(self.mask), most, windows.shape[1], 3))
        of_pairs[..., 2] = -torch.inf
        of_pairs[torch.arange(most, device=windows.device) < counts[:, None]] = windows
        return of_pairs.flatten(1, 2)

    def averaged(self, curves: Tensor) -> Tensor:
        """(P, T): the mean of the pieces' curves (S, length) at each clip."""
        steps = torch.arange(self.length, device=curves.device)
        real = steps < self.clips[:, None]
        cell = (self.pair * self.mask.shape[1] + self.begin)[:, None] + steps
        total = curves.new_zeros(self.mask.numel()).index_add(0, cell[real], curves[real])
        count = curves.new_zeros(self.mask.numel()).index_add(0, cell[real], torch.ones_like(curves[real]))
        return (total / count.clamp(min=1)).view(self.mask.shape)


def endpoints(mask: Tensor) -> Tensor:
    """(V, T, 2): each clip's begin i/n and end i/n + 1/n as shares of its video of n clips; 0 in padding."""
    count = mask.sum(1, keepdim=True, dtype=torch.float32).clamp(min=1)
    begins = torch.arange(mask.shape[1], device=mask.device, dtype=torch.float32) / count
    return torch.stack([begins, begins + 1 / count], -1).masked_fill(~mask[..., None], 0.0)
