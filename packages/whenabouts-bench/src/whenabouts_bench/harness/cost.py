"""The cost of indexing and searching, and the machine that did it, without its host name."""

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
    """Seconds of a block: wall time, and processor time of this process and its finished children."""

    seconds: float = 0.0
    processor_seconds: float = 0.0


@contextmanager
def measured() -> Iterator[Spent]:
    """Measure the time of the block."""
    spent, clock, processor = Spent(), time.perf_counter(), _processor_seconds()
    try:
        yield spent
    finally:
        spent.seconds = time.perf_counter() - clock
        spent.processor_seconds = _processor_seconds() - processor


def _processor_seconds() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def cost_of(
    indexing: Spent, searching: Spent, queries: int, seconds: float, index_bytes: int | None
) -> dict[str, float | None]:
    """The cost of a run; values per hour of video are None if no duration is known."""
    hours = seconds / 3600
    return {
        "hours of video": hours or None,
        "processor seconds per hour of video": indexing.processor_seconds / hours if hours else None,
        "bytes per hour of video": index_bytes / hours if hours and index_bytes is not None else None,
        "ms per query": 1000 * searching.seconds / queries if queries else None,
        "processor ms per query": 1000 * searching.processor_seconds / queries if queries else None,
    }


def machine() -> dict[str, Any]:
    """Processor, memory, system and graphics card; nothing that identifies the machine."""
    torch = sys.modules.get("torch")
    cards = torch is not None and torch.cuda.is_available()
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(machine_bytes() / (1 << 30)),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "graphics": torch.cuda.get_device_name(0) if torch is not None and cards else None,
    }


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    if file.is_file():
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model") and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine()
