"""Where a training stands and how far it is; kept whole, so that it goes on as if nothing had happened."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from whenabouts.formats.files import FormatError, write_atomically

if TYPE_CHECKING:
    from whenabouts.research.training.loop import Validation

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


@dataclass(frozen=True)
class Progress:
    """How far a training is. `losses` are those of the last step; `validation` is set after one."""

    state: State
    epochs: int
    steps: int
    steps_per_second: float
    seconds_left: float | None
    losses: Mapping[str, float]
    validation: Validation | None = None


Show = Callable[[Progress], None]


class Clock:
    """How long a training has taken, breaks left out."""

    def __init__(self, seconds: float, step: int) -> None:
        self._before, self._first = seconds, step
        self._started = self._kept = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds spent, those before a break included."""
        return self._before + time.monotonic() - self._started

    @property
    def since_kept(self) -> float:
        """Seconds since the state was kept."""
        return time.monotonic() - self._kept

    def kept(self) -> None:
        """Note that it was."""
        self._kept = time.monotonic()

    def steps_per_second(self, step: int) -> float:
        """Over this process's steps, evaluations included; 0 before there are any."""
        spent = time.monotonic() - self._started
        return (step - self._first) / spent if spent > 0 else 0.0


def save_state(path: Path, state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write everything that a training needs to go on; the file is whole or the one before."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": torch.as_tensor(value) for name, value in moments.items()}
    on_cpu = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    position = json.dumps({"version": VERSION, "state": asdict(state)})
    with write_atomically(path) as stream:
        stream.write(save(on_cpu, metadata={"training": position}))


def read_state(path: Path) -> State:
    """The position of a kept training. Raises FormatError for a file that is none."""
    try:
        with safetensors.safe_open(path, "pt") as opened:
            metadata = opened.metadata() or {}
        kept = json.loads(metadata["training"])
        if kept["version"] != VERSION:
            raise FormatError(path, "kept by another version", value=kept["version"], accepted=str(VERSION))
        return State(**kept["state"])
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
        for name, tensor in _below("optimizer.", tensors).items():
            number, key = name.split(".", 1)
            kept.setdefault(int(number), {})[key] = tensor
        optimizer.load_state_dict({"state": kept, "param_groups": optimizer.state_dict()["param_groups"]})
    except (RuntimeError, ValueError, KeyError) as error:
        raise FormatError(path, f"does not fit the experiment ({str(error).splitlines()[0]})") from error


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
