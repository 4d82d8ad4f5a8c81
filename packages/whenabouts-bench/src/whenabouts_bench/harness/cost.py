"""Measure the cost of indexing and searching, and describe the machine without its host name."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whenabouts.resident import machine_bytes


@dataclass
class Spent:
    """Seconds of a block: wall time, processor time of this process and its finished children, and GPU time.

    GPU time is wall time for each GPU on which PyTorch held memory of this process: a card counts while it is
    occupied, whether or not it computes. None without a GPU that PyTorch sees.
    """

    seconds: float = 0.0
    processor_seconds: float = 0.0
    gpu_seconds: float | None = None


@contextmanager
def measured() -> Iterator[Spent]:
    """Measure the time of the block."""
    _reset_gpu_peaks()
    spent, clock, processor = Spent(), time.perf_counter(), _processor_seconds()
    try:
        yield spent
    finally:
        occupied = _occupied_gpus()  # waits for them, so it comes before the clock is read
        spent.seconds = time.perf_counter() - clock
        spent.processor_seconds = _processor_seconds() - processor
        spent.gpu_seconds = None if occupied is None else occupied * spent.seconds


def _gpus() -> Any:
    """`torch.cuda` if PyTorch is loaded and sees a GPU, else None."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None


def _reset_gpu_peaks() -> None:
    if (cuda := _gpus()) is not None and cuda.is_initialized():
        for device in range(cuda.device_count()):
            cuda.reset_peak_memory_stats(device)


def _occupied_gpus() -> int | None:
    """The number of GPUs on which PyTorch held memory since the last reset, after their work has ended."""
    if (cuda := _gpus()) is None:
        return None
    if not cuda.is_initialized():
        return 0
    occupied = [device for device in range(cuda.device_count()) if cuda.max_memory_reserved(device)]
    for device in occupied:
        cuda.synchronize(device)
    return len(occupied)


def _processor_seconds() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def cost_of(
    indexing: Spent, searching: Spent, queries: int, seconds: float, index_bytes: int | None
) -> dict[str, float | None]:
    """The cost of `queries` queries on `seconds` of video; values per hour are None if `seconds` is 0."""
    hours = seconds / 3600
    return {
        "hours of video": hours or None,
        "processor seconds per hour of video": indexing.processor_seconds / hours if hours else None,
        "GPU seconds per hour of video": _shared(indexing.gpu_seconds, hours),
        "bytes per hour of video": index_bytes / hours if hours and index_bytes is not None else None,
        "ms per query": 1000 * searching.seconds / queries if queries else None,
        "processor ms per query": 1000 * searching.processor_seconds / queries if queries else None,
        "GPU ms per query": _shared(searching.gpu_seconds, queries / 1000),
    }


def _shared(spent: float | None, among: float) -> float | None:
    return None if spent is None or not among else spent / among


def machine() -> dict[str, Any]:
    """Processor, memory, system and graphics card; nothing that identifies the machine."""
    cuda = _gpus()
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(machine_bytes() / (1 << 30)),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "graphics": None if cuda is None else cuda.get_device_name(0),
    }


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    if file.is_file():
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model") and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine()
