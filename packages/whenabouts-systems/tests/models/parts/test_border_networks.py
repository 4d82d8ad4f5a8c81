"""Both border networks, computed together, against two convolutions by themselves."""

from __future__ import annotations

import torch

from whenabouts_systems.models.parts.borders import BorderNetworks

LENGTHS = [6, 1, 4]


def _networks() -> BorderNetworks:
    torch.manual_seed(0)
    return BorderNetworks(width=8, inner=3, kernel=5)


def test_start_and_end_are_two_networks_of_two_convolutions() -> None:
    networks, clips = _networks(), torch.randn(3, 6, 8)
    mask = torch.arange(6) < torch.tensor(LENGTHS)[:, None]
    found = networks(clips * mask[..., None], mask)
    (first, first_bias), (second, second_bias) = (
        [value.detach() for value in part.parameters()] for part in (networks.wide, networks.narrow)
    )
    for border in range(2):
        mine = slice(3 * border, 3 * border + 3)
        for row, count in enumerate(LENGTHS):
            alone = clips[row, :count].T[None]
            inner = torch.nn.functional.conv1d(alone, first[mine], first_bias[mine], padding=2).relu()
            logits = second[border, :, 0] @ inner[0] + second_bias[border]
            torch.testing.assert_close(found[border, row, :count], logits)
            assert (found[border, row, count:] == -1e10).all()


def test_a_border_network_learns_nothing_from_the_other_border() -> None:
    networks = _networks()
    start = networks(torch.randn(1, 6, 8), torch.ones(1, 6, dtype=torch.bool))[0].sum()
    wide, narrow = torch.autograd.grad(start, [networks.wide.weight, networks.narrow.weight])
    assert wide[:3].any()
    assert narrow[0].any()
    assert not wide[3:].any()
    assert not narrow[1].any()
