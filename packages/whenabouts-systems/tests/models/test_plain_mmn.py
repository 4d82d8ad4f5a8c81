"""MMN and MMN written down plainly compute the same losses and gradients."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("clips", [4, 32])
def test_losses_and_gradients_are_the_plain_ones(clips: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    plainly, step = (importlib.import_module(f"benchmarks.{name}") for name in ("plain_mmn", "mmn_step"))
    shape = plainly.Shape(features=10, words=7, hidden=6, joint=5, kernel=3, layers=3)
    torch.manual_seed(0)
    ours, plain = step.ours_of(shape).eval(), plainly.PlainMMN(shape).eval()
    plain.load_state_dict(ours.state_dict())
    whole = step.random_batch(shape, videos=4, clips=clips, tokens=3)
    mine, theirs = ours.loss(step.as_batch(whole)), plain(whole)
    assert set(mine) == set(theirs)
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], atol=1e-5, rtol=1e-4)
    totals = [torch.stack(list(one.values())).sum() for one in (mine, theirs)]
    found = [
        torch.autograd.grad(total, list(model.parameters()))
        for total, model in zip(totals, (ours, plain), strict=True)
    ]
    names = [name for name, _ in ours.named_parameters()]
    ordered = dict(zip([name for name, _ in plain.named_parameters()], found[1], strict=True))
    for name, value in zip(names, found[0], strict=True):
        torch.testing.assert_close(value, ordered[name], atol=1e-6, rtol=1e-3)
