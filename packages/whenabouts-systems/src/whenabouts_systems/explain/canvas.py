"""Draw on a canvas (panels in inches, letters in points), with colours and the widths of texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from whenabouts.times import format_time
from whenabouts.types import Moment

TRUTH, GREY, INK = "#2f7d4f", "#6b6b6b", "#1b1f22"
SMALL: Final = 7.5
"""The size of small letters in points."""


@dataclass(frozen=True)
class Canvas:
    """A figure whose panels are placed in inches from its upper left corner."""

    figure: Any
    wide: float
    high: float

    def panel(self, left: float, top: float, wide: float, high: float) -> Any:
        """A panel with axes."""
        place = (left / self.wide, 1 - (top + high) / self.high, wide / self.wide, high / self.high)
        return self.figure.add_axes(place)

    def blank(self, left: float, top: float, wide: float, high: float) -> Any:
        """A panel without axes, measured in points from its upper left corner."""
        axes = self.panel(left, top, wide, high)
        axes.set(xlim=(0, 72 * wide), ylim=(72 * high, 0))
        axes.axis("off")
        return axes

    def write(self, left: float, top: float, text: str, **style: Any) -> None:
        """Write a text with its upper left corner at this position."""
        self.figure.text(left / self.wide, 1 - top / self.high, text, va="top", ha="left", **style)


def span_text(moment: Moment) -> str:
    """The times of a moment as text."""
    return " – ".join(format_time(seconds, 1) for seconds in (moment.start, moment.end))


def text_width(text: str, size: float) -> float:
    """The approximate width of a text in points, from the widths of its letters."""
    return size * sum(map(_letter, text))


@cache
def _letter(letter: str) -> float:
    """The width of a letter with its spacing, as a share of its size."""
    from matplotlib.textpath import TextPath

    texts = (f"|{letter}|", "||")
    between, alone = (TextPath((0, 0), text, size=100).get_extents().x1 for text in texts)
    return float(between - alone) / 100


def shortened(text: str, wide: float, size: float) -> str:
    """The text, or if it is too wide, the text without its middle."""
    if text_width(text, size) <= wide:
        return text
    for kept in range(len(text) - 1, 2, -1):
        short = text[: (kept + 1) // 2] + "…" + text[len(text) - kept // 2 :]
        if text_width(short, size) <= wide:
            return short
    return text[:2] + "…"


def wrapped(text: str, wide: float, size: float, count: int) -> list[str]:
    """Wrap a text into at most `count` lines of `wide` points; "…" replaces what does not fit."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= wide:
            lines[-1] = longer
        else:
            lines.append(word)
        if text_width(lines[-1], size) > wide:  # a single word, or a script without spaces
            lines += _broken(lines.pop(), wide, size)
        if len(lines) > count:
            return [*lines[: count - 1], _ended(lines[count - 1], wide, size)]
    return lines


def _broken(word: str, wide: float, size: float) -> list[str]:
    """A word split into pieces that fit, each with at least one letter."""
    pieces = [word[:1]]
    for letter in word[1:]:
        if text_width(pieces[-1] + letter, size) <= wide:
            pieces[-1] += letter
        else:
            pieces.append(letter)
    return pieces


def _ended(line: str, wide: float, size: float) -> str:
    """A line with "…" at its end, shortened to fit."""
    while " " in line and text_width(f"{line} …", size) > wide:
        line = line.rpartition(" ")[0]
    while line and text_width(f"{line} …", size) > wide:
        line = line[:-1]
    return f"{line} …"
