"""What a marker of a moment says, for all formats that have markers."""

from __future__ import annotations

from whenabouts.export.moments import FileMoment
from whenabouts.export.text import number, one_line, share

_LONGEST_NAME = 100
_LONGEST_NOTE = 1000


def marker_name(moment: FileMoment) -> str:
    """The note of a collection, else the question, else what is said, else the file; never empty."""
    for text in (moment.note, moment.query, moment.text, moment.name):
        if name := one_line(text, _LONGEST_NAME):
            return name
    return f"moment {moment.rank}"


def marker_note(moment: FileMoment) -> str:
    """The question, what is said, scores and tags on one line; "" without any.

    For example `somebody greets | Hello there. | score 1.25 confidence 0.97 | #opening`.
    """
    facts = [("score", number(moment.score)), ("confidence", share(moment.confidence))]
    scores = " ".join(f"{name} {value}" for name, value in facts if value)
    tags = " ".join(f"#{one_line(tag)}" for tag in moment.tags)
    texts = [one_line(moment.query), one_line(moment.text), scores, tags]
    return one_line(" | ".join(filter(None, texts)), _LONGEST_NOTE)
