"""A convolution between places of the plane: both ways are the dense one, forwards and backwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts import sparse_convolution
from whenabouts_systems.models.parts.sparse_convolution import Area, convolved, neighbours


def some(size: int, margin: int, share: float, seed: int) -> Area:
    there = torch.rand(size**2, generator=torch.Generator().manual_seed(seed)) < share
    return Area(size, margin, there.nonzero()[:, 0])


CASES = [
    (some(6, 0, 0.5, 1), some(10, 2, 0.6, 2), 5),
    (some(10, 2, 0.5, 3), some(6, 0, 0.5, 4), 5),
    (some(8, 1, 0.4, 5), some(8, 1, 0.7, 6), 3),
    (Area(4, 0, torch.arange(16)), Area(4, 0, torch.arange(16)), 3),
    (some(5, 0, 0.3, 7), some(5, 0, 0.3, 8), 1),
]


def dense(rows: Tensor, conv: nn.Conv2d, before: Area, after: Area) -> Tensor:
    """Over one plane that is large enough for all."""
    edge = 12
    size = before.size - 2 * before.margin + 2 * edge
    plane = torch.zeros(len(rows), rows.shape[2], size, size)
    at = [
        (axis + edge - before.margin) for axis in (before.places // before.size, before.places % before.size)
    ]
    plane[:, :, at[0], at[1]] = rows.transpose(1, 2)
    made = functional.conv2d(plane, conv.weight, conv.bias, padding=conv.kernel_size[0] // 2)
    at = [(axis + edge - after.margin) for axis in (after.places // after.size, after.places % after.size)]
    return made[:, :, at[0], at[1]].transpose(1, 2)


@pytest.mark.parametrize("gathered_from", [0, 10**9])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_rows_and_gradients_are_those_of_the_dense_convolution(
    case: int, gathered_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_convolution, "GATHERED_FROM", gathered_from)
    before, after, kernel = CASES[case]
    torch.manual_seed(case)
    conv = nn.Conv2d(4, 3, kernel)
    rows = torch.randn(2, len(before.places), 4, requires_grad=True)
    seen = (rows, conv.weight, conv.bias)
    found, expected = convolved(rows, conv, before, after), dense(rows, conv, before, after)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    towards = torch.randn_like(expected)
    ours = torch.autograd.grad(found, seen, towards)  # type: ignore[arg-type]
    theirs = torch.autograd.grad(expected, seen, towards)  # type: ignore[arg-type]
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_only_places_that_are_there_are_neighbours() -> None:
    before, after = Area(3, 0, torch.tensor([0, 4])), Area(3, 0, torch.tensor([4, 8]))
    near = neighbours(before, after, 3)
    pairs = {
        (at, int(a), int(b)) for at, (rows, seen) in enumerate(near) for a, b in zip(rows, seen, strict=True)
    }
    # Place 4 (the middle) sees place 0 up and left, and itself; place 8 sees place 4 up and left.
    assert pairs == {(0, 0, 0), (4, 0, 1), (0, 1, 1)}


def test_under_autocast_the_dense_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_convolution, "GATHERED_FROM", 0)
    before, after, kernel = CASES[0]
    conv, rows = nn.Conv2d(4, 3, kernel), torch.randn(2, len(before.places), 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = convolved(rows, conv, before, after)
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.float(), convolved(rows, conv, before, after), atol=0.05, rtol=0.05)
