"""How long a training step of XML and of ReLoCLNet takes, against both written down plainly.

    python -m benchmarks.training_step [--charades DIR] [--threads 1,2] [--case NAME]
                                       [--out benchmarks/results/training_step.json]

A step is forward, backward and optimizer on a batch of 128 that lies in memory. Ours, the plain versions
(`plain_xml`, `plain_reloclnet`; tests hold their scores, losses and gradients equal) and a large product of
matrices take turns, so that what else the machine does hits all alike; told are means, of processor and of
wall seconds. The plain versions pad to the longest video of the batch, or to the whole position table.

Papers' sizes: 3,072 + 768 dimensions, random values; clips as in TVR, whose own lengths are not in the
repository: drawn from a normal distribution of mean 51 (76 s of 1.5 s) and deviation 10, cut at 15, and 97 in
17,435 videos have 100 clips or more, of which systems see 100 (a known count of the training set). So about
every second batch of 128 holds one; the four batches that take turns do so in the share that is told. And all
videos of 100 clips, where nothing is padding. With `--charades` (the folder of the simulated features,
`benchmarks/results/simulated_studies.md`) real batches of these.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from benchmarks.plain_reloclnet import PlainReLoCLNet
from benchmarks.plain_xml import Pairs, PlainBertAdam, PlainXML
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch
from whenabouts_systems.training.devices import use_large_pages
from whenabouts_systems.training.experiment import FOLDER, TrainingSettings
from whenabouts_systems.training.optimizer import new_optimizer

BATCH, SIDE = 128, 1536
EXPERIMENTS = FOLDER / "simulated_charades"
PLAIN: Mapping[str, Any] = {"xml": PlainXML, "reloclnet": PlainReLoCLNet}
PLACES = {"xml": 100, "reloclnet": 128}
SIZES = {"xml": (256, 4), "reloclnet": (384, 8)}
TITLES = {"xml": "XML", "reloclnet": "ReLoCLNet"}
Step = Callable[[], None]

KINDS = {
    "products of matrices": ("addmm", "::mm", "bmm", "baddbmm"),
    "attention": ("scaled_dot_product", "_softmax"),
    "layer normalisation": ("layer_norm",),
    "random numbers": ("random_", "bernoulli", "native_dropout", "::rand"),
    "optimizer": ("_foreach", "optimizer", "optim"),
    "moving data": (
        *("copy_", "::cat", "index", "gather", "scatter", "fill", "zero"),
        *("clone", "contiguous", "sort", "empty"),
    ),
}
"""What an operation's name tells; everything else is arithmetic element by element, sums and the like."""


@dataclass(frozen=True)
class Case:
    """A system with its sizes, and the batches it is timed on."""

    name: str
    system: str
    streams: Mapping[str, int]
    query_width: int
    hidden: int
    heads: int
    batches: Sequence[Batch]
    rounds: int


def random_batch(streams: Mapping[str, int], query_width: int, lengths: Tensor, seed: int) -> Batch:
    """A query a video, of 6 to 29 tokens; each true for a fifth of its video."""
    random = torch.Generator().manual_seed(seed)
    count, words = len(lengths), torch.randint(6, 30, (len(lengths),), generator=random)
    clip_mask = torch.arange(int(lengths.max())) < lengths[:, None]
    token_mask = torch.arange(int(words.max())) < words[:, None]

    def features(mask: Tensor, width: int) -> Tensor:
        drawn = torch.randn(*mask.shape, width, generator=random)
        return functional.normalize(drawn, dim=-1) * mask[..., None]

    first = (torch.rand(count, generator=random) * 0.8 * lengths).long()
    return Batch(
        QueryBatch(features(token_mask, query_width), token_mask),
        ClipBatch({name: features(clip_mask, width) for name, width in streams.items()}, clip_mask),
        torch.arange(count),
        torch.stack([first, first + lengths // 5], 1),
        torch.eye(count, dtype=torch.bool),
    )


def as_pairs(batch: Batch, length: int | None = None) -> Pairs:
    """One row a query, padded to the batch's longest video, or to `length` clips."""
    rows, longest = batch.video_of, batch.videos.mask.shape[1]
    added = 0 if length is None else length - longest
    return Pairs(
        batch.queries.tokens,
        batch.queries.mask,
        {name: functional.pad(one[rows], (0, 0, 0, added)) for name, one in batch.videos.streams.items()},
        functional.pad(batch.videos.mask[rows], (0, added)),
        batch.spans,
        rows,
    )


def papers_cases(names: Sequence[str]) -> Iterator[Case]:
    """XML and ReLoCLNet at the sizes of the papers."""
    random = torch.Generator().manual_seed(1)
    as_in_tvr = [lengths_as_in_tvr(random) for _ in range(4)]
    both, video = {"video": 3072, "sub": 768}, {"video": 3072}
    full = [torch.full((BATCH,), 100)]
    for name, system, streams, lengths, rounds in (
        ("XML, video and subtitles, clips as in TVR", "xml", both, as_in_tvr, 4),
        ("XML, video only, clips as in TVR", "xml", video, as_in_tvr, 4),
        ("XML, video and subtitles, every video of 100 clips", "xml", both, full, 2),
        ("ReLoCLNet, video and subtitles, clips as in TVR", "reloclnet", both, as_in_tvr, 4),
        ("ReLoCLNet, video and subtitles, every video of 100 clips", "reloclnet", both, full, 2),
    ):
        if name in names or not names:
            hidden, heads = SIZES[system]
            batches = [random_batch(streams, 768, some, 2) for some in lengths]
            yield Case(name, system, streams, 768, hidden, heads, batches, rounds)


def lengths_as_in_tvr(random: torch.Generator) -> Tensor:
    """Clips of a batch of videos, as the module's docstring tells."""
    usual = (50.7 + 10 * torch.randn(BATCH, generator=random)).round().long().clamp(15, 99)
    long = torch.rand(BATCH, generator=random) < 97 / 17_435
    return torch.where(long, 100, usual)


def charades_cases(folder: Path, names: Sequence[str]) -> Iterator[Case]:
    """Both on four batches of the simulated features of Charades-STA."""
    from whenabouts_systems.training.data import ExperimentData
    from whenabouts_systems.training.experiment import load_experiment

    for system in PLAIN:
        name = f"{TITLES[system]}, video only, simulated Charades-STA"
        if names and name not in names:
            continue
        experiment = load_experiment(EXPERIMENTS / f"{system}.toml")
        with ExperimentData.open(experiment.data, experiment.features, folder) as material:
            made = material.split("train").batches(size=BATCH, ahead_by=0)
            batches = list(itertools.islice(made, 4))
            widths = material.inputs.widths
            yield Case(name, system, widths, material.inputs.query.width, 256, 4, batches, 6)


def steps_of(case: Case) -> dict[str, Step]:
    """What takes turns, by name."""
    pairs = [as_pairs(batch) for batch in case.batches]
    return {
        "ours": _ours(case, nullcontext),
        "plain, padded to the batch's longest": _plain(case, pairs),
        "plain, padded to the position table": _plain(
            case, [as_pairs(batch, PLACES[case.system]) for batch in case.batches]
        ),
        "ours, bf16": _ours(case, lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    }


def _fresh(case: Case) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"query_width": case.query_width, "hidden": case.hidden, "heads": case.heads}
    made: nn.Module = new_model(case.system, config_of(case.system, {"streams": dict(case.streams), **sizes}))
    return made


def _ours(case: Case, precision: Callable[[], AbstractContextManager[Any]]) -> Step:
    model: Any = _fresh(case)
    optimizer = new_optimizer(TrainingSettings(), model)
    batches = itertools.cycle(case.batches)

    def losses() -> Mapping[str, Tensor]:
        with precision():
            found: Mapping[str, Tensor] = model.loss(next(batches))
        return found

    return lambda: _step(optimizer, losses)


def _plain(case: Case, pairs: Sequence[Pairs]) -> Step:
    model = PLAIN[case.system](case.streams, case.query_width, case.hidden, case.heads)
    model.load_state_dict(_fresh(case).state_dict())
    optimizer = PlainBertAdam(model.parameters())
    batches = itertools.cycle(pairs)
    return lambda: _step(optimizer, lambda: model.loss(next(batches)))


def _step(optimizer: torch.optim.Optimizer, losses: Callable[[], Mapping[str, Tensor]]) -> None:
    optimizer.zero_grad(set_to_none=True)
    torch.stack([one.float() for one in losses().values()]).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def turns(steps: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """Means of processor and wall milliseconds; each takes its turn in every round.

    Many rounds begin with one to warm up; few are of steps so long that it makes no difference. Means, as
    the batches of a case differ and each way takes them in the same order.
    """
    left, right = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    everything: dict[str, Callable[[], object]] = {**steps, "product": lambda: left @ right}
    if rounds > 3:
        turns(steps, 1)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in everything}
    for _ in range(rounds):
        for name, step in everything.items():
            processor, wall = time.process_time(), time.perf_counter()
            step()
            found[name].append((time.process_time() - processor, time.perf_counter() - wall))
    return {
        name: {
            "processor_ms": round(1000 * statistics.fmean(one[0] for one in times), 1),
            "wall_ms": round(1000 * statistics.fmean(one[1] for one in times), 1),
        }
        for name, times in found.items()
    }


def operations(step: Step, batches: int) -> float:
    """Thousand millions of operations in the products of a step, those of attention included: the mean."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        for _ in range(batches):
            step()
    return float(counter.get_total_flops()) / 1e9 / batches


def where_time_goes(step: Step) -> dict[str, float]:
    """Shares of a step's time, in percent, by kind of operation."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    spent: dict[str, float] = {}
    for event in seen.key_averages():
        name = event.key.lower()
        kind = next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), "other")
        spent[kind] = spent.get(kind, 0.0) + event.self_cpu_time_total
    whole = sum(spent.values())
    ordered = sorted(spent.items(), key=lambda one: -one[1])
    return {kind: round(100 * value / whole, 1) for kind, value in ordered}


def measure(case: Case, threads: int, rounds: int, *, look: bool) -> dict[str, Any]:
    """All that is told of a case with so many threads; with `look` operations and where the time goes."""
    torch.set_num_threads(threads)
    steps = steps_of(case)
    times = turns(steps, rounds)
    product, ours = times.pop("product"), times["ours"]["processor_ms"]
    rate = 2 * SIDE**3 / 1e6 / product["processor_ms"]
    found: dict[str, Any] = {
        "case": case.name,
        "threads": threads,
        "rounds": rounds,
        "longest": [batch.videos.mask.shape[1] for batch in case.batches],
        "clips": round(statistics.fmean(_clips(batch) for batch in case.batches), 1),
        "times": times,
        "as_long_as_ours": {
            name: round(one["processor_ms"] / ours, 2) for name, one in times.items() if name != "ours"
        },
        "gigaflops_of_a_large_product": round(rate, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }
    if look:
        seen = {name: steps[name] for name in list(steps)[:2]}
        found["operations_in_products"] = {
            name: round(operations(step, len(case.batches)), 1) for name, step in seen.items()
        }
        found["share_of_the_products_rate"] = {
            name: round(1000 * found["operations_in_products"][name] / rate / times[name]["processor_ms"], 2)
            for name in seen
        }
        found["percent_of_time"] = {name: where_time_goes(step) for name, step in seen.items()}
    return found


def _clips(batch: Batch) -> float:
    """Clips a video, on average."""
    return float(batch.videos.mask.sum()) / len(batch.videos)


def main() -> None:
    """Measure and write the result; cases that are not measured again stay in the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--charades", type=Path)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--case", action="append", default=[], help="only these, by name")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/training_step.json"))
    options = parser.parse_args()
    use_large_pages()  # as `whenabouts train` does; the plain versions have them too
    cases = [papers_cases(options.case)]
    if options.charades:
        cases.append(charades_cases(options.charades, options.case))
    found = []
    for case in itertools.chain(*cases):
        for number, threads in enumerate(map(int, options.threads.split(","))):
            if number and case.rounds < 2:
                continue
            rounds = max(1, case.rounds // 2) if number else case.rounds
            found.append(measure(case, threads, rounds, look=not number and case.rounds > 1))
            print(json.dumps(found[-1], indent=1), flush=True)
    again = {(one["case"], one["threads"]) for one in found}
    kept = json.loads(options.out.read_text(encoding="utf-8"))["cases"] if options.out.exists() else []
    found = [one for one in kept if (one["case"], one["threads"]) not in again] + found
    result = {
        "date": str(datetime.now(UTC).date()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"PyTorch {torch.__version__}",
        "batch": BATCH,
        "cases": found,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
