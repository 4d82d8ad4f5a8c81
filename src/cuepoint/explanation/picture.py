"""An explanation as a picture (PNG, SVG, PDF): words, borders, moments; two systems side by side.

What the figures 5 to 10 of paper 000 and figure 5 of paper 003 show, for any query. Needs matplotlib (the
extra `report`). Lengths are in inches, those of letters in points.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from cuepoint.explanation.told import Borders, Explanation, Heard, Ranked, overlap_with
from cuepoint.formats.opened import written
from cuepoint.types import Moment, UsageError

SUFFIXES: Final = (".png", ".svg", ".pdf")
_WIDE, _MARGIN, _BETWEEN = 12.0, 0.3, 0.5
_DOTS = 100
_BORDERS_HIGH, _ROW_HIGH, _HEAD_HIGH, _TITLE_HIGH, _SHARE_HIGH = 2.0, 0.27, 0.34, 0.32, 0.2
_START, _END, _TRUTH, _GREY, _INK = "#1f5fa8", "#c2571a", "#2f7d4f", "#6b6b6b", "#1b1f22"
_LETTER, _SMALL, _WORD_HIGH, _GAP = 9.5, 7.5, 30.0, 9.0
_SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cuepoint",
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def check_target(path: Path) -> None:
    """Raise UsageError where no picture of that name can be written: its suffix, or matplotlib missing."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: no kind of picture; its name must end in {', '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"pictures need matplotlib ({error}); install cuepoint[report], or leave out --out"
        ) from error


def draw(told: Explanation, path: Path) -> None:
    """Write the picture; it appears whole or not at all. Raises UsageError as `check_target` does."""
    check_target(path)
    import matplotlib

    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # A letter that the font lacks becomes a box; the query stands in the JSON as well.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = _drawn(told)
        kind = path.suffix.lower()[1:]
        about = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
        with written(path) as stream:
            figure.savefig(stream, format=kind, dpi=_DOTS, metadata=about)


@dataclass(frozen=True)
class _Sheet:
    """A figure whose panels are placed in inches from its upper left corner."""

    figure: Any
    wide: float
    high: float

    def panel(self, left: float, top: float, wide: float, high: float) -> Any:
        place = (left / self.wide, 1 - (top + high) / self.high, wide / self.wide, high / self.high)
        return self.figure.add_axes(place)

    def blank(self, left: float, top: float, wide: float, high: float) -> Any:
        """A panel without axes, measured in points from its upper left corner."""
        axes = self.panel(left, top, wide, high)
        axes.set(xlim=(0, 72 * wide), ylim=(72 * high, 0))
        axes.axis("off")
        return axes

    def write(self, left: float, top: float, text: str, **style: Any) -> None:
        self.figure.text(left / self.wide, 1 - top / self.high, text, va="top", ha="left", **style)


def _drawn(told: Explanation) -> Any:
    from matplotlib.figure import Figure

    columns = len(told.systems)
    wide = (_WIDE - 2 * _MARGIN - (columns - 1) * _BETWEEN) / columns
    title = textwrap.wrap(f"“{told.query}”", 100)[:4] or ["“”"]
    head = 0.35 + 0.25 * len(title) + 0.3
    words = max(_words_high(one.heard, wide) for one in told.systems)
    borders = any(one.borders is not None for one in told.systems)
    rows = max((len(one.moments) for one in told.systems), default=0)
    shares = max((len(one.borders.shares) for one in told.systems if one.borders is not None), default=0)
    below = 0.55 + _SHARE_HIGH * shares + (0.2 if shares else 0.0)
    tall = [_HEAD_HIGH, words, (_TITLE_HIGH + _BORDERS_HIGH + below) if borders else 0.0]
    high = head + sum(tall) + _TITLE_HIGH + _ROW_HIGH * (rows + 1) + 0.25
    sheet = _Sheet(Figure(figsize=(_WIDE, high)), _WIDE, high)
    sheet.write(_MARGIN, 0.22, "\n".join(title), fontsize=14, fontweight="bold", linespacing=1.25)
    sheet.write(_MARGIN, 0.27 + 0.25 * len(title), _beneath(told), fontsize=9.5, color=_GREY)
    for number, system in enumerate(told.systems):
        left, top = _MARGIN + number * (wide + _BETWEEN), head
        sheet.write(left, top, _shortened(f"{system.name} · {system.system}", 72 * wide, 11), fontsize=11)
        if system.heard is not None:
            _draw_words(sheet, system.heard, left, top + tall[0], wide)
        if system.borders is not None:
            _draw_borders(sheet, system.borders, told, left, top + sum(tall[:2]), wide)
            above = top + sum(tall[:2]) + _TITLE_HIGH + _BORDERS_HIGH + 0.52
            _draw_shares(sheet, system.borders, _seen(system.borders, told), left, above, wide)
        _draw_moments(sheet, system.moments, told.truth, left, top + sum(tall), wide)
    return sheet.figure


def _beneath(told: Explanation) -> str:
    parts = [f"query {told.query_id}"] if told.query_id else []
    parts.append(f"video {told.video_id}" + (f" ({told.duration:.0f} s)" if told.duration else ""))
    if told.truth_here:
        parts.append("true moment " + ", ".join(_span(one) for one in told.truth_here[:3]))
    return "   ·   ".join(parts)


# Words -----------------------------------------------------------------------------------------------


def _words_high(heard: Heard | None, wide: float) -> float:
    if heard is None:
        return 0.0
    _, _, lines = _placed(heard, wide)
    return _TITLE_HIGH + len(heard.weights) * (lines * _WORD_HIGH + 4) / 72 + 0.1


def _placed(heard: Heard, wide: float) -> tuple[float, list[tuple[float, int, float]], int]:
    """Where words begin (points), for each word (left, line, width), and how many lines they take."""
    indent = max(_width(stream, _LETTER) for stream in heard.weights) + 12
    places, left, line = [], indent, 0
    for word in heard.words:
        width = max(_width(word, _LETTER), _width("00 %", _SMALL))
        if left + width > 72 * wide - 4 and left > indent:
            left, line = indent, line + 1
        places.append((left, line, width))
        left += width + _GAP
    return indent, places, line + 1


def _draw_words(sheet: _Sheet, heard: Heard, left: float, top: float, wide: float) -> None:
    """Each stream's words, shaded by how much they count, with their share beneath."""
    from matplotlib.patches import FancyBboxPatch

    sheet.write(left, top, "Words that count", fontsize=10, fontweight="bold")
    axes = sheet.blank(left, top + _TITLE_HIGH, wide, _words_high(heard, wide) - _TITLE_HIGH)
    _, places, lines = _placed(heard, wide)
    most = max(max(row) for row in heard.weights.values())
    for number, (stream, row) in enumerate(heard.weights.items()):
        above = number * (lines * _WORD_HIGH + 4)
        axes.text(0, above + 8, stream, fontsize=_LETTER, va="center", color=_GREY)
        for word, share, (at, line, width) in zip(heard.words, row, places, strict=True):
            middle = above + line * _WORD_HIGH + 8
            box = FancyBboxPatch(
                (at - 2, middle - 7),
                width + 4,
                14,
                boxstyle="round,pad=0,rounding_size=3",
                facecolor="#d8322a",
                alpha=0.65 * share / most if most > 0 else 0.0,
                linewidth=0,
            )
            axes.add_patch(box)
            axes.text(at + width / 2, middle, word, fontsize=_LETTER, va="center", ha="center", color=_INK)
            told = f"{100 * share:.0f} %"
            axes.text(
                at + width / 2, middle + 13, told, fontsize=_SMALL, va="center", ha="center", color=_GREY
            )


# Borders ---------------------------------------------------------------------------------------------


def _draw_borders(
    sheet: _Sheet, borders: Borders, told: Explanation, left: float, top: float, wide: float
) -> None:
    """The probability of start and end along the video, over the true and the answered moment."""
    sheet.write(left, top, f"Start and end along {told.video_id}", fontsize=10, fontweight="bold")
    axes = sheet.panel(left + 0.5, top + _TITLE_HIGH + 0.2, wide - 0.55, _BORDERS_HIGH - 0.15)
    for number, moment in enumerate(told.truth_here):
        label = None if number else "true moment"
        axes.axvspan(moment.start, moment.end, color=_TRUTH, alpha=0.2, linewidth=0, label=label)
    if borders.answered is not None:
        axes.axvspan(
            borders.answered.start,
            borders.answered.end,
            facecolor="none",
            edgecolor=_GREY,
            alpha=0.45,
            hatch="///",
            linewidth=0.8,
            label=_answered(borders.answered, told.truth_here),
        )
    last = max(float(borders.high[-1]), float(borders.low[-1]) + 1e-3)
    edges = np.append(borders.low, last)
    for values, colour, name in ((borders.start, _START, "start"), (borders.end, _END, "end")):
        axes.stairs(values, edges, color=colour, linewidth=1.5, label=name)
        axes.stairs(values, edges, color=colour, alpha=0.15, fill=True)
    axes.set(xlim=(0, _seen(borders, told)), xlabel="seconds", ylabel="probability")
    axes.set_ylim(0, 1.08 * _most_probable(told))
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 0.97),
        ncols=4,
        frameon=False,
        fontsize=8,
        handlelength=1.4,
        columnspacing=1.2,
    )


def _seen(borders: Borders, told: Explanation) -> float:
    """Seconds of the video that are drawn."""
    last = max(float(borders.high[-1]), float(borders.low[-1]) + 1e-3)
    return max(told.duration or 0.0, last, *(one.end for one in told.truth_here), 0.0)


def _draw_shares(
    sheet: _Sheet, borders: Borders, seconds: float, left: float, top: float, wide: float
) -> None:
    """A strip for each stream: the darker, the more it counts in a clip."""
    edges = np.append(borders.low, max(float(borders.high[-1]), float(borders.low[-1]) + 1e-3))
    for number, (stream, values) in enumerate(borders.shares.items()):
        above = top + number * _SHARE_HIGH
        sheet.write(left, above + 0.02, _shortened(stream, 33, _SMALL), fontsize=_SMALL, color=_GREY)
        axes = sheet.panel(left + 0.5, above, wide - 0.55, _SHARE_HIGH - 0.04)
        axes.pcolormesh(edges, [0, 1], values[None], cmap="Greys", vmin=0, vmax=1)
        axes.set(xlim=(0, seconds), xticks=[], yticks=[])
        for side in axes.spines.values():
            side.set_visible(False)


def _most_probable(told: Explanation) -> float:
    """The highest probability of all systems: their curves have one scale."""
    drawn = [one.borders for one in told.systems if one.borders is not None]
    return max(float(values.max()) for one in drawn for values in (one.start, one.end))


def _answered(moment: Moment, truth: Sequence[Moment]) -> str:
    overlap = overlap_with(truth, moment)
    return "answered" if overlap is None else f"answered (IoU {overlap:.2f})"


# Moments ---------------------------------------------------------------------------------------------


def _draw_moments(
    sheet: _Sheet, moments: Sequence[Ranked], truth: Sequence[Moment], left: float, top: float, wide: float
) -> None:
    """The best moments as a table, each with a strip that shows where in its video it lies."""
    sheet.write(left, top, "Best moments", fontsize=10, fontweight="bold")
    axes = sheet.blank(left, top + _TITLE_HIGH, wide, _ROW_HIGH * (len(moments) + 1))
    places = _Columns.of(moments, 72 * wide, known=bool(truth))
    style: dict[str, Any] = {"va": "center", "fontsize": 8, "color": _GREY}
    axes.text(places.video, 9, "video", **style)
    axes.text(places.span, 9, "start – end", **style)
    axes.text(places.score, 9, "score", ha="right", **style)
    if truth:
        axes.text(places.iou, 9, "IoU", ha="right", **style)
    axes.text(places.strip, 9, "in its video", **style)
    for row, found in enumerate(moments, 1):
        middle = 72 * _ROW_HIGH * row + 9
        _draw_row(axes, found, middle, places)
        _draw_strip(axes, found, truth, middle, (places.strip, 72 * wide - 4))


@dataclass(frozen=True)
class _Columns:
    """Where the columns of the table stand, in points; numbers end there, texts begin."""

    video: float
    span: float
    score: float
    iou: float
    strip: float

    @classmethod
    def of(cls, moments: Sequence[Ranked], wide: float, *, known: bool) -> _Columns:
        """The strip takes what the others leave, at least a sixth; long names of videos are cut."""
        video = 36.0 if known else 20.0
        names = max((_width(one.moment.video_id, 9) for one in moments), default=0.0)
        spans = max((_width(_span(one.moment), 9) for one in moments), default=0.0)
        numbers = max((_width(f"{one.score:.2f}", 9) for one in moments), default=0.0) + 24
        overlaps = 34.0 if known else 0.0
        room = 0.83 * wide - video - spans - numbers - overlaps - 32
        span = video + max(40.0, min(names, room)) + 16
        score = span + spans + numbers
        return cls(video, span, score, score + overlaps, score + overlaps + 16)


def _draw_row(axes: Any, found: Ranked, middle: float, at: _Columns) -> None:
    style: dict[str, Any] = {"va": "center", "fontsize": 9, "color": _INK}
    axes.text(0, middle, str(found.rank), **style)
    if found.meets is not None:
        sign, colour = ("✓", _TRUTH) if found.meets else ("✗", _GREY)
        axes.text(20, middle, sign, **{**style, "color": colour, "fontweight": "bold"})
    axes.text(at.video, middle, _shortened(found.moment.video_id, at.span - at.video - 12, 9), **style)
    axes.text(at.span, middle, _span(found.moment), **style)
    axes.text(at.score, middle, f"{found.score:.2f}", ha="right", **style)
    if found.iou is not None:
        axes.text(at.iou, middle, f"{found.iou:.2f}" if found.iou else "–", ha="right", **style)


def _draw_strip(
    axes: Any, found: Ranked, truth: Sequence[Moment], middle: float, strip: tuple[float, float]
) -> None:
    """The video as a line, with the moment and, where it is in this video, the truth above it."""
    own = [one for one in truth if one.video_id == found.moment.video_id]
    whole = found.duration or max(one.end for one in (found.moment, *own))
    left, wide = strip[0], strip[1] - strip[0]

    def bar(moment: Moment, above: float, high: float, colour: str) -> None:
        begin, end = (left + wide * min(1.0, seconds / whole) for seconds in (moment.start, moment.end))
        axes.broken_barh([(begin, max(end - begin, 1.0))], (middle + above, high), color=colour, linewidth=0)

    axes.broken_barh([(left, wide)], (middle - 2.5, 5), color="#dcdfe1", linewidth=0)
    for moment in own:
        bar(moment, -7.0, 3, _TRUTH)
    bar(found.moment, -2.5, 5, _TRUTH if found.meets else _GREY)


def _span(moment: Moment) -> str:
    return " – ".join(_clock(seconds) for seconds in (moment.start, moment.end))


def _clock(seconds: float) -> str:
    """To the tenth of a second, which is finer than clips are."""
    minutes, tenths = divmod(round(10 * seconds), 600)
    hours, minutes = divmod(minutes, 60)
    small = f"{tenths // 10:02d}.{tenths % 10}"
    return f"{hours}:{minutes:02d}:{small}" if hours else f"{minutes}:{small}"


def _width(text: str, size: float) -> float:
    """Points that a text is about as wide as: letters beside each other."""
    return size * sum(map(_letter, text))


@cache
def _letter(letter: str) -> float:
    """How wide a letter is, as a share of its size, with what lies between it and others."""
    from matplotlib.textpath import TextPath

    between, alone = (TextPath((0, 0), one, size=100).get_extents().x1 for one in (f"|{letter}|", "||"))
    return float(between - alone) / 100


def _shortened(text: str, wide: float, size: float) -> str:
    """A text that fits, its middle left out where it is too long."""
    if _width(text, size) <= wide:
        return text
    for kept in range(len(text) - 1, 2, -1):
        short = text[: (kept + 1) // 2] + "…" + text[len(text) - kept // 2 :]
        if _width(short, size) <= wide:
            return short
    return text[:2] + "…"
