"""Lay out frames and words below the curves of a picture, by time and without overlap.

A line above them shows when something is said, and the true and the answered moment. Each frame hangs from
its instant; a block of words begins at the instant of its first word. If there is too little room, words of
the true moment, then of the answered one, are kept. Lengths are in points; x is time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from whenabouts.clips import INSTANT
from whenabouts.times import format_time
from whenabouts.types import Moment
from whenabouts_systems.explain.canvas import GREY, INK, SMALL, TRUTH, Canvas, wrapped
from whenabouts_systems.explain.explained import Film, Frame, Ranked

if TYPE_CHECKING:
    from whenabouts.shown import Line

_TICKS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
_TICK_WIDE, _HOURS_WIDE = 0.6, 0.8
_LINE_HIGH, _HANG, _TALLEST, _WIDEST, _BORDER = 12.0, 9.0, 66.0, 118.0, 1.5
_LETTERS_HIGH, _MOST_LINES, _NARROWEST, _BROADEST, _GAP = 10.0, 5, 76.0, 230.0, 7.0
_WRITTEN: Final = "#d55e00"
MOMENTS_HIGH: Final = (_TALLEST + 20) / 72
"""The height in inches of a row of moments' frames."""
_COLOURS: Final = {"true": TRUTH, "answered": INK, "": GREY}


@dataclass(frozen=True)
class Block:
    """Words spoken from `start` on, drawn at x `left`; `mark` names the moment that they are in, if any."""

    left: float
    start: float
    mark: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Hung:
    """A frame: its instant (x), position and size, the text below it, its moment's mark, and its border."""

    at: float
    left: float
    wide: float
    high: float
    image: Any
    label: str
    mark: str
    boxes: tuple[tuple[float, float, float, float], ...] = ()
    border: str = ""


@dataclass(frozen=True)
class FilmStrip:
    """The drawing of a film below the curves of one system, `wide` points for `seconds` seconds."""

    wide: float
    seconds: float
    words: tuple[Line, ...]
    truth: tuple[Moment, ...]
    answered: Moment | None
    frames: tuple[Hung, ...]
    blocks: tuple[Block, ...]

    @property
    def high(self) -> float:
        """Height in inches; 0 if there is nothing to draw."""
        if not (self.frames or self.blocks):
            return 0.0
        return (_LINE_HIGH + self._frames_high + self._words_high + 8) / 72

    @property
    def _frames_high(self) -> float:
        lines = max((frame.label.count("\n") for frame in self.frames), default=0)
        return max((_HANG + frame.high + 16 + lines * _LETTERS_HIGH for frame in self.frames), default=0.0)

    @property
    def _words_high(self) -> float:
        return max((_LETTERS_HIGH * (1 + len(block.lines)) + 8 for block in self.blocks), default=0.0)

    def draw(self, canvas: Canvas, left: float, top: float, axis: float) -> None:
        """Draw the strip at a position in inches; `axis` inches on the left are for names."""
        if not self.high:
            return
        axes = canvas.blank(left + axis, top, self.wide / 72, self.high)
        self._draw_line(axes)
        for frame in self.frames:
            _draw_frame(axes, frame)
        for block in self.blocks:
            _draw_block(axes, block, _LINE_HIGH + self._frames_high + 4)
        name = {"fontsize": SMALL, "color": GREY}
        if self.words:
            canvas.write(left, top - 0.02, "said", **name)
        if self.frames:
            canvas.write(left, top + (_LINE_HIGH + _HANG) / 72, "seen", **name)

    def _draw_line(self, axes: Any) -> None:
        """Draw the line of speech, with the true moment above and the answered one below."""
        scale = self.wide / self.seconds

        def bars(spans: Sequence[tuple[float, float]], above: float, high: float, colour: str) -> None:
            drawn = [(scale * a, max(scale * (min(b, self.seconds) - a), 1.0)) for a, b in spans]
            axes.broken_barh(drawn, (above, high), color=colour, linewidth=0)

        bars([(0.0, self.seconds)], 3, 3, "#e6e8ea")
        bars([(line.start, line.end) for line in self.words], 3, 3, "#a9b0b5")
        bars([(moment.start, moment.end) for moment in self.truth], 0, 2, TRUTH)
        if self.answered is not None:
            bars([(self.answered.start, self.answered.end)], 7, 2, INK)


def lay_out(
    film: Film, truth: Sequence[Moment], answered: Moment | None, seconds: float, wide: float
) -> FilmStrip:
    """Lay out a film of `seconds` seconds in `wide` inches."""
    points = 72 * wide
    marks = [(moment, "true") for moment in truth]
    marks += [(answered, "answered")] if answered is not None else []
    frames = tuple(_hung(film.frames, marks, points / seconds, points))
    blocks = tuple(_blocks(film.words, marks, points / seconds, points))
    return FilmStrip(points, seconds, film.words, tuple(truth), answered, frames, blocks)


def clock_ticks(axes: Any, seconds: float, wide: float) -> None:
    """Label an axis of `seconds` seconds and `wide` inches with minutes or hours, like frames and words."""
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    least = seconds * (_TICK_WIDE if seconds < 3600 else _HOURS_WIDE) / wide
    step = next((tick for tick in _TICKS if tick >= least), 3600 * math.ceil(least / 3600))
    axes.xaxis.set_major_locator(MultipleLocator(step))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: _whole(at)))
    axes.set_xlabel("minutes:seconds" if seconds < 3600 else "hours:minutes:seconds")


def _whole(seconds: float) -> str:
    """A time without tenths."""
    return format_time(math.floor(seconds + INSTANT), 1)[:-2]


def _mark(start: float, end: float, marks: Sequence[tuple[Moment, str]]) -> str:
    """The name of the first marked moment that contains an instant (start = end) or overlaps a passage.

    The overlap must be at least half of the shorter one. So a word that reaches into a moment does not belong
    to it, but a long passage around it does.
    """
    for moment, name in marks:
        inside = min(end, moment.end) - max(start, moment.start)
        half = min(end - start, moment.end - moment.start) / 2
        if (inside > 0 and inside >= half) or (start == end and moment.start <= start < moment.end):
            return name
    return ""


# Frames ----------------------------------------------------------------------------------------------


def _hung(
    frames: Sequence[Frame], marks: Sequence[tuple[Moment, str]], scale: float, room: float
) -> list[Hung]:
    if not frames:
        return []
    from matplotlib.image import imread

    images = [imread(BytesIO(frame.jpeg), format="jpg") for frame in frames]
    widest = min(_WIDEST, room / len(frames) - _GAP)
    sizes = [_size(image.shape[1] / image.shape[0], widest) for image in images]
    middles = [scale * frame.seconds for frame in frames]
    rooms = [widest if frame.label else wide for frame, (wide, _) in zip(frames, sizes, strict=True)]
    lefts = _without_overlap(middles, rooms, room - _BORDER)
    clock = partial(format_time, decimals=1) if frames[-1].seconds < 60 else _whole
    return [
        Hung(
            at,
            left + (widest - size[0]) / 2 if frame.label else left,
            *size,
            image,
            "\n".join((clock(frame.seconds), *wrapped(frame.label, widest, SMALL, _MOST_LINES))),
            _mark(frame.seconds, frame.seconds, marks),
            frame.boxes,
            frame.border,
        )
        for frame, at, left, size, image in zip(frames, middles, lefts, sizes, images, strict=True)
    ]


def _size(aspect: float, widest: float) -> tuple[float, float]:
    """The largest width and height of a frame in its space."""
    wide = min(widest, aspect * _TALLEST)
    return wide, wide / aspect


def _without_overlap(middles: Sequence[float], widths: Sequence[float], room: float) -> list[float]:
    """Left edges of boxes side by side, each as close to its middle as the others allow."""
    lefts, free = [], 0.0
    for middle, wide in zip(middles, widths, strict=True):
        lefts.append(max(free, middle - wide / 2))
        free = lefts[-1] + wide + _GAP
    free = room
    for at in reversed(range(len(lefts))):
        lefts[at] = min(lefts[at], free - widths[at])
        free = lefts[at] - _GAP
    return lefts


def _draw_frame(axes: Any, frame: Hung) -> None:
    """Draw a frame that hangs from its instant, with a coloured border if it is in a marked moment.

    Boxes mark words of the query that are written in it.
    """
    from matplotlib.patches import Rectangle

    top, middle = _LINE_HIGH + _HANG, frame.left + frame.wide / 2
    below = top + frame.high + 4
    colour = _COLOURS[frame.mark]
    axes.plot([frame.at, frame.at, middle], [8, _LINE_HIGH, top], color=colour, linewidth=0.7)
    place = (frame.left, top, frame.wide, frame.high)
    _draw_image(axes, frame.image, place, frame.border or (colour if frame.mark else "none"))
    for first, high, last, low in frame.boxes:
        corner = (frame.left + first * frame.wide, top + high * frame.high)
        size = ((last - first) * frame.wide, (low - high) * frame.high)
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=_WRITTEN, linewidth=1.0, zorder=3))
    axes.text(middle, below, frame.label, fontsize=SMALL, ha="center", va="top", color=colour)


def _draw_image(axes: Any, image: Any, place: tuple[float, float, float, float], border: str) -> None:
    """Draw an image at a place (left, top, width, height), with a border of a colour ("none": without)."""
    from matplotlib.patches import Rectangle

    left, top, wide, high = place
    axes.imshow(image, extent=(left, left + wide, top + high, top), aspect="auto", zorder=1)
    frame = Rectangle((left, top), wide, high, fill=False, edgecolor=border, linewidth=_BORDER, zorder=2)
    axes.add_patch(frame)


def draw_frames(canvas: Canvas, moments: Sequence[Ranked], left: float, top: float, wide: float) -> None:
    """Draw the frames of moments side by side; a coloured border marks those that meet the truth."""
    from matplotlib.image import imread

    seen = [(ranked, ranked.frame) for ranked in moments if ranked.frame is not None]
    axes = canvas.blank(left, top, wide, MOMENTS_HIGH)
    room = 72 * wide / max(len(seen), 1)
    for number, (ranked, frame) in enumerate(seen):
        image = imread(BytesIO(frame.jpeg), format="jpg")
        size = _size(image.shape[1] / image.shape[0], min(_WIDEST, room - _GAP))
        at, colour = number * room + _BORDER, TRUTH if ranked.meets else GREY
        _draw_image(axes, image, (at, 0.0, *size), colour)
        label = f"{ranked.rank}   {format_time(frame.seconds, 1)}"
        axes.text(at, size[1] + 8, label, fontsize=SMALL, va="center", color=colour)


# Words -----------------------------------------------------------------------------------------------


def _blocks(
    words: Sequence[Line], marks: Sequence[tuple[Moment, str]], scale: float, room: float
) -> list[Block]:
    """Blocks of the words until the next block, each as wide as the next one allows."""
    names = [_mark(line.start, line.end, marks) for line in words]
    chosen = _chosen([scale * line.start for line in words], names, room - _NARROWEST)
    lefts = [min(scale * words[at].start, room - _NARROWEST) for at in chosen]
    blocks = []
    for (at, behind), (left, right) in zip(
        pairwise([*chosen, len(words)]), pairwise([*lefts, room + _GAP]), strict=True
    ):
        stop = next((later for later in range(at, behind) if names[later] != names[at]), behind)
        text = " ".join(line.text for line in words[at:stop])
        lines = wrapped(text, min(right - left - _GAP, _BROADEST) - 5, SMALL, _MOST_LINES)
        blocks.append(Block(left, words[at].start, names[at], tuple(lines)))
    return blocks


def _chosen(starts: Sequence[float], names: Sequence[str], last: float) -> list[int]:
    """The words that begin a block: as many as have room, those that begin a marked moment first."""
    firsts = [at for at, name in enumerate(names) if name and (at == 0 or names[at - 1] != name)]
    order = sorted(firsts, key=lambda at: (names[at] != "true", at))
    chosen: list[int] = []
    for at in [*order, *range(len(starts))]:
        left = min(starts[at], last)
        if all(abs(left - min(starts[other], last)) >= _NARROWEST + _GAP for other in chosen):
            chosen.append(at)
    return sorted(chosen)


def _draw_block(axes: Any, block: Block, top: float) -> None:
    """Draw words beside a line, below the instant at which they begin."""
    colour = _COLOURS[block.mark]
    high = _LETTERS_HIGH * (1 + len(block.lines))
    axes.plot([block.left, block.left], [top, top + high], color=colour, linewidth=0.8)
    axes.text(block.left + 5, top + 5, _whole(block.start), fontsize=SMALL, va="center", color=GREY)
    for number, line in enumerate(block.lines, 1):
        axes.text(
            block.left + 5,
            top + 5 + number * _LETTERS_HIGH,
            line,
            fontsize=SMALL,
            va="center",
            color=colour,
        )
