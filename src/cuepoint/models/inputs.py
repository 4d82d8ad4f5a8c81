"""How features on disk become what a model reads: the same in training, in a run and in a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class StreamInput:
    """One stream of features: `width` values a row; each row brought to unit length where `normalise`.

    `encoder` and `fingerprint` say what made the features ("" where the file does not tell).
    """

    width: int
    normalise: bool = True
    encoder: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a system was trained on, and how it was made ready.

    `streams` are those of the videos, on one grid of `clip_seconds`; `query` are the tokens. Videos of more
    than `max_clips` clips are pooled to that many ("pool"; their clips are longer) or cut off ("cut", as
    released); queries keep their first `max_tokens` tokens. `tef` appends two columns to each stream: where
    a clip begins and ends, as shares of the video (temporal endpoint features).
    """

    query: StreamInput
    streams: Mapping[str, StreamInput] = field(default_factory=dict)
    clip_seconds: float = 1.5
    max_clips: int = 100
    max_tokens: int = 30
    long_videos: Literal["pool", "cut"] = "pool"
    tef: bool = False
