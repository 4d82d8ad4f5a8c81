"""Checkers: models that look at a moment again and say whether it matches; one file per kind.

Every module here whose name does not begin with an underscore is a kind (see `protocol.Kind`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from whenabouts import plugins
from whenabouts.checkers.protocol import Checker, CheckerError, CheckerUnavailable, View, look
from whenabouts.intake.hub import ModelCard

__all__ = [
    "Checker",
    "CheckerError",
    "CheckerUnavailable",
    "View",
    "check_models",
    "look",
    "open_checker",
]

_NO_KIND = {"protocol"}


def open_checker(name: str, *, send_frames: bool = False) -> Checker:
    """The checker of a name, a folder or an address followed by '#' and the model.

    `send_frames` permits sending frames and words of videos to another machine. Raises CheckerUnavailable or
    UsageError with a remedy.
    """
    for kind in _kinds():
        if kind.recognises(name):
            checker: Checker = kind.open(name, send_frames=send_frames)
            return checker
    raise CheckerUnavailable(
        f"{name!r}: no such model to check with; give a folder, a hub's name (owner/name) or an address "
        "such as http://127.0.0.1:8000/v1#MODEL"
    )


def check_models() -> list[ModelCard]:
    """The models that the kinds list; others of their kind work as well."""
    return [model for kind in _kinds() for model in getattr(kind, "MODELS", ())]


def _kinds() -> Iterator[Any]:
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names if name not in _NO_KIND]
    modules += plugins.loaded("checkers").values()
    yield from sorted(modules, key=lambda module: (module.ORDER, module.__name__))
