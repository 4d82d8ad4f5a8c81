"""Makes modules importable by their names of earlier versions, with a DeprecationWarning."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Each line has the old package, the new package, and the modules that moved without another name.
_MOVED = """
whenabouts whenabouts.intake chat hub opening pickled remote_faults
whenabouts.formats whenabouts.intake files
whenabouts.models whenabouts.moments fusion peaks zero_shot
whenabouts.models._parts whenabouts.moments segments
whenabouts.product whenabouts.search answer_probability coverage example finder phrases
whenabouts.product whenabouts.search place_search places query_language reranking search_result
whenabouts.product whenabouts.search stored_calibration word_units
whenabouts.product whenabouts calibration checking choices cli corpus curves diagnosis duplicates
whenabouts.product whenabouts encoder_registry export index indexing known_models server shown streams why
whenabouts.product whenabouts_bench corpus_run
whenabouts.product.index whenabouts_systems.trained_search even_grid
whenabouts.product.index whenabouts_cluster ray_executor ray_workers
whenabouts.product.server whenabouts_cluster ray_serve
whenabouts.product.cli whenabouts_cluster.cli deploy
whenabouts.product.cli whenabouts_systems.cli highlights
whenabouts.product whenabouts_systems highlights own_features
whenabouts.models whenabouts_systems released
whenabouts whenabouts_systems features models ranking
whenabouts whenabouts_bench formats
whenabouts.research whenabouts_bench cli datasets evaluation judging relevance
whenabouts.research.evaluation whenabouts_bench report
whenabouts.research whenabouts_systems training
whenabouts.research.cli whenabouts_systems.cli calibrate explain features import_checkpoint run splits
whenabouts.research.cli whenabouts_systems.cli train
"""
_LINES = [line.split() for line in _MOVED.split("\n") if line]
_RENAMED = {
    "whenabouts.product.alike": "whenabouts.search.rank",
    "whenabouts.product.allowed": "whenabouts.search.candidates",
    "whenabouts.product.notebook": "whenabouts.search.search_result",
    "whenabouts.product.ranked_streams": "whenabouts.search.rank",
    "whenabouts.product.search": "whenabouts.search.searcher",
    "whenabouts.product.snippet": "whenabouts.search.answer",
    "whenabouts.product.stream_answer": "whenabouts.search.moments",
    "whenabouts.product.verdict": "whenabouts.search.rank",
    "whenabouts.product.people": "whenabouts.people.naming",
    "whenabouts.product.person_linking": "whenabouts.people.linking",
    "whenabouts.index.whole": "whenabouts.index.ledger",
    "whenabouts.features.grid_rows": "whenabouts_systems.features.source",
    "whenabouts.features.location": "whenabouts_systems.features.source",
    "whenabouts.research.training.distributed": "whenabouts_systems.training.devices",
    "whenabouts.research.training.positives": "whenabouts_systems.training.labels",
    "whenabouts.research.training.window_labels": "whenabouts_systems.training.labels",
    "whenabouts.confidence.chance": "whenabouts.confidence.probability",
    "whenabouts.figures.confidence": "whenabouts.calibration.figures",
    "whenabouts.product.systems": "whenabouts_systems.trained_search",
    "whenabouts.product.explanation": "whenabouts_systems.explain",
    "whenabouts.product.explain": "whenabouts_systems.explain.answer",
    "whenabouts.product.server.explain_routes": "whenabouts_systems.routes.explain",
    "whenabouts.product": "whenabouts",
    "whenabouts.research": "whenabouts_bench",
}
PLACES = {
    **{f"{before}.{name}": f"{now}.{name}" for before, now, *names in _LINES for name in names},
    **_RENAMED,
}
"""Old name -> new name. The contents of a package moved with it."""


def place_of(name: str) -> str | None:
    """The new name of a module of an earlier version; None if it did not move."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if place := PLACES.get(".".join(parts[:count])):
            return ".".join([place, *parts[count:]])
    return None


class MovedModules(MetaPathFinder, Loader):
    """Finds modules under their names in earlier versions."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A spec that loads the module from its new place, with a warning; None if it did not move."""
        place = place_of(fullname) if fullname.startswith("whenabouts.") else None
        if place is None:
            return None
        warnings.warn(f"{fullname} is now {place}", DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, self, loader_state=place, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, imported from its new place."""
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's spec, which the import system overwrote; the module was executed already."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Make imports look for moved modules first, because other modules now have some of the old names."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
