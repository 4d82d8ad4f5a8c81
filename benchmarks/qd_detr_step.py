"""How long a training step of QD-DETR takes at the released size, against the same written down plainly.

    python -m benchmarks.qd_detr_step [--batch 32] [--rounds 7] [--threads 1]
                                      [--out benchmarks/results/qd_detr_step.json]

A step is forward, backward and AdamW on 32 random queries with a video each, in the shape of QVHighlights
(its validation queries: 75 clips in 97 of 100 videos, 10.5 words with a deviation of 4 and two tokens around
them, one window in most and up to three here) with CLIP features (512) and the settings of its training: all
layers judged, a second pass with wrong words. Ours and the plain version (`plain_qd_detr`; a test holds its
losses and gradients equal) take turns; see `step_ratio` for what is told.
"""

from __future__ import annotations

import torch
from benchmarks.plain_qd_detr import Asked, PlainQDDetr
from benchmarks.step_ratio import in_turns, options, steps_of, told
from torch import Tensor
from torch.nn import functional

from whenabouts_systems.models.parts.window_model import endpoints
from whenabouts_systems.models.parts.window_targets import saliency_labels, saliency_pairs, true_windows
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch
from whenabouts_systems.models.qd_detr import Config, Model

CLIPS, WIDTH, MOST_TOKENS, MOST_WINDOWS = 75, 512, 32, 3


def random_batch(count: int) -> Batch:
    """So many queries with a video each; clips outside of the windows are rated 0, others 3 to 12."""
    random = torch.Generator().manual_seed(0)
    said = (12.5 + 4 * torch.randn(count, generator=random)).round().long().clamp(4, MOST_TOKENS)
    heard = torch.arange(int(said.max())) < said[:, None]
    shown = torch.ones((count, CLIPS), dtype=torch.bool)

    def features(mask: Tensor) -> Tensor:
        drawn = torch.randn(*mask.shape, WIDTH, generator=random)
        return functional.normalize(drawn, dim=-1) * mask[..., None]

    # One window in each third of a video, of up to a third; most have the first alone.
    begin = torch.arange(MOST_WINDOWS) * (CLIPS / MOST_WINDOWS)
    lasts = 2 + torch.rand(count, MOST_WINDOWS, generator=random) * (CLIPS / MOST_WINDOWS - 2)
    windows = torch.stack([begin.expand(count, -1), begin + lasts], -1)
    number = 1 + (torch.rand(count, 2, generator=random) < 0.3).long().cumprod(1).sum(1)
    windows[torch.arange(MOST_WINDOWS) >= number[:, None]] = torch.nan
    place = torch.arange(CLIPS) + 0.5
    inside = ((place > windows[..., :1]) & (place < windows[..., 1:])).any(1)
    ratings = torch.randint(3, 13, (count, CLIPS), generator=random) * inside
    own = torch.arange(count)
    batch = Batch(
        QueryBatch(features(heard), heard),
        ClipBatch({"vision": features(shown)}, shown),
        own,
        torch.zeros(count, 2, dtype=torch.int64),
        own[:, None] == own,
        labels={"windows": windows, "saliency": ratings},
    )
    torch.manual_seed(0)
    return with_pairs(batch)


def with_pairs(batch: Batch) -> Batch:
    """The batch with the pairs of clips drawn, so that both versions judge the same."""
    pairs = torch.stack(saliency_pairs(batch, batch.videos.mask), 1)
    return Batch(**{**vars(batch), "labels": {**batch.labels, "saliency_pairs": pairs}})


def laid_out(batch: Batch) -> Asked:
    """The batch as the plain version wants it."""
    videos = batch.videos
    truth = true_windows(batch, videos.mask.sum(1))
    higher, lower = saliency_pairs(batch, videos.mask)
    return Asked(
        torch.cat([*videos.streams.values(), endpoints(videos.mask)], 2),
        videos.mask,
        batch.queries.tokens,
        batch.queries.mask,
        [one[one.isfinite().all(1)] for one in truth],
        saliency_labels(batch, videos.mask),
        higher,
        lower,
    )


def main() -> None:
    """Measure, show, and write."""
    chosen = options(__doc__, batch=32, rounds=7)
    config, batch = Config(streams={"vision": WIDTH}), random_batch(chosen.batch)
    torch.manual_seed(0)
    ours = Model(config).train()
    weights = {name: one.detach().clone().requires_grad_() for name, one in ours.named_parameters()}
    system = PlainQDDetr(weights, config.heads, (config.input_dropout, config.dropout))
    asked = laid_out(batch)
    steps = steps_of(ours, lambda: ours.loss(batch).values(), weights, lambda: system.losses(asked).values())
    told({"batch": chosen.batch, "hidden": config.hidden, **in_turns(steps, chosen.rounds)}, chosen.out)


if __name__ == "__main__":
    main()
