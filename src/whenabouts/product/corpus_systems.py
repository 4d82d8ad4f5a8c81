"""The trained systems that search a corpus, kept open until their files or the streams change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from whenabouts.models.trained import Trained
from whenabouts.product.systems.search import TrainedSearch, open_search
from whenabouts.ranking.opened_system import OpenedModel, open_model

if TYPE_CHECKING:
    from whenabouts.product.encoder_registry import EncoderRegistry
    from whenabouts.product.index.store import Store

System = str | os.PathLike[str] | Trained
"""A trained system: a folder, a hub's name, or an object."""


class CorpusSystems:
    """Trained systems on one handle of a corpus."""

    def __init__(
        self, store: Store, encoders: EncoderRegistry, loaded: dict[str, OpenedModel] | None = None
    ) -> None:
        """`loaded` systems are shared with other handles."""
        self._store, self._encoders = store, encoders
        self._loaded = {} if loaded is None else loaded
        self._searches: dict[str, tuple[Any, TrainedSearch]] = {}

    def search(
        self, model: System, retriever: System | None = None, segments: float | None = None
    ) -> TrainedSearch:
        """A trained system on whole videos, or on segments of so many seconds.

        `retriever` chooses the videos for it, in place of the one that a staged run names.
        """
        opened, name = self._open(model, retriever)
        state, name = (opened, self._store.streams), f"{name}\0{segments and float(segments)}"
        if name not in self._searches or self._searches[name][0] != state:
            self._searches[name] = state, open_search(self._store, self._encoders, opened, segments)
        return self._searches[name][1]

    def _open(self, model: System, retriever: System | None) -> tuple[OpenedModel, str]:
        """A trained system with its retriever, and what distinguishes the pair from others."""
        given, name = _named(model)
        chooser, chooser_name = (None, "") if retriever is None else _named(retriever)
        name = f"{name}\0{chooser_name}"
        opened = self._loaded.get(name)
        if opened is None or not opened.is_current:
            opened = self._loaded[name] = open_model(given, chooser)
        return opened, name


def _named(model: System) -> tuple[str | Trained, str]:
    """A trained system as it is opened, and what distinguishes it from others."""
    if isinstance(model, Trained):
        return model, f"python:{id(model)}"
    return os.fspath(model), os.fspath(model)
