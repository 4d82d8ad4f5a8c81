"""PREM's objective in HERO, XML and ReLoCLNet: what plain loops over equations 7 and 8 give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from tests.models.small_batches import QUERY_WIDTH, small_batch
from torch import Tensor

from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.protocol import Batch

STREAMS = {"video": 6, "sub": 3}
CLIPS, TOKENS, OWN = [4, 7, 2], [3, 1, 5, 2], [2, 0, 1, 0]
SPANS = [[0, 1], [1, 3], [2, 2], [0, 0]]
SYSTEMS = ("hero", "xml", "reloclnet")


def _model(system: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"streams": STREAMS, "query_width": QUERY_WIDTH, "hidden": 16, "heads": 2}
    more = {"initializer_range": 0.3, "video_loss": "relevant-content", **settings}
    return new_model(system, config_of(system, {**sizes, **more})).eval()


def _batch(known: bool = False) -> Batch:
    positives = torch.nn.functional.one_hot(torch.tensor(OWN), 3).bool()
    positives[0, 1] |= known
    return small_batch(STREAMS, CLIPS, TOKENS, OWN, spans=torch.tensor(SPANS), positives=positives)


def _best(model: Any, batch: Batch) -> list[list[list[list[float]]]]:
    """Query, video, stream -> the cosines of all real clips."""
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    return [
        [
            [
                torch.cosine_similarity(queries.search[name][q][None], keys[v, : CLIPS[v]]).tolist()
                for name, keys in videos.keys.items()
            ]
            for v in range(3)
        ]
        for q in range(4)
    ]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _plain(model: Any, batch: Batch, t: float, weak: float) -> dict[str, float]:
    cosines, known = _best(model, batch), batch.positives.tolist()
    lost: dict[str, list[float]] = {"negative_videos": [], "weak": [], "negative_queries": []}

    def entropy(positive: float, negatives: list[float]) -> float:
        parts = [math.exp(value / t) for value in (positive, *negatives)]
        return -math.log(parts[0] / sum(parts))

    for q, (own, (first, last)) in enumerate(zip(OWN, SPANS, strict=True)):
        strong = _mean([max(clips[first : last + 1]) for clips in cosines[q][own]])
        outside = [clips[:first] + clips[last + 1 :] for clips in cosines[q][own]]
        videos = [_mean([max(c) for c in cosines[q][v]]) for v in range(3) if not known[q][v]]
        queries = [_mean([max(c) for c in cosines[o][own]]) for o in range(4) if not known[o][own]]
        lost["negative_videos"].append(entropy(strong, videos))
        there = all(outside)
        lost["weak"].append(weak * entropy(_mean([max(c) for c in outside]), videos) if there else 0.0)
        lost["negative_queries"].append(entropy(strong, queries))
    return {name: _mean(values) for name, values in lost.items()}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("known", [False, True], ids=["", "a known answer"])
def test_the_terms_are_those_of_equations_7_and_8(system: str, known: bool) -> None:
    model, batch = _model(system, temperature=0.2, lambda_weak=0.7), _batch(known)
    losses = model.loss(batch)
    for name, expected in _plain(model, batch, 0.2, 0.7).items():
        assert losses[name].item() == pytest.approx(expected, rel=1e-4), name


@pytest.mark.parametrize("system", SYSTEMS)
def test_one_setting_changes_what_videos_learn_and_nothing_else(system: str) -> None:
    batch = _batch()
    ours, theirs = (
        dict(_model(system, video_loss=kind).loss(batch)) for kind in ("relevant-content", "ranking")
    )
    assert set(ours) - set(theirs) == {"weak"}
    changed = {name for name in theirs if not torch.equal(ours[name], theirs[name])}
    assert changed == {"negative_videos", "negative_queries"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_clip_inside_the_moment_is_drawn_near(system: str) -> None:
    """A few steps bring the best clip of each moment above the best of other videos."""
    model, batch = _model(system, input_dropout=0.0, dropout=0.0), _batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = _step(model, batch, optimizer)
    for _ in range(10):
        last = _step(model, batch, optimizer)
    assert last < 0.8 * first


def _step(model: Any, batch: Batch, optimizer: torch.optim.Optimizer) -> float:
    losses: Mapping[str, Tensor] = model.loss(batch)
    total = torch.stack([losses["negative_videos"], losses["negative_queries"], losses["weak"]]).sum()
    optimizer.zero_grad()
    total.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return total.item()
