"""What a module of this folder offers to be a format."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from whenabouts.formats.annotations import Annotations
from whenabouts.formats.files import FileHead
from whenabouts.formats.runs import RunSource


class Format(Protocol):
    """A format of files. It has those of the four functions that it can honour."""

    NAME: str
    """As `--format` takes it."""
    ORDER: int
    """When it is asked whether it recognises a file: lower is earlier; the less particular come later."""
    SUMMARY: str
    """One line for people."""
    KEEPS: frozenset[str]
    """What comes back when a file that was written is read again: of `_losses.PARTS`. The rest is told."""

    def recognises(self, head: FileHead) -> bool:
        """Whether a file that begins like this is in this format."""

    def read_annotations(self, path: Path) -> Annotations:
        """Videos, queries and judgements."""

    def open_run(self, path: Path) -> RunSource:
        """A run, read as it is asked for."""

    def write_annotations(self, annotations: Annotations, path: Path) -> None:
        """Write judgements."""

    def write_run(self, source: RunSource, path: Path, annotations: Annotations | None) -> None:
        """Write a run."""
