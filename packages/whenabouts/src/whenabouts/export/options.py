"""Options of lists, the same for all formats."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from whenabouts.export.source import Sources

DEFAULT_START = "01:00:00:00"
DEFAULT_TITLE = "whenabouts"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a list. `sources` reads the files of its moments.

    `rate`: frames per second of the timeline (None: that of the first moment's file). `start_timecode`:
    its start (None: one hour, as is usual). `drop_frame`: whether 29.97 and its multiples use drop-frame
    time codes (None: yes, unless the start has a colon before its frames).
    """

    title: str = DEFAULT_TITLE
    rate: Fraction | None = None
    start_timecode: str | None = None
    drop_frame: bool | None = None
    sources: Sources = field(default_factory=Sources)
