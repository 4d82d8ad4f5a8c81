"""Trainings that are broken off at a step, and whether two of them came to the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from whenabouts_systems.training.loop import Progress


class Killed(BaseException):
    """Stands for the end of a process."""


def dying_after(steps: int) -> Callable[[Progress], None]:
    """Ends the training after a step, before it is evaluated."""

    def show(progress: Progress) -> None:
        if progress.state.step == steps and progress.validation is None:
            raise Killed

    return show


def dying_at(said: str) -> Callable[[str], None]:
    """Ends the training before its first step, where a sentence that begins so is told."""

    def tell(line: str) -> None:
        if line.startswith(said):
            raise Killed

    return tell


def assert_same_tensors(one: Path, other: Path, *names: str) -> None:
    """Files of two run folders hold the same numbers, to the last bit."""
    for name in names:
        ours, theirs = load_file(one / name), load_file(other / name)
        assert ours.keys() == theirs.keys()
        for key, tensor in ours.items():
            assert torch.equal(tensor, theirs[key]), key
