"""A system that a plugin declares, for tests of what treats it like a file of `models/`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint

import pytest

from whenabouts import plugins
from whenabouts_systems.models import model_names


@contextmanager
def declared_system(name: str, module: str) -> Iterator[None]:
    """Inside, `module` is the only plugin system, under `name`."""
    entry, entries = EntryPoint(name, module, "whenabouts.models"), plugins.entries

    def with_system(group: str) -> dict[str, EntryPoint]:
        return {name: entry} if group == "models" else entries(group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "entries", with_system)
        model_names.cache_clear()
        try:
            yield
        finally:
            model_names.cache_clear()
