"""From scores of spans to the best spans of a video."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Decoding:
    """Which spans of clips may be answered, and what seconds they are.

    A span of `min_clips` to `max_clips` clips (None: as long as the video) is answered as
    [first * clip, (last + 1) * clip) seconds, cut off at the video's end ("inclusive"). "exclusive": the
    last clip is where the moment ends, [first * clip, last * clip), the convention of ReLoCLNet.
    "as-released": 1 + `min_clips` to `max_clips` clips, decoded inclusive, never cut off: XML's program.
    """

    min_clips: int = 1
    max_clips: int | None = None
    ends: Literal["inclusive", "exclusive", "as-released"] = "inclusive"
    top_videos: int = 100
    spans_per_query: int = 100
    nms: float | None = None
