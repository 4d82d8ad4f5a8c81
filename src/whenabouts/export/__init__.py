"""Moments taken away: lists for editors and players, one file per format, and the folder is the registry.

Every module here that declares a `NAME` is a format; a new one is a new file and nothing else. It has `NAME`,
`SUFFIXES`, `MEDIA_TYPE` and `write(clips, out, options) -> notes`, which writes to a binary stream and says
what a person should know of it. `whenabouts.export.write(clips, path)` is what programs call.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, cast

from whenabouts.types import UsageError, WhenaboutsError

if TYPE_CHECKING:
    from whenabouts.export.clip import Clip
    from whenabouts.export.options import Options

_NO_FORMAT = {"clip", "gather", "options", "source", "timeline"}


class Format(Protocol):
    """What a module of this folder has if it is a format."""

    NAME: str
    SUFFIXES: tuple[str, ...]
    MEDIA_TYPE: str

    def write(self, clips: Sequence[Clip], out: IO[bytes], options: Options) -> list[str]:
        """Write moments in their order; what is to be told. Raises WhenaboutsError otherwise."""
        ...


@cache
def _formats() -> tuple[Format, ...]:
    names = [found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names if name not in _NO_FORMAT]
    return tuple(sorted((cast(Format, module) for module in modules), key=lambda module: module.NAME))


def format_names() -> tuple[str, ...]:
    """The names of all formats."""
    return tuple(module.NAME for module in _formats())


def format_of(name: str | None, path: str | Path | None = None) -> Format:
    """The format of that name, or where there is none, the one that a path's suffix means.

    Raises UsageError, saying which there are.
    """
    if name is not None:
        for module in _formats():
            if name == module.NAME:
                return module
        raise UsageError(f"{name!r} is no format; choose one of {', '.join(format_names())}")
    suffix = Path(path).suffix.lower() if path is not None else ""
    for module in _formats():
        if suffix in module.SUFFIXES:
            return module
    what = f"{Path(path).name!r} does not tell the format" if path is not None else "which format?"
    raise UsageError(f"{what}; give --format, one of {', '.join(format_names())}")


def render(
    clips: Sequence[Clip],
    format: str | None,
    options: Options | None = None,
    *,
    path: str | Path | None = None,
) -> tuple[bytes, list[str]]:
    """A list as bytes, and what is to be told of it."""
    from whenabouts.export.options import Options

    module = format_of(format, path)
    if not clips:
        raise UsageError("nothing to export: no moment was found or given")
    chosen = options or Options()
    inside, notes = _inside_files(clips, chosen)
    out = io.BytesIO()
    said = module.write(inside, out, chosen)
    return out.getvalue(), [*notes, *(note for note in said if note not in notes)]


def _inside_files(clips: Sequence[Clip], options: Options) -> tuple[list[Clip], list[str]]:
    """The moments with ends that lie in their files, where these can be read, and what was moved.

    Raises UsageError for a moment that starts behind the end of its file.
    """
    from whenabouts.export.timeline import ended

    inside: list[Clip] = []
    notes: dict[str, None] = {}
    for clip in clips:
        try:
            source = options.sources[clip.path]
        except WhenaboutsError:
            inside.append(clip)  # a transcript, or a file that is gone: the format says what it lacks
            continue
        moved, said = ended(clip, source)
        inside.append(moved)
        notes |= dict.fromkeys(said)
    return inside, list(notes)


def write(
    clips: Sequence[Clip],
    path: str | Path,
    format: str | None = None,
    options: Options | None = None,
    *,
    force: bool = False,
) -> list[str]:
    """Write moments to a file in a format (None: that of its suffix); what is to be told.

    Nothing half-written is left. Raises UsageError for an unknown format, no moments, or a file that is there
    already (unless `force`); WhenaboutsError where a source cannot be read or the file cannot be written.
    """
    from whenabouts.video.aside import check_free, written_aside

    place = Path(path)
    format_of(format, place)
    check_free(place, force=force, sources=[clip.path for clip in clips])
    data, notes = render(clips, format, options, path=place)
    with written_aside(place, force=force) as aside:
        aside.write_bytes(data)
    return notes
