"""Finders of shots, by name: one file each, and the folder is the registry.

A finder is a module here, or in a package that declares it in the group `whenabouts.shots`, with

- `NAME`; `SECONDS_AN_HOUR`: about how many seconds of a processor it takes for an hour of film;
- `FRAMES_A_SECOND`, `SIZE`: the rate and the least short side (pixels) of the frames that it needs;
- `check()`: raises UsageError with a remedy if it cannot be used here;
- `open_finder(threads)`: a `ShotFinder` for one video.
"""

from __future__ import annotations

from typing import Any, Protocol

from whenabouts import plugins
from whenabouts.intake.hub import ModelCard
from whenabouts.types import UsageError
from whenabouts.video.frames import Frame

BUILT_IN = "built-in"


class ShotFinder(Protocol):
    """Finds the shots of one video."""

    def add(self, frame: Frame) -> None:
        """Take the next frame, in order of time."""

    def borders(self) -> list[float]:
        """Seconds at which each shot after the first starts, rising; called once, at the end."""


def finder_named(name: str) -> Any:
    """The module of a finder. Raises UsageError for an unknown name."""
    for finder in _finders():
        if name == finder.NAME:
            return finder
    raise UsageError(
        f"there is no shot finder {name!r}; there are {', '.join(finder.NAME for finder in _finders())}"
    )


def known_models() -> list[ModelCard]:
    """The models that finders list."""
    return [model for finder in _finders() for model in getattr(finder, "MODELS", ())]


def _finders() -> tuple[Any, ...]:
    return plugins.modules_declaring(__name__, "open_finder", "shots")
