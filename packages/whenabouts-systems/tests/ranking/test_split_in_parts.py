"""The queries of a split answered in parts, as several processes do, and joined to one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.ranking.toy_split import ToySplit, judgements

from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats.runs import MemoryRun, Task
from whenabouts_systems.ranking.split import encode_split, joined_runs, rank_split
from whenabouts_systems.training.devices import DeviceSetup

JUDGED = {f"q{at}": [(f"v{at % 13:02d}", 0.0, 2.0)] for at in range(9)}
POOLS = {name: [f"v{at:02d}" for at in range(5)] for name in JUDGED}


def lists(run: MemoryRun, task: Task) -> list[Any]:
    """Query, videos, times and scores of every place of a list."""
    found: list[Any] = []
    for block in run.blocks(task):
        for number, query in enumerate(block.query_ids):
            rows = slice(int(block.offsets[number]), int(block.offsets[number + 1]))
            names = [block.video_ids[code] for code in block.video[rows].tolist()]
            found.append((query, names, block.score[rows].tolist()))
    return found


@pytest.mark.parametrize("processes", [2, 4, 11])
@pytest.mark.parametrize("pools", [None, POOLS])
def test_parts_joined_are_the_whole(toy: Callable[..., Any], processes: int, pools: Any) -> None:
    """Nine queries: shares of different sizes, and of eleven processes two have none."""
    system = toy()
    split = ToySplit(system, judgements(JUDGED, pools=pools))
    corpus = encode_split(system, split)
    whole = rank_split(system, split, corpus=corpus)
    setups = [DeviceSetup(torch.device("cpu"), "fp32", rank, processes) for rank in range(processes)]
    shares = [setup.own_part(len(split.queries)) for setup in setups]
    assert np.concatenate([list(share) for share in shares]).tolist() == list(range(9))
    joined = joined_runs([rank_split(system, split, corpus=corpus, queries=share) for share in shares])
    assert joined.tasks == whole.tasks
    for task in whole.tasks:
        assert lists(joined, task) == lists(whole, task)
    means = [evaluate(split.annotations, run).means() for run in (joined, whole)]
    assert repr(means[0]) == repr(means[1])
