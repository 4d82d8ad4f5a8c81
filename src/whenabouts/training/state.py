"""Where a training stands: kept whole at every epoch's end, so that it goes on as if nothing had happened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from whenabouts.formats.files import FormatError, write_atomically

VERSION = 1


@dataclass
class State:
    """The position of a training: `batch` of `epoch` is the next, `step` counts all (from 0).

    `sums` and `counted` are of the losses since the last line of `curves`. `best` is the largest value of
    the experiment's metric, at `best_step`; `stale` counts evaluations since. `finished` says why it ended,
    "" while it goes on. `seconds` were spent, evaluations included.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    counted: int = 0
    best: float | None = None
    best_step: int = 0
    best_metrics: dict[str, float | None] = field(default_factory=dict)
    stale: int = 0
    finished: str = ""
    seconds: float = 0.0
    curves: list[dict[str, Any]] = field(default_factory=list)

    def count(self, losses: Mapping[str, float]) -> None:
        """Note the losses of a step that was made."""
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.counted += 1
        self.step += 1
        self.batch += 1

    def means(self) -> dict[str, float]:
        """Mean losses since the last line of the curves."""
        return {name: total / max(1, self.counted) for name, total in self.sums.items()}

    def end_line(self, line: Mapping[str, Any]) -> None:
        """Put a line behind the curves and count losses anew."""
        self.curves.append(dict(line))
        self.sums, self.counted = {}, 0


def save_state(path: Path, state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write everything that a training needs to go on; the file is whole or the one before."""
    tensors = {f"model.{name}": one for name, one in model.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": torch.as_tensor(one) for name, one in values.items()}
    ready = {name: one.detach().to("cpu").contiguous() for name, one in tensors.items()}
    told = {"version": VERSION, "state": asdict(state)}
    with write_atomically(path) as stream:
        stream.write(save(ready, metadata={"training": json.dumps(told)}))


def read_state(path: Path) -> State:
    """The position of a kept training. Raises FormatError for a file that is none."""
    try:
        with safetensors.safe_open(path, "pt") as opened:
            metadata = opened.metadata() or {}
        told = json.loads(metadata["training"])
        if told["version"] != VERSION:
            raise FormatError(path, "kept by another version", value=told["version"], accepted=str(VERSION))
        return State(**told["state"])
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise FormatError(
            path,
            f"is no kept state of a training ({error}); it cannot go on: train again, into another folder",
        ) from error


def restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put what was kept back into a model and an optimizer of the same experiment."""
    device = next(model.parameters()).device
    tensors = load_file(path, device=str(device))
    try:
        model.load_state_dict(_below("model.", tensors))
        kept: dict[int, dict[str, Tensor]] = {}
        for name, one in _below("optimizer.", tensors).items():
            number, key = name.split(".", 1)
            kept.setdefault(int(number), {})[key] = one
        optimizer.load_state_dict({"state": kept, "param_groups": optimizer.state_dict()["param_groups"]})
    except (RuntimeError, ValueError, KeyError) as error:
        raise FormatError(path, f"does not fit the experiment ({str(error).splitlines()[0]})") from error


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
