"""Set up devices for training: one device, or several processes that share the encoding of each batch.

One process needs only PyTorch. Several are started by Lightning Fabric (`lightning-fabric`, 5 MB, imported
only then because that takes 1.9 s), or by torchrun.

In a step, each encodes part of the rows, and all compute the whole batch's loss. All processes see the same
batch and draw the same random numbers, so every system contrasts over the whole batch with its negatives. The
gradient of a row exists in the process that encoded it; averaged over the processes, gradients equal those of
a single process. Every process computes the parts that do not work row by row (such as batch normalisation)
for the whole batch. Every process reads the features and annotations; only process 0 writes and reads the run
folder.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, distributed

from whenabouts.lines import first_line
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch, methods_by_rows

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


class ProcessesApart(WhenaboutsError):
    """Another process of the training ended, or did not answer in time."""


@contextmanager
def speaking() -> Iterator[None]:
    """Wrap communication between processes. Raises ProcessesApart if another process is lost."""
    try:
        yield
    except RuntimeError as error:
        rank, count = distributed.get_rank(), distributed.get_world_size()
        raise ProcessesApart(
            f"process {rank} of {count}: another process of this training ended or did not answer in time "
            f"({first_line(error)}); see its message. The saved state is complete: continue with "
            "--resume"
        ) from error


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

    @contextmanager
    def shared_encoding(self, model: Any) -> Iterator[None]:
        """In this context, the model's row-wise methods compute this process's rows and return those of all.

        If a shared method calls another one, only the outer one shares. Fewer rows than processes are not
        shared: every process computes all. Dropout inside these methods has its own random numbers, so that
        draws outside of them are the same for any number of processes.
        """
        methods = {name: getattr(model, name) for name in methods_by_rows(model)}
        inside = [False]
        for name, method in methods.items():
            object.__setattr__(model, name, _sharing(method, self.rank, self.processes, inside))
        try:
            yield
        finally:
            for name in methods:
                object.__delattr__(model, name)

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

    @contextmanager
    def entered_by_first(self, context: AbstractContextManager[None]) -> Iterator[None]:
        """A context that only process 0 enters; an exception on entry ends all processes."""
        with contextlib.ExitStack() as stack:
            self.by_first(lambda: stack.enter_context(context))
            yield

    @contextmanager
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
        reason = first_line(error)
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
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device {device!r}: several processes take auto, cpu or cuda")
    is_launched = distributed.is_torchelastic_launched()
    on_machine = int(os.environ["LOCAL_WORLD_SIZE"]) if is_launched else processes
    fabric = Fabric(
        accelerator=device,
        devices=on_machine,
        num_nodes=processes // on_machine,
        strategy=DDPStrategy(timeout=_timeout()),
        # Set explicitly: in a Slurm job, Fabric would assume that Slurm started the processes.
        plugins=[TorchElasticEnvironment() if is_launched else LightningEnvironment()],
    )
    try:
        fabric.launch()
    except RuntimeError as error:
        reason = first_line(error)
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


# Sharing a step among processes -----------------------------------------------------------------------


def _sharing(
    method: Callable[[Any], Any], rank: int, processes: int, inside: list[bool]
) -> Callable[[Any], Any]:
    def share(batch: QueryBatch | ClipBatch) -> Any:
        if inside[0]:
            return method(batch)
        inside[0] = True
        try:
            if processes == 1 or len(batch) < processes:
                with _own_draws(batch, 0):
                    return method(batch)
            rows = torch.arange(len(batch)).tensor_split(processes)
            with _own_draws(batch, rank):  # each process drops other values
                part = method(_rows_of(batch, rows[rank].to(batch.mask.device)))
        finally:
            inside[0] = False
        counts = [len(numbers) for numbers in rows]
        return _mapped(part, lambda tensor: gather_rows(tensor, rank, counts))

    return share


@contextmanager
def _own_draws(batch: QueryBatch | ClipBatch, rank: int) -> Iterator[None]:
    """A context with its own random numbers for this call and process; later draws do not depend on it."""
    device, seed = batch.mask.device, int(torch.randint(2**62, ())) + rank
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _rows_of(batch: QueryBatch | ClipBatch, rows: Tensor) -> QueryBatch | ClipBatch:
    if isinstance(batch, QueryBatch):
        return QueryBatch(batch.tokens[rows], batch.mask[rows])
    return ClipBatch(
        {name: clips[rows] for name, clips in batch.streams.items()},
        batch.mask[rows],
        None if batch.silent is None else batch.silent[rows],
        None if batch.sentences is None else batch.sentences.take(rows),
    )


def _mapped(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A nested structure with `change` applied to every tensor, in order."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return {name: _mapped(branch, change) for name, branch in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_mapped(branch, change) for branch in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(_mapped(branch, change) for branch in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [option.name for option in dataclasses.fields(tree)]
        parts = {name: _mapped(getattr(tree, name), change) for name in names}
        return dataclasses.replace(tree, **parts)
    return tree


def gather_rows(rows: Tensor, rank: int, counts: list[int]) -> Tensor:
    """The rows of all processes, `counts` each, in order; gradients flow back into this process's rows.

    Gradients are multiplied by the number of processes, because they are averaged later. Raises ValueError
    for a tensor that does not have one row for each row of the batch, because it cannot be shared.
    """
    if len(rows) != counts[rank]:
        raise ValueError(
            f"a method marked `by_rows` returned {len(rows)} rows for {counts[rank]}; remove the mark, or "
            "return one row for each row of the batch"
        )
    gathered_rows: Tensor = _GatherRows.apply(rows, rank, counts)  # type: ignore[no-untyped-call]
    return gathered_rows


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, rank: int, counts: list[int]) -> Tensor:
        sent = rows.contiguous().to(torch.uint8) if rows.dtype == torch.bool else rows.contiguous()
        ctx.begin, ctx.end, ctx.processes = sum(counts[:rank]), sum(counts[: rank + 1]), len(counts)
        padded = sent.new_zeros((max(counts), *sent.shape[1:]))
        padded[: len(sent)] = sent
        parts = [torch.empty_like(padded) for _ in counts]
        with speaking():
            distributed.all_gather(parts, padded)
        joined = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
        return joined.to(rows.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][ctx.begin : ctx.end] * ctx.processes, None, None
