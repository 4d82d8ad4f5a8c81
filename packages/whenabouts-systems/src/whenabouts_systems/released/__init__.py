"""What the authors' programs add to a system's paper, one program a file, named like the system.

- `AsReleased`: the system with the program's departures from the paper, its faults included. `Model(config)`
  makes it where `as_released` is set (`models/protocol.py`).
- `TITLE` and `settings(released: Released) -> Settings`: the settings of a checkpoint of the program. A file
  without them has no importer.

All importers share `checkpoint_file` (reads files without running their code), `settings` (the settings that
checkpoints hold) and `importing` (names and shapes of parameters; the trained system).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from whenabouts_systems.models import model_names

__all__ = ["program_names"]


@cache
def program_names() -> tuple[str, ...]:
    """Programs whose checkpoints can be imported; imports none of the modules."""
    paths = Path(__file__).parent.glob("[a-z]*.py")
    here = {path.stem for path in paths if "\ndef settings(" in path.read_text(encoding="utf-8")}
    return tuple(name for name in model_names() if name in here)
