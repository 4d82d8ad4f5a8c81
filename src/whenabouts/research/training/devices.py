"""Device setup: one device, or several processes that share the encoding of each batch.

One process needs nothing beside PyTorch. Several are started by Lightning Fabric (`lightning-fabric`, 5 MB;
it takes 1.9 s to import on top of PyTorch, which a training in one process does not pay).

`distributed` has how they share a step, so that contrast is over the whole batch.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, distributed

from whenabouts.types import UsageError

Precision = Literal["fp32", "bf16"]


def use_large_pages() -> None:
    """Have PyTorch ask Linux for large pages, unless the environment says otherwise; before its first tensor.

    A step at the papers' sizes makes hundreds of megabytes anew, page by page: 6 % of its time.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


@dataclass(frozen=True)
class DeviceSetup:
    """One device of one process; `rank` of `processes` (0 of 1: alone)."""

    device: torch.device
    precision: Precision = "fp32"
    rank: int = 0
    processes: int = 1

    @property
    def writes(self) -> bool:
        """Whether this process evaluates, writes files and shows how far it is."""
        return self.rank == 0

    @property
    def description(self) -> str:
        """For people and `run.json`."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else str(self.device)
        count = f"{self.processes} x " if self.processes > 1 else ""
        return f"{count}{name}, {self.precision}"

    def autocast(self) -> AbstractContextManager[Any]:
        """Where losses are computed, in the setup's precision."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def shared_encoding(self, model: Any) -> AbstractContextManager[None]:
        """Within, `model` does this process's share of what works row by row, and returns all."""
        if self.processes == 1:
            return contextlib.nullcontext()
        from whenabouts.research.training.distributed import shared

        return shared(model, self.rank, self.processes)

    def average(self, tensors: list[Tensor]) -> None:
        """Replace tensors by their mean over all processes."""
        if self.processes == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        distributed.all_reduce(flat)
        flat /= self.processes
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        means = [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]
        torch._foreach_copy_(tensors, means)

    def agreed(self, value: Any) -> Any:
        """The value that process 0 has."""
        if self.processes == 1:
            return value
        values = [value]
        distributed.broadcast_object_list(values, src=0, device=self.device)
        return values[0]


def open_device(device: str = "auto", processes: int = 1, precision: Precision = "fp32") -> DeviceSetup:
    """The device setup of that name: "auto" is a GPU where there is one, "cpu", "cuda", "cuda:1".

    More than one process starts the program again, once for each. Raises UsageError for a device that is
    not here, and for less than one process.
    """
    if processes < 1:
        raise UsageError(f"--processes {processes}: accepted: a whole number, 1 or more")
    if processes > 1:
        return _several(device, processes, precision)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"device {device!r} is not here ({reason}); accepted: auto, cpu, cuda, cuda:1"
        ) from None
    return DeviceSetup(place, precision)


def _several(device: str, processes: int, precision: Precision) -> DeviceSetup:
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise UsageError(
            f"--processes {processes} needs Lightning Fabric: pip install lightning-fabric"
        ) from None
    kind = {"auto": "auto", "cpu": "cpu", "cuda": "cuda"}.get(device)
    if kind is None:
        raise UsageError(f"device {device!r}: several processes take auto, cpu or cuda")
    fabric = Fabric(accelerator=kind, devices=processes, strategy="ddp")
    fabric.launch()
    if fabric.world_size != processes:
        raise UsageError(f"--processes {processes}: {fabric.world_size} could be started")
    return DeviceSetup(fabric.device, precision, fabric.global_rank, fabric.world_size)
