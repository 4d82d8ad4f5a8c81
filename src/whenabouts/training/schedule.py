"""The learning rate as a function of the step alone, so that a resumed training continues it exactly."""

from __future__ import annotations

from collections.abc import Sequence


def warmup_linear(step: int, steps: int, warmup: float) -> float:
    """The share of the learning rate at a step (0 is the first) of a training of `steps`.

    It rises from 0 over the first `warmup` share of all steps, then falls to 0 at the last (BertAdam's
    "warmup_linear"): the first step has a learning rate of 0.

    >>> [warmup_linear(step, 20, 0.2) for step in (0, 2, 4, 12, 20)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    done = step / max(1, steps)
    if done < warmup:
        return done / warmup
    return max(0.0, (1.0 - done) / (1.0 - warmup)) if warmup < 1.0 else 0.0


def constant(step: int, steps: int, warmup: float) -> float:
    """The same, without the fall after the warm-up.

    >>> [constant(step, 20, 0.2) for step in (0, 2, 4, 12)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return min(1.0, step / (warmup * max(1, steps))) if warmup else 1.0


def after_milestones(epoch: int, milestones: Sequence[int], factor: float) -> float:
    """The share of the learning rate in an epoch (0 is the first): `factor` for each milestone reached.

    >>> [round(after_milestones(epoch, (8, 13), 0.1), 3) for epoch in (7, 8, 13)]
    [1.0, 0.1, 0.01]
    """
    return factor ** sum(epoch >= one for one in milestones)


SCHEDULES = {"linear": warmup_linear, "constant": constant}
