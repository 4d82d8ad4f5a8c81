"""The one style of figures drawn with matplotlib, and writing them atomically.

Needs the extra `figures`. The same numbers give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from whenabouts.intake.files import write_atomically
from whenabouts.types import UsageError

BLUE, ORANGE, GREY = "#1f5fa8", "#c2571a", "#767676"
COLOURS: Final = (BLUE, ORANGE, "#2f7d4f", "#8a3f8f", "#a8861f", "#3b8ea5", "#b03a48", GREY)
"""Distinguishable colours of lines."""
DASHED: Final = (0, (2, 2))

SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "whenabouts",  # ids in an SVG would be random
    "text.parse_math": False,  # a dollar in a name is a dollar
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# Metadata to leave out of each kind of file, because they differ from run to run or machine to machine.
_METADATA: Final[dict[str, dict[str, None]]] = {
    ".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None},
}  # fmt: skip
PICTURES: Final = tuple(_METADATA)
"""Suffixes of the picture files that can be written."""
BOTH: Final = (".svg", ".png")
"""Suffixes that `save_both` writes."""


def check_picture(path: Path, *, accepted: Sequence[str] = PICTURES) -> None:
    """Raise UsageError if no figure can be written there, for its suffix or for want of matplotlib."""
    if path.suffix.lower() not in accepted:
        raise UsageError(f"{path}: not the name of a figure, which must end in {', '.join(accepted)}")
    require_matplotlib()


def require_matplotlib() -> None:
    """Raise UsageError, with the remedy, without matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "figures need matplotlib, which is not installed: pip install 'whenabouts[figures]'; "
            "or leave out the option that asks for one"
        ) from error


@contextmanager
def figure_settings() -> Iterator[None]:
    """A context in which figures get `SETTINGS`. Raises UsageError without matplotlib."""
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(SETTINGS):
        yield


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Any]:
    """A figure of a size in inches, to draw and save in the context. Raises UsageError without matplotlib."""
    with figure_settings():
        from matplotlib.figure import Figure

        yield Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path, *, dpi: int = 160) -> None:
    """Write a figure in the format of its suffix (`PICTURES`). Raises FormatError if it cannot be written."""
    kind = path.suffix.lower()
    with write_atomically(path) as stream:
        figure.savefig(stream, format=kind[1:], dpi=dpi, metadata=_METADATA[kind])


def save_both(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as SVG and PNG, `stem` with both suffixes. Raises FormatError as `save_figure`."""
    files = [stem.with_name(stem.name + suffix) for suffix in BOTH]
    for path in files:
        save_figure(figure, path)
    return files
