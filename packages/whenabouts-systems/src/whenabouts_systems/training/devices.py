"""Set up devices for training: one device, or several processes that share the encoding of each batch.

One process needs only PyTorch. Several are started by Lightning Fabric (`lightning-fabric`, 5 MB, imported
only then because that takes 1.9 s), or by torchrun.

`distributed` describes how they share a step, so that contrast is over the whole batch. Every process reads
the features and annotations; only process 0 writes and reads the run folder.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, distributed

from whenabouts.types import UsageError
from whenabouts_systems.training.distributed import ProcessesApart, shared, speaking

Precision = Literal["fp32", "bf16"]
T = TypeVar("T")

TIMEOUT = "WHENABOUTS_PROCESS_TIMEOUT"
"""The environment variable with the seconds that processes wait for each other."""
_SECONDS, _SECONDS_TO_END = 1800.0, 10.0


def use_large_pages() -> None:
    """Let PyTorch use Linux's large pages, unless the environment forbids it; call before the first tensor.

    A step at the papers' sizes allocates hundreds of megabytes; with small pages this is 6 % of its time.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


@dataclass(frozen=True)
class DeviceSetup:
    """The device of this process, which is number `rank` (from 0) of `processes`."""

    device: torch.device
    precision: Precision = "fp32"
    rank: int = 0
    processes: int = 1

    @property
    def writes(self) -> bool:
        """Whether this process evaluates, writes files and shows progress."""
        return self.rank == 0

    @property
    def description(self) -> str:
        """The devices in words, for logs and `run.json`."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else str(self.device)
        count = f"{self.processes} x " if self.processes > 1 else ""
        return f"{count}{name}, {self.precision}"

    def autocast(self) -> AbstractContextManager[Any]:
        """A context in which losses are computed in the setup's precision."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def shared_encoding(self, model: Any) -> AbstractContextManager[None]:
        """A context in which processes share the row-wise methods of `model`; see `distributed.shared`."""
        return shared(model, self.rank, self.processes)

    def average(self, tensors: list[Tensor]) -> None:
        """Replace tensors by their mean over all processes."""
        if self.processes == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with speaking():
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
        with speaking():
            distributed.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def by_first(self, make: Callable[[], T]) -> T:
        """Process 0 calls `make`; all return its result. If it raises, the others exit silently."""
        if self.processes == 1:
            return make()
        made: Any = None
        raised: BaseException | None = None
        if self.rank == 0:
            try:
                made = make()
            except BaseException as error:
                raised = error
        made, failed = self.agreed((made, raised is not None))
        if raised is not None:
            raise raised
        if failed:
            raise SystemExit(2)
        result: T = made
        return result

    @contextlib.contextmanager
    def entered_by_first(self, context: AbstractContextManager[Any]) -> Iterator[None]:
        """A context that only process 0 enters; an exception on entry ends all processes."""
        with contextlib.ExitStack() as stack:

            def enter() -> None:
                stack.enter_context(context)

            self.by_first(enter)
            yield

    @contextlib.contextmanager
    def seen(self, folder: Path, names: Collection[str] | None = None) -> Iterator[Path]:
        """Process 0's folder; in the other processes a temporary copy of its files (or of `names`)."""
        if self.processes == 1:
            yield folder
            return

        def read() -> dict[str, bytes]:
            files = (path for path in sorted(folder.iterdir()) if path.is_file())
            return {path.name: path.read_bytes() for path in files if names is None or path.name in names}

        files = self.by_first(read)
        if self.rank == 0:
            yield folder
            return
        with tempfile.TemporaryDirectory(prefix="whenabouts-run-") as aside:
            for name, content in files.items():
                (Path(aside) / name).write_bytes(content)
            yield Path(aside)

    def own_part(self, count: int) -> range:
        """The numbers of this process's part of `count` items."""
        return range(count * self.rank // self.processes, count * (self.rank + 1) // self.processes)

    def brought(self, part: T) -> list[T]:
        """The parts of all processes, in order, in process 0; an empty list in the others."""
        if self.processes == 1:
            return [part]
        parts: list[Any] | None = [None] * self.processes if self.rank == 0 else None
        with speaking():
            distributed.gather_object(part, parts)
        return parts or []


def open_device(device: str = "auto", processes: int = 1, precision: Precision = "fp32") -> DeviceSetup:
    """Open a device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one.

    More than one process starts the program again for each further process; torchrun has already started
    them, on one machine or several. Raises UsageError for a missing device and for fewer than one process.
    """
    if processes < 1:
        raise UsageError(f"--processes {processes}: accepted: a whole number, 1 or more")
    if distributed.is_torchelastic_launched():
        started = int(os.environ["WORLD_SIZE"])
        if processes not in (1, started):
            raise UsageError(f"--processes {processes}: torchrun started {started}; omit the option")
        processes = started
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
            f"device {device!r} is not available ({reason}); accepted: auto, cpu, cuda, cuda:1"
        ) from None
    return DeviceSetup(place, precision)


def _several(device: str, processes: int, precision: Precision) -> DeviceSetup:
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
        from lightning_fabric.strategies import DDPStrategy
    except ImportError:
        raise UsageError(
            f"--processes {processes} needs Lightning Fabric: pip install 'whenabouts[research]'"
        ) from None
    kind = {"auto": "auto", "cpu": "cpu", "cuda": "cuda"}.get(device)
    if kind is None:
        raise UsageError(f"device {device!r}: several processes take auto, cpu or cuda")
    is_launched = distributed.is_torchelastic_launched()
    on_machine = int(os.environ["LOCAL_WORLD_SIZE"]) if is_launched else processes
    fabric = Fabric(
        accelerator=kind,
        devices=on_machine,
        num_nodes=processes // on_machine,
        strategy=DDPStrategy(timeout=_timeout()),
        # Set explicitly: in a Slurm job, Fabric would assume that Slurm started the processes.
        plugins=[TorchElasticEnvironment() if is_launched else LightningEnvironment()],
    )
    try:
        fabric.launch()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ProcessesApart(
            f"{processes} processes did not find each other within {_timeout().total_seconds():g} s "
            f"({reason}); see the messages of the other processes; {TIMEOUT}=SECONDS waits longer"
        ) from error
    atexit.register(_end, getattr(fabric.strategy.launcher, "procs", []))
    if fabric.world_size != processes:
        raise UsageError(f"--processes {processes}: only {fabric.world_size} could be started; ask for these")
    return DeviceSetup(fabric.device, precision, fabric.global_rank, fabric.world_size)


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    """End all started processes: one that waits for an ended process would hang."""
    for process in started:
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()


def _timeout() -> timedelta:
    setting = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(setting) if setting else _SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise UsageError(f"{TIMEOUT}={setting!r}: accepted: seconds, more than 0")
    return timedelta(seconds=seconds)
