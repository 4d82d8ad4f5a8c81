"""The trained systems that search a corpus, kept open until their files or the streams change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from whenabouts.models.trained import Trained
from whenabouts.trained.loaded import LoadedModel, load_model
from whenabouts.trained.search import TrainedSearch, open_search
from whenabouts.trained.segment_search import SegmentSearch, open_segment_search

if TYPE_CHECKING:
    from whenabouts.encoder_registry import EncoderRegistry
    from whenabouts.index.store import Store

System = str | os.PathLike[str] | Trained
"""A trained system: a folder, a hub's name, or an object."""


class CorpusSystems:
    """Trained systems on one handle of a corpus."""

    def __init__(
        self, store: Store, encoders: EncoderRegistry, loaded: dict[str, LoadedModel] | None = None
    ) -> None:
        """`loaded` systems are shared with other handles."""
        self._store, self._encoders = store, encoders
        self._loaded = {} if loaded is None else loaded
        self._opened: dict[str, tuple[Any, Any]] = {}

    def search(
        self, model: System, retriever: System | None = None, segments: float | None = None
    ) -> TrainedSearch | SegmentSearch:
        """A trained system on whole videos, or on segments of so many seconds.

        `retriever` chooses the videos for it, in place of the one that a staged run names.
        """
        return (
            self.whole(model, retriever) if segments is None else self.by_segments(model, retriever, segments)
        )

    def whole(self, model: System, retriever: System | None = None) -> TrainedSearch:
        """A trained system on whole videos."""
        loaded, name = self._load(model, retriever)
        state = (loaded, self._store.streams)
        if name not in self._opened or self._opened[name][0] != state:
            self._opened[name] = state, open_search(self._store, self._encoders, loaded)
        search: TrainedSearch = self._opened[name][1]
        return search

    def by_segments(self, model: System, retriever: System | None, seconds: float) -> SegmentSearch:
        """A trained system on segments of so many seconds."""
        loaded, name = self._load(model, retriever)
        state, name = (loaded, self._store.streams), f"{name}\0{float(seconds)}"
        if name not in self._opened or self._opened[name][0] != state:
            self._opened[name] = (
                state,
                open_segment_search(self._store, self._encoders, loaded, seconds),
            )
        search: SegmentSearch = self._opened[name][1]
        return search

    def _load(self, model: System, retriever: System | None) -> tuple[LoadedModel, str]:
        """A trained system with its retriever, and what distinguishes the pair from others."""
        given, name = _named(model)
        chooser, chooser_name = (None, "") if retriever is None else _named(retriever)
        name = f"{name}\0{chooser_name}"
        loaded = self._loaded.get(name)
        if loaded is None or not loaded.is_current:
            loaded = self._loaded[name] = load_model(given, chooser)
        return loaded, name


def _named(model: System) -> tuple[str | Trained, str]:
    """A trained system as it is opened, and what distinguishes it from others."""
    if isinstance(model, Trained):
        return model, f"python:{id(model)}"
    return os.fspath(model), os.fspath(model)
