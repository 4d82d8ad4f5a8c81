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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, distributions
from numbers import Real
from types import ModuleType
from typing import Any

from whenabouts.extras import lacking
from whenabouts.types import UsageError

_log = logging.getLogger(__name__)
_OPTION = {"flag": str, "keyword": str, "help": str, "type": Callable, "metavar": object, "is_optional": bool}
_STREAM = {"name": str, "order": Real, "filter_key": str, "reads_clips_of": [str], "meets": [str]}
_TASK = {"name": str, "title": str, "split": str, "headline": [str], "to_json": Callable}
_DATASET = {"name": str, "title": str, "tasks": [str], "splits": [{"name": str}], "to_json": Callable}
_CONTRACTS: dict[str, tuple[str, Any]] = {
    "checkers": ("", {"recognises": Callable, "ORDER?": Real}),
    "datasets": ("DATASET", _DATASET),
    "encoders": ("", {"PREFIX": str, "recognises": Callable, "status": Callable, "ORDER?": Real}),
    "exports": ("", {"NAME": str, "SUFFIXES": [str], "MEDIA_TYPE": str, "write": Callable}),
    "formats": ("", {"NAME": str, "SIGNS": Mapping}),
    "layouts": ("", {"NAME": str, "SUMMARY": str, "OUTLINE": str, "open_source": Callable}),
    "models": ("", {"Config": Callable, "Model": Callable}),
    "moment_finders": ("", {"ORDER": Real, "recognises": Callable, "on": Callable}),
    "phrases": ("", {"NAME": str, "open_phrases": Callable}),
    "routes": ("router", {"routes": [{"matches": Callable}]}),
    "shots": ("", {"NAME": str, "open_finder": Callable}),
    "streams": ("STREAM", _STREAM | {"options": [_OPTION]}),
    "systems": ("", {"NAME": str, "SUMMARY": str, "make": Callable}),
    "tasks": ("TASKS", [_TASK]),
    "verb_options": ("", {"verb": str, "module": str}),
    "verb_options modules": ("", {"add_options": Callable, "run": Callable}),
    "verbs": ("", {"module": str, "summary": str, "group": str}),
    "verbs modules": ("", {"add_parser": Callable}),
}
"""Group -> constant and kind. Where there is a constant, an entry is it or a module with it.

A kind is a type, a dict of attributes with their kinds (`?`: may be missing), or a list of an item's kind.
"""


class PluginError(UsageError):
    """A plugin cannot be loaded."""


class PackageMissing(UsageError):
    """No installed package provides a feature that was requested."""


def declared() -> list[EntryPoint]:
    """Our entry points in all groups; a package whose list cannot be read is left out with a warning."""
    points: list[EntryPoint] = []
    for package in distributions():
        try:
            points += [each for each in package.entry_points if each.group.startswith("whenabouts.")]
        except (OSError, ValueError) as error:
            warn_once(f"left out: {package.name}: its entry_points.txt cannot be read: {error}; reinstall it")
    return points


@cache
def entries(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, in the order of their names."""
    # If a name is declared twice, the first on the path counts.
    by_name = {each.name: each for each in reversed(declared()) if each.group == f"whenabouts.{group}"}
    return dict(sorted(by_name.items()))


def load(group: str, name: str, *, imports: bool = False) -> Any:
    """The object of entry `name` of a group; with `imports` the module that it names in its `module`.

    Raises PluginError, PackageMissing, KeyError (unknown name).
    """
    entry = entries(group)[name]
    try:
        plugin = _checked(group, entry.load())
        return _checked(f"{group} modules", importlib.import_module(plugin.module)) if imports else plugin
    except UsageError:
        raise  # the plugin itself names cause and remedy
    except (Exception, SystemExit) as error:  # what a plugin's file does at import is not known
        if absent := lacking(error):
            raise PackageMissing(absent) from error
        package = entry.dist.name if entry.dist else entry.value
        reason = "it calls exit" if isinstance(error, SystemExit) else error
        raise PluginError(
            f"{package}: its plugin {name} ({entry.value}) cannot be loaded: {reason}; "
            f"fix it, or remove it: pip uninstall {package}"
        ) from error


def _checked(group: str, entry: Any) -> Any:
    """The plugin of an entry. Raises TypeError if it differs from the contract of its group."""
    constant, kind = _CONTRACTS.get(group, ("", object))
    plugin = getattr(entry, constant, entry)
    if constant and isinstance(plugin, ModuleType):
        raise TypeError(f"accepted: {constant} or a module with it")
    if faults := "; ".join(_faults(plugin, kind, "it")):
        raise TypeError(faults)
    return plugin


def _faults(value: Any, kind: Any, name: str) -> Iterator[str]:
    """The differences of a value from its kind, in words."""
    if isinstance(kind, dict):
        if lacks := [each for each in kind if not each.endswith("?") and not hasattr(value, each)]:
            yield f"{name} lacks {', '.join(lacks)}"
        for attribute, inner in ((each.rstrip("?"), kind[each]) for each in kind):
            if hasattr(value, attribute):
                yield from _faults(getattr(value, attribute), inner, f"its {attribute}")
    elif isinstance(kind, list) and isinstance(value, Collection) and not isinstance(value, str):
        for each in value:
            yield from _faults(each, kind[0], f"an item of {name}")
    elif isinstance(kind, list) or not isinstance(value, kind):
        yield f"{name} is {value!r:.60}; accepted: {'list' if isinstance(kind, list) else kind.__name__}"


def loaded(group: str, names: Iterable[str] | None = None, *, imports: bool = False) -> dict[str, Any]:
    """The objects of a group's entries (or `names`), as `load`; faulty ones are left out with a warning."""
    objects: dict[str, Any] = {}
    for name in entries(group) if names is None else names:
        try:
            objects[name] = load(group, name, imports=imports)
        except UsageError as error:
            warn_once(f"left out: {error}")
    return objects


@cache
def warn_once(text: str) -> None:
    """Log a warning, each text once."""
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
