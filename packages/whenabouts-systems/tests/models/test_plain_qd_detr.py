"""QD-DETR against the plain version of the benchmark: another way to the same numbers."""

from __future__ import annotations

from dataclasses import replace

import torch
from benchmarks.plain_qd_detr import PlainQDDetr
from benchmarks.qd_detr_step import laid_out, with_pairs
from tests.models.small_batches import small_batch

from whenabouts_systems.models import new_model
from whenabouts_systems.models.qd_detr import Config


def test_both_have_the_same_losses_and_gradients() -> None:
    torch.manual_seed(0)
    config = Config(streams={"vision": 6}, query_width=5, hidden=16, heads=2, feedforward=24, windows=4)
    model = new_model("qd_detr", config).eval()
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    batch = small_batch(config.streams, [9, 7, 12], [3, 1, 5], [0, 1, 2])
    windows = torch.tensor(
        [[[1.0, 4.0], [6.0, 8.0]], [[2.0, 5.0], [torch.nan] * 2], [[0.0, 3.0], [9.0, 11.0]]]
    )
    ratings = torch.zeros(3, 12)
    ratings[0, 1:4], ratings[1, 2:5], ratings[2, :3], ratings[2, 9:11] = 7, 12, 3, 5
    batch = with_pairs(replace(batch, labels={"windows": windows, "saliency": ratings}))
    plain = PlainQDDetr(dict(model.named_parameters()), config.heads, (0.0, 0.0))
    ours, theirs = model.loss(batch), plain.losses(laid_out(batch))
    assert set(ours) == set(theirs)
    for name, term in theirs.items():
        torch.testing.assert_close(ours[name], term, atol=1e-6, rtol=1e-5, msg=name)
    parameters = list(model.parameters())
    expected = torch.autograd.grad(torch.stack(list(theirs.values())).sum(), parameters, allow_unused=True)
    found = torch.autograd.grad(torch.stack(list(ours.values())).sum(), parameters, allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(
            torch.zeros(()) if one is None else one,
            torch.zeros(()) if other is None else other,
            atol=1e-5,
            rtol=1e-3,
        )
