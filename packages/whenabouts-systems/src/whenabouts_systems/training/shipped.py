"""Experiments that come with the package: by name, such as `tvr/xml`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import whenabouts_systems
from whenabouts.types import UsageError

FOLDER = Path(whenabouts_systems.__file__).resolve().parent / "experiments"


def experiment_file(name: str) -> Path:
    """The file of an experiment: of one's own by its path, else a shipped one by its name.

    `tvr/xml`, `tvr/xml.toml` and `experiments/tvr/xml.toml` are the same shipped one. Raises UsageError, with
    the names that there are, where there is neither.
    """
    own = Path(name)
    if own.is_file():
        return own
    names = shipped()
    bare = name.removeprefix("experiments/").removesuffix(".toml")
    if bare in names:
        return names[bare]
    folders: dict[str, list[str]] = defaultdict(list)
    for shipped_name in names:
        folder, _, stem = shipped_name.partition("/")
        folders[folder].append(stem)
    listed = "".join(
        f"\n  {folder}/: {', '.join(sorted(stems))}" for folder, stems in sorted(folders.items())
    )
    raise UsageError(f"{name}: no such file, and no experiment of that name; shipped are:{listed}")


def shipped() -> dict[str, Path]:
    """The shipped experiments by their names, such as `tvr/xml`."""
    return {f"{file.parent.name}/{file.stem}": file for file in sorted(FOLDER.glob("*/*.toml"))}
