"""Mounts small file systems, which tests fill or make read-only."""

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
    """Mount a file system of a size at a new folder; skips the test if none can be mounted."""
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
        # After a failed test it may be mounted twice (see `turn_read_only`).
        subprocess.run(["umount", "--lazy", "--all-targets", str(folder)], check=True)


def turn_read_only(folder: Path) -> None:
    """Make a mounted folder read-only for files opened from now on, until `turn_writable`."""
    # The file system itself cannot become read-only while the writer's lock is open in it.
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)


def turn_writable(folder: Path) -> None:
    """Undo `turn_read_only`."""
    subprocess.run(["umount", str(folder)], check=True)
