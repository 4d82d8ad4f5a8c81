"""Several processes share a step: each encodes some of the rows, and all compute the loss of the whole batch.

They see the same batch and draw the same random numbers, so contrast is over the whole batch, negatives
included, for every system. A row's gradient is known where the row was made; averaged over the processes,
gradients are those of one process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed

from whenabouts.models.protocol import ClipBatch, QueryBatch, methods_by_rows
from whenabouts.types import UsageError


@contextmanager
def shared(model: Any, rank: int, processes: int) -> Iterator[None]:
    """Within, the model's methods that work row by row do this process's part and return the whole.

    A shared method that calls another shared one shares once, outside.
    """
    methods = {name: getattr(model, name) for name in methods_by_rows(model)}
    inside = [False]
    for name, method in methods.items():
        object.__setattr__(model, name, _sharing(method, rank, processes, inside))
    try:
        yield
    finally:
        for name in methods:
            object.__delattr__(model, name)


def _sharing(
    method: Callable[[Any], Any], rank: int, processes: int, inside: list[bool]
) -> Callable[[Any], Any]:
    def share(batch: QueryBatch | ClipBatch) -> Any:
        if inside[0]:
            return method(batch)
        if len(batch) < processes:
            raise UsageError(
                f"a batch of {len(batch)} rows cannot be shared by {processes} processes; take a larger "
                "training.batch_size or fewer --processes"
            )
        rows = torch.arange(len(batch)).tensor_split(processes)[rank].to(batch.mask.device)
        inside[0] = True
        try:
            with torch.random.fork_rng(devices=[rows.device] if rows.is_cuda else []):
                # Dropout in one process's rows is not that of another's.
                torch.manual_seed(torch.initial_seed() + 1 + rank)
                part = method(_rows_of(batch, rows))
        finally:
            inside[0] = False
        return gathered(part, rank)

    return share


def _rows_of(batch: QueryBatch | ClipBatch, rows: Tensor) -> QueryBatch | ClipBatch:
    if isinstance(batch, QueryBatch):
        return QueryBatch(batch.tokens[rows], batch.mask[rows])
    return ClipBatch({name: clips[rows] for name, clips in batch.streams.items()}, batch.mask[rows])


def gathered(part: Any, rank: int) -> Any:
    """What a method returned for some rows, for the rows of all processes, in their order."""
    return _mapped(part, lambda rows: gather_rows(rows, rank))


def _mapped(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same with every tensor changed, in the order in which they stand."""
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


def _device() -> torch.device:
    """Where the processes can speak to each other."""
    on_gpu = distributed.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def gather_rows(rows: Tensor, rank: int) -> Tensor:
    """The rows of all processes, in their order; gradients reach the own ones.

    A gradient counts as often as there are processes, because gradients are averaged afterwards.
    """
    gathered_rows: Tensor = _GatherRows.apply(rows, rank)  # type: ignore[no-untyped-call]
    return gathered_rows


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, rank: int) -> Tensor:
        sent = rows.contiguous().to(torch.uint8) if rows.dtype == torch.bool else rows.contiguous()
        counts = _counts(len(sent))
        ctx.begin, ctx.end = sum(counts[:rank]), sum(counts[: rank + 1])
        most = max(counts)
        padded = sent.new_zeros((most, *sent.shape[1:]))
        padded[: len(sent)] = sent
        parts = [torch.empty_like(padded) for _ in counts]
        distributed.all_gather(parts, padded)
        whole = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
        return whole.to(rows.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.begin : ctx.end] * distributed.get_world_size(), None


def _counts(own: int) -> list[int]:
    """How many rows each process has."""
    mine = torch.tensor([own], device=_device())
    counts = [torch.empty_like(mine) for _ in range(distributed.get_world_size())]
    distributed.all_gather(counts, mine)
    return [int(count) for count in counts]
