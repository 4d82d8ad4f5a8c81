"""Lists of moments for editors and players: one file per format, and the folder is the registry.

Every module here that declares a `NAME` is a format; a new format needs a new file only. It has `NAME`,
`SUFFIXES`, `MEDIA_TYPE` and `write(moments, out, options) -> notes`, which writes to a binary stream and
returns notes for the user. Programs call `whenabouts.export.write(moments, path)`.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from whenabouts.export.options import Options
from whenabouts.export.timeline import ended
from whenabouts.plugins import PluginError, modules_declaring
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.aside import check_free, written_aside

if TYPE_CHECKING:
    from whenabouts.export.moments import FileMoment


class Format(Protocol):
    """The interface of a format's module."""

    NAME: str
    SUFFIXES: tuple[str, ...]
    MEDIA_TYPE: str

    def write(self, moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
        """Write moments in their order; returns notes for the user. Raises WhenaboutsError."""


def _formats() -> tuple[Format, ...]:
    return modules_declaring(__name__, "NAME", "exports")


def format_names() -> tuple[str, ...]:
    """The names of all formats."""
    return tuple(module.NAME for module in _formats())


def format_of(name: str | None, path: str | Path | None = None) -> Format:
    """The format of that name, or else of a path's suffix. Raises UsageError, listing the formats."""
    suffix = Path(path).suffix.lower() if path is not None else ""
    for module in _formats():
        if name == module.NAME or (name is None and suffix in module.SUFFIXES):
            return module
    if name is not None:
        raise UsageError(f"{name!r} is not a format; choose one of {', '.join(format_names())}")
    what = f"{Path(path).name!r} does not tell the format" if path is not None else "which format?"
    raise UsageError(f"{what}; give --format, one of {', '.join(format_names())}")


def render(
    moments: Sequence[FileMoment],
    format: str | None,
    options: Options | None = None,
    *,
    path: str | Path | None = None,
) -> tuple[bytes, list[str]]:
    """The bytes of a list of moments, and notes for the user. Raises as `write`."""
    module = format_of(format, path)
    if not moments:
        raise UsageError("nothing to export: no moment was found or given")
    chosen = options or Options()
    inside, notes = _inside_files(moments, chosen)
    out = io.BytesIO()
    format_notes: object = module.write(inside, out, chosen)
    if not isinstance(format_notes, list | tuple):
        name = getattr(module, "__name__", module.NAME)
        raise PluginError(f"write() of {name} returns {format_notes!r:.100}; let it return a list of notes")
    return out.getvalue(), [*notes, *(note for note in format_notes if note not in notes)]


def _inside_files(moments: Sequence[FileMoment], options: Options) -> tuple[list[FileMoment], list[str]]:
    """The moments with ends clipped to their files, if these can be read, and notes.

    Raises UsageError for a moment that starts after the end of its file.
    """
    inside: list[FileMoment] = []
    notes: dict[str, None] = {}
    for moment in moments:
        try:
            source = options.sources[moment.path]
        except WhenaboutsError:
            inside.append(moment)  # a transcript or a missing file: the format reports it
            continue
        moved, move_notes = ended(moment, source)
        inside.append(moved)
        notes |= dict.fromkeys(move_notes)
    return inside, list(notes)


def write(
    moments: Sequence[FileMoment],
    path: str | Path,
    format: str | None = None,
    options: Options | None = None,
    *,
    force: bool = False,
) -> list[str]:
    """Write moments to a file in a format (None: by its suffix); returns notes for the user.

    No partial file is left. Raises UsageError for an unknown format, no moments, or an existing file (unless
    `force`); WhenaboutsError if a source cannot be read or the file cannot be written.
    """
    place = Path(path)
    format_of(format, place)
    check_free(place, force=force, sources=[moment.path for moment in moments])
    data, notes = render(moments, format, options, path=place)
    with written_aside(place, force=force) as aside:
        aside.write_bytes(data)
    return notes
