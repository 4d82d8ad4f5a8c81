"""The experiments of the papers by name, such as "tvr/xml": from the installed package, or from a clone."""

from __future__ import annotations

import difflib
from pathlib import Path

from whenabouts.types import UsageError

_PACKAGE = Path(__file__).resolve().parents[2]
# A wheel has them inside the package, a clone beside src.
_PLACES = (_PACKAGE / "experiments", _PACKAGE.parents[1] / "experiments")


def shipped_experiments() -> dict[str, Path]:
    """Name, such as "tvr/xml", to file; sorted by name."""
    folder = next((place for place in _PLACES if place.is_dir()), _PLACES[0])
    return {
        file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.glob("*/*.toml"))
    }


def find_experiment(name: str) -> Path:
    """The file of an experiment: one's own path, or a shipped name. Raises UsageError for neither."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return path
    shipped = shipped_experiments()
    if name not in shipped:
        near = difflib.get_close_matches(name, shipped, n=6, cutoff=0.3) or list(shipped)
        raise UsageError(f"{name}: is no file and no shipped experiment; near: {', '.join(near)}")
    return shipped[name]
