"""SQuiDNet as released against the plain version of the benchmark: another way to the same numbers."""

from __future__ import annotations

import torch
from benchmarks.plain_squidnet import PlainSQuiDNet
from benchmarks.squidnet_step import laid_out
from tests.models.small_batches import small_batch

from whenabouts_systems.models import new_model
from whenabouts_systems.models.squidnet import Config


def test_both_have_the_same_losses_and_gradients() -> None:
    torch.manual_seed(0)
    config = Config(
        streams={"video": 6, "sub": 3},
        query_width=5,
        hidden=16,
        heads=2,
        clusters=3,
        span_hidden=8,
        max_clips=9,
        max_tokens=8,
        initializer_range=0.3,
        measure="moment_video",
        as_released=True,
    )
    model = new_model("squidnet", config).eval()
    spans = torch.tensor([[0, 1], [1, 3], [2, 2]])
    negatives = torch.tensor([[0, 3], [1, 3], [3, 2]])
    batch = small_batch(config.streams, [4, 7, 2, 5], [3, 1, 5], [2, 0, 1], spans=spans, negatives=negatives)
    for name, rows in batch.videos.streams.items():
        assert not torch.equal(rows, rows * batch.videos.mask[..., None]), f"{name} has no padding"
        rows *= batch.videos.mask[..., None]
    batch.queries.tokens.mul_(batch.queries.mask[..., None])
    plain = PlainSQuiDNet(dict(model.named_parameters()), config.heads, 0.0)
    factors = config.lambda_tl, config.lambda_video
    theirs = plain.losses(*laid_out(batch, config.max_clips, config.max_tokens), spans, factors)
    ours = list(model.loss(batch).values())
    torch.testing.assert_close(ours, list(theirs), atol=1e-7, rtol=1e-5)
    parameters = list(model.parameters())
    expected = torch.autograd.grad(torch.stack(theirs).sum(), parameters)
    found = torch.autograd.grad(torch.stack(ours).sum(), parameters)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-3)
