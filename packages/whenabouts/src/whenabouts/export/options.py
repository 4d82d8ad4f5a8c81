"""How lists are written: what a caller may choose, the same for all formats."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from whenabouts.export.source import Sources

DEFAULT_START = "01:00:00:00"
DEFAULT_TITLE = "whenabouts"


@dataclass(frozen=True, slots=True)
class Options:
    """What may be chosen of a list.

    `rate` is frames a second of the time line (None: that of the first moment's file); `start_timecode` is
    where the time line begins (None: one hour, as editors do); `drop_frame` whether 29.97 and its multiples
    count so that the clock is right (None: yes, unless the start is written with a colon before its frames).
    """

    title: str = DEFAULT_TITLE
    rate: Fraction | None = None
    start_timecode: str | None = None
    drop_frame: bool | None = None
    sources: Sources = field(default_factory=Sources)
