"""Measures the memory of this process, and returns unused memory to the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from pathlib import Path


def release() -> None:
    """Return memory that allocators keep unused to the system."""
    gc.collect()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    trim_heap()


def trim_heap() -> None:
    """Return the C library's free memory to the system: the part of `release` that takes a millisecond."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc
    if trim is not None:
        trim(0)


def resident_bytes() -> int:
    """Resident memory of this process in bytes; 0 if unknown."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)  # twice a request: `Path` takes ten times as long
        try:
            pages = int(os.read(file, 200).split()[1])
        finally:
            os.close(file)
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def machine_bytes() -> int:
    """Physical memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def forget_peak() -> None:
    """Reset the peak of this process's memory to its present size, if the system allows it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_bytes() -> int:
    """Peak resident memory of this process in bytes; 0 if unknown."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)
