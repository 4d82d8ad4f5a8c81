"""Batches of random features for tests of whole systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch

QUERY_WIDTH = 5


def mask_of(lengths: Sequence[int]) -> Tensor:
    """(N, longest) bool."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def small_batch(
    streams: Mapping[str, int],
    clips: Sequence[int],
    tokens: Sequence[int],
    video_of: Sequence[int],
    **more: Any,
) -> Batch:
    """Queries of so many `tokens` and videos of so many `clips`; every query is true for the first clip.

    Features are drawn anew from the same seed, in the padding too; `more` are fields in place of these.
    """
    generator = torch.Generator().manual_seed(1)
    seen, said, own = mask_of(clips), mask_of(tokens), torch.tensor(video_of)
    features = {name: torch.randn(*seen.shape, width, generator=generator) for name, width in streams.items()}
    words = torch.randn(*said.shape, QUERY_WIDTH, generator=generator)
    told = {
        "spans": torch.zeros(len(own), 2, dtype=torch.int64),
        "positives": own[:, None] == torch.arange(len(clips)),
        **more,
    }
    return Batch(QueryBatch(words, said), ClipBatch(features, seen), own, **told)


def with_more_padding(made: Batch) -> Batch:
    """The same rows with four more padded words and three more padded clips."""
    words, clips = made.queries, made.videos
    return replace(
        made,
        queries=QueryBatch(functional.pad(words.tokens, (0, 0, 0, 4)), functional.pad(words.mask, (0, 4))),
        videos=ClipBatch(
            {name: functional.pad(rows, (0, 0, 0, 3)) for name, rows in clips.streams.items()},
            functional.pad(clips.mask, (0, 3)),
        ),
    )
