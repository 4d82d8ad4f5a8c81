"""Reproduce the authors' programs where they differ from the papers, and import their checkpoints.

Most systems have a module here of the same name, loaded by that name. It has:

- `AsReleased`: the system as the program computes it, with its departures from the paper and its faults.
  `Model(config)` makes it if `as_released` is set (`models/protocol.py`).
- `TITLE` and `settings(released: Released) -> Settings`, the settings of one of the program's checkpoints;
  `importing.py` calls it. Without them checkpoints of the program cannot be imported.

All share `checkpoint_file` (reads files without running their code), `settings` (reads settings from
tensors) and `importing` (compares names and shapes of parameters, and makes the trained system).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from whenabouts_systems.models import model_names

__all__ = ["program_names"]


@cache
def program_names() -> tuple[str, ...]:
    """The names of the programs whose checkpoints can be imported; none of the modules is imported."""
    paths = Path(__file__).parent.glob("[a-z]*.py")
    importers = {path.stem for path in paths if "\ndef settings(" in path.read_text(encoding="utf-8")}
    return tuple(name for name in model_names() if name in importers)
