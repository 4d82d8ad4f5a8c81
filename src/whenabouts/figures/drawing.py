"""A drawing as files, SVG and PNG, the same bytes each time; needs the extra `report`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from whenabouts.types import UsageError

_SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "whenabouts",
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}

SUFFIXES = (".svg", ".png")
"""What the names of the files that `draw` writes end in."""


def picture_name(path: Path) -> str:
    """The name of a picture without what it ends in, if anything; `draw` writes both kinds.

    Raises UsageError for another ending.
    """
    if path.suffix and path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"{path}: {path.suffix} is no kind of picture; accepted: a name that ends in "
            f"{' or '.join(SUFFIXES)} (both are written), or without an ending"
        )
    return path.stem


def draw(
    folder: Path, name: str, panels: int, drawing: Callable[[Any], None], width: float = 4.6
) -> list[Path]:
    """`name`.svg and .png in a folder, which is made if need be: what `drawing` draws on so many panels.

    Each file appears whole or not at all. Raises UsageError where matplotlib is missing or the folder cannot
    be written.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            f"figures need matplotlib ({error}); install whenabouts[report], or leave out the figure"
        ) from error
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(_SETTINGS):
            figure = Figure(figsize=(width * panels, 3.6), layout="constrained")
            drawing(figure.subplots(1, panels))
            for suffix, metadata in zip(SUFFIXES, ({"Date": None}, {"Software": None}), strict=True):
                target, aside = folder / (name + suffix), folder / f".{name}.{os.getpid()}{suffix}"
                figure.savefig(aside, metadata=metadata, dpi=160)
                aside.replace(target)
                written.append(target)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}; name another") from error
    return written
