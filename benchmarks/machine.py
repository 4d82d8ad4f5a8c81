"""What stands beside numbers: the machine that they were measured on, and their percentiles."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch


def describe_machine(*packages: str) -> dict[str, Any]:
    """Processor, memory and library versions; no names."""
    with Path("/proc/cpuinfo").open() as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "threads": torch.get_num_threads(),
        "load_average": [round(value, 1) for value in os.getloadavg()],
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The middle, and what nine and ninety-nine of a hundred stay under."""
    return {f"p{p}": round(float(np.percentile(values, p)), 1) for p in (50, 90, 99)}
