"""Captions and their moments, which simulated clips and simulated sentences are made of, and their draws."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from whenabouts_bench.formats.annotations import Annotations, judgement_rows


@dataclass(frozen=True)
class Moment:
    """A caption and the seconds in which it is true."""

    text: str
    start: float
    end: float


def draws(*names: object) -> np.random.Generator:
    """A generator that depends on names alone, not on what was drawn before."""
    digest = hashlib.sha256("\n".join(map(str, names)).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, np.uint32))


def moments_of(annotations: Annotations) -> dict[str, list[Moment]]:
    """Video -> its captions' first true moments; every video is there, in the order of the file."""
    moments: dict[str, list[Moment]] = {video.id: [] for video in annotations.videos}
    seen: set[int] = set()
    for query, video, start, end, _ in judgement_rows(annotations):
        if query not in seen and start < end:
            seen.add(query)
            name = annotations.videos[video].id
            moments[name].append(Moment(annotations.queries[query].text, start, end))
    return moments
