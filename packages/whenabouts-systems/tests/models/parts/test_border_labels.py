"""Labels that fall off inside a moment, against equation 10 computed number by number."""

from __future__ import annotations

import math

import pytest
import torch

from whenabouts_systems.models.parts.border_labels import border_terms, interpolated_labels

SPANS = [[0, 0], [2, 5], [6, 6], [0, 6], [3, 4]]
CLIPS = 7


def label_of_start(place: int, first: int, last: int, power: float) -> float:
    """Equation 10 with the border behind the last clip for x_e."""
    behind = last + 1
    return ((behind - place) / (last - first + 1)) ** power if first <= place <= last else 0.0


def label_of_end(place: int, first: int, last: int, power: float) -> float:
    """Equation 10 with the clip before the first for x_s."""
    before = first - 1
    return ((place - before) / (last - first + 1)) ** power if first <= place <= last else 0.0


@pytest.mark.parametrize("power", [1.0, 2.5, 10.0])
def test_labels_are_equation_10(power: float) -> None:
    start, end = interpolated_labels(torch.tensor(SPANS), CLIPS, power)
    for row, (first, last) in enumerate(SPANS):
        for place in range(CLIPS):
            assert start[row, place].item() == pytest.approx(
                label_of_start(place, first, last, power), abs=1e-6
            )
            assert end[row, place].item() == pytest.approx(label_of_end(place, first, last, power), abs=1e-6)


def test_a_label_is_one_at_the_true_border_and_nowhere_else_and_falls_off_away_from_it() -> None:
    start, end = interpolated_labels(torch.tensor(SPANS), CLIPS, 10.0)
    for row, (first, last) in enumerate(SPANS):
        assert (start[row] == 1).nonzero().flatten().tolist() == [first]
        assert (end[row] == 1).nonzero().flatten().tolist() == [last]
        assert (start[row, first : last + 1].diff() < 0).all()
        assert (end[row, first : last + 1].diff() > 0).all()
        outside = [place for place in range(CLIPS) if not first <= place <= last]
        assert not start[row, outside].any()
        assert not end[row, outside].any()


def test_labels_of_start_and_end_mirror_each_other() -> None:
    start, _ = interpolated_labels(torch.tensor([[1, 4]]), CLIPS, 3.0)
    _, end = interpolated_labels(torch.tensor([[2, 5]]), CLIPS, 3.0)
    torch.testing.assert_close(start, end.flip(1))


def test_to_the_letter_the_highest_label_is_below_one_and_a_single_clip_has_none() -> None:
    start, end = interpolated_labels(torch.tensor([[2, 5], [6, 6]]), CLIPS, 10.0, to_the_letter=True)
    assert start[0].max().item() == pytest.approx(0.75**10)
    assert end[0].max().item() == pytest.approx(0.75**10)
    assert start[0].argmax() == 2
    assert end[0].argmax() == 5
    assert not start[1].any()
    assert not end[1].any()


def test_the_terms_are_equation_12_and_weights_weigh_queries() -> None:
    """Half the mean over queries of the mean cross-entropy over the real clips of their videos."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 5, generator=generator)
    labels = (torch.rand(3, 5, generator=generator), torch.rand(3, 5, generator=generator))
    lengths, weights = [5, 2, 1], [1.0, 0.5, 2.0]
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    plain, weighed = (border_terms(logits, labels, mask, w) for w in (None, torch.tensor(weights)))
    for which, border in enumerate(("start", "end")):
        means = []
        for row, length in enumerate(lengths):
            entropies = []
            for place in range(length):
                chance = 1 / (1 + math.exp(-logits[which, row, place].item()))
                label = labels[which][row, place].item()
                entropies.append(-label * math.log(chance) - (1 - label) * math.log(1 - chance))
            means.append(sum(entropies) / length)
        assert plain[border].item() == pytest.approx(0.5 * sum(means) / 3, rel=1e-5)
        expected = sum(weight * mean for weight, mean in zip(weights, means, strict=True))
        assert weighed[border].item() == pytest.approx(0.5 * expected / 3, rel=1e-5)
