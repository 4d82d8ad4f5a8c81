"""The seconds from frame to frame of streams that look at pictures: set once in a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whenabouts.product.streams.protocol import Setup

SHORTEST_SECONDS = 0.01
"""Of a file that ends before its last frame, by what it says itself, that frame lasts so long."""

_MOST_SECONDS = 600


def frame_seconds(
    setup: Setup, option: str, *, setting: str, default: float, least: float, done: str
) -> float:
    """The seconds between frames: of a corpus that has some, else as `option` gives them, else `default`.

    `setting` is their key in the stream's settings; `done` is what was done that often, for messages. Raises
    UsageError for a number out of range, EncoderMismatch for another one than the corpus has.
    """
    from whenabouts.product.index.records import EncoderMismatch
    from whenabouts.types import UsageError

    given = setup.options.get(option.lstrip("-").replace("-", "_"))
    if given is not None and not least <= given <= _MOST_SECONDS:
        raise UsageError(f"{option} {given!r}: give a length between {least:g} and {_MOST_SECONDS} seconds")
    if setup.info is None:
        return default if given is None else float(given)
    settled = float(setup.info.settings[setting])
    if given is not None and given != settled:
        raise EncoderMismatch(
            f"{setup.place}: {done} every {settled:g} s, not every {given:g} s; leave {option} out, or index "
            "into a new corpus"
        )
    return settled
