"""Steps of a system of ours and of its plain version measured in turns: medians, how many times as quick, and
what products alone need. Ours in bfloat16 (`--precision bf16`) takes a third turn."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine import describe_machine
from benchmarks.prem_step import SIDE, _timed
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from whenabouts_systems.training.devices import DeviceSetup, Precision, use_large_pages
from whenabouts_systems.training.experiment import TrainingSettings
from whenabouts_systems.training.optimizer import new_optimizer

Step = Callable[[], object]
Losses = Callable[[], Iterable[Tensor]]


def options(about: str | None, **usual: int) -> argparse.Namespace:
    """Of the command line: numbers by name, threads (which are set), and where to write."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {**usual, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    use_large_pages()
    return chosen


def steps_of(
    ours: nn.Module, losses: Losses, weights: Mapping[str, Tensor], plain_losses: Losses
) -> dict[str, Step]:
    """Those that take turns: ours, ours in bfloat16, the plain version with the same weights."""

    def in_precision(precision: Precision) -> Losses:
        setup = DeviceSetup(torch.device("cpu"), precision)

        def computed() -> list[Tensor]:
            with setup.autocast():
                return list(losses())

        return computed

    optimizer = new_optimizer(TrainingSettings(optimizer="adamw"), ours)
    theirs = torch.optim.AdamW(weights.values(), lr=1e-4, foreach=False)
    return {
        "ours": stepping(optimizer, in_precision("fp32")),
        "ours_bf16": stepping(optimizer, in_precision("bf16")),
        "plain": stepping(theirs, plain_losses),
    }


def stepping(optimizer: torch.optim.Optimizer, losses: Losses) -> Step:
    """A step of a training: losses, their gradients, new weights."""

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(losses())).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def in_turns(steps: Mapping[str, Step], rounds: int) -> dict[str, Any]:
    """Medians of processor and wall milliseconds, taken in turns, and how many times as quick as plain.

    `products_ms`: what the operations in products of matrices of each take at the rate of a large product in
    fp32, which is measured in the same turns; `products_share` of its processor time.
    """
    operations = {name: _operations(step) for name, step in steps.items()}  # their first steps
    left, right = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    took = {**steps, "product": lambda: left @ right}
    rounds_of = [{name: _timed(step) for name, step in took.items()} for _ in range(rounds)]
    medians = {
        name: [1000 * statistics.median(one[name][at] for one in rounds_of) for at in (0, 1)] for name in took
    }
    rate = 2 * SIDE**3 / medians["product"][0]
    found: dict[str, Any] = {"rounds": rounds, "gigaflops_of_a_large_product": round(rate / 1e6, 1)}
    for name in steps:
        processor, wall = medians[name]
        found[name] = {"processor_ms": round(processor, 1), "wall_ms": round(wall, 1)}
        if name.endswith("_bf16"):
            continue
        needed = operations[name] / rate
        found[name] |= {
            "operations_in_products": round(operations[name] / 1e9, 1),
            "products_ms": round(needed, 1),
            "products_share": round(needed / processor, 2),
        }
    for name in steps.keys() - {"plain"}:
        ratios = sorted(one["plain"][0] / one[name][0] for one in rounds_of)
        kind = name.removeprefix("ours")
        found[f"times_as_quick{kind}"] = round(statistics.median(ratios), 2)
        found[f"times_as_quick{kind}_each_round"] = [round(one, 2) for one in ratios]
    return found


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
