"""Start HERO's cross-modal transformer with all layers of a pretrained RoBERTa, or with every second one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from whenabouts.intake import hub
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError

_WEIGHTS = "model.safetensors"
FIRST_PLACE = 2
"""The row of RoBERTa's position embeddings for the first token; the rows before it are for padding."""


def begin_as_roberta(
    parameters: Mapping[str, nn.Parameter], name: str, layers: int, first_place: int
) -> bool:
    """Copy a RoBERTa's weights into `parameters`, keyed by its names; False if this machine lacks them.

    `name` is a folder or a hub repository on this machine. From a RoBERTa of twice `layers` layers, layers 1,
    3, 5 and so on (from 0) are copied. Position i gets row `first_place` + i of its position embeddings, each
    token type its only type. Rows that its embeddings lack are 0. Raises FormatError for unreadable or
    missing weights, UsageError for other sizes.
    """
    file = _weights_of(name)
    if file is None:
        return False
    try:
        stored = {key.removeprefix("roberta."): tensor for key, tensor in load_file(file).items()}
    except (SafetensorError, OSError) as error:
        raise FormatError(file, f"cannot be read: {error}") from None
    stored_layers = sum(key.endswith(".intermediate.dense.weight") for key in stored)
    if stored_layers not in (layers, 2 * layers):
        raise UsageError(f"{file}: has {stored_layers} layers; cross_modal takes {layers} or {2 * layers}")
    step = stored_layers // layers
    for key, parameter in parameters.items():
        # Of each `step` layers the last one is copied.
        source = re.sub(
            r"(?<=^encoder\.layer\.)\d+", lambda number: str(step * int(number[0]) + step - 1), key
        )
        if source not in stored:
            raise FormatError(file, f"lacks {source!r}", accepted="the weights of a RoBERTa")
        rows = stored[source][first_place:] if "position_embeddings" in key else stored[source]
        _put(parameter, rows, key, file)
    return True


def _weights_of(name: str) -> Path | None:
    folder = Path(name).expanduser()
    if not folder.is_dir():
        try:
            folder = hub.folder_of(name, lambda place: (place / _WEIGHTS).is_file())
        except hub.HubError:
            return None
    return folder / _WEIGHTS if (folder / _WEIGHTS).is_file() else None


@torch.no_grad()
def _put(parameter: nn.Parameter, rows: Tensor, key: str, file: Path) -> None:
    is_table = key.endswith("_embeddings.weight")
    if rows.shape[1:] != parameter.shape[1:] or (not is_table and len(rows) != len(parameter)):
        raise UsageError(f"{file}: {key} is {tuple(rows.shape)}, the model needs {tuple(parameter.shape)}")
    if "token_type" in key:
        parameter.copy_(rows[:1].expand_as(parameter))
        return
    count = min(len(rows), len(parameter))
    parameter.zero_()
    parameter[:count] = rows[:count]
