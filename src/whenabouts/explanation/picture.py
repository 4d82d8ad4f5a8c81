"""An explanation as a picture (PNG, SVG, PDF): words, borders, moments; two systems side by side.

What the figures 5 to 10 of paper 000 and figure 5 of paper 003 show, for any query. Needs matplotlib (the
extra `report`). Lengths are in inches, those of letters in points.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whenabouts.drawing import BLUE, ORANGE, check_picture, figure_settings, save_figure
from whenabouts.explanation.film_strip import FilmStrip, clock_ticks, lay_out
from whenabouts.explanation.sheet import GREY, INK, SMALL, TRUTH, Sheet, shortened, span_text, text_width
from whenabouts.explanation.told import Borders, Explanation, Heard, Ranked, overlap_with
from whenabouts.types import Moment

_WIDE, _MARGIN, _BETWEEN = 12.0, 0.3, 0.5
_DOTS = 100
# Left of a panel along the video: the numbers of its axis, the names of its strips.
_AXIS = 0.5
_BORDERS_HIGH, _ROW_HIGH, _HEAD_HIGH, _TITLE_HIGH, _SHARE_HIGH = 2.0, 0.27, 0.34, 0.32, 0.2
_LETTER, _WORD_HIGH, _GAP = 9.5, 30.0, 9.0


def draw(told: Explanation, path: Path) -> None:
    """Write the picture; it appears whole or not at all. Raises UsageError as `check_picture` does."""
    check_picture(path)
    with figure_settings(), warnings.catch_warnings():
        # A letter that the font lacks becomes a box; the query stands in the JSON as well.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        save_figure(_drawn(told), path, dpi=_DOTS)


def _drawn(told: Explanation) -> Any:
    from matplotlib.figure import Figure

    columns = len(told.systems)
    wide = (_WIDE - 2 * _MARGIN - (columns - 1) * _BETWEEN) / columns
    title = textwrap.wrap(f"“{told.query}”", 100)[:4] or ["“”"]
    head = 0.35 + 0.25 * len(title) + 0.3
    words = max(_words_high(one.heard, wide) for one in told.systems)
    rows = max((len(one.moments) for one in told.systems), default=0)
    strips = [_strip_of(one.borders, told, wide) for one in told.systems]
    tall = [_HEAD_HIGH, words, _borders_high(told, strips)]
    high = head + sum(tall) + _TITLE_HIGH + _ROW_HIGH * (rows + 1) + 0.25
    sheet = Sheet(Figure(figsize=(_WIDE, high)), _WIDE, high)
    sheet.write(_MARGIN, 0.22, "\n".join(title), fontsize=14, fontweight="bold", linespacing=1.25)
    sheet.write(_MARGIN, 0.27 + 0.25 * len(title), _beneath(told), fontsize=9.5, color=GREY)
    for number, (system, strip) in enumerate(zip(told.systems, strips, strict=True)):
        left, top = _MARGIN + number * (wide + _BETWEEN), head
        sheet.write(left, top, shortened(f"{system.name} · {system.system}", 72 * wide, 11), fontsize=11)
        if system.heard is not None:
            _draw_words(sheet, system.heard, left, top + tall[0], wide)
        if system.borders is not None:
            _draw_borders(sheet, system.borders, told, left, top + sum(tall[:2]), wide)
            above = top + sum(tall[:2]) + _TITLE_HIGH + _BORDERS_HIGH + 0.52
            _draw_shares(sheet, system.borders, _seen(system.borders, told), left, above, wide)
        if strip is not None:
            above = top + sum(tall) - _most_high(strips)
            strip.draw(sheet, left, above, _AXIS)
        _draw_moments(sheet, system.moments, told.truth, left, top + sum(tall), wide)
    return sheet.figure


def _strip_of(borders: Borders | None, told: Explanation, wide: float) -> FilmStrip | None:
    """What is seen and said beneath the curves of a system, where that is known."""
    if told.film is None or borders is None:
        return None
    return lay_out(told.film, told.truth_here, borders.answered, _seen(borders, told), wide - _AXIS - 0.05)


def _most_high(strips: Sequence[FilmStrip | None]) -> float:
    return max((strip.high for strip in strips if strip is not None), default=0.0)


def _borders_high(told: Explanation, strips: Sequence[FilmStrip | None]) -> float:
    """Inches for the curves and what stands beneath them."""
    drawn = [one.borders for one in told.systems if one.borders is not None]
    if not drawn:
        return 0.0
    shares = max(len(one.shares) for one in drawn)
    below = 0.55 + _SHARE_HIGH * shares + (0.2 if shares else 0.0)
    return _TITLE_HIGH + _BORDERS_HIGH + below + _most_high(strips)


def _beneath(told: Explanation) -> str:
    parts = [f"query {told.query_id}"] if told.query_id else []
    parts.append(f"video {told.video_id}" + (f" ({told.duration:.0f} s)" if told.duration else ""))
    if told.truth_here:
        parts.append("true moment " + ", ".join(span_text(one) for one in told.truth_here[:3]))
    return "   ·   ".join(parts)


# Words -----------------------------------------------------------------------------------------------


def _words_high(heard: Heard | None, wide: float) -> float:
    if heard is None:
        return 0.0
    _, _, lines = _placed(heard, wide)
    return _TITLE_HIGH + len(heard.weights) * (lines * _WORD_HIGH + 4) / 72 + 0.1


def _placed(heard: Heard, wide: float) -> tuple[float, list[tuple[float, int, float]], int]:
    """Where words begin (points), for each word (left, line, width), and how many lines they take."""
    indent = max(text_width(stream, _LETTER) for stream in heard.weights) + 12
    places, left, line = [], indent, 0
    for word in heard.words:
        width = max(text_width(word, _LETTER), text_width("00 %", SMALL))
        if left + width > 72 * wide - 4 and left > indent:
            left, line = indent, line + 1
        places.append((left, line, width))
        left += width + _GAP
    return indent, places, line + 1


def _draw_words(sheet: Sheet, heard: Heard, left: float, top: float, wide: float) -> None:
    """Each stream's words, shaded by how much they count, with their share beneath."""
    from matplotlib.patches import FancyBboxPatch

    sheet.write(left, top, "Words that count", fontsize=10, fontweight="bold")
    axes = sheet.blank(left, top + _TITLE_HIGH, wide, _words_high(heard, wide) - _TITLE_HIGH)
    _, places, lines = _placed(heard, wide)
    most = max(max(row) for row in heard.weights.values())
    for number, (stream, row) in enumerate(heard.weights.items()):
        above = number * (lines * _WORD_HIGH + 4)
        axes.text(0, above + 8, stream, fontsize=_LETTER, va="center", color=GREY)
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
            axes.text(at + width / 2, middle, word, fontsize=_LETTER, va="center", ha="center", color=INK)
            told = f"{100 * share:.0f} %"
            axes.text(at + width / 2, middle + 13, told, fontsize=SMALL, va="center", ha="center", color=GREY)


# Borders ---------------------------------------------------------------------------------------------


def _draw_borders(
    sheet: Sheet, borders: Borders, told: Explanation, left: float, top: float, wide: float
) -> None:
    """The probability of start and end along the video, over the true and the answered moment."""
    sheet.write(left, top, f"Start and end along {told.video_id}", fontsize=10, fontweight="bold")
    axes = sheet.panel(left + _AXIS, top + _TITLE_HIGH + 0.2, wide - _AXIS - 0.05, _BORDERS_HIGH - 0.15)
    for number, moment in enumerate(told.truth_here):
        label = None if number else "true moment"
        axes.axvspan(moment.start, moment.end, color=TRUTH, alpha=0.2, linewidth=0, label=label)
    if borders.answered is not None:
        axes.axvspan(
            borders.answered.start,
            borders.answered.end,
            facecolor="none",
            edgecolor=GREY,
            alpha=0.45,
            hatch="///",
            linewidth=0.8,
            label=_answered(borders.answered, told.truth_here),
        )
    last = max(float(borders.high[-1]), float(borders.low[-1]) + 1e-3)
    edges = np.append(borders.low, last)
    for values, colour, name in ((borders.start, BLUE, "start"), (borders.end, ORANGE, "end")):
        axes.stairs(values, edges, color=colour, linewidth=1.5, label=name)
        axes.stairs(values, edges, color=colour, alpha=0.15, fill=True)
    axes.set(xlim=(0, _seen(borders, told)), xlabel="seconds", ylabel="probability")
    if told.film is not None:
        clock_ticks(axes, _seen(borders, told), wide - _AXIS - 0.05)
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
    sheet: Sheet, borders: Borders, seconds: float, left: float, top: float, wide: float
) -> None:
    """A strip for each stream: the darker, the more it counts in a clip."""
    edges = np.append(borders.low, max(float(borders.high[-1]), float(borders.low[-1]) + 1e-3))
    for number, (stream, values) in enumerate(borders.shares.items()):
        above = top + number * _SHARE_HIGH
        sheet.write(left, above + 0.02, shortened(stream, 33, SMALL), fontsize=SMALL, color=GREY)
        axes = sheet.panel(left + _AXIS, above, wide - _AXIS - 0.05, _SHARE_HIGH - 0.04)
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
    sheet: Sheet, moments: Sequence[Ranked], truth: Sequence[Moment], left: float, top: float, wide: float
) -> None:
    """The best moments as a table, each with a strip that shows where in its video it lies."""
    sheet.write(left, top, "Best moments", fontsize=10, fontweight="bold")
    axes = sheet.blank(left, top + _TITLE_HIGH, wide, _ROW_HIGH * (len(moments) + 1))
    places = _Columns.of(moments, 72 * wide, known=bool(truth))
    style: dict[str, Any] = {"va": "center", "fontsize": 8, "color": GREY}
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
        names = max((text_width(one.moment.video_id, 9) for one in moments), default=0.0)
        spans = max((text_width(span_text(one.moment), 9) for one in moments), default=0.0)
        numbers = max((text_width(f"{one.score:.2f}", 9) for one in moments), default=0.0) + 24
        overlaps = 34.0 if known else 0.0
        room = 0.83 * wide - video - spans - numbers - overlaps - 32
        span = video + max(40.0, min(names, room)) + 16
        score = span + spans + numbers
        return cls(video, span, score, score + overlaps, score + overlaps + 16)


def _draw_row(axes: Any, found: Ranked, middle: float, at: _Columns) -> None:
    style: dict[str, Any] = {"va": "center", "fontsize": 9, "color": INK}
    axes.text(0, middle, str(found.rank), **style)
    if found.meets is not None:
        sign, colour = ("✓", TRUTH) if found.meets else ("✗", GREY)
        axes.text(20, middle, sign, **{**style, "color": colour, "fontweight": "bold"})
    axes.text(at.video, middle, shortened(found.moment.video_id, at.span - at.video - 12, 9), **style)
    axes.text(at.span, middle, span_text(found.moment), **style)
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
        bar(moment, -7.0, 3, TRUTH)
    bar(found.moment, -2.5, 5, TRUTH if found.meets else GREY)
