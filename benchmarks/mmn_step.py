"""How long a training step of MMN takes, against MMN written down plainly.

    python -m benchmarks.mmn_step [--hidden 512] [--videos 4] [--rounds 3]
                                  [--out benchmarks/results/mmn_step.json]

A step is forward, backward and AdamW on a batch of random videos with seven sentences for three of them, in
the shape of Charades-STA (4,096 dimensions, words of 768, a map of 136 cells, eight layers of 5 x 5), on one
thread. Ours and the plain one (`plain_mmn`; a test holds their losses and gradients equal) take turns; told
are medians of processor seconds, and the most memory that the process ever had after ours (it goes first).

The least that the step could take is told as well: the products of the map's layers (pairs of places that are
both there, forward and twice back), at the speed of one large product of matrices on the same thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from benchmarks.plain_mmn import PlainMMN, Shape, Whole
from torch import Tensor, nn

from whenabouts_systems.models.mmn import Config, Model
from whenabouts_systems.models.parts.moment_map import map_areas
from whenabouts_systems.models.parts.sparse_convolution import neighbours
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch


def random_batch(shape: Shape, videos: int, clips: int = 32, tokens: int = 12) -> Whole:
    """Videos and their sentences; each sentence has a moment."""
    random = torch.Generator().manual_seed(0)
    count = max(1, videos * 7 // 3)
    rows = nn.functional.normalize(torch.randn(videos, clips, shape.features, generator=random), dim=-1)
    words = torch.randn(count, tokens, shape.words, generator=random)
    moments = torch.rand(count, 2, generator=random).sort(1).values
    return Whole(rows, words, torch.arange(count) % videos, moments + torch.tensor([0.0, 1e-3]))


def as_batch(whole: Whole) -> Batch:
    """The same as our systems read it."""
    videos, clips = whole.clips.shape[:2]
    count, tokens = whole.words.shape[:2]
    return Batch(
        QueryBatch(whole.words, torch.ones(count, tokens, dtype=torch.bool)),
        ClipBatch({"video": whole.clips}, torch.ones(videos, clips, dtype=torch.bool)),
        whole.video,
        torch.zeros(count, 2, dtype=torch.int64),
        whole.video[:, None] == torch.arange(videos),
        labels={"moments": whole.moments},
    )


def ours_of(shape: Shape) -> Model:
    """Our system in that shape."""
    return Model(
        Config(
            {"video": shape.features},
            shape.words,
            hidden=shape.hidden,
            joint=shape.joint,
            clips_per_cell=shape.clips_per_cell,
            pooling_counts=(15,),
            map_kernel=shape.kernel,
            map_layers=shape.layers,
        )
    )


def step_of(model: nn.Module, losses: Callable[[], dict[str, Tensor]]) -> Callable[[], float]:
    """A step, and the processor seconds that it takes."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> float:
        begun = time.process_time()
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(losses().values())).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return time.process_time() - begun

    return step


def measured(shape: Shape, videos: int, rounds: int) -> dict[str, Any]:
    """Medians of both, one step of each at a time."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    whole = random_batch(shape, videos)
    batch, ours, plain = as_batch(whole), ours_of(shape).train(), PlainMMN(shape).train()
    mine = step_of(ours, lambda: dict(ours.loss(batch)))
    mine()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    theirs = step_of(plain, lambda: plain(whole))
    theirs()
    times = [(mine(), theirs()) for _ in range(rounds)]
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    return {
        "hidden": shape.hidden,
        "videos": videos,
        "sentences": len(whole.video),
        "processor_seconds": round(medians[0], 2),
        "plain_processor_seconds": round(medians[1], 2),
        "times_as_fast": round(medians[1] / medians[0], 2),
        "peak_memory_mb": memory,
    }


def products(shape: Shape, videos: int, cells: int = 16) -> float:
    """Floating-point operations that the layers of the map cannot do without, forward and back."""
    areas = map_areas((15,), cells, shape.kernel // 2, shape.layers)
    pairs = sum(
        len(after)
        for before, area in itertools.pairwise(areas)
        for after, _ in neighbours(before, area, shape.kernel)
    )
    return 3.0 * 2.0 * pairs * shape.hidden**2 * videos


def speed_of_products(size: int = 1024, rounds: int = 5) -> float:
    """Floating-point operations a processor second in a large product of matrices, one thread."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    left @ right
    begun = time.process_time()
    for _ in range(rounds):
        left @ right
    return rounds * 2.0 * size**3 / (time.process_time() - begun)


def main() -> None:
    """Measure, show, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--videos", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    shape = Shape(hidden=options.hidden, joint=max(1, options.hidden // 2))
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores of a {platform.machine()} machine, shared with other work",
        "torch": torch.__version__,
        **measured(shape, options.videos, options.rounds),
        "least_processor_seconds": round(products(shape, options.videos) / speed_of_products(), 2),
    }
    print(json.dumps(found, indent=2))
    if options.out:
        # One line a size: a file of several sizes is made by several calls.
        before = json.loads(options.out.read_text()) if options.out.exists() else []
        rest = [one for one in before if (one["hidden"], one["videos"]) != (found["hidden"], found["videos"])]
        options.out.write_text(json.dumps([*rest, found], indent=1) + "\n")


if __name__ == "__main__":
    main()
