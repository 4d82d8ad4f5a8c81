"""The interface of systems for `whenabouts bench`: `index`, and at least one method that answers.

| method | answers | measured by |
| --- | --- | --- |
| `search(queries, k)` | for each query rows (video id, start, end, score[, probability]) | all metrics |
| `ground(queries, k)` | the same rows, in each query's one video | metrics of the given video, of pools |
| `rank_videos(queries, k)` | for each query rows (video id, score[, probability]) | metrics of videos |
| `score_clips(queries)` | for each {video id: scores of its clips of 2 s} | metrics of videos, highlights |

A system has only the methods that it supports. Rows may come in any order. `ground` may get one query several
times in a call, each time with another video. `index(videos)` is called once, before them. An optional method
`index_bytes()` returns the size of its index; optional attributes `name` and `revision` name it in tables.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from whenabouts.plugins import modules_declaring
from whenabouts.types import UsageError, did_you_mean
from whenabouts.video.cues import read_cue_file

METHODS = ("search", "ground", "rank_videos", "score_clips")
"""The methods that answer, the most informative first."""

Line = tuple[float, float, str]
"""Start and end in seconds, and the words spoken there."""


@dataclass(frozen=True)
class BenchVideo:
    """A video to index.

    `duration` is in seconds or None, `path` its recording or None, `transcript` a subtitle file or lines;
    `lines` reads either.
    """

    id: str
    duration: float | None = None
    path: Path | None = None
    transcript: Path | tuple[Line, ...] = ()

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Its words with their times, () without a transcript. Raises SubtitleError."""
        if isinstance(self.transcript, Path):
            cues = read_cue_file(self.transcript).cues
            return tuple((cue.start, cue.end, cue.text) for cue in cues)
        return self.transcript


@dataclass(frozen=True)
class BenchQuery:
    """A query; only `videos` are searched, or all if it is (). Rows of other videos do not count."""

    id: str
    text: str
    videos: tuple[str, ...] = ()


def systems() -> dict[str, Any]:
    """Name -> module of the systems that ship and of plugins; each has NAME, SUMMARY and `make`."""
    modules = modules_declaring("whenabouts_bench.systems", "NAME", "systems")
    return {module.NAME: module for module in sorted(modules, key=lambda module: str(module.NAME))}


def methods_of(system: Any) -> tuple[str, ...]:
    """The methods with which a system answers. Raises UsageError without `index`, or without any of them."""
    methods = tuple(name for name in METHODS if callable(getattr(system, name, None)))
    if not callable(getattr(system, "index", None)) or not methods:
        raise UsageError(
            f"{type(system).__name__} is not a system: it needs index(videos) and one of {', '.join(METHODS)}"
        )
    return methods


def open_system(named: str, settings: Mapping[str, str]) -> Any:
    """A system by a name of `systems()`, by PACKAGE:FACTORY, or by FILE.py:FACTORY.

    The factory gets `settings` as keyword arguments. Raises UsageError.
    """
    place, colon, attribute = named.rpartition(":")
    if not colon:
        by_name = systems()
        if named not in by_name:
            raise UsageError(
                f"{named!r} is not a known system ({', '.join(by_name)}){did_you_mean(named, by_name)}; "
                "yours is PACKAGE:FACTORY or FILE.py:FACTORY"
            )
        factory = by_name[named].make
    else:
        factory = getattr(_module(place, named), attribute, None)
        if not callable(factory):
            raise UsageError(f"{named}: {place} has no function {attribute!r}")
    try:
        system = factory(**settings)
    except TypeError as error:
        given = ", ".join(f"{key}={value}" for key, value in settings.items()) or "no settings"
        raise UsageError(f"{named}: cannot be made with {given}: {error}") from error
    methods_of(system)
    return system


def _module(place: str, named: str) -> Any:
    """The module of a file, or of a name that Python finds, from now on in the current folder, too."""
    try:
        if not place.endswith(".py"):
            if not all(place.split(".")):
                raise UsageError(f"{named}: accepted: PACKAGE:FACTORY or FILE.py:FACTORY")
            if str(Path.cwd()) not in sys.path:
                sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(place)
        file = Path(place).resolve()
        spec = importlib.util.spec_from_file_location(f"{__name__}.{file.stem}", file)
        if spec is None or spec.loader is None or not file.is_file():
            raise UsageError(f"{named}: there is no file {place}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    except ImportError as error:
        raise UsageError(f"{named}: {place} cannot be imported: {error}") from error


def parse_settings(pairs: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE texts as a mapping.

    >>> parse_settings(["encoder=minilm"])
    {'encoder': 'minilm'}

    Raises UsageError.
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier() or name in settings:
            raise UsageError(f"--set {pair!r}: accepted: NAME=VALUE, each name once")
        settings[name] = value
    return settings
