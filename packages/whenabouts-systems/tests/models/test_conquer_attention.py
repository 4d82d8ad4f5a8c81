"""Clips and words that look at each other, against the printed equations pair by pair."""

from __future__ import annotations

import pytest
import torch

from whenabouts_systems.models.conquer import ContextQueryAttention

CLIPS, WORDS = [4, 2, 3], [3, 5, 1]


@pytest.mark.parametrize("released", [False, True])
@torch.no_grad()
def test_real_clips_get_their_words_and_the_querys_clips(released: bool) -> None:
    torch.manual_seed(0)
    attention = ContextQueryAttention(6)
    clips, words = torch.randn(3, 4, 6), torch.randn(3, 5, 6)
    masks = [torch.arange(size) < torch.tensor(of)[:, None] for size, of in ((4, CLIPS), (5, WORDS))]
    attended = masks[0][:, :, None] & masks[1][:, None] if released else masks[1][:, None]
    found = attention(clips, words, masks[0], attended)
    for pair, (clip_count, word_count) in enumerate(zip(CLIPS, WORDS, strict=True)):
        v, q = clips[pair, :clip_count], words[pair, :word_count]
        table = torch.stack(
            [torch.stack([attention.similarity(torch.cat([c, w, c * w]))[0] for w in q]) for c in v]
        )
        of_words = table.softmax(1) @ q
        of_clips = table.amax(1).softmax(0) @ v
        expected = torch.cat([v, of_words, v * of_words, v * of_clips], dim=1)
        torch.testing.assert_close(found[pair, :clip_count], expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_as_released_a_padded_clip_sees_all_words_alike() -> None:
    torch.manual_seed(0)
    attention = ContextQueryAttention(6)
    clips, words = torch.randn(1, 3, 6), torch.randn(1, 4, 6)
    there, said = torch.tensor([[True, True, False]]), torch.tensor([[True, True, True, False]])
    found = attention(clips, words, there, there[:, :, None] & said[:, None])
    torch.testing.assert_close(found[0, 2, 6:12], words[0].mean(0))
