"""Names of our parameters -> their names in a released program, by patterns that are applied in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import torch
from torch import nn

Patterns = Iterable[tuple[str, str]]
"""What `re.sub` replaces, and with what."""


def renamed_parameters(model: Callable[[], nn.Module], patterns: Patterns) -> dict[str, str]:
    """Our name of each parameter of a model -> the name that the patterns make of it."""
    with torch.device("meta"):  # names and shapes alone: no memory is taken
        ours = list(model().state_dict())
    names = dict(zip(ours, ours, strict=True))
    for pattern, released in patterns:
        names = {name: re.sub(pattern, released, now) for name, now in names.items()}
    return names
