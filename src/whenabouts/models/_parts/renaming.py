"""Names of our parameters -> their names in a released program, by patterns that are applied in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import torch
from torch import nn

Patterns = Iterable[tuple[str, str]]
"""What `re.sub` replaces, and with what."""

OF_LAYERS: Patterns = (
    (r"_input_proj\.norm\.", "_input_proj.LayerNorm."),
    (r"_input_proj\.linear\.", "_input_proj.net.1."),
    (r"_pos_embed\.table\.", "_pos_embed.position_embeddings."),
    (r"_pos_embed\.norm\.", "_pos_embed.LayerNorm."),
    (r"((?:_encoder\w*|\.attn\d+|_self_attention)\.)attention\.", r"\1self."),
    (r"((?:_encoder\w*|\.attn\d+|_self_attention)\.)output\.", r"\1output.dense."),
    (r"((?:_encoder\w*|\.attn\d+|_self_attention)\.)norm\.", r"\1output.LayerNorm."),
    (r"_cross\.attention\.", "_cross_att."),
    (r"_cross\.norm\.", "_cross_layernorm."),
    (r"^pooling\.linear\.", "modular_vector_mapping."),
)
"""What `layers.py` calls its parts -> what XML's program does, and those that were made of it.

Patterns that say where the layers stand come first, and leave the names that begin these.
"""


def renamed_parameters(model: Callable[[], nn.Module], patterns: Patterns) -> dict[str, str]:
    """Our name of each parameter of a model -> the name that the patterns make of it."""
    with torch.device("meta"):  # names and shapes alone: no memory is taken
        ours = list(model().state_dict())
    names = dict(zip(ours, ours, strict=True))
    for pattern, released in patterns:
        names = {name: re.sub(pattern, released, now) for name, now in names.items()}
    return names
