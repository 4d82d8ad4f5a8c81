"""How long a training step of SQuiDNet takes at the released size, against the same written down plainly.

    python -m benchmarks.squidnet_step [--batch 2] [--negatives 15] [--rounds 3] [--threads 1]
                                       [--out benchmarks/results/squidnet_step.json]

A step is forward, backward and AdamW on a batch of random queries with a video and its negatives each, in the
shape of TVR (4,352 + 768 dimensions, words of 768, up to 30 of them; clips as in `training_step`). Ours and
the plain version (`plain_squidnet`, which pads to 100 clips and 30 tokens, as the program does; a test holds
its losses and gradients equal) take turns; see `step_ratio`. The released batch is 16 queries;
the step grows with their number.
"""

from __future__ import annotations

import torch
from benchmarks.plain_squidnet import PlainSQuiDNet
from benchmarks.prem_step import Shape, lengths_of, random_batch
from benchmarks.step_ratio import in_turns, options, steps_of, told
from torch import Tensor
from torch.nn import functional

from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.models.squidnet import Config, Model

Laid = tuple[tuple[Tensor, Tensor], dict[str, Tensor], Tensor]


def laid_out(batch: Batch, clips: int, tokens: int) -> Laid:
    """The batch as the plain version wants it: each query with its videos, padded to those lengths."""
    assert batch.negatives is not None
    rows = torch.cat([batch.video_of[:, None], batch.negatives], 1)
    more = clips - batch.videos.mask.shape[1]
    streams = {name: functional.pad(one, (0, 0, 0, more))[rows] for name, one in batch.videos.streams.items()}
    longer = tokens - batch.queries.mask.shape[1]
    words = (
        functional.pad(batch.queries.tokens, (0, 0, 0, longer)),
        functional.pad(batch.queries.mask, (0, longer)),
    )
    return words, streams, functional.pad(batch.videos.mask, (0, more))[rows]


def main() -> None:
    """Measure, show, and write."""
    chosen = options(__doc__, batch=2, negatives=15, rounds=3)
    shape = Shape(chosen.batch, chosen.negatives)
    config = Config(measure="moment_video")
    batch = random_batch(shape, lengths_of(shape, full=False))
    torch.manual_seed(0)
    ours = Model(config).train()
    weights = {name: one.detach().clone().requires_grad_() for name, one in ours.named_parameters()}
    system = PlainSQuiDNet(weights, config.heads, config.dropout)
    laid = laid_out(batch, config.max_clips, config.max_tokens)
    lambdas = (config.lambda_tl, config.lambda_video)
    steps = steps_of(
        ours, lambda: ours.loss(batch).values(), weights, lambda: system.losses(*laid, batch.spans, lambdas)
    )
    size = {"batch": chosen.batch, "negatives": chosen.negatives, "hidden": config.hidden}
    told({**size, **in_turns(steps, chosen.rounds)}, chosen.out)


if __name__ == "__main__":
    main()
