"""How long a training step of SQuiDNet takes at the released size, against the same written down plainly.

    python -m benchmarks.squidnet_step [--batch 2] [--negatives 15] [--rounds 3] [--threads 1]
                                       [--out benchmarks/results/squidnet_step.json]

A step is forward, backward and AdamW on a batch of random queries with a video and its negatives each, in the
shape of TVR (4,352 + 768 dimensions, words of 768, up to 30 of them; clips as in `training_step`). Ours and
the plain version (`plain_squidnet`, which pads to 100 clips and 30 tokens, as the program does; a test holds
its losses and gradients equal) take turns; told are medians of processor and wall seconds. The released batch
is 16 queries; the step grows with their number.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from benchmarks.plain_squidnet import PlainSQuiDNet
from benchmarks.prem_step import Shape, _timed, lengths_of, random_batch
from torch import Tensor
from torch.nn import functional

from whenabouts.models.protocol import Batch
from whenabouts.models.squidnet import Config, Model
from whenabouts.research.training.devices import use_large_pages
from whenabouts.research.training.experiment import TrainingSettings
from whenabouts.research.training.optimizer import new_optimizer

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


def ours(config: Config, batch: Batch) -> Callable[[], object]:
    """A step of the package."""
    torch.manual_seed(0)
    model = Model(config).train()
    optimizer = new_optimizer(TrainingSettings(optimizer="adamw"), model)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(model.loss(batch).values())).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def plain(config: Config, batch: Batch) -> Callable[[], object]:
    """A step of the plain version."""
    torch.manual_seed(0)
    weights = dict(Model(config).named_parameters())
    system = PlainSQuiDNet(weights, config.heads, config.dropout)
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-4, foreach=False)
    laid = laid_out(batch, config.max_clips, config.max_tokens)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        losses = system.losses(*laid, batch.spans, (config.lambda_tl, config.lambda_video))
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def main() -> None:
    """Measure, show, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, usual in (("batch", 2), ("negatives", 15), ("rounds", 3), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    use_large_pages()
    shape = Shape(options.batch, options.negatives)
    config = Config(measure="moment_video")
    batch = random_batch(shape, lengths_of(shape, full=False))
    steps = {"ours": ours(config, batch), "plain": plain(config, batch)}
    for step in steps.values():
        step()
    rounds = [{name: _timed(step) for name, step in steps.items()} for _ in range(options.rounds)]
    told = {
        name: {
            unit: round(1000 * statistics.median(one[name][at] for one in rounds), 1)
            for at, unit in enumerate(("processor_ms", "wall_ms"))
        }
        for name in steps
    }
    ratios = [one["plain"][0] / one["ours"][0] for one in rounds]
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"PyTorch {torch.__version__}",
        "load_average": round(os.getloadavg()[0], 1),
        "threads": options.threads,
        "batch": options.batch,
        "negatives": options.negatives,
        "hidden": config.hidden,
        **told,
        "times_as_quick": [round(one, 2) for one in sorted(ratios)],
    }
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
