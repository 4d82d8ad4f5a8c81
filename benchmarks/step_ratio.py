"""Steps of two programs measured in turns: medians, how many times as quick, and what products alone need."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine import describe_machine
from benchmarks.prem_step import SIDE, _timed
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

Step = Callable[[], object]


def stepping(optimizer: torch.optim.Optimizer, losses: Callable[[], Iterable[Tensor]]) -> Step:
    """A step of a training: losses, their gradients, new weights."""

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(losses())).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def in_turns(ours: Step, plain: Step, rounds: int) -> dict[str, Any]:
    """Medians of processor and wall milliseconds of both, taken in turns, and how many times as quick ours.

    `products_ms`: what the operations in products of matrices of each take at the rate of a large product,
    which is measured in the same turns; `products_share` of its processor time.
    """
    steps = {"ours": ours, "plain": plain}
    operations = {name: _operations(step) for name, step in steps.items()}  # their first steps
    left, right = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    took = {**steps, "product": lambda: left @ right}
    rounds_of = [{name: _timed(step) for name, step in took.items()} for _ in range(rounds)]
    medians = {
        name: [1000 * statistics.median(one[name][at] for one in rounds_of) for at in (0, 1)] for name in took
    }
    rate = 2 * SIDE**3 / medians["product"][0]
    told: dict[str, Any] = {"rounds": rounds, "gigaflops_of_a_large_product": round(rate / 1e6, 1)}
    for name in steps:
        processor, wall = medians[name]
        needed = operations[name] / rate
        told[name] = {
            "processor_ms": round(processor, 1),
            "wall_ms": round(wall, 1),
            "operations_in_products": round(operations[name] / 1e9, 1),
            "products_ms": round(needed, 1),
            "products_share": round(needed / processor, 2),
        }
    ratios = sorted(one["plain"][0] / one["ours"][0] for one in rounds_of)
    return {
        **told,
        "times_as_quick": round(statistics.median(ratios), 2),
        "times_as_quick_each_round": [round(one, 2) for one in ratios],
    }


def _operations(step: Step) -> float:
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step()
    return float(counter.get_total_flops())


def told(result: Mapping[str, Any], out: Path | None) -> None:
    """Show a result with its date and machine, and write it."""
    whole = {"date": datetime.now(UTC).date().isoformat(), "machine": describe_machine("torch"), **result}
    text = json.dumps(whole, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n", encoding="utf-8")
