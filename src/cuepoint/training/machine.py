"""Where a training runs: one device, or several processes that share the encoding of each batch.

One process needs nothing beside PyTorch. Several are started by Lightning Fabric (`lightning-fabric`, 5 MB;
it takes 1.9 s to import on top of PyTorch, which a training in one process does not pay).

Several processes see the same batch and draw the same random numbers. Each encodes its share of the queries
and videos, and all get all encodings; so the loss compares over the whole batch, negatives included, for
every system, and no system knows of it. Gradients are averaged, and are those of one process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, distributed

from cuepoint.models.protocol import ClipBatch, QueryBatch, QueryEncoding, VideoEncoding
from cuepoint.types import UsageError

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class Machine:
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
    def described(self) -> str:
        """For people and `run.json`."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else str(self.device)
        count = f"{self.processes} x " if self.processes > 1 else ""
        return f"{count}{name}, {self.precision}"

    def autocast(self) -> AbstractContextManager[Any]:
        """Where losses are computed, in the machine's precision."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def shared_encoding(self, model: Any) -> AbstractContextManager[None]:
        """Within, `model` encodes this process's share of what it is given, and returns all."""
        return contextlib.nullcontext() if self.processes == 1 else _shared(model, self.rank, self.processes)

    def average(self, tensors: list[Tensor]) -> None:
        """Replace tensors by their mean over all processes."""
        if self.processes == 1 or not tensors:
            return
        flat = torch.cat([one.reshape(-1) for one in tensors])
        distributed.all_reduce(flat)
        flat /= self.processes
        torch._foreach_copy_(
            tensors,
            [
                part.view_as(one)
                for part, one in zip(
                    torch.split(flat, [one.numel() for one in tensors]), tensors, strict=True
                )
            ],
        )

    def agreed(self, value: Any) -> Any:
        """The value that process 0 has."""
        if self.processes == 1:
            return value
        told = [value]
        distributed.broadcast_object_list(told, src=0, device=self.device)
        return told[0]


def open_machine(device: str = "auto", processes: int = 1, precision: Precision = "fp32") -> Machine:
    """The machine that was asked for: "auto" is a GPU where there is one, "cpu", "cuda", "cuda:1".

    More than one process starts the program again, once for each. Raises UsageError for a device that is
    not here.
    """
    if processes > 1:
        return _several(device, processes, precision)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        told = str(error).splitlines()[0]
        raise UsageError(
            f"device {device!r} is not here ({told}); accepted: auto, cpu, cuda, cuda:1"
        ) from None
    return Machine(place, precision)


def _several(device: str, processes: int, precision: Precision) -> Machine:
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
    return Machine(fabric.device, precision, fabric.global_rank, fabric.world_size)


@contextmanager
def _shared(model: Any, rank: int, processes: int) -> Iterator[None]:
    """Let a model encode its share of the rows, and gather those of all processes."""
    whole = {name: getattr(model, name) for name in ("encode_queries", "encode_videos")}
    for name, encode in whole.items():
        object.__setattr__(model, name, _sharing(encode, rank, processes))
    try:
        yield
    finally:
        for name in whole:
            object.__delattr__(model, name)


def _sharing(encode: Callable[[Any], Any], rank: int, processes: int) -> Callable[[Any], Any]:
    def encode_share(batch: QueryBatch | ClipBatch) -> QueryEncoding | VideoEncoding:
        count = len(batch)
        size = -(-count // processes)
        # The last processes may have fewer rows, or none; they encode the last row once more.
        rows = torch.arange(rank * size, (rank + 1) * size).clamp_(max=count - 1).to(batch.mask.device)
        devices = [rows.device] if rows.is_cuda else []
        with torch.random.fork_rng(devices=devices):
            # Dropout in one process's share is not that of another's.
            torch.manual_seed(torch.initial_seed() + 1 + rank)
            share = encode(_rows_of(batch, rows))
        return _gathered(share, rank, count)

    return encode_share


def _rows_of(batch: QueryBatch | ClipBatch, rows: Tensor) -> QueryBatch | ClipBatch:
    if isinstance(batch, QueryBatch):
        return QueryBatch(batch.tokens[rows], batch.mask[rows])
    return ClipBatch({name: one[rows] for name, one in batch.streams.items()}, batch.mask[rows])


def _gathered(share: QueryEncoding | VideoEncoding, rank: int, count: int) -> QueryEncoding | VideoEncoding:
    def all_of(tensors: Any) -> dict[str, Tensor]:
        return {name: gather_rows(one, rank)[:count] for name, one in tensors.items()}

    if isinstance(share, QueryEncoding):
        return QueryEncoding(all_of(share.search), all_of(share.parts))
    return VideoEncoding(
        gather_rows(share.mask, rank)[:count],
        all_of(share.keys),
        all_of(share.key_masks),
        all_of(share.parts),
    )


def gather_rows(rows: Tensor, rank: int) -> Tensor:
    """The rows of all processes, in their order; gradients reach the own ones.

    Every process computes the same loss of all rows, so a row's gradient is known where the row was made. It
    counts as often as there are processes, because gradients are averaged afterwards.
    """
    gathered: Tensor = _GatherRows.apply(rows, rank)  # type: ignore[no-untyped-call]
    return gathered


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, rank: int) -> Tensor:
        ctx.rank, ctx.size = rank, len(rows)
        sent = rows.contiguous().to(torch.uint8) if rows.dtype == torch.bool else rows.contiguous()
        parts = [torch.empty_like(sent) for _ in range(distributed.get_world_size())]
        distributed.all_gather(parts, sent)
        return torch.cat(parts).to(rows.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        begin = ctx.rank * ctx.size
        own = gradients[0][begin : begin + ctx.size]
        return own * distributed.get_world_size(), None
