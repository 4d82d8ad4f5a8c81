"""Every extension point of whenabouts: what other distributions can add, and which file loads it.

A distribution declares an entry point in one of the groups below; whenabouts itself names no distribution.

| group | an entry is | loaded by |
| --- | --- | --- |
| `whenabouts.verbs` | a `cli.verbs.Verb`, named as the verb | `cli/main.py` |
| `whenabouts.verb_options` | a `cli.verbs.VerbOptions`: more options of a verb | `cli/main.py` |
| `whenabouts.streams` | a `index.stream.Stream`, or its module | `streams/__init__.py` |
| `whenabouts.encoders` | a module like those of `encoders/` | `encoders/__init__.py` |
| `whenabouts.moment_finders` | a `search.finder.FinderKind` | `corpus.py` |
| `whenabouts.shots` | a module like those of `video/shots/` | `video/shots/__init__.py` |
| `whenabouts.checkers` | a module like those of `checkers/` | `checkers/__init__.py` |
| `whenabouts.executors` | a module like `whenabouts_cluster.ray_executor` | `indexing.py` |
| `whenabouts.routes` | a FastAPI router | `server/app.py` |
| `whenabouts.exports` | a module like those of `export/` | `export/__init__.py` |
| `whenabouts.query_files` | a module like `whenabouts_bench.corpus_run` | `cli/search.py`, `corpus.py` |
| `whenabouts.features` | a module like `whenabouts_systems.own_features` | `corpus.py`, `whenabouts_bench` |
| `whenabouts.formats`, `.datasets`, `.phrases` | a module like those of the folder | `whenabouts_bench` |
| `whenabouts.tasks`, `.systems` | a module like those of the folder | `whenabouts_bench/harness` |
| `whenabouts.layouts`, `.models` | a module like those of the folder | `whenabouts_systems` |
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from whenabouts.extras import lacking
from whenabouts.types import UsageError

_log = logging.getLogger(__name__)
_CONTRACTS = {
    "checkers": "recognises",
    "datasets": "DATASET: name splits",
    "encoders": "PREFIX recognises status",
    "exports": "NAME SUFFIXES write",
    "formats": "NAME SIGNS",
    "layouts": "NAME SUMMARY OUTLINE open_source",
    "models": "Config Model",
    "moment_finders": "ORDER recognises on",
    "phrases": "NAME open_phrases",
    "routes": "router: routes",
    "shots": "NAME open_finder",
    "streams": "STREAM: name order options",
    "systems": "NAME SUMMARY make",
    "tasks": "TASKS: __iter__",
    "verb_options": "verb module",
    "verbs": "module summary group",
}
"""Group -> what each entry has. Where a constant precedes the colon, an entry is it or a module with it."""


class PluginError(UsageError):
    """A plugin cannot be loaded."""


class PackageMissing(UsageError):
    """No installed package provides a feature that was requested."""


@cache
def entries(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, in the order of their names."""
    # If a name is declared twice, the first on the path counts.
    declared = reversed(tuple(entry_points(group=f"whenabouts.{group}")))
    return dict(sorted({entry.name: entry for entry in declared}.items()))


def load(group: str, name: str) -> Any:
    """The object of entry `name` of a group. Raises PluginError, PackageMissing, KeyError (unknown name)."""
    entry = entries(group)[name]
    constant, _, needed = _CONTRACTS.get(group, "").rpartition(": ")
    try:
        module = entry.load()
        plugin = getattr(module, constant, module)
        if lacks := [attribute for attribute in needed.split() if not hasattr(plugin, attribute)]:
            problem = f"it lacks {', '.join(lacks)}"
            raise TypeError(f"accepted: {constant} or a module with it" if constant else problem)
        return plugin
    except UsageError:
        raise  # the plugin itself names cause and remedy
    except Exception as error:  # what a plugin's file does at import is not known
        if absent := lacking(error):
            raise PackageMissing(absent) from error
        package = entry.dist.name if entry.dist else entry.value
        raise PluginError(
            f"{package}: its plugin {name} ({entry.value}) cannot be loaded: {error}; "
            f"fix it, or remove it: pip uninstall {package}"
        ) from error


def loaded(group: str) -> dict[str, Any]:
    """The objects of the entries of a group, by name; what cannot be loaded is left out with a warning."""
    objects: dict[str, Any] = {}
    for name in entries(group):
        try:
            objects[name] = load(group, name)
        except UsageError as error:
            _warn_once(f"left out: {error}")
    return objects


@cache
def _warn_once(text: str) -> None:
    _log.warning("%s", text)


def packages(*groups: str) -> dict[str, str]:
    """Name -> version of the installed packages with entries in these groups."""
    installed = (entry.dist for group in groups for entry in entries(group).values())
    return {package.name: package.version for package in installed if package}


def only(group: str, purpose: str, extra: str) -> Any:
    """The object of a group's first entry. Raises PackageMissing, naming the extra that provides one."""
    for name in entries(group):
        return load(group, name)
    raise PackageMissing(
        f"{purpose} needs a package that is not installed: pip install 'whenabouts[{extra}]'"
    )


def modules_declaring(package: str, attribute: str, group: str | None = None) -> tuple[Any, ...]:
    """The modules of a package that have `attribute`, by name, then the entries of a group.

    Modules whose names begin with an underscore are not imported. The package's `__path__` is read at
    each call, so a folder added to it counts at once. The type is `Any`, because each such module has
    only some of the functions.
    """
    modules = _modules_in(package, tuple(importlib.import_module(package).__path__), attribute)
    return modules if group is None else (*modules, *loaded(group).values())


@cache
def _modules_in(package: str, folders: tuple[str, ...], attribute: str) -> tuple[Any, ...]:
    names = sorted(entry.name for entry in pkgutil.iter_modules(folders) if not entry.name.startswith("_"))
    modules = [importlib.import_module(f"{package}.{name}") for name in names]
    return tuple(module for module in modules if hasattr(module, attribute))
