"""Share a training step among processes: each encodes part of the rows, all compute the whole batch's loss.

All processes see the same batch and draw the same random numbers, so every system contrasts over the whole
batch with its negatives. The gradient of a row exists in the process that encoded it; averaged over the
processes, gradients equal those of a single process. Every process computes the parts that do not work row by
row (such as batch normalisation) for the whole batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed

from whenabouts.types import WhenaboutsError
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch, methods_by_rows


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
            f"({str(error).splitlines()[0]}); see its message. The saved state is complete: continue with "
            "--resume"
        ) from error


@contextmanager
def shared(model: Any, rank: int, processes: int) -> Iterator[None]:
    """In this context, the model's row-wise methods compute this process's rows and return those of all.

    If a shared method calls another one, only the outer one shares. Fewer rows than processes are not shared:
    every process computes all. Dropout inside these methods has its own random numbers, so that draws outside
    of them are the same for any number of processes.
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
        return gathered(part, rank, [len(numbers) for numbers in rows])

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


def gathered(part: Any, rank: int, counts: list[int]) -> Any:
    """A method's result for this process's rows, extended to the rows of all processes, in order.

    `counts` are the numbers of rows of the processes.
    """
    return _mapped(part, lambda rows: gather_rows(rows, rank, counts))


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
    """The rows of all processes, in order; gradients flow back into this process's rows.

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
