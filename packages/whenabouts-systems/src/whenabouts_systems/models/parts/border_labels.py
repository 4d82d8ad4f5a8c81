"""The settings, base class and loss that CET and BET share: soft labels of a moment's start and end.

Papers 001 (appendix C.2, equations 10 to 12) and 002 (appendix B.2, equations 9 and 10). The equations print
the numerators `x_e - i` and `i - x_s`, but the denominator `x_e* - x_s* + 1` and the condition
`x_s* <= i <= x_e*`. With first and last clip x_s* and x_e*, both inclusive, the denominator is the number of
clips n. A label is 1 at the true border only if the numerator is n there. So x_e is read as x_e* + 1, and x_s
as x_s* - 1:

    start: ((x_e* + 1 - i) / n)^k        end: ((i - x_s* + 1) / n)^k        inside the moment, else 0

The start's label is 1 at the first clip and (1 / n)^k at the last; the end's is the reverse. With x_e = x_e*
and x_s = x_s* (`to_the_letter`) the highest label is ((n - 1) / n)^k, and a moment of one clip has no border.

Other points that the papers leave open are read like this for both systems:

- heads (8), the inner width of the feed-forward parts (2,048) and dropout (0.1) come from the paper of the
  transformer. LayerNorm comes before the parts, which learns faster at a rate of 1e-3: with LayerNorm after
  them (`norm`), CET had two thirds of the recall after two epochs (simulated features, width 128);
- DistilBERT gives features ("extracted using Distil-BERT") and is not trained in the experiments; to train
  it, see `frozen` and `rates` of an experiment's [training];
- several streams are concatenated before equation 7;
- the cross-entropy is a mean over the clips of a query's own video, then over queries, without other videos;
- a span scores the logarithm of p_start * p_end; the video itself has no score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.layers import PositionEmbedding
from whenabouts_systems.models.parts.packing import Packing
from whenabouts_systems.models.parts.ranking_loss import weighted_mean
from whenabouts_systems.models.parts.text_encoder import Words, check_sizes
from whenabouts_systems.models.parts.transformer import Norm, TransformerEncoder
from whenabouts_systems.models.protocol import Batch, ClipBatch, Losses
from whenabouts_systems.models.settings import (
    NotNegative,
    Positive,
    Share,
    Size,
    Streams,
    SystemSettings,
    name_of_system,
)


@dataclass(frozen=True)
class BorderSettings(SystemSettings):
    """Settings of CET and BET; defaults are published where the papers give a value."""

    streams: Streams = field(default_factory=lambda: {"video": 4096})
    """Stream -> width of its features."""
    query_width: Size = 768
    """Width of words' features; unused with a `text_encoder`."""
    text_encoder: str = ""
    """Folder or hub repository of the DistilBERT that a training begins with; "": words come as features."""
    text: Mapping[str, Size] = field(default_factory=dict)
    """Sizes of the text encoder that differ from distilbert-base; see `parts/text_encoder.py`."""
    hidden: Size = 512
    """d of the paper."""
    layers: Size = 6
    heads: Size = 8
    feedforward: Size = 2048
    norm: Norm = "before"
    max_clips: Size = 128
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    initializer_range: NotNegative = 0.02
    label_power: Positive = 10.0
    """k of the paper: the higher, the faster labels fall off from the border."""
    as_released: bool = False
    """Equation 10 to the letter; no program was released."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self.text, name_of_system(self))

    def transformer(self) -> TransformerEncoder:
        """A transformer with fresh weights."""
        return TransformerEncoder(
            self.layers, self.hidden, self.heads, self.feedforward, self.dropout, self.norm
        )


class BorderModel(nn.Module):
    """The layers before the transformer, and the loss; these systems do not score videos."""

    video_weight = 0.0

    def __init__(self, config: BorderSettings) -> None:
        super().__init__()
        self.config = config
        width = config.hidden
        self.clip_projection = nn.Linear(sum(config.streams.values()), width, bias=False)
        self.words = Words(config.query_width, config.text if config.text_encoder else None)
        self.token_projection = nn.Linear(self.words.width, width, bias=False)
        self.clip_positions = PositionEmbedding(config.max_clips, width, config.input_dropout, "clips")

    def begin(self) -> None:
        """Before the first step: load the pretrained text encoder, if one is set."""
        self.words.begin(self.config.text_encoder)

    def clips(self, videos: ClipBatch, packing: Packing) -> Tensor:
        """(N, D): packed clips of the transformer's width (equation 7), with places added."""
        features = torch.cat([packing.pack(videos.streams[name]) for name in self.config.streams], dim=1)
        rows: Tensor = self.clip_positions(self.clip_projection(features), packing)
        return rows

    def border_loss(self, logits: Tensor, batch: Batch) -> Losses:
        """The terms `start` and `end` of equation 12, from logits (2, Q, T) in each query's own video."""
        power, to_the_letter = self.config.label_power, self.config.as_released
        labels = interpolated_labels(batch.spans, logits.shape[2], power, to_the_letter=to_the_letter)
        return border_terms(logits, labels, batch.videos.mask[batch.video_of], batch.weight)


def interpolated_labels(
    spans: Tensor, clips: int, power: float, *, to_the_letter: bool = False
) -> tuple[Tensor, Tensor]:
    """(Q, T) labels of start and end in [0, 1], for moments with first and last clips `spans` (Q, 2).

    `clips` is T, `power` is k of paper 001, equation 10.

    >>> start, end = interpolated_labels(torch.tensor([[1, 2]]), 4, 2.0)
    >>> start.tolist(), end.tolist()
    ([[0.0, 1.0, 0.25, 0.0]], [[0.0, 0.25, 1.0, 0.0]])
    """
    place = torch.arange(clips, device=spans.device)
    first, last = spans[:, :1], spans[:, 1:]
    inside = (place >= first) & (place <= last)
    reach = 0 if to_the_letter else 1
    count = last - first + 1
    start = ((last + reach - place) / count).clamp(min=0) ** power
    end = ((place - first + reach) / count).clamp(min=0) ** power
    return torch.where(inside, start, 0.0), torch.where(inside, end, 0.0)


def border_terms(
    logits: Tensor, labels: tuple[Tensor, Tensor], mask: Tensor, weight: Tensor | None
) -> dict[str, Tensor]:
    """The terms `start` and `end`; their sum is equation 12 of paper 001.

    Equation 11: binary cross-entropy, averaged over the real clips of each query's video. Each term is half
    the mean over queries, with `weight` (Q,) if given. `logits` (2, Q, T), `labels` (Q, T) twice, `mask`
    (Q, T).
    """
    entropy = functional.binary_cross_entropy_with_logits(
        logits.float(), torch.stack(labels), reduction="none"
    )
    means = (entropy * mask).sum(2) / mask.sum(1)
    return dict(zip(("start", "end"), 0.5 * weighted_mean(means, weight), strict=True))
