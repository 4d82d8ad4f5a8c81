"""The base class of systems whose authors' program departs from their paper."""

from __future__ import annotations

import importlib
from typing import Any, Self

from torch import nn

from whenabouts.types import UsageError

_PAPERS = __name__.removesuffix("parts.paper_model")
_PROGRAMS = _PAPERS.replace(".models.", ".released.")


class PaperModel(nn.Module):
    """A system as its paper describes it.

    `Model(config)` makes the system of the paper, or with `config.as_released` the subclass `AsReleased` of
    `released/<system>.py`, as `pathlib.Path()` makes a `PosixPath`. Raises UsageError if `AsReleased` is
    called with the settings of the paper.
    """

    def __new__(cls, config: Any = None) -> Self:  # a copy is made without a config
        released = getattr(config, "as_released", False)
        if released and cls.__module__.startswith(_PAPERS):
            program: Any = importlib.import_module(_PROGRAMS + cls.__module__.removeprefix(_PAPERS))
            cls = program.AsReleased
        elif config is not None and not released and cls.__module__.startswith(_PROGRAMS):
            raise UsageError(f"{cls.__module__}.{cls.__name__}: as_released is false; accepted: true")
        return super().__new__(cls)
