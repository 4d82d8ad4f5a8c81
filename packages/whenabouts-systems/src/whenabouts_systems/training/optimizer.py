"""Make the optimizer of a training, and compute the learning rate of a step.

BertAdam is the optimizer of XML, ReLoCLNet and their descendants, EarlyAdamW that of the programs of HERO,
CONQUER and SQuiDNet; AdamW is PyTorch's. The rate depends only on the step, so a resumed training continues
it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from whenabouts.types import UsageError
from whenabouts_systems.training.experiment import TrainingSettings


class BertAdam(torch.optim.Optimizer):
    """Adam as in BERT's program, which unlike the published Adam has no bias correction.

    - Weight decay is decoupled and multiplied by the learning rate (Loshchilov and Hutter).
    - Each tensor's gradient is clipped to norm `max_norm` separately (0: not clipped); `grad` is unchanged.

    Parameter groups may set `lr` and `weight_decay`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        max_norm: float = 1.0,
    ) -> None:
        super().__init__(
            params,
            {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "max_norm": max_norm},
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make one step; parameters without a gradient do not change."""
        for group in self.param_groups:
            parameters = [tensor for tensor in group["params"] if tensor.grad is not None]
            if parameters:
                self._step_group(parameters, group)

    def _step_group(self, parameters: list[Tensor], group: Mapping[str, Any]) -> None:
        first, second = self._averages(parameters)
        gradients = clipped_each(
            [tensor.grad for tensor in parameters if tensor.grad is not None], group["max_norm"]
        )
        (fast, slow), rate = group["betas"], float(group["lr"])
        torch._foreach_lerp_(first, gradients, 1.0 - fast)
        torch._foreach_mul_(second, slow)
        torch._foreach_addcmul_(second, gradients, gradients, 1.0 - slow)
        divisors = torch._foreach_sqrt(second)
        torch._foreach_add_(divisors, group["eps"])  # after the root, not under it
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1.0 - rate * group["weight_decay"])
        torch._foreach_addcdiv_(parameters, first, divisors, -rate)

    def _averages(self, parameters: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The moving averages of gradients and of their squares, which start at zero."""
        for tensor in parameters:
            if not self.state[tensor]:
                self.state[tensor] = {name: torch.zeros_like(tensor) for name in ("first", "second")}
        states = [self.state[tensor] for tensor in parameters]
        return [state["first"] for state in states], [state["second"] for state in states]


class EarlyAdamW(BertAdam):
    """AdamW as in the first version of Hugging Face's program, which HERO, CONQUER and SQuiDNet still use.

    The averages are bias-corrected, but `eps` is added to the root of the uncorrected average of squares: in
    the first steps `eps` weighs up to 30 times as much as in PyTorch. Weights decay after the step. It does
    not clip gradients.
    """

    def __init__(
        self, params: Iterable[Any], lr: float, *, betas: tuple[float, float] = (0.9, 0.999)
    ) -> None:
        super().__init__(params, lr, betas=betas, max_norm=0.0)

    def _step_group(self, parameters: list[Tensor], group: Mapping[str, Any]) -> None:
        self._averages(parameters)  # makes what is missing
        # Parameters without a gradient skip steps, so their step counts differ.
        by_step: dict[int, list[Tensor]] = {}
        for tensor in parameters:
            step = self.state[tensor].setdefault("step", torch.zeros(()))
            step += 1
            by_step.setdefault(int(step), []).append(tensor)
        (fast, slow), rate = group["betas"], float(group["lr"])
        for count, tensors in by_step.items():
            corrected = rate * math.sqrt(1.0 - slow**count) / (1.0 - fast**count)
            super()._step_group(tensors, {**group, "lr": corrected, "weight_decay": 0.0})
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1.0 - rate * group["weight_decay"])


def clipped_each(gradients: list[Tensor], max_norm: float) -> list[Tensor]:
    """The gradients, each clipped to norm `max_norm`; 0 clips none."""
    if not max_norm:
        return gradients
    lengths = torch._foreach_norm(gradients)
    shares = (max_norm / (torch.stack(list(lengths)) + 1e-6)).clamp_(max=1.0)
    return list(torch._foreach_mul(gradients, list(shares.unbind())))


def new_optimizer(settings: TrainingSettings, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that the settings name, over a model's parameters.

    Biases and the parameters of layer normalisation do not decay. "rate" of a parameter group is its factor
    of the learning rate (`settings.rates`, the first prefix that fits). BertAdam clips gradients itself; for
    the others the training loop does.
    """
    groups = [
        part
        for group in decay_groups(model, settings.weight_decay)
        for part in _by_rate(model, group, settings.rates)
    ]
    rate, betas = settings.learning_rate, settings.betas
    if settings.optimizer == "bertadam":
        return BertAdam(groups, rate, max_norm=settings.max_norm, betas=betas)
    if settings.optimizer == "adamw-as-released":
        return EarlyAdamW(groups, rate, betas=betas)
    return torch.optim.AdamW(groups, lr=rate, foreach=True, betas=betas)


def freeze(model: nn.Module, epochs: Mapping[str, int], epoch: int) -> None:
    """Freeze parameters whose names begin with a key of `epochs`, until `epoch` (from 0) reaches its value.

    All others are trained. Call it after `new_optimizer`, which leaves frozen parameters out. Raises
    UsageError for a prefix that matches no parameter.
    """
    if not epochs:
        return
    named = dict(model.named_parameters())
    for prefix in epochs:
        _refuse_unknown("training.frozen", prefix, named)
    for name, parameter in named.items():
        parameter.requires_grad_(all(epoch >= e for prefix, e in epochs.items() if name.startswith(prefix)))


def _refuse_unknown(setting: str, prefix: str, names: Iterable[str]) -> None:
    if not any(name.startswith(prefix) for name in names):
        raise UsageError(f"{setting}: no parameter's name begins with {prefix!r}")


def _by_rate(model: nn.Module, group: dict[str, Any], rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Split a group by factors of the learning rate. Raises UsageError for a prefix that matches nothing."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for prefix in rates:
        _refuse_unknown("training.rates", prefix, names.values())
    by_rate: dict[float, list[Tensor]] = {}
    for tensor in group["params"]:
        fitting = [rate for prefix, rate in rates.items() if names[id(tensor)].startswith(prefix)]
        by_rate.setdefault(fitting[0] if fitting else 1.0, []).append(tensor)
    return [{**group, "params": parameters, "rate": rate} for rate, parameters in by_rate.items()]


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: parameters that decay, and those that do not (biases and layer normalisation).

    The released programs find layer normalisation by name and miss that of their cross-attention
    ("cross_layernorm"), whose weight they let decay.
    """
    exempt = {
        id(parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if isinstance(module, nn.LayerNorm) or name.endswith("bias")
    }
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [weight for weight in trained if id(weight) not in exempt], "weight_decay": weight_decay},
        {"params": [weight for weight in trained if id(weight) in exempt], "weight_decay": 0.0},
    ]


def learning_rate_share(settings: TrainingSettings, step: int, steps: int, epoch: int) -> float:
    """The factor of the learning rate at `step` (from 0) of `steps`, in `epoch` (from 0)."""
    schedule = warmup_linear if settings.schedule == "linear" else constant
    milestones = after_milestones(epoch, settings.milestones, settings.milestone_factor)
    return schedule(step, steps, settings.warmup) * milestones


def warmup_linear(step: int, steps: int, warmup: float) -> float:
    """The factor of the learning rate at `step` (from 0) of `steps`: BertAdam's "warmup_linear".

    It rises from 0 over the first `warmup` share of the steps, then falls linearly to 0. So the first step
    has a learning rate of 0.

    >>> [warmup_linear(step, 20, 0.2) for step in (0, 2, 4, 12, 20)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    done = step / max(1, steps)
    if done < warmup:
        return done / warmup
    return max(0.0, (1.0 - done) / (1.0 - warmup)) if warmup < 1.0 else 0.0


def constant(step: int, steps: int, warmup: float) -> float:
    """The factor as in `warmup_linear`, but it stays at 1 after the warm-up.

    >>> [constant(step, 20, 0.2) for step in (0, 2, 4, 12)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return min(1.0, step / (warmup * max(1, steps))) if warmup else 1.0


def after_milestones(epoch: int, milestones: Sequence[int], factor: float) -> float:
    """The factor of the learning rate in an epoch (from 0): `factor` to the number of milestones reached.

    >>> [round(after_milestones(epoch, (8, 13), 0.1), 3) for epoch in (7, 8, 13)]
    [1.0, 0.1, 0.01]
    """
    return factor ** sum(epoch >= milestone for milestone in milestones)
