"""Names of our parameters -> their names in a released program, by patterns that are applied in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

Patterns = Iterable[tuple[str, str]]
"""What `re.sub` replaces, and with what."""

ReleasedNames = Callable[[Any], dict[str, str]]
"""From the settings of a system: our name of each parameter -> its name in the released program."""

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


OF_BERT: Patterns = (
    (r"^projection\.", "trans_linear."),
    (r"^places\.", "position_embeddings."),
    (r"^types\.", "token_type_embeddings."),
    (r"layers\.", "layer."),
    (r"attention\.attention\.", "attention.self."),
    (r"attention\.output\.", "attention.output.dense."),
    (r"attention\.norm\.", "attention.output.LayerNorm."),
    (r"wide\.", "intermediate.dense."),
    (r"narrow\.", "output.dense."),
    (r"(layer\.\d+\.)norm\.", r"\1output.LayerNorm."),
    (r"\bnorm\.", "LayerNorm."),
    (r"\blinear\.", "net.1."),
)
"""What `bert.py` calls its parts -> what CONQUER's program does, and SQuiDNet's."""


def names_by(model: Callable[[Any], nn.Module], *patterns: tuple[str, str]) -> ReleasedNames:
    """`released_names` of a system whose parameters are all renamed by the same patterns."""
    return lambda config: renamed_parameters(lambda: model(config), patterns)


def renamed_parameters(model: Callable[[], nn.Module], patterns: Patterns) -> dict[str, str]:
    """Our name of each parameter of a model -> the name that the patterns make of it."""
    with torch.device("meta"):  # names and shapes alone: no memory is taken
        ours = list(model().state_dict())
    names = dict(zip(ours, ours, strict=True))
    for pattern, released in patterns:
        names = {name: re.sub(pattern, released, now) for name, now in names.items()}
    return names


def renamed_by_place(
    model: Callable[[], nn.Module], places: Iterable[tuple[str, str]], inside: Patterns
) -> dict[str, str]:
    """The same where a parameter's name begins with one of the `places`: their name of that, then the rest.

    The first place that fits counts; to the rest the patterns `inside` are applied.
    """
    places = tuple(places)
    with torch.device("meta"):
        ours = list(model().state_dict())
    return {name: _placed(name, places, inside) for name in ours}


def _placed(name: str, places: Iterable[tuple[str, str]], inside: Patterns) -> str:
    mine, theirs = next(place for place in places if name.startswith(place[0]))
    rest = name.removeprefix(mine)
    for pattern, released in inside:
        rest = re.sub(pattern, released, rest)
    return theirs + rest
