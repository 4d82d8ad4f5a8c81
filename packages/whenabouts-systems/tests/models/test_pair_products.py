"""What all systems share when they score pairs of a query and a video."""

from __future__ import annotations

import pytest
import torch

from whenabouts_systems.models.protocol import best_key, pair_products, scaled_clips


def test_products_of_pairs_are_the_same_where_all_are_of_one_video_and_then_copy_nothing() -> None:
    queries, clips, factors = torch.randn(5, 8), torch.randn(1, 6, 8), torch.rand(1, 6, 1)
    view, copy = clips.expand(5, -1, -1), clips.repeat(5, 1, 1)
    torch.testing.assert_close(pair_products(queries, view), pair_products(queries, copy))
    scaled = scaled_clips(view, factors.expand(5, -1, -1))
    torch.testing.assert_close(scaled, scaled_clips(copy, factors.repeat(5, 1, 1)))
    assert scaled.untyped_storage().nbytes() == clips.untyped_storage().nbytes()
    expected = (queries[:, None] * copy).sum(-1)
    torch.testing.assert_close(pair_products(queries, copy), expected)
    torch.testing.assert_close(pair_products(queries[:1], clips), expected[:1])


def test_gradients_of_products_of_pairs_reach_the_one_video() -> None:
    queries, clips = torch.randn(5, 8), torch.randn(1, 6, 8, requires_grad=True)
    (one,) = torch.autograd.grad(pair_products(queries, clips.expand(5, -1, -1)).square().sum(), clips)
    (other,) = torch.autograd.grad(pair_products(queries, clips.repeat(5, 1, 1)).square().sum(), clips)
    torch.testing.assert_close(one, other)


def test_the_best_key_is_the_largest_product_with_a_real_key() -> None:
    vectors = torch.randn(4, 8, requires_grad=True)
    keys = torch.randn(3, 6, 8, requires_grad=True)
    mask = torch.tensor([[True] * 6, [True] + [False] * 5, [False, True, True, False, False, False]])
    expected = torch.einsum("qd,vkd->qvk", vectors, keys).masked_fill(~mask, -torch.inf).amax(-1)
    found = best_key(vectors, keys, mask)
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(one.square().sum(), (vectors, keys)) for one in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_best_key_is_told_in_full_precision_where_a_training_computes_in_half(kind: torch.dtype) -> None:
    vectors, keys = torch.randn(5, 384).to(kind), torch.randn(3, 4, 384).to(kind)
    mask = torch.ones(3, 4, dtype=torch.bool)
    exact = best_key(vectors.float(), keys.float(), mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = best_key(vectors, keys, mask)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-5)
