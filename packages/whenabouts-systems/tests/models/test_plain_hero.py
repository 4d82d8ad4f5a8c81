"""HERO as released against the plain version of the benchmark: another way to the same numbers."""

from __future__ import annotations

import pytest
import torch
from benchmarks.hero_step import first_laid_out, first_of, heads_of, laid_out
from benchmarks.plain_hero import Losses, PlainHero
from tests.models.small_batches import mask_of

from whenabouts_systems.models.hero import Config, Model
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, SentenceBatch

OF_CLIPS = [[0, 0, -1, 2, 2, 1, -1, -1], [0, 1, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, -1, -1, -1, -1]]


@pytest.mark.parametrize("count", [3, 2])
def test_both_have_the_same_losses_and_gradients(count: int) -> None:
    torch.manual_seed(0)
    config = Config(
        streams={"frames": 6},
        text_encoder="numbers",
        hidden=16,
        heads=2,
        max_tokens=8,
        cross_modal={"layers": 2, "heads": 4, "feedforward": 20, "vocabulary": 30, "word_places": 20},
        temporal={"layers": 1, "heads": 2, "feedforward": 20, "places": 12},
        initializer_range=0.3,
        as_released=True,
    )
    model = Model(config).eval()
    shown, heard = mask_of([6, 8, 4]), mask_of([3, 1, 5])
    said = torch.arange(5) < torch.tensor([[3, 1, 4, 0], [2, 5, 1, 3], [2, 0, 0, 0]])[..., None]
    words = torch.randint(4, 30, said.shape)
    rows = torch.randn(*shown.shape, 6) * shown[..., None]
    own = torch.arange(3)
    batch = Batch(
        QueryBatch(torch.randint(4, 30, heard.shape), heard),
        ClipBatch({"frames": rows}, shown, sentences=SentenceBatch(words, said, torch.tensor(OF_CLIPS))),
        own,
        torch.tensor([[0, 1], [3, 7], [2, 3]]),
        own[:, None] == own,
    )
    plain = PlainHero(dict(model.named_parameters()), heads_of(config), 0.0)
    terms = Losses(config.margin, config.weight_negative_videos, config.lambda_tl)
    made = first_laid_out(laid_out(batch, config), count)
    theirs, ours = plain.losses(made, terms), model.loss(first_of(batch, count))
    names = ("spans", "negative_videos", "negative_queries")
    for name, term in zip(names, theirs, strict=True):
        torch.testing.assert_close(ours[name], term, atol=1e-6, rtol=1e-5, msg=name)
    parameters = list(model.parameters())
    expected = torch.autograd.grad(torch.stack(theirs).sum(), parameters)
    found = torch.autograd.grad(torch.stack([ours[name] for name in names]).sum(), parameters)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-3)
