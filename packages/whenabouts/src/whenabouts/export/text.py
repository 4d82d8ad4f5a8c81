"""Formats text, numbers, times and markers for exported files."""

from __future__ import annotations

from whenabouts.export.moments import FileMoment
from whenabouts.lines import one_line

_LONGEST_NAME = 100
_LONGEST_NOTE = 1000


def number(value: float | None, digits: int = 4) -> str:
    """A number rounded to `digits` (1 or more) decimals, without zeros at the end; "" for None.

    >>> number(0.5), number(-0.00001), number(None)
    ('0.5', '0', '')
    """
    return "" if value is None else f"{value:z.{digits}f}".rstrip("0").rstrip(".")


def share(value: float | None, digits: int = 4) -> str:
    """A confidence in [0, 1] as `number` writes it, but a value below 1 is never rounded up to 1.

    >>> share(0.999998), share(1.0), share(0.97)
    ('0.9999', '1', '0.97')
    """
    highest = 1.0 - 10.0**-digits
    return number(highest if value is not None and highest < value < 1 else value, digits)


def clock(seconds: float) -> str:
    """A time of 0 s or more as HH:MM:SS.mmm, as in WebVTT.

    >>> clock(3723.5)
    '01:02:03.500'
    """
    minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{milliseconds / 1000:06.3f}"


def scores(moment: FileMoment) -> list[tuple[str, str]]:
    """The names and values of a moment's score and confidence, without unknown ones."""
    facts = [("score", number(moment.score)), ("confidence", share(moment.confidence))]
    return [(name, value) for name, value in facts if value]


def marker_name(moment: FileMoment) -> str:
    """A marker's name: the note of a collection, else the query, the words or the file name; never empty."""
    texts = (moment.note, moment.query, moment.text, moment.name)
    return next(filter(None, (one_line(text, _LONGEST_NAME) for text in texts)), f"moment {moment.rank}")


def marker_note(moment: FileMoment) -> str:
    """The note, the query, the words, scores and tags on one line, for a marker; "" without any.

    For example `somebody greets | Hello there. | score 1.25 confidence 0.97 | #opening`.
    """
    values = " ".join(f"{name} {value}" for name, value in scores(moment))
    tags = " ".join(f"#{one_line(tag)}" for tag in moment.tags)
    texts = [*map(one_line, (moment.note, moment.query, moment.text)), values, tags]
    return one_line(" | ".join(filter(None, texts)), _LONGEST_NOTE)
