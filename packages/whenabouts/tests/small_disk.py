"""A file system that is soon full."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of that size at a new folder; the test skips where none can be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if (
        os.getuid() != 0
        or shutil.which("mount") is None
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("a small file system can be mounted by root only, and not in every container")
    try:
        yield folder
    finally:
        # Where a test failed it may be there twice: see `turn_read_only`.
        subprocess.run(["umount", "--lazy", "--all-targets", str(folder)], check=True)


def turn_read_only(folder: Path) -> None:
    """Have all that is opened in a mounted folder from now on be read only, until `turn_writable`."""
    # The file system itself cannot be turned while the writer's lock is open in it.
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)


def turn_writable(folder: Path) -> None:
    """Undo `turn_read_only`."""
    subprocess.run(["umount", str(folder)], check=True)
