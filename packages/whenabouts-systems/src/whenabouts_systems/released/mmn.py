"""Import checkpoints of MMN and CroCs, and reproduce the departures of MMN's program from the paper.

All sizes follow from the tensors but two: the clips per cell, and the cells of the map. Both follow from the
data set (`--dataset`), which is guessed if it is not given.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.mmn import Model
from whenabouts_systems.models.parts.moment_map import cells_of
from whenabouts_systems.models.parts.mutual_matching import ABSENT, Positives, Rule, Truth
from whenabouts_systems.released.settings import Released, Settings

TITLE = "MMN, imported from a checkpoint of the authors' program (or of CroCs')"

_BERT = "text_encoder.bert."
# Older versions of the text encoder's library store this table of numbers as a parameter.
_UNUSED = frozenset({f"{_BERT}embeddings.position_ids"})
_WORDS = f"{_BERT}embeddings.word_embeddings.weight"
_TEXT_ENCODER = "distilbert-base-uncased"
_MOST_TOKENS = 512


@dataclass(frozen=True)
class _DataSet:
    """The program's settings for a data set, which are not in its tensors."""

    clips: int
    clips_per_cell: int
    counts: tuple[int, ...]
    config: dict[str, Any]
    nms: float
    clip_seconds: float


_CONFIG: dict[str, Any] = {"margin": 0.4, "lambda_contrast": 0.05, "contrast_epochs": 7}
_DATA_SETS = {
    "charades": _DataSet(32, 2, (15,), _CONFIG, 0.5, 1 / 6),
    "activitynet": _DataSet(
        256, 4, (15, 8, 8), {"margin": 0.3, "lambda_contrast": 0.1, "contrast_epochs": 6}, 0.5, 0.5
    ),
    "tacos": _DataSet(
        256,
        2,
        (15, 8, 8, 8),
        {
            "margin": 0.1,
            "lambda_contrast": 0.1,
            "contrast_epochs": 100,
            "positives": 3,
            "lowest_iou": 0.3,
            "highest_iou": 0.7,
            "score_power": 0.3,
        },
        0.4,
        0.5,
    ),
}


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and the data set."""
    data = _data_set(released)
    counts = _counts(released, data)
    text = _text(released)
    width = released.size("featpool.conv.weight", 1)
    encoder = released.overrides.encoders.get("query", _TEXT_ENCODER)
    released.refuse_encoders("query", "video")
    released.refuse_tef("MMN")
    config = {
        "streams": {"video": width},
        "query_width": text["dim"],
        "text_encoder": encoder,
        "text": text,
        "hidden": released.size("featpool.conv.weight", 0),
        "map_hidden": released.size("proposal_conv.convs.0.weight", 0),
        "joint": released.size("text_encoder.fc_out1.weight", 0),
        "clips_per_cell": data.clips_per_cell,
        "pooling_counts": counts,
        "map": "conv" if released.has("feat2d.convs.0.weight") else "pool",
        "map_kernel": released.size("proposal_conv.convs.0.weight", 2),
        "map_layers": released.count("proposal_conv.convs.{}.weight"),
        "as_released": True,
        **data.config,
    }
    inputs = Inputs(
        StreamInput(1, False),
        {"video": released.stream("video", width, True)},
        clip_seconds=released.overrides.clip_seconds or data.clip_seconds,
        max_clips=data.clips,
        max_tokens=min(_MOST_TOKENS, text["max_position_embeddings"]),
        long_videos="even-as-released",
        clips_per_cell=data.clips_per_cell,
        tokenizer=encoder,
    )
    cells = len(cells_of(counts, data.clips // data.clips_per_cell))
    decoding = Decoding(top_videos=100, nms=data.nms, spans_before_nms=cells)
    return Settings(config, inputs, decoding, "inclusive", unused=_UNUSED)


def _data_set(released: Released) -> _DataSet:
    """The data set's settings; if it is not given, the convolution's width and the file's name decide."""
    name = released.overrides.dataset or released.setting("dataset", "")
    if not name:
        path = str(released.checkpoint.path).lower()
        nine_wide = released.size("proposal_conv.convs.0.weight", 2) == 9
        name = "activitynet" if nine_wide else "tacos" if "tacos" in path else "charades"
        released.guessed.append(f"the data set: {name} (--dataset)")
    if name not in _DATA_SETS:
        raise UsageError(f"--dataset {name!r}: unknown; accepted: {', '.join(_DATA_SETS)}")
    return _DATA_SETS[name]


def _counts(released: Released, data: _DataSet) -> tuple[int, ...]:
    """Pooling counts: from the widths of the map's convolutions if it has any, else from the data set.

    A convolution of width 3 begins a new group; all others have width 2.
    """
    if not released.has("feat2d.convs.0.weight"):
        return data.counts
    count = released.count("feat2d.convs.{}.weight")
    widths = [released.size(f"feat2d.convs.{at}.weight", 2) for at in range(count)]
    borders = [0, *(at for at, width in enumerate(widths) if width == 3), count]
    return tuple(high - low for low, high in itertools.pairwise(borders))


def _text(released: Released) -> dict[str, int]:
    """The sizes of the text encoder."""
    width = released.size(_WORDS, 1)
    return {
        "vocab_size": released.size(_WORDS, 0),
        "max_position_embeddings": released.size(f"{_BERT}embeddings.position_embeddings.weight", 0),
        "n_layers": released.count(_BERT + "transformer.layer.{}.ffn.lin1.weight"),
        "n_heads": released.heads(width),
        "dim": width,
        "hidden_dim": released.size(f"{_BERT}transformer.layer.0.ffn.lin1.weight", 0),
    }


class ReleasedRule(Rule):
    """The program's sum over the negatives of a sentence.

    Cells of the sentence's own video with an IoU of `negative_iou` or more stay in the sum: each adds
    exp(0) = 1. A positive cell with a lower IoU (the moment is shorter than a cell) is also a negative. 1e-6
    is added to the sum.
    """

    epsilon = 1e-6

    def logits_inside(self, logits: Tensor, truth: Truth, positives: Positives) -> Tensor:
        zeroed = logits.masked_fill(truth.iou >= self.negative_iou, 0.0)
        return zeroed.masked_fill(~truth.cells[truth.video_of], ABSENT)[:, None]

    def log_of_negatives(self, inside: Tensor, outside: Tensor) -> Tensor:
        others = super().log_of_negatives(inside, outside)
        return torch.logaddexp(others, others.new_tensor(self.epsilon).log())


class AsReleased(Model):
    """MMN as its program computes it: `ReleasedRule`, and normalisation over the padded square of the map."""

    rule_class = ReleasedRule
    whole_square = True
