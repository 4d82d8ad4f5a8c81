"""Checkpoints of the authors' programs, read into our systems: one importer a program.

The folder is the registry. An importer is a module with the name of the system that it makes; it has a
`TITLE` and `settings(released: Released) -> Settings`. All
importers share `checkpoint_file` (reading without running anything), `settings` (what a checkpoint says of
itself) and `importing` (names, shapes, the finished system).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from whenabouts_systems.models import model_names

__all__ = ["program_names"]


@cache
def program_names() -> tuple[str, ...]:
    """Programs whose checkpoints can be imported; imports none of the modules."""
    here = {path.stem for path in Path(__file__).parent.glob("[a-z]*.py")}
    return tuple(name for name in model_names() if name in here)
