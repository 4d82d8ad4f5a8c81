"""The registry of systems that find videos or moments: the files of this folder with a `Config` and `Model`.

A system is a module with a `Config` and a `Model` (see `protocol.MomentModel`). Its name is the file's, and
`config_of` and `new_model` import it by that name. Plugins add systems by the entry point
`whenabouts.models`.
"""

from __future__ import annotations

import ast
import importlib
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts import plugins
from whenabouts.lines import first_line
from whenabouts.types import UsageError
from whenabouts_systems.models.settings import check_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["config_of", "model_names", "module_of", "new_model"]

_parsing = threading.Lock()
"""Needed because CPython 3.11 may raise SystemError if two threads parse at once, as happened in a server."""


@cache
def model_names() -> tuple[str, ...]:
    """Names of all systems, sorted; imports none of them."""
    folder = Path(__file__).parent
    included = (path.stem for path in folder.glob("[a-z]*.py") if _is_system(path))
    return tuple(sorted({*included, *plugins.entries("models")}))


def config_of(name: str, settings: Mapping[str, Any]) -> Any:
    """The `Config` of a system. Raises UsageError for an unknown setting, and lists the known ones."""
    config: Any = module_of(name).Config
    check_keys(settings, config, name)
    return config(**settings)


def new_model(name: str, config: Any) -> Any:
    """A system with fresh weights, drawn from PyTorch's generator.

    Raises UsageError if it cannot be made (too little memory), or its `video_weight` is not a number.
    """
    try:
        model = module_of(name).Model(config)
        if not hasattr(getattr(model, "video_weight", 0.0), "__float__"):
            problem = f"video_weight is {model.video_weight!r}; accepted: a number"
            raise UsageError(f"{type(model).__module__}: {problem}")
        return model
    except (MemoryError, OverflowError, RuntimeError) as error:
        reason = first_line(error)
        raise UsageError(f"{name}: a system with these settings cannot be made ({reason})") from error


def _is_system(path: Path) -> bool:
    """Whether a file defines the classes `Config` and `Model`."""
    with _parsing:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    return {"Config", "Model"} <= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def module_of(name: str) -> Any:
    """The plugin's object of that name, else the module of the file. Raises UsageError if unknown."""
    if name not in model_names():
        names = ", ".join(model_names())
        raise UsageError(f"{name!r}: no such system; known: {names}; perhaps in a package not installed here")
    if name in plugins.entries("models"):
        return plugins.load("models", name)
    return importlib.import_module(f"{__name__}.{name}")
