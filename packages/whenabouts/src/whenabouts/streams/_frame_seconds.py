"""The seconds from frame to frame of streams that look at pictures: set once in a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whenabouts.index.stream import Setup

SHORTEST_SECONDS = 0.01
"""Of a file that ends before its last frame, by what it says itself, that frame lasts so long."""

_MOST_SECONDS = 600


def frame_seconds(
    setup: Setup, option: str, *, setting: str, default: float, least: float, done: str, switch: str = ""
) -> float:
    """The seconds between frames: of a corpus that has some, else as `option` gives them, else `default`.

    `setting` is their key in the stream's settings; `done` is what was done that often, for messages;
    `switch` makes the stream where an option of its own does. Raises UsageError for a number out of range and
    for one without the switch where the corpus has no such stream, EncoderMismatch for another number than
    the corpus has.
    """
    from whenabouts.index.records import EncoderMismatch
    from whenabouts.types import UsageError

    given = setup.options.get(_keyword(option))
    if given is not None and not least <= given <= _MOST_SECONDS:
        raise UsageError(f"{option} {given!r}: give a length between {least:g} and {_MOST_SECONDS} seconds")
    if given is not None and switch and setup.info is None and not setup.options.get(_keyword(switch)):
        raise UsageError(f"{option} says how often {done}; give {switch} as well")
    if setup.info is None:
        return default if given is None else float(given)
    settled = float(setup.info.settings[setting])
    if given is not None and given != settled:
        raise EncoderMismatch(
            f"{setup.place}: {done} every {settled:g} s, not every {given:g} s; leave {option} out, or index "
            "into a new corpus"
        )
    return settled


def _keyword(option: str) -> str:
    return option.lstrip("-").replace("-", "_")
