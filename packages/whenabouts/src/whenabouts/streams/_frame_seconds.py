"""The interval between frames of streams that look at pictures; fixed once the corpus has clips."""

from __future__ import annotations

from whenabouts.index.records import EncoderMismatch
from whenabouts.index.stream import Setup
from whenabouts.types import UsageError

SHORTEST_SECONDS = 0.01
"""Duration of the last frame if the file claims to end before it."""

_MOST_SECONDS = 600


def frame_seconds(
    setup: Setup, option: str, *, setting: str, default: float, least: float, done: str, switch: str = ""
) -> float:
    """The seconds between frames: as in the corpus, else as `option` gives them, else `default`.

    `setting` is the key in the stream's settings. `done` describes the work in messages. `switch` is the
    option that makes the stream, if that is another one.

    Raises UsageError for a number out of range, or given without the switch for a new stream; EncoderMismatch
    for another number than the corpus has.
    """
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
