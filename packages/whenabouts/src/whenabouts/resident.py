"""How much memory this process has, and how to give some back."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from pathlib import Path


def release() -> None:
    """Give memory that nothing uses back to the system; what allocates keeps it for itself otherwise."""
    gc.collect()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    trim_heap()


def trim_heap() -> None:
    """Give back what the C library holds free: a part of `release` that takes a millisecond."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def resident_bytes() -> int:
    """How much memory this process has now; 0 where the system does not say."""
    try:
        file = os.open(
            "/proc/self/statm", os.O_RDONLY
        )  # asked twice a request: `Path` takes ten times as long
        try:
            pages = int(os.read(file, 200).split()[1])
        finally:
            os.close(file)
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def machine_bytes() -> int:
    """How much memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def forget_peak() -> None:
    """Let the most memory that this process had be what it has now, where the system allows that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_bytes() -> int:
    """The most memory that this process had; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)
