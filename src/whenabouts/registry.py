"""Folders that are registries: each module that declares something is an entry, and a new file is enough."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any


def modules_declaring(package: ModuleType | str, attribute: str) -> tuple[Any, ...]:
    """The modules of a package that have `attribute`, in the order of their names.

    Modules whose names begin with an underscore are not imported. The package's `__path__` is looked at in
    each call, so a folder that is added to it counts at once. The type is `Any` because modules of a registry
    have only those functions that they can honour.
    """
    if isinstance(package, str):
        package = importlib.import_module(package)
    return _modules_in(package.__name__, tuple(package.__path__), attribute)


@cache
def _modules_in(package: str, folders: tuple[str, ...], attribute: str) -> tuple[Any, ...]:
    names = sorted(entry.name for entry in pkgutil.iter_modules(folders) if not entry.name.startswith("_"))
    modules = [importlib.import_module(f"{package}.{name}") for name in names]
    return tuple(module for module in modules if hasattr(module, attribute))
