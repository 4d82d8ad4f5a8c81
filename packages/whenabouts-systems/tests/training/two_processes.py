"""One of two processes that make the steps of every system: `python -m … FOLDER RANK`.

Process 0 writes what it found as `FOLDER/found.json`, by case: how far losses, gradients and the weights
after three steps are from those of one process, and how many rows the two exchanged.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from tests.models.test_systems import STREAMS, Case, make_batch, make_queries, make_videos, usual_batch
from torch import Tensor, distributed

from whenabouts_systems.models import config_of, model_names
from whenabouts_systems.models.parts.pretraining import TASKS
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, SentenceBatch
from whenabouts_systems.training import devices as shared_steps
from whenabouts_systems.training.devices import DeviceSetup

WIDTHS = STREAMS["two streams"]


@dataclass(frozen=True)
class Step:
    """A system with settings, and what its batch has beside the usual."""

    system: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    batch: Mapping[str, Any] = field(default_factory=dict)

    def model(self, *, dropout: bool = False) -> Any:
        """In training mode; weights large enough that scores differ."""
        config = config_of(self.system, {})
        told: dict[str, Any] = {
            option.name: 0.2 for option in fields(config) if option.name == "initializer_range"
        }
        if not dropout:
            told |= {option.name: 0.0 for option in fields(config) if "dropout" in option.name}
        return Case(self.system, WIDTHS).model(**told, **self.settings).train()

    def make(self) -> Batch:
        """Five queries and videos: three for one process, two for the other."""
        torch.manual_seed(5)
        made = {name: make() if callable(make) else make for name, make in self.batch.items()}
        return replace(usual_batch(WIDTHS), **made)


def one_video() -> dict[str, Any]:
    """Fields of a batch with fewer videos than processes."""
    batch = make_batch(WIDTHS, [9], [6, 3, 5], [0, 0, 0], [[2, 4], [0, 1], [6, 6]])
    return {option.name: getattr(batch, option.name) for option in fields(batch)}


def _negatives() -> Tensor:
    return torch.tensor([[4, 1], [2, -1], [0, 4], [3, 1], [1, 2]])


def _relevant() -> Tensor:
    table = torch.zeros(5, 5)
    table[0, 2], table[3, 1] = 0.9, 0.8
    return table


HARD = {
    "negatives": _negatives,
    "other_queries": lambda: make_queries([4, 2, 3], seed=7),
    "negative_queries": lambda: torch.tensor([[0, 1], [2, -1], [1, 0], [2, 0]]),
}
RANKED = {"confidence": _relevant, "weight": lambda: torch.tensor([1.0, 0.5, 0.9, 0.2, 0.7])}
LATE = {"epoch": 60, "progress": 0.7}


def spoken_videos() -> ClipBatch:
    """The usual videos with three sentences each, of words of a small vocabulary."""
    videos, generator = usual_batch(WIDTHS).videos, torch.Generator().manual_seed(8)
    lengths = torch.tensor([[3, 1, 4], [2, 0, 1], [5, 2, 2], [1, 1, 0], [2, 4, 3]])
    said = torch.arange(5) < lengths[..., None]
    words = torch.randint(4, VOCABULARY - 1, said.shape, generator=generator)
    places = torch.arange(videos.mask.shape[1])
    of_clips = torch.where(videos.mask & (places < 6), places // 2, -1)
    return replace(videos, sentences=SentenceBatch(words, said, of_clips))


def half_silent_videos() -> ClipBatch:
    """As `spoken_videos`, but all videos of the second process are silent."""
    videos = spoken_videos()
    said = videos.sentences
    assert said is not None
    silent = torch.arange(len(videos))[:, None] >= 3
    return replace(videos, sentences=replace(said, of_clips=said.of_clips.masked_fill(silent, -1)))


def worded_queries() -> QueryBatch:
    """The usual queries as ids of words."""
    mask = usual_batch(WIDTHS).queries.mask
    return QueryBatch(torch.randint(4, VOCABULARY - 1, mask.shape), mask)


VOCABULARY = 30
WHOLE_HERO: Mapping[str, Any] = {
    "text_encoder": "numbers",
    "cross_modal": {
        "layers": 1,
        "heads": 4,
        "feedforward": 24,
        "vocabulary": VOCABULARY,
        "word_places": 20,
    },
    "temporal": {"layers": 1, "heads": 4, "feedforward": 24, "places": 16},
    "mask_token": VOCABULARY - 1,
    "sentences_per_video": 2,
}
UNSHARED = frozenset({"hero, mlm", "hero, mfm", "hero, mffr", "hero, fom"})
"""Tasks of pre-training that every process computes whole: their rows are words and clips that are hidden."""

STEPS: Mapping[str, Step] = {
    **{name: Step(name) for name in model_names()},
    **{f"{name}, late": Step(name, batch=LATE) for name in ("xml", "reloclnet", "ms_sl", "gmmformer", "mmn")},
    **{f"{name}, ranked": Step(name, batch={**RANKED, **LATE}) for name in ("xml", "reloclnet", "conquer")},
    "conquer, exclusive": Step("conquer", {"measure": "exclusive"}, HARD),
    "squidnet, moment_video": Step("squidnet", {"measure": "moment_video"}, HARD),
    "prem_localizer, negatives": Step("prem_localizer", batch=HARD),
    # All long videos are the first process's.
    "ms_sl, averaged frames": Step("ms_sl", {"frames": 5}, {"videos": make_videos(WIDTHS, [9, 4, 7, 3, 2])}),
    "crocs, second stage": Step("crocs", {"stage": "second"}, HARD),
    "xml, one video": Step("xml", batch=one_video()),
    "uvcom, unlike": Step("uvcom", {"unlike_from_epoch": 0}),
    "hero, half silent": Step("hero", WHOLE_HERO, {"videos": half_silent_videos, "queries": worded_queries}),
    "hero, hardest": Step("hero", {"pool": 2, "pool_from_epoch": 0}),
    **{
        f"hero, {task}": Step("hero", {**WHOLE_HERO, "pretraining": {task: 1.0}}, {"videos": spoken_videos})
        for task in TASKS
    },
}


def step(model: Any, batch: Batch, setup: DeviceSetup) -> dict[str, Tensor]:
    """Losses and gradients, by name, and a number drawn after them."""
    torch.manual_seed(11)
    model.zero_grad(set_to_none=True)
    with setup.autocast(), setup.shared_encoding(model):
        losses = model.loss(batch)
    drawn = torch.rand(())
    torch.stack([loss.float() for loss in losses.values()]).sum().backward()  # type: ignore[no-untyped-call]
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    setup.average(list(found.values()))
    return {**{f"loss {name}": loss.detach() for name, loss in losses.items()}, "drawn": drawn, **found}


def steps(case: Step, setup: DeviceSetup, *, dropout: bool = False) -> dict[str, Tensor]:
    """The first step's losses and gradients, and the weights after three."""
    # No Adam: it makes a whole step of a gradient that is zero but for rounding (of a key's bias, say).
    model, batch = case.model(dropout=dropout), case.make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first: dict[str, Tensor] = {}
    for _ in range(3):
        found = step(model, batch, setup)
        first = first or {name: value.clone() for name, value in found.items()}
        optimizer.step()
    return {**first, **{f"after {name}": value for name, value in model.state_dict().items()}}


def farthest(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> tuple[str, float]:
    """The name of what differs most, and by how much of its largest value (of 0.001 where that is less)."""
    assert set(one) == set(other), set(one) ^ set(other)
    apart = {
        name: float((value.double() - other[name].double()).abs().max() / value.abs().max().clamp(min=1e-3))
        for name, value in one.items()
        if value.numel()
    }
    name = max(apart, key=apart.__getitem__)
    return name, apart[name]


def compared(case: Step, setup: DeviceSetup) -> dict[str, Any]:
    """What is to be written of a case."""
    exchanged: list[int] = []
    gather = shared_steps.gather_rows

    def seen(rows: Tensor, rank: int, counts: list[int]) -> Tensor:
        exchanged.append(len(rows))
        return gather(rows, rank, counts)

    alone = DeviceSetup(setup.device)
    shared_steps.gather_rows = seen
    try:
        name, apart = farthest(steps(case, alone), steps(case, setup))
    finally:
        shared_steps.gather_rows = gather
    mine, theirs = (steps(case, one, dropout=True) for one in (alone, setup))
    after = torch.cat([value.reshape(-1).double() for key, value in theirs.items() if "after" in key])
    parts = [torch.empty_like(after) for _ in range(2)]
    distributed.all_gather(parts, after)
    halved = step(case.model(), case.make(), replace(setup, precision="bf16"))
    return {
        "farthest": name,
        "apart": apart,
        "rows": exchanged,
        "drawn alike under dropout": bool(mine["drawn"] == theirs["drawn"]),
        "one model under dropout": torch.equal(*parts),
        "finite in bf16": all(bool(value.isfinite().all()) for value in halved.values()),
    }


def main(folder: Path, rank: int) -> None:
    """Make all steps alone and together."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    setup = DeviceSetup(torch.device("cpu"), "fp32", rank, 2)
    found = {name: compared(case, setup) for name, case in STEPS.items()}
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(found))
    distributed.barrier()
    distributed.destroy_process_group()
    os._exit(0)  # threads of gloo that still live at the interpreter's own end abort now and then


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
