"""Chooses a stream's encoder and seconds between frames, from the options and the corpus's earlier choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whenabouts.encoders import EncoderUnavailable, open_text_encoder
from whenabouts.encoders.protocol import TextEncoder
from whenabouts.index.records import EncoderMismatch
from whenabouts.index.stream import Setup
from whenabouts.intake.lacks import MachineLack
from whenabouts.types import UsageError

LETTERS = "letters"
"""Stands for an encoder's name if a stream is searched by words only, not by meaning: no vectors, width 0."""

_MOST_SECONDS = 600


def own_encoder(setup: Setup, keyword: str, opens: Callable[[str], Any], default: str = "") -> Any:
    """The encoder of a stream without words: the option's, else the corpus's, else None.

    `keyword` names the option, whose value is an encoder or a name for `opens`. A switch (True) means the
    corpus's encoder, or else the `default`. Raises UsageError for True without either.
    """
    choice, info = setup.options.get(keyword), setup.info
    if choice is True:
        choice = None if info is not None else default
        if choice == "":
            raise UsageError(f"--{keyword} has no default: name a model")
    if choice is not None and choice is not False:
        return setup.encoders.adopt(opens(choice) if isinstance(choice, str) else choice, info)
    return None if info is None else setup.encoders.encoder_of(info)


def text_encoder(setup: Setup, words: str) -> TextEncoder | None:
    """The sentence encoder of a stream with words: the option's, the corpus's, or the offline default.

    None if there is no encoder; a note says that `words`, the stream's content, are not searched by meaning.
    """
    choice, info = setup.options.get("text"), setup.info
    if choice is None and info is not None and info.dimension:
        return setup.encoders.encoder_of(info)
    try:
        encoder = open_text_encoder(choice) if choice is None or isinstance(choice, str) else choice
    except EncoderUnavailable as error:
        if choice is not None or isinstance(error, MachineLack):
            raise
        setup.notes.append(f"{words} are searched by words only, not by meaning: {error}")
        return None
    adopted: TextEncoder = setup.encoders.adopt(encoder, info)
    return adopted


def made_by(encoder: Any) -> tuple[str, str, int]:
    """Name, fingerprint and vector width of the encoder of a stream's clips, which may be None."""
    return (encoder.name, encoder.fingerprint, encoder.dimension) if encoder else (LETTERS, LETTERS, 0)


def frame_seconds(
    setup: Setup,
    option: str,
    *,
    default: float,
    least: float,
    done: str,
    switch: str,
    setting: str = "clip_seconds",
) -> float:
    """The seconds between frames: as in the corpus, else as `option` gives them, else `default`.

    `setting` is the key in the stream's settings. `done` describes the work in messages. `switch` is the
    option that turns the stream on, with its metavar.

    Raises UsageError for a number out of range, or given without the switch for a new stream; EncoderMismatch
    for another number than the corpus has.
    """
    given = setup.options.get(_keyword(option))
    if given is not None and not least <= given <= _MOST_SECONDS:
        raise UsageError(f"{option} {given!r}: give a length between {least:g} and {_MOST_SECONDS} seconds")
    if given is not None and setup.info is None and not setup.options.get(_keyword(switch)):
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
    return option.partition(" ")[0].lstrip("-").replace("-", "_")
