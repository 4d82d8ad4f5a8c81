"""Rename our parameters as a released program names them, by regular expressions applied in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

Patterns = Iterable[tuple[str, str]]
"""Pairs of arguments for `re.sub`: a pattern and its replacement."""

ReleasedNames = Callable[[Any], dict[str, str]]
"""A function from a system's settings to a mapping: our name of each parameter -> its released name."""

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
"""Names of the parts of `layers.py`, as in XML's program and those derived from it.

A system's own patterns must come first, and keep the beginnings that these patterns match.
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
"""Names of the parts of `bert.py`, as in CONQUER's and SQuiDNet's programs."""


def names_by(model: Callable[[Any], nn.Module], *patterns: tuple[str, str]) -> ReleasedNames:
    """`released_names` of a system whose parameters are all renamed by the same patterns."""
    return lambda config: renamed_parameters(lambda: model(config), patterns)


def renamed_parameters(model: Callable[[], nn.Module], patterns: Patterns) -> dict[str, str]:
    """Our name of each parameter of a model -> its released name, after all patterns."""
    patterns = tuple(patterns)
    return {name: _renamed(name, patterns) for name in _names_in(model)}


def renamed_by_place(
    model: Callable[[], nn.Module], places: Iterable[tuple[str, str]], inside: Patterns
) -> dict[str, str]:
    """Our name of each parameter of a model -> its released name, for models renamed by prefix.

    `places` are pairs of prefixes, ours and the program's; the first pair that fits a name counts. The
    patterns `inside` are applied to the rest of the name.
    """
    places, renamed = tuple(places), {}
    for name in _names_in(model):
        prefix, released_prefix = next(place for place in places if name.startswith(place[0]))
        renamed[name] = released_prefix + _renamed(name.removeprefix(prefix), inside)
    return renamed


def _names_in(model: Callable[[], nn.Module]) -> list[str]:
    with torch.device("meta"):  # only names and shapes, without memory
        return list(model().state_dict())


def _renamed(name: str, patterns: Patterns) -> str:
    for pattern, released in patterns:
        name = re.sub(pattern, released, name)
    return name
