"""Pooling of words by clusters, against loops over words and centres."""

from __future__ import annotations

import torch

from whenabouts_systems.models.parts.pairs import WordClusters


@torch.no_grad()
def test_distances_from_the_centres_are_shared_out_and_normalised() -> None:
    torch.manual_seed(0)
    pooling, lengths = WordClusters(6, 4), [3, 5, 1]
    pooling.norm.weight.uniform_(0.5, 2.0)
    words, mask = torch.randn(3, 5, 6), torch.arange(5) < torch.tensor(lengths)[:, None]
    found = pooling(words, mask)
    for query, length in enumerate(lengths):
        away = torch.zeros(6, 4)
        for word in words[query, :length]:
            shares = pooling.norm(word @ pooling.assignment).softmax(0)
            for centre in range(4):
                away[:, centre] += shares[centre] * (word - pooling.centres[0, :, centre])
        away = away / away.norm(dim=0)
        torch.testing.assert_close(found[query], (away / away.norm()).flatten(), atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_what_lies_behind_the_last_word_counts_nothing() -> None:
    pooling, mask = WordClusters(6, 4), torch.tensor([[True, True, False]])
    words = torch.randn(1, 3, 6)
    other = words.clone()
    other[0, 2] = 100.0
    assert torch.equal(pooling(words, mask), pooling(other, mask))
    assert not torch.equal(pooling(words, mask), pooling(other, torch.ones_like(mask)))
