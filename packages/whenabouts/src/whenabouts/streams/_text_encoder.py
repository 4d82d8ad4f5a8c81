"""The sentence encoder of streams whose clips have words."""

from __future__ import annotations

from whenabouts.encoders import EncoderUnavailable, open_text_encoder
from whenabouts.encoders.protocol import TextEncoder
from whenabouts.index.stream import Setup
from whenabouts.intake.lacks import MachineLack

LETTERS = "letters"
"""In place of an encoder's name if words are searched by letter only: no vectors, width 0."""


def text_encoder(setup: Setup, words: str) -> TextEncoder | None:
    """The encoder that was named, else the corpus's, else the offline default; None without one.

    `words` names the content in the note on a missing encoder.
    """
    choice, info = setup.options.get("text"), setup.info
    if choice is None and info is not None and info.dimension:
        return setup.encoders.encoder_of(info)
    try:
        encoder = open_text_encoder(choice) if choice is None or isinstance(choice, str) else choice
    except EncoderUnavailable as error:
        if choice is not None or isinstance(error, MachineLack):
            raise
        setup.notes.append(f"{words} are searched by letter only, not by meaning: {error}")
        return None
    adopted: TextEncoder = setup.encoders.adopt(encoder, info)
    return adopted


def made_by(encoder: TextEncoder | None) -> tuple[str, str, int]:
    """Name, fingerprint and vector width for a stream's clips."""
    return (encoder.name, encoder.fingerprint, encoder.dimension) if encoder else (LETTERS, LETTERS, 0)
