"""The text of a moment's marker, for all formats with markers."""

from __future__ import annotations

from whenabouts.export.moments import FileMoment
from whenabouts.export.text import number, share
from whenabouts.lines import one_line

_LONGEST_NAME = 100
_LONGEST_NOTE = 1000


def marker_name(moment: FileMoment) -> str:
    """The note from a collection, else the query, else the words, else the file name; never empty."""
    for text in (moment.note, moment.query, moment.text, moment.name):
        if name := one_line(text, _LONGEST_NAME):
            return name
    return f"moment {moment.rank}"


def marker_note(moment: FileMoment) -> str:
    """The query, the words, scores and tags on one line; "" without any.

    For example `somebody greets | Hello there. | score 1.25 confidence 0.97 | #opening`.
    """
    facts = [("score", number(moment.score)), ("confidence", share(moment.confidence))]
    scores = " ".join(f"{name} {value}" for name, value in facts if value)
    tags = " ".join(f"#{one_line(tag)}" for tag in moment.tags)
    texts = [one_line(moment.query), one_line(moment.text), scores, tags]
    return one_line(" | ".join(filter(None, texts)), _LONGEST_NOTE)
