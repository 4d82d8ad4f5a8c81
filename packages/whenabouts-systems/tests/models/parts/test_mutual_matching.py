"""The losses of MMN against loops over sentences, cells and videos that follow the equations word by word."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import exp, log

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from whenabouts_systems.models.parts.mutual_matching import (
    Keep,
    Rule,
    Truth,
    mutual_matching,
    positive_cells,
    scaled_bce,
)
from whenabouts_systems.released.mmn import ReleasedRule

SENTENCES, VIDEOS, CELLS, WIDTH = 5, 3, 7, 6
ALL = Keep()
RULE = Rule(margin=0.3, moment_temperature=0.2, sentence_temperature=0.5, positives=2)


def drawn(seed: int = 0, others: int = 0) -> tuple[Tensor, Tensor, Truth]:
    """Sentences of three videos, the last of which has fewer cells."""
    generator = torch.Generator().manual_seed(seed)
    sentences = normalize(torch.randn(SENTENCES + others, WIDTH, generator=generator), dim=-1)
    cells = normalize(torch.randn(VIDEOS, CELLS, WIDTH, generator=generator), dim=-1)
    there = torch.ones(VIDEOS, CELLS, dtype=torch.bool)
    there[2, 4:] = False
    overlap = torch.rand(SENTENCES, SENTENCES, generator=generator)
    truth = Truth(
        torch.rand(SENTENCES, CELLS, generator=generator),
        torch.tensor([0, 0, 1, 2, 0]),
        there,
        (overlap + overlap.T) / 2,
    )
    return sentences, cells, truth


def by_hand(sentences: Tensor, cells: Tensor, truth: Truth, rule: Rule, keep: Keep) -> tuple[float, float]:
    """Equations 5 and 6, one exponential at a time."""
    released = isinstance(rule, ReleasedRule)
    of_moments, of_sentences = [], []
    for s, video in enumerate(truth.video_of.tolist()):
        real = [p for p in range(CELLS) if truth.cells[video, p]]
        best = sorted(real, key=lambda p: -float(truth.iou[s, p]))[: rule.positives]
        for p in best:
            own = float(sentences[s] @ cells[video, p]) - rule.margin
            total = exp(own / rule.moment_temperature)
            for t in range(len(sentences)):
                same = t < SENTENCES and int(truth.video_of[t]) == video
                near = same and float(truth.overlap[s, t]) >= rule.same_iou
                kept = keep.sentences is None or bool(keep.sentences[s, t])
                if t != s and not near and kept:
                    total += exp(float(sentences[t] @ cells[video, p]) / rule.moment_temperature)
            of_moments.append(log(total) - own / rule.moment_temperature)
            total = exp(own / rule.sentence_temperature) + (1e-6 if released else 0)
            for v in range(VIDEOS):
                for c in range(CELLS):
                    near = v == video and float(truth.iou[s, c]) >= rule.negative_iou
                    if v == video and c in best and not released:
                        continue
                    kept = v == video or keep.cells is None or bool(keep.cells[s, v])
                    if not truth.cells[v, c] or not kept:
                        continue
                    if near:
                        total += 1 if released else 0
                    else:
                        total += exp(float(sentences[s] @ cells[v, c]) / rule.sentence_temperature)
            of_sentences.append(log(total) - own / rule.sentence_temperature)
    return sum(of_moments) / len(of_moments), sum(of_sentences) / len(of_sentences)


def assert_by_hand(others: int = 0, rule: Rule = RULE, keep: Keep = ALL) -> None:
    sentences, cells, truth = drawn(others=others)
    found = mutual_matching(sentences, cells, truth, rule, keep)
    expected = by_hand(sentences, cells, truth, rule, keep)
    assert [float(one) for one in found] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("positives", [1, 2, 3])
@pytest.mark.parametrize("kind", [Rule, ReleasedRule])
def test_both_terms_are_those_of_the_equations(positives: int, kind: type[Rule]) -> None:
    assert_by_hand(rule=kind(**{**asdict(RULE), "positives": positives}))


def test_a_cell_and_a_sentence_of_just_the_bound_are_no_negatives() -> None:
    truth = drawn()[2]
    middle = int(truth.iou[0].argsort()[CELLS // 2])
    far, near = float(truth.iou[0, middle]), float(truth.overlap[0, 1])
    assert_by_hand(rule=replace(RULE, negative_iou=far, same_iou=near))


def test_sentences_without_a_truth_are_negatives_of_moments_alone() -> None:
    assert_by_hand(others=4)


def test_pairs_that_are_taken_out_add_nothing() -> None:
    pairs = torch.rand(SENTENCES + 4, VIDEOS, generator=torch.Generator().manual_seed(3)) > 0.5
    own = drawn()[2].video_of
    keep = Keep.of_pairs(pairs, own)
    assert_by_hand(others=4, keep=keep)
    assert keep.cells is not None
    assert keep.cells[torch.arange(SENTENCES), own].all(), "an own video stays whole"
    assert keep.sentences is not None
    assert keep.sentences[0, :2].all(), "sentences of one video are left to the rules of IoU"


def test_without_any_negative_both_terms_are_nothing_and_have_a_gradient() -> None:
    sentences, cells, truth = drawn()
    sentences.requires_grad_()
    nothing = Keep(
        torch.zeros(SENTENCES, SENTENCES, dtype=torch.bool), torch.zeros(SENTENCES, VIDEOS, dtype=torch.bool)
    )
    near = replace(truth, iou=torch.ones_like(truth.iou))
    found = torch.stack(mutual_matching(sentences, cells, near, RULE, nothing))
    assert torch.allclose(found, torch.zeros(2), atol=1e-6)
    (gradient,) = torch.autograd.grad(found.sum(), sentences)
    assert gradient.isfinite().all()


def test_a_positive_cell_is_no_negative_however_little_it_overlaps() -> None:
    """A moment much shorter than a cell: IoU 0.2 with the best one, whose video has no other."""
    cosine = 0.6
    sentences, cells = torch.tensor([[1.0, 0.0]]), torch.tensor([[[cosine, 0.8]]])
    truth = Truth(torch.tensor([[0.2]]), torch.tensor([0]), torch.ones(1, 1).bool(), torch.ones(1, 1))
    _, of_sentences = mutual_matching(sentences, cells, truth, replace(RULE, positives=1))
    assert float(of_sentences) == pytest.approx(0.0, abs=1e-6)
    _, released = mutual_matching(sentences, cells, truth, ReleasedRule(**{**asdict(RULE), "positives": 1}))
    assert float(released) == pytest.approx(log(1 + exp(RULE.margin / 0.5)), rel=1e-4)


def test_a_video_with_fewer_cells_than_positives_has_those_that_it_has() -> None:
    sentences, cells, truth = drawn()
    positives = positive_cells(truth, 6)
    assert positives.real.sum(1).tolist() == [6, 6, 6, 4, 6]
    assert set(positives.chosen[3][positives.real[3]].tolist()) == {0, 1, 2, 3}
    assert torch.stack(mutual_matching(sentences, cells, truth, replace(RULE, positives=6))).isfinite().all()


def test_of_cells_of_one_iou_the_later_is_the_positive() -> None:
    _, _, truth = drawn()
    chosen = positive_cells(replace(truth, iou=torch.full((SENTENCES, CELLS), 0.5)), 2).chosen
    assert chosen[0].tolist() == [6, 5]
    assert chosen[3].tolist() == [3, 2]


def test_scaled_cross_entropy_is_that_of_the_scaled_overlap_over_real_cells() -> None:
    iou = torch.tensor([[0.2, 0.5, 0.75, 1.0], [0.9, 0.1, 0.6, 0.3]])
    logits = torch.tensor([[-1.0, 0.0, 2.0, 1.0], [0.5, -3.0, 9.0, 9.0]])
    there = torch.tensor([[True] * 4, [True, True, False, False]])
    targets = {(0, 0): 0.0, (0, 1): 0.0, (0, 2): 0.5, (0, 3): 1.0, (1, 0): 0.8, (1, 1): 0.0}
    terms = []
    for at, target in targets.items():
        share = 1 / (1 + exp(-float(logits[at])))
        terms.append(-target * log(share) - (1 - target) * log(1 - share))
    found = scaled_bce(logits, iou, there, 0.5, 1.0)
    assert float(found) == pytest.approx(sum(terms) / 6, rel=1e-5)
