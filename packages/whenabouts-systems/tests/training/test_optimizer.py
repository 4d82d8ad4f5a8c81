from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
import pytest
import torch
from tests.golden_folder import Settings, arrays_of, cases, golden_folder, told_inside
from torch import Tensor, nn

from whenabouts.types import UsageError
from whenabouts_systems.training.experiment import TrainingSettings
from whenabouts_systems.training.optimizer import (
    BertAdam,
    EarlyAdamW,
    clipped_each,
    constant,
    decay_groups,
    new_optimizer,
    warmup_linear,
)


def test_it_makes_the_steps_of_the_released_program() -> None:
    files = cases("optim", "bertadam*.json")
    if not files:
        pytest.skip(f"{golden_folder()} has no optim/bertadam*.json")
    for file in files:
        _follow(json.loads(file.read_text()), dict(np.load(file.with_suffix(".npz"))))


SCHEDULES = {"warmup_linear": warmup_linear, "warmup_constant": constant}
"""Of the released optimiser; its cosine is not implemented."""


def _follow(case: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    told = Settings(case, {"schedule": "warmup_linear"})
    assert told["schedule"] in SCHEDULES, f"schedule {told['schedule']} is not implemented"
    weight, bias = (nn.Parameter(torch.from_numpy(arrays[name].copy())) for name in ("A0", "b0"))
    optimizer = BertAdam(
        [
            {"params": [weight], "weight_decay": told["weight_decay_A"]},
            {"params": [bias], "weight_decay": told["weight_decay_b"]},
        ],
        told["lr"],
        betas=(told["b1"], told["b2"]),
        eps=told["eps"],
        max_norm=max(0.0, told["max_grad_norm"]),  # the program's -1: gradients are not cut
    )
    share, total, warmup = SCHEDULES[told["schedule"]], int(told["t_total"]), told["warmup"]
    told.refuse_unread("steps", "seed", "note")
    assert len(arrays["lr_used"]) == told["steps"]
    for step in range(len(arrays["lr_used"])):
        rate = told["lr"] * (1.0 if total == -1 else share(step, total, warmup))
        assert rate == pytest.approx(float(arrays["lr_used"][step]), rel=1e-6)
        for group in optimizer.param_groups:
            group["lr"] = rate
        weight.grad, bias.grad = (torch.from_numpy(arrays[name][step]) for name in ("grad_A", "grad_b"))
        optimizer.step()
        np.testing.assert_allclose(weight.detach(), arrays["A_after"][step], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(bias.detach(), arrays["b_after"][step], rtol=1e-5, atol=1e-6)


def test_adamw_as_released_makes_the_steps_of_heros_program() -> None:
    files = cases("hero_full", "*.npz")
    if not files:
        pytest.skip(f"{golden_folder()} has no hero_full folder")
    for file in files:
        told, arrays = told_inside(file), arrays_of(file)
        if "adamw.A0" in arrays:
            _follow_adamw(told["optim"], arrays)


def _follow_adamw(told: dict[str, Any], arrays: dict[str, Tensor]) -> None:
    """Whose weight decays, whose bias does not."""
    weight, bias = (nn.Parameter(arrays[f"adamw.{name}"].clone()) for name in ("A0", "b0"))
    groups = [
        {"params": [weight], "weight_decay": 0.01},  # of the program, whatever the case trains with
        {"params": [bias], "weight_decay": 0.0},
    ]
    optimizer = EarlyAdamW(groups, told["learning_rate"], betas=tuple(told["betas"]))
    for step, rate in enumerate(arrays["adamw.lr_used"].tolist()):
        for group in optimizer.param_groups:
            group["lr"] = rate
        weight.grad, bias.grad = (arrays[f"adamw.{name}"][step] for name in ("grad_A", "grad_b"))
        optimizer.step()
        torch.testing.assert_close(weight.detach(), arrays["adamw.A_after"][step], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(bias.detach(), arrays["adamw.b_after"][step], rtol=1e-5, atol=1e-6)


def test_each_gradient_is_cut_by_itself_and_stays_as_it_was() -> None:
    long, short = torch.tensor([3.0, 4.0]), torch.tensor([0.3, 0.4])
    cut = clipped_each([long, short], 1.0)
    assert torch.allclose(cut[0], torch.tensor([0.6, 0.8]))
    assert torch.equal(cut[1], short)
    assert torch.equal(long, torch.tensor([3.0, 4.0]))
    assert clipped_each([long], 0.0)[0] is long


def test_biases_and_layer_normalisation_do_not_decay() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    decayed, exempt = decay_groups(model, 0.01)
    assert [id(one) for one in decayed["params"]] == [id(model[0].weight)]
    assert {id(one) for one in exempt["params"]} == {
        id(model[0].bias),
        id(model[1].weight),
        id(model[1].bias),
    }
    assert (decayed["weight_decay"], exempt["weight_decay"]) == (0.01, 0.0)


def test_a_parameter_without_a_gradient_stays_even_with_decay() -> None:
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = BertAdam([used, unused], 0.1)
    used.grad = torch.ones(2)
    optimizer.step()
    assert torch.equal(unused, torch.ones(2))
    assert not torch.equal(used, torch.ones(2))


@pytest.mark.parametrize("name", ["bertadam", "adamw", "adamw-as-released"])
def test_its_state_can_be_kept_and_continued(
    name: Literal["bertadam", "adamw", "adamw-as-released"],
) -> None:
    def steps(optimizer: torch.optim.Optimizer, model: nn.Module, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).pow(2).sum().backward()
            optimizer.step()

    def made() -> tuple[nn.Linear, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        return model, new_optimizer(
            TrainingSettings(optimizer=name, learning_rate=0.1, weight_decay=0.1), model
        )

    whole, optimizer = made()
    steps(optimizer, whole, 4)
    model, before = made()
    steps(before, model, 2)
    kept = before.state_dict()
    after = new_optimizer(TrainingSettings(optimizer=name, learning_rate=0.1, weight_decay=0.1), model)
    after.load_state_dict(kept)
    steps(after, model, 2)
    assert torch.equal(whole.weight, model.weight)


def test_parameters_named_in_rates_learn_so_many_times_as_fast() -> None:
    slow, quick = (torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2)) for _ in range(2))
    quick.load_state_dict(slow.state_dict())
    before = {name: one.detach().clone() for name, one in slow.named_parameters()}
    for model, rates in ((slow, {}), (quick, {"0.weight": 10.0})):
        settings = TrainingSettings(learning_rate=1e-3, weight_decay=0.0, rates=rates)
        optimizer = new_optimizer(settings, model)
        for group in optimizer.param_groups:
            group["lr"] *= group["rate"]
        for one in model.parameters():
            one.grad = torch.ones_like(one)
        optimizer.step()
    moved = {name: one - before[name] for name, one in slow.named_parameters()}
    for name, one in quick.named_parameters():
        torch.testing.assert_close(one - before[name], moved[name] * (10 if name == "0.weight" else 1))


def test_a_rate_for_no_parameter_is_named() -> None:
    with pytest.raises(UsageError, match=r"training\.rates: no parameter's name begins with 'border'"):
        new_optimizer(TrainingSettings(optimizer="adamw", rates={"border": 3.0}), torch.nn.Linear(2, 2))
