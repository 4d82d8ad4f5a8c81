"""Systems that find moments: one file per trained system, the folder is the registry.

Every module here that has a `Config` and a `Model` (see `protocol.MomentModel`) is a trained system, named
after its file; so is one that a plugin adds (`whenabouts.models`).
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts import plugins
from whenabouts.types import UsageError
from whenabouts_systems.models.settings import check_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["config_of", "model_names", "new_model"]

_parsing = threading.Lock()
"""Two threads that parse at once may make CPython 3.11 raise a SystemError: it happened in a server."""


@cache
def model_names() -> tuple[str, ...]:
    """Names of the systems that can be trained; imports none of them."""
    here = Path(__file__).parent
    own = (path.stem for path in here.glob("[a-z]*.py") if _is_system(path))
    return tuple(sorted({*own, *plugins.entries("models")}))


def config_of(name: str, settings: Mapping[str, Any]) -> Any:
    """The `Config` of a system with some settings; UsageError names a wrong setting and those there are."""
    config: Any = _module(name).Config
    check_keys(settings, config, name)
    return config(**settings)


def new_model(name: str, config: Any) -> Any:
    """A system with fresh weights (drawn from PyTorch's generator).

    Raises UsageError where its settings ask for more memory than there is.
    """
    try:
        return _class(name, config)(config)
    except (MemoryError, OverflowError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{name}: a system of these settings cannot be made here ({reason})") from error


def _is_system(path: Path) -> bool:
    """Whether a file defines the classes `Config` and `Model`."""
    with _parsing:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    return {"Config", "Model"} <= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def _class(name: str, config: Any) -> Any:
    """The paper's system, or the `AsReleased` of its module in `released/`, where it has one."""
    module = _module(name)
    if getattr(config, "as_released", False) and name not in plugins.entries("models"):
        place = f"{__name__.rpartition('.')[0]}.released.{name}"
        if importlib.util.find_spec(place) is not None:
            return getattr(importlib.import_module(place), "AsReleased", module.Model)
    return module.Model


def _module(name: str) -> Any:
    if name not in model_names():
        raise UsageError(f"{name!r}: no such system; known: {', '.join(model_names())}")
    if name in plugins.entries("models"):
        return plugins.load("models", name)
    return importlib.import_module(f"{__name__}.{name}")
