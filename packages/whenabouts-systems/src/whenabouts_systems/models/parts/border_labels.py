"""What CET and BET have alike: labels of a moment's borders that fall off inside it, and what learns them.

Papers 001 (appendix C.2, equations 10 to 12) and 002 (appendix B.2, equations 9 and 10). The printed
numerators are `x_e - i` and `i - x_s`, the denominators and conditions have stars: `x_e* - x_s* + 1`,
`x_s* <= i <= x_e*`. With starred first and last clips, both inclusive, `x_e* - x_s* + 1` is the moment's
number of clips n; a label that is to be 1 at the true border then asks for numerators of n there. So `x_e` is
read as the border behind the last clip, `x_e* + 1`, and `x_s` as the clip before the first, `x_s* - 1`:

    start: ((x_e* + 1 - i) / n)^k        end: ((i - x_s* + 1) / n)^k        inside the moment, else 0

The start's label is 1 at the first clip and (1 / n)^k at the last, the end's the other way round. Read
without a difference between starred and plain (`to_the_letter`), the highest label is ((n - 1) / n)^k, and a
moment of one clip has no border at all.
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
from whenabouts_systems.models.settings import NotNegative, Positive, Share, Size, Streams, check_settings


@dataclass(frozen=True)
class BorderSettings:
    """Settings of CET and of BET; the defaults are the published ones where there are any."""

    streams: Streams = field(default_factory=lambda: {"video": 4096})
    """Stream -> width of its features."""
    query_width: Size = 768
    """Width of words' features; not used where there is a `text_encoder`."""
    text_encoder: str = ""
    """A DistilBERT by the name of a folder or of a hub's repository, from which a training begins ("": the
    words come as features)."""
    text: Mapping[str, Size] = field(default_factory=dict)
    """Its sizes where they are not those of distilbert-base; see `parts/text_encoder.py`."""
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
    """k of the paper: how fast labels fall off beside the borders."""
    as_released: bool = False
    """No program was released; this takes equation 10 to the letter. See `parts/border_labels.py`."""

    def check(self, system: str) -> None:
        """Raise UsageError, naming the system, where a setting makes no model."""
        check_settings(self, system)
        check_sizes(self.text, system)

    def transformer(self) -> TransformerEncoder:
        """A transformer of these settings with fresh weights."""
        return TransformerEncoder(
            self.layers, self.hidden, self.heads, self.feedforward, self.dropout, self.norm
        )


class BorderModel(nn.Module):
    """What stands before the transformer, and the loss; a video has no score of its own."""

    def __init__(self, config: BorderSettings) -> None:
        super().__init__()
        self.config = config
        width = config.hidden
        self.clip_projection = nn.Linear(sum(config.streams.values()), width, bias=False)
        self.words = Words(config.query_width, config.text if config.text_encoder else None)
        self.token_projection = nn.Linear(self.words.width, width, bias=False)
        self.clip_positions = PositionEmbedding(config.max_clips, width, config.input_dropout, "clips")

    def begin(self) -> None:
        """Read the pretrained text encoder, where there is one, before a training's first step."""
        self.words.begin(self.config.text_encoder)

    @property
    def video_weight(self) -> float:
        """0: a video has no score of its own."""
        return 0.0

    def clips(self, videos: ClipBatch, packing: Packing) -> Tensor:
        """(N, D): packed clips of the transformer's width (equation 7), in their places."""
        features = torch.cat([packing.pack(videos.streams[name]) for name in self.config.streams], dim=1)
        rows: Tensor = self.clip_positions(self.clip_projection(features), packing)
        return rows

    def border_loss(self, logits: Tensor, batch: Batch) -> Losses:
        """The terms `start` and `end` of equation 12, from the logits (2, Q, T) in each query's own video."""
        power, to_the_letter = self.config.label_power, self.config.as_released
        labels = interpolated_labels(batch.spans, logits.shape[2], power, to_the_letter=to_the_letter)
        return border_terms(logits, labels, batch.videos.mask[batch.video_of], batch.weight)


def interpolated_labels(
    spans: Tensor, clips: int, power: float, *, to_the_letter: bool = False
) -> tuple[Tensor, Tensor]:
    """(Q, T) labels of start and of end, in [0, 1], of moments whose first and last clip are `spans` (Q, 2).

    `clips` is T, `power` is the k of the paper: the higher, the faster labels fall off. Paper 001, equation
    10.

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
    """The terms `start` and `end`, whose sum is equation 12 of paper 001: half of each, the mean over
    queries.

    Equation 11: the binary cross-entropy, the mean over the real clips of a query's video. `logits` (2, Q,
    T), `labels` (Q, T) twice, `mask` (Q, T); `weight` (Q,) weighs queries where it is given.
    """
    entropy = functional.binary_cross_entropy_with_logits(
        logits.float(), torch.stack(labels), reduction="none"
    )
    means = (entropy * mask).sum(2) / mask.sum(1)
    return dict(zip(("start", "end"), 0.5 * weighted_mean(means, weight), strict=True))
