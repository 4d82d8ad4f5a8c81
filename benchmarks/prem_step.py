"""How long a training step of PREM's localizer takes at the paper's size, and how much memory.

    python -m benchmarks.prem_step [--batch 32] [--negatives 4] [--clips 100] [--hidden 384] [--rounds 3]
                                   [--threads 1] [--small] [--out benchmarks/results/prem_step.json]

A step is forward, backward and AdamW on a batch of random queries with a video and some hard negatives
each, in the shape of TVR (4,352 + 768 dimensions, words of 768, up to 30 of them). Clips as in TVR, see
`training_step`; and all videos of `--clips` clips, where nothing is padding. Beside the whole step: without
the adversarial loss, and without negatives; and the localizer's half of a search: one query in ten videos
whose encodings are kept. Told are medians of processor and wall seconds, the operations in products of
matrices with the rate of a large product beside them, and the most memory that a process ever had: each
case has a process of its own. `--small` is a quick look: a batch of 8 and 30 clips.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from benchmarks.training_step import lengths_as_in_tvr
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from whenabouts_systems.models.prem_localizer import Config, Model
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch
from whenabouts_systems.training.devices import use_large_pages
from whenabouts_systems.training.experiment import TrainingSettings
from whenabouts_systems.training.optimizer import new_optimizer

STREAMS = {"video": 4352, "sub": 768}
WORDS, TOKENS, SIDE, FOUND = 768, 30, 1536, 10


@dataclass(frozen=True)
class Shape:
    """How large a step is."""

    batch: int = 32
    negatives: int = 4
    clips: int = 100
    hidden: int = 384


def random_batch(shape: Shape, lengths: Tensor) -> Batch:
    """A query for each of the first videos; the others are the queries' negatives, each of one query."""
    random = torch.Generator().manual_seed(0)
    count, said = shape.batch, torch.randint(6, TOKENS + 1, (shape.batch,), generator=random)
    shown, heard = (torch.arange(int(most.max())) < most[:, None] for most in (lengths, said))

    def features(mask: Tensor, width: int) -> Tensor:
        drawn = torch.randn(*mask.shape, width, generator=random)
        return functional.normalize(drawn, dim=-1) * mask[..., None]

    own = lengths[:count]
    first = (torch.rand(count, generator=random) * 0.8 * own).long()
    return Batch(
        QueryBatch(features(heard, WORDS), heard),
        ClipBatch({name: features(shown, width) for name, width in STREAMS.items()}, shown),
        torch.arange(count),
        torch.stack([first, first + own // 8], 1),  # 9 s of 76 s, as in TVR
        torch.eye(count, len(lengths), dtype=torch.bool),
        negatives=torch.arange(count, len(lengths)).view(count, -1) if shape.negatives else None,
    )


def lengths_of(shape: Shape, *, full: bool) -> Tensor:
    """Clips of the own videos and of the negatives: all that many, or as in TVR and no more."""
    count = shape.batch * (1 + shape.negatives)
    if full:
        return torch.full((count,), shape.clips)
    random = torch.Generator().manual_seed(1)
    drawn = torch.cat([lengths_as_in_tvr(random) for _ in range(-(-count // 128))])[:count]
    return (drawn * shape.clips / 100).ceil().long()


def training(shape: Shape, settings: Mapping[str, Any], *, full: bool) -> Callable[[], object]:
    """A step."""
    torch.manual_seed(0)
    model = Model(Config(hidden=shape.hidden, feedforward=4 * shape.hidden, **settings)).train()
    optimizer = new_optimizer(TrainingSettings(optimizer="adamw"), model)
    batch = random_batch(shape, lengths_of(shape, full=full))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(model.loss(batch).values())).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def searching(shape: Shape) -> Callable[[], object]:
    """One query of 30 words in ten videos of that many clips, whose encodings are kept."""
    torch.manual_seed(0)
    model = Model(Config(hidden=shape.hidden, feedforward=4 * shape.hidden)).eval()
    batch = random_batch(Shape(batch=FOUND, negatives=0), torch.full((FOUND,), shape.clips))
    with torch.inference_mode():
        videos = model.encode_videos(batch.videos)
    asked = QueryBatch(torch.randn(1, TOKENS, WORDS), torch.ones(1, TOKENS, dtype=torch.bool))
    every = torch.zeros(FOUND, dtype=torch.int64)

    @torch.inference_mode()
    def search() -> None:
        model.score_spans(model.encode_queries(asked).take(every), videos)

    return search


CASES: Mapping[str, Callable[[Shape], Callable[[], object]]] = {
    "a step, clips as in TVR": lambda shape: training(shape, {}, full=False),
    "a step, every video as long as can be": lambda shape: training(shape, {}, full=True),
    "without the adversarial loss": lambda shape: training(shape, {"gamma": 0.0}, full=False),
    "without negatives": lambda shape: training(
        Shape(shape.batch, 0, shape.clips, shape.hidden), {}, full=False
    ),
    f"one query in {FOUND} videos, every video as long as can be": searching,
}


def measured(name: str, shape: Shape, threads: int, rounds: int) -> dict[str, Any]:
    """Medians of a case, in this process."""
    torch.set_num_threads(threads)
    use_large_pages()
    step = CASES[name](shape)
    step()
    step()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    left, right = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    found = [(_timed(step), _timed(lambda: left @ right)) for _ in range(rounds)]
    processor, wall, product = (
        statistics.median(one) for one in zip(*((*mine, theirs[0]) for mine, theirs in found), strict=True)
    )
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step()
    return {
        "case": name,
        "processor_ms": round(1000 * processor, 1),
        "wall_ms": round(1000 * wall, 1),
        "operations_in_products": round(float(counter.get_total_flops()) / 1e9, 1),
        "gigaflops_of_a_large_product": round(2 * SIDE**3 / 1e9 / product, 1),
        "peak_memory_mb": memory,
    }


def _timed(step: Callable[[], object]) -> tuple[float, float]:
    """Processor and wall seconds."""
    processor, wall = time.process_time(), time.perf_counter()
    step()
    return time.process_time() - processor, time.perf_counter() - wall


def main() -> None:
    """Measure, show, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in asdict(Shape()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="a batch of 8, of 30 clips")
    parser.add_argument("--case", action="append", choices=list(CASES), help="only these")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    shape = Shape(*(getattr(options, name) for name in asdict(Shape())))
    if options.small:
        shape = Shape(8, shape.negatives, 30, shape.hidden)
    cases = []
    for name in options.case or CASES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            cases.append(pool.apply(measured, (name, shape, options.threads, options.rounds)))
        print(json.dumps(cases[-1], indent=1), flush=True)
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"PyTorch {torch.__version__}",
        "load_average": round(os.getloadavg()[0], 1),
        "threads": options.threads,
        **asdict(shape),
        "cases": cases,
    }
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
