"""Options of lists, the same for all formats."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from whenabouts.export.source import Sources

DEFAULT_START = "01:00:00:00"
DEFAULT_TITLE = "whenabouts"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a list.

    - `rate`: frames per second. None: in a timeline the standard rate that fits the first file with pictures
      (`Source.edit_rate`), in CSV and JSON each file's.
    - `start_timecode`: the timeline's start. None: 0 in Premiere, else `DEFAULT_START`.
    - `drop_frame`: whether 29.97 and its multiples use drop-frame time codes. None: yes, unless the start has
      a colon before its frames.
    - `sources`: reads the files of the moments.
    """

    title: str = DEFAULT_TITLE
    rate: Fraction | None = None
    start_timecode: str | None = None
    drop_frame: bool | None = None
    sources: Sources = field(default_factory=Sources)
