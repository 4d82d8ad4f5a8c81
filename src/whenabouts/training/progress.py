"""How far a training is, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whenabouts.training.state import State
    from whenabouts.training.validation import Validation


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
