"""EaTR (Jang et al., ICCV 2023): predict windows that start from the events of the video.

Clips and words go through one encoder together, as in Moment-DETR. Slot attention groups the clips into
events, without the query. Each event gives a window of the decoder its initial content and its first anchor.
In the decoder's first layer, the sentence gates the windows. In training, the events are matched with the
segments between the clips where the features change most.

Readings: the sentence is the maximum over its words; the anchors come from the slots, but the events of the
loss from the slots after a LayerNorm, as in the released program. `released/eatr.py` has that program's
treatment of padding. See `moment_detr` for what the family shares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.detr_layers import AnchorLayer, SelfLayers, inverse_sigmoid, sines
from whenabouts_systems.models.parts.detr_names import (
    OF_ANCHOR_DECODER,
    OF_SELF_LAYERS,
    OF_SLOT_ATTENTION,
    detr_names,
    perceptron_names,
)
from whenabouts_systems.models.parts.layers import Dropout
from whenabouts_systems.models.parts.slot_attention import SlotAttention
from whenabouts_systems.models.parts.transformer import perceptron
from whenabouts_systems.models.parts.window_model import Detected, WindowModel, WindowSettings
from whenabouts_systems.models.parts.window_targets import Windows, assigned_spans
from whenabouts_systems.models.protocol import Batch, Losses, QueryEncoding, VideoEncoding
from whenabouts_systems.models.settings import NotNegative

__all__ = ["Config", "Model", "released_names"]

_ROUNDS = 3
_ABOVE_ANY_CHANGE = 100.0
"""Score that makes the first and the last clip borders; a change is at most (2 + 2) ** 2 = 16."""


@dataclass(frozen=True)
class Config(WindowSettings):
    """Settings of EaTR: those of the family, and `weight_event`, the weight of the terms of events."""

    weight_event: NotNegative = 3.0


class SentenceGate(nn.Module):
    """Gates the windows with the sentence (equations 6 and 7)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.sentence = nn.MultiheadAttention(width, 1, dropout, batch_first=True)
        self.windows = nn.MultiheadAttention(width, 1, dropout, batch_first=True)
        self.linear = nn.Linear(width, width)
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(width)

    def forward(self, windows: Tensor, sentence: Tensor) -> Tensor:
        """(P, N, D) windows and (P, 1, D) sentences to (P, N, D)."""
        addition = self.sentence(windows, sentence, sentence, need_weights=False)[0]
        both = windows + addition
        mixed = self.windows(both, both, both, need_weights=False)[0]
        added = self.dropout(functional.relu(self.linear((windows * addition).sigmoid() * mixed)))
        gated: Tensor = self.norm(windows + added)
        return gated


class EventDecoder(nn.Module):
    """DAB-DETR's decoder on spans, beginning with events; compare `AnchorDecoder`."""

    def __init__(self, layers: int, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.ModuleList(
            AnchorLayer(width, heads, inner, dropout, first=layer == 0, learned=False)
            for layer in range(layers)
        )
        self.gate = SentenceGate(width, dropout)
        self.norm = nn.LayerNorm(width)
        self.anchor_places = perceptron(2 * width, width, (width,))
        self.scale = perceptron(width, width, (width,))
        self.width_of = perceptron(width, 1, (width,))

    def forward(
        self,
        windows: Tensor,
        anchors: Tensor,
        memory: tuple[Tensor, Tensor, Tensor],
        sentence: Tensor,
        mend: nn.Module,
    ) -> tuple[Tensor, Tensor]:
        """Windows (layers, P, N, D) and the anchors (layers, P, N, 2) that each layer began with.

        `windows` (P, N, D) and `anchors` (P, N, 2) are the events, `memory` clips and words with their places
        and mask, `sentence` (P, 1, D). `mend` turns a window into the change of its anchor's logit.
        """
        begun, outcomes = [anchors], []
        anchors = anchors.detach()
        for number, layer in enumerate(self.layers):
            both = sines(anchors * (2 * math.pi), self.width)
            where, turned = self.anchor_places(both.flatten(-2)), both[..., 0, :] * self.scale(windows)
            turned = turned * (self.width_of(windows).sigmoid() / anchors[..., 1:])
            gate = None if number else partial(self.gate, sentence=sentence)
            windows = layer(windows, where, turned, memory, gate)
            mended = (mend(windows) + inverse_sigmoid(anchors)).sigmoid()
            begun.append(mended)
            anchors = mended.detach()
            outcomes.append(self.norm(windows))
        return torch.stack(outcomes), torch.stack(begun[:-1])


@dataclass(frozen=True)
class WithEvents(Detected):
    """Windows, saliency, and `events` (P, N, 2): the centre and width of each."""

    events: Tensor


class Model(WindowModel):
    """EaTR with fresh weights: a localizer (see `protocol`)."""

    counts_padding = False
    """Whether padding counts in the maximum over words, in the slots (in equal shares) and in the events."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        hidden = config.hidden
        sizes = (hidden, config.heads, config.feedforward, config.dropout)
        self.encoder = SelfLayers(config.encoder_layers, *sizes)
        self.slots = nn.Parameter(nn.init.xavier_normal_(torch.empty(config.windows, hidden)))
        self.slot_attention = SlotAttention(hidden, _ROUNDS, (hidden,), share_padding=self.counts_padding)
        self.event_norm = nn.LayerNorm(hidden)
        self.event = perceptron(hidden, 2)
        self.decoder = EventDecoder(config.decoder_layers, *sizes)
        self.moment = perceptron(hidden, 2)
        self.salient = nn.Linear(hidden, 1)

    def detect(self, queries: QueryEncoding, videos: VideoEncoding) -> WithEvents:
        clips, words, word_mask = self.clips_of(videos), queries.parts["words"], queries.parts["mask"]
        memory, places, mask = self.encoder.with_words(clips, videos.mask, words, word_mask)
        slots = self.slots.expand(len(clips), -1, -1)
        slots = self.slot_attention(slots, clips + places[:, : clips.shape[1]], videos.mask)
        real_words = words if self.counts_padding else words.masked_fill(~word_mask[..., None], -torch.inf)
        sentence = real_words.amax(1, keepdim=True)
        anchors = self.event(slots).sigmoid()
        windows, anchors = self.decoder(slots, anchors, (memory, places, mask), sentence, self.moment)
        spans = (self.moment(windows) + inverse_sigmoid(anchors)).sigmoid()
        layers = tuple(Windows(*layer) for layer in zip(self.classes(windows), spans, strict=True))
        saliency = self.salient(memory[:, : clips.shape[1]])[..., 0]
        return WithEvents(layers, saliency, self.event(self.event_norm(slots)).sigmoid())

    def other_losses(
        self, batch: Batch, detected: Detected, queries: QueryEncoding, videos: VideoEncoding
    ) -> Losses:
        """Terms `event_span` and `event_giou`: predicted events, matched with `events_of` the features."""
        assert isinstance(detected, WithEvents)
        rows = self.with_endpoints(videos)
        events = events_of(rows, videos.mask, across_batch=self.counts_padding)
        weight = self.config.weight_event
        losses = assigned_spans(detected.events, events, self.config.weights, self.config.costs)
        return {f"event_{name}": weight * loss for name, loss in losses.items()}


def events_of(rows: Tensor, mask: Tensor, *, across_batch: bool) -> Tensor:
    """The events of each video (section 3.2): (Q, W, 2) centre and width as shares of it, padded with NaN.

    `rows` (Q, T, D) are the features, `mask` is (Q, T). An event lies between two successive borders. A clip
    is a border if its change is at least that of each neighbour and at least the mean; the first and the last
    clip always are. With `across_batch`, padding counts, and if Q is odd, the middle video gets one more
    event, from the last border of the batch's last video to clip 0.
    """
    clips, seen = mask.sum(1), mask | across_batch
    score = _change(rows, mask)
    mean = (score * seen).sum(1, keepdim=True) / seen.sum(1, keepdim=True).clamp(min=1)
    ends = torch.stack([torch.zeros_like(clips), (clips - 1).clamp(min=0)], 1)
    score = score.scatter(1, ends, _ABOVE_ANY_CHANGE).masked_fill(~seen, -torch.inf)
    border = (score >= score.roll(1, 1)) & (score >= score.roll(-1, 1)) & (score >= mean)
    place = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    last = place.where(border, -1).cummax(1).values
    before = functional.pad(last[:, :-1], (1, 0), value=-1)
    exists = border & (before >= 0)
    spans = torch.stack([(place + before) / 2, (place - before).float()], -1)
    if across_batch and len(mask) % 2:
        wrapped = torch.stack([last[-1, -1] / 2, -last[-1, -1].float()])
        middle = torch.arange(len(mask), device=mask.device) == len(mask) // 2
        spans = torch.cat([wrapped.expand(len(mask), 1, 2), spans], 1)
        exists = torch.cat([middle[:, None], exists], 1)
    shares = (spans / clips.clamp(min=1)[:, None, None]).masked_fill(~exists[..., None], torch.nan)
    order = exists.logical_not().to(torch.int8).argsort(dim=1, stable=True)[:, : int(exists.sum(1).max())]
    return shares.gather(1, order[..., None].expand(-1, -1, 2))


def _change(rows: Tensor, mask: Tensor) -> Tensor:
    """(Q, T) squared differences between the sums of the two unit vectors before and after each clip.

    The paper's 5 x 5 pattern gives the same on the diagonal of the self-similarity matrix.
    """
    rows = rows.float().masked_fill(~mask[..., None], 0.0)
    unit = functional.pad(rows / (rows.norm(dim=-1, keepdim=True) + 1e-8), (0, 0, 2, 2))
    steps = rows.shape[1]
    before, behind = (unit[:, at : at + steps] + unit[:, at + 1 : at + 1 + steps] for at in (0, 3))
    return (before - behind).square().sum(-1)


released_names = detr_names(
    Model,
    *perceptron_names("event", "event_span_embed", 3),
    *perceptron_names("moment", "moment_span_embed", 3),
    (r"^classes\.", "class_embed."),
    (r"^salient\.", "saliency_proj."),
    (r"^slots$", "transformer.decoder.slot_atten.slots"),
    (r"^slot_attention\.", "transformer.decoder.slot_atten."),
    *OF_SLOT_ATTENTION,
    (r"^event_norm\.", "transformer.decoder.event_norm."),
    (r"^decoder\.gate\.sentence\.", "transformer.decoder.layers.0.gate_cross_attn."),
    (r"^decoder\.gate\.windows\.", "transformer.decoder.layers.0.gate_self_attn."),
    (r"^decoder\.gate\.", "transformer.decoder.layers.0.gate_"),
    (r"^encoder\.", "transformer.encoder.layers."),
    *OF_ANCHOR_DECODER,
    *OF_SELF_LAYERS,
)
