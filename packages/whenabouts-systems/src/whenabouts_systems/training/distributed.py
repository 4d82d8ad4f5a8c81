"""Several processes share a step: each encodes some of the rows, and all compute the loss of the whole batch.

They see the same batch and draw the same random numbers, so contrast is over the whole batch, negatives
included, for every system. A row's gradient is known where the row was made; averaged over the processes,
gradients are those of one process. What is not made row by row (batch normalisation, say) every process
computes whole.
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
    """Around what the processes tell each other: ProcessesApart where one is not there any more."""
    try:
        yield
    except RuntimeError as error:
        rank, count = distributed.get_rank(), distributed.get_world_size()
        raise ProcessesApart(
            f"process {rank} of {count}: another process of this training ended or did not answer in time "
            f"({str(error).splitlines()[0]}); where it wrote a message, that says why. What was kept is "
            "whole: go on with --resume"
        ) from error


@contextmanager
def shared(model: Any, rank: int, processes: int) -> Iterator[None]:
    """Within, the model's methods that work row by row do this process's part and return the whole.

    A shared method that calls another shared one shares once, outside. Fewer rows than processes are not
    shared: every process computes them. One process alone (0 of 1) draws outside of these methods what each
    of several draws there: what dropout takes inside them does not count.
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
            with _own_draws(batch, rank):  # dropout in one process's rows is not that of another's
                part = method(_rows_of(batch, rows[rank].to(batch.mask.device)))
        finally:
            inside[0] = False
        return gathered(part, rank, [len(some) for some in rows])

    return share


@contextmanager
def _own_draws(batch: QueryBatch | ClipBatch, rank: int) -> Iterator[None]:
    """Random numbers of this call and process; what is drawn afterwards does not depend on how many."""
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
    """What a method returned for some rows, for the rows of all processes, in their order.

    `counts` is how many rows each process has.
    """
    return _mapped(part, lambda rows: gather_rows(rows, rank, counts))


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


def gather_rows(rows: Tensor, rank: int, counts: list[int]) -> Tensor:
    """The rows of all processes, in their order; gradients reach the own ones.

    A gradient counts as often as there are processes, because gradients are averaged afterwards. Raises
    ValueError for a tensor that has not a row for each row of the batch, which cannot be shared so.
    """
    if len(rows) != counts[rank]:
        raise ValueError(
            f"a method that is made row by row returned {len(rows)} rows for {counts[rank]}; take the mark "
            "`by_rows` from it, or have it return one row for each"
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
        whole = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
        return whole.to(rows.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][ctx.begin : ctx.end] * ctx.processes, None, None
