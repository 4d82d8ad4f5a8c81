"""Draw an explanation (PNG, SVG, PDF): words, borders and moments, with two systems side by side.

It shows the content of figures 5 to 10 of paper 000, and 5 and 6 (a) of paper 003, for any query. It needs
matplotlib (the extra `figures`). Lengths are in inches, those of letters in points.
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
from whenabouts.lines import one_line
from whenabouts.types import Moment
from whenabouts_systems.explain.canvas import (
    GREY,
    INK,
    SMALL,
    TRUTH,
    Canvas,
    shortened,
    span_text,
    text_width,
)
from whenabouts_systems.explain.explained import Borders, Explanation, Ranked, TokenWeights, overlap_with
from whenabouts_systems.explain.film_strip import MOMENTS_HIGH, FilmStrip, clock_ticks, draw_frames, lay_out

_WIDE, _MARGIN, _BETWEEN = 12.0, 0.3, 0.5
_DOTS = 100
# The space left of a panel for the numbers of its axis and the names of its strips.
_AXIS = 0.5
_BORDERS_HIGH, _ROW_HIGH, _HEAD_HIGH, _TITLE_HIGH, _SHARE_HIGH = 2.0, 0.27, 0.34, 0.32, 0.2
_LETTER, _WORD_HIGH, _GAP = 9.5, 30.0, 9.0
_SIMILAR = ("#f0b400", "#3f8fe8")  # by system, as in figure 6 (a) of paper 003


def draw(explanation: Explanation, path: Path) -> None:
    """Write the picture atomically. Raises UsageError as `check_picture` does."""
    check_picture(path)
    with figure_settings(), warnings.catch_warnings():
        # A letter that the font lacks becomes a box; the JSON has the complete query.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        save_figure(_drawn(explanation), path, dpi=_DOTS)


def _drawn(explanation: Explanation) -> Any:
    from matplotlib.figure import Figure

    columns = len(explanation.systems)
    wide = (_WIDE - 2 * _MARGIN - (columns - 1) * _BETWEEN) / columns
    title = textwrap.wrap(f"“{explanation.query}”", 100)[:4] or ["“”"]
    head = 0.35 + 0.25 * len(title) + 0.3
    words = max(_words_high(system.token_weights, wide) for system in explanation.systems)
    rows = max((len(system.moments) for system in explanation.systems), default=0)
    strips = [_strip_of(number, explanation, wide) for number in range(columns)]
    tall = [_HEAD_HIGH, words, _borders_high(explanation, strips)]
    table = _TITLE_HIGH + _ROW_HIGH * (rows + 1)
    pictured = any(ranked.frame is not None for system in explanation.systems for ranked in system.moments)
    high = head + sum(tall) + table + (MOMENTS_HIGH + 0.1 if pictured else 0.0) + 0.25
    canvas = Canvas(Figure(figsize=(_WIDE, high)), _WIDE, high)
    canvas.write(_MARGIN, 0.22, "\n".join(title), fontsize=14, fontweight="bold", linespacing=1.25)
    canvas.write(_MARGIN, 0.27 + 0.25 * len(title), _beneath(explanation), fontsize=9.5, color=GREY)
    for number, (system, strip) in enumerate(zip(explanation.systems, strips, strict=True)):
        left, top = _MARGIN + number * (wide + _BETWEEN), head
        canvas.write(left, top, shortened(f"{system.name} · {system.system}", 72 * wide, 11), fontsize=11)
        if system.token_weights is not None:
            _draw_words(canvas, system.token_weights, left, top + tall[0], wide)
        if system.borders is not None:
            _draw_borders(canvas, system.borders, explanation, left, top + sum(tall[:2]), wide)
            above = top + sum(tall[:2]) + _TITLE_HIGH + _BORDERS_HIGH + 0.52
            _draw_shares(canvas, system.borders, _seen(system.borders, explanation), left, above, wide)
        if strip is not None:
            above = top + sum(tall) - _most_high(strips)
            strip.draw(canvas, left, above, _AXIS)
        _draw_moments(canvas, system.moments, explanation.truth, left, top + sum(tall), wide)
        if pictured:
            draw_frames(canvas, system.moments, left, top + sum(tall) + table + 0.1, wide)
    for text in [text for part in (canvas.figure, *canvas.figure.axes) for text in part.texts]:
        # No reader opens an SVG with control characters.
        lines = text.get_text().splitlines()
        text.set_text("\n".join(line if line.isprintable() else one_line(line) for line in lines))
    return canvas.figure


def _strip_of(number: int, explanation: Explanation, wide: float) -> FilmStrip | None:
    """The frames and words below the curves or the most similar clips of a system; None if it has neither."""
    system, wide = explanation.systems[number], wide - _AXIS - 0.05
    seconds = _seen(system.borders, explanation)
    if explanation.film is None or not (system.tells_along and seconds):
        return None
    film = explanation.film.with_similar(system.similar_clips, _SIMILAR[number])
    answered = None if system.borders is None else system.borders.answered
    return lay_out(film, explanation.truth_here, answered, seconds, wide)


def _most_high(strips: Sequence[FilmStrip | None]) -> float:
    return max((strip.high for strip in strips if strip is not None), default=0.0)


def _borders_high(explanation: Explanation, strips: Sequence[FilmStrip | None]) -> float:
    """The height in inches of the curves and everything below them."""
    drawn = [system.borders for system in explanation.systems if system.borders is not None]
    if not drawn:
        return _most_high(strips)
    shares = max(len(borders.shares) for borders in drawn)
    below = 0.55 + _SHARE_HIGH * shares + (0.2 if shares else 0.0)
    return _TITLE_HIGH + _BORDERS_HIGH + below + _most_high(strips)


def _beneath(explanation: Explanation) -> str:
    parts = [f"query {explanation.query_id}"] if explanation.query_id else []
    seconds = f" ({explanation.duration:.0f} s)" if explanation.duration else ""
    parts.append(f"video {explanation.video_id}{seconds}")
    if explanation.truth_here:
        parts.append("true moment " + ", ".join(span_text(moment) for moment in explanation.truth_here[:3]))
    return "   ·   ".join(parts)


# Words -----------------------------------------------------------------------------------------------


def _words_high(weights: TokenWeights | None, wide: float) -> float:
    if weights is None:
        return 0.0
    _, _, lines = _placed(weights, wide)
    return _TITLE_HIGH + len(weights.weights) * (lines * _WORD_HIGH + 4) / 72 + 0.1


def _placed(weights: TokenWeights, wide: float) -> tuple[float, list[tuple[float, int, float]], int]:
    """The indent of words in points, (left, line, width) of each word, and the number of lines."""
    indent = max(text_width(stream, _LETTER) for stream in weights.weights) + 12
    places, left, line = [], indent, 0
    for word in weights.words:
        width = max(text_width(word, _LETTER), text_width("00 %", SMALL))
        if left + width > 72 * wide - 4 and left > indent:
            left, line = indent, line + 1
        places.append((left, line, width))
        left += width + _GAP
    return indent, places, line + 1


def _draw_words(canvas: Canvas, weights: TokenWeights, left: float, top: float, wide: float) -> None:
    """Draw each stream's words, shaded by their weight, with the weight below."""
    from matplotlib.patches import FancyBboxPatch

    canvas.write(left, top, "Words that count", fontsize=10, fontweight="bold")
    axes = canvas.blank(left, top + _TITLE_HIGH, wide, _words_high(weights, wide) - _TITLE_HIGH)
    _, places, lines = _placed(weights, wide)
    most = max(max(row) for row in weights.weights.values())
    for number, (stream, row) in enumerate(weights.weights.items()):
        above = number * (lines * _WORD_HIGH + 4)
        axes.text(0, above + 8, stream, fontsize=_LETTER, va="center", color=GREY)
        for word, share, (at, line, width) in zip(weights.words, row, places, strict=True):
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
            percent = f"{100 * share:.0f} %"
            style = {"fontsize": SMALL, "va": "center", "ha": "center", "color": GREY}
            axes.text(at + width / 2, middle + 13, percent, **style)


# Borders ---------------------------------------------------------------------------------------------


def _draw_borders(
    canvas: Canvas, borders: Borders, explanation: Explanation, left: float, top: float, wide: float
) -> None:
    """Draw the probabilities of start and end along the video, with the true and the answered moment."""
    canvas.write(left, top, f"Start and end along {explanation.video_id}", fontsize=10, fontweight="bold")
    axes = canvas.panel(left + _AXIS, top + _TITLE_HIGH + 0.2, wide - _AXIS - 0.05, _BORDERS_HIGH - 0.15)
    for number, moment in enumerate(explanation.truth_here):
        label = None if number else "true moment"
        axes.axvspan(moment.start, moment.end, color=TRUTH, alpha=0.2, linewidth=0, label=label)
    if borders.answered is not None:
        overlap = overlap_with(explanation.truth_here, borders.answered)
        axes.axvspan(
            borders.answered.start,
            borders.answered.end,
            facecolor="none",
            edgecolor=GREY,
            alpha=0.45,
            hatch="///",
            linewidth=0.8,
            label="answered" if overlap is None else f"answered (IoU {overlap:.2f})",
        )
    last = max(float(borders.high[-1]), float(borders.low[-1]) + 1e-3)
    edges = np.append(borders.low, last)
    for values, colour, name in ((borders.start, BLUE, "start"), (borders.end, ORANGE, "end")):
        axes.stairs(values, edges, color=colour, linewidth=1.5, label=name)
        axes.stairs(values, edges, color=colour, alpha=0.15, fill=True)
    axes.set(xlim=(0, _seen(borders, explanation)), xlabel="seconds", ylabel="probability")
    if explanation.film is not None:
        clock_ticks(axes, _seen(borders, explanation), wide - _AXIS - 0.05)
    axes.set_ylim(0, 1.08 * _most_probable(explanation))
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 0.97),
        ncols=4,
        frameon=False,
        fontsize=8,
        handlelength=1.4,
        columnspacing=1.2,
    )


def _seen(borders: Borders | None, explanation: Explanation) -> float:
    """The seconds of the video to draw; 0 if unknown."""
    last = 0.0 if borders is None else max(float(borders.high[-1]), float(borders.low[-1]) + 1e-3)
    return max(explanation.duration or 0.0, last, *(moment.end for moment in explanation.truth_here), 0.0)


def _draw_shares(
    canvas: Canvas, borders: Borders, seconds: float, left: float, top: float, wide: float
) -> None:
    """Draw a strip for each stream, darker where it has more weight."""
    edges = np.append(borders.low, max(float(borders.high[-1]), float(borders.low[-1]) + 1e-3))
    for number, (stream, values) in enumerate(borders.shares.items()):
        above = top + number * _SHARE_HIGH
        canvas.write(left, above + 0.02, shortened(stream, 33, SMALL), fontsize=SMALL, color=GREY)
        axes = canvas.panel(left + _AXIS, above, wide - _AXIS - 0.05, _SHARE_HIGH - 0.04)
        axes.pcolormesh(edges, [0, 1], values[None], cmap="Greys", vmin=0, vmax=1)
        axes.set(xlim=(0, seconds), xticks=[], yticks=[])
        for side in axes.spines.values():
            side.set_visible(False)


def _most_probable(explanation: Explanation) -> float:
    """The highest probability of all systems, because their curves share a scale."""
    drawn = [system.borders for system in explanation.systems if system.borders is not None]
    return max(float(values.max()) for borders in drawn for values in (borders.start, borders.end))


# Moments ---------------------------------------------------------------------------------------------


def _draw_moments(
    canvas: Canvas, moments: Sequence[Ranked], truth: Sequence[Moment], left: float, top: float, wide: float
) -> None:
    """Draw the best moments as a table, each with a strip that shows its place in the video."""
    canvas.write(left, top, "Best moments", fontsize=10, fontweight="bold")
    axes = canvas.blank(left, top + _TITLE_HIGH, wide, _ROW_HIGH * (len(moments) + 1))
    places = _Columns.of(moments, 72 * wide, with_truth=bool(truth))
    style: dict[str, Any] = {"va": "center", "fontsize": 8, "color": GREY}
    axes.text(places.video, 9, "video", **style)
    axes.text(places.span, 9, "start – end", **style)
    axes.text(places.score, 9, "score", ha="right", **style)
    if truth:
        axes.text(places.iou, 9, "IoU", ha="right", **style)
    axes.text(places.strip, 9, "in its video", **style)
    for row, ranked in enumerate(moments, 1):
        middle = 72 * _ROW_HIGH * row + 9
        _draw_row(axes, ranked, middle, places)
        _draw_strip(axes, ranked, truth, middle, (places.strip, 72 * wide - 4))


@dataclass(frozen=True)
class _Columns:
    """Positions of the table's columns in points: the left edge of texts, the right edge of numbers."""

    video: float
    span: float
    score: float
    iou: float
    strip: float

    @classmethod
    def of(cls, moments: Sequence[Ranked], wide: float, *, with_truth: bool) -> _Columns:
        """The strip gets the remaining width, at least a sixth; long names of videos are shortened."""
        video = 36.0 if with_truth else 20.0
        names = max((text_width(ranked.moment.video_id, 9) for ranked in moments), default=0.0)
        spans = max((text_width(span_text(ranked.moment), 9) for ranked in moments), default=0.0)
        numbers = max((text_width(f"{ranked.score:.2f}", 9) for ranked in moments), default=0.0) + 24
        overlaps = 34.0 if with_truth else 0.0
        room = 0.83 * wide - video - spans - numbers - overlaps - 32
        span = video + max(40.0, min(names, room)) + 16
        score = span + spans + numbers
        return cls(video, span, score, score + overlaps, score + overlaps + 16)


def _draw_row(axes: Any, ranked: Ranked, middle: float, at: _Columns) -> None:
    style: dict[str, Any] = {"va": "center", "fontsize": 9, "color": INK}
    axes.text(0, middle, str(ranked.rank), **style)
    if ranked.meets is not None:
        sign, colour = ("✓", TRUTH) if ranked.meets else ("✗", GREY)
        axes.text(20, middle, sign, **{**style, "color": colour, "fontweight": "bold"})
    axes.text(at.video, middle, shortened(ranked.moment.video_id, at.span - at.video - 12, 9), **style)
    axes.text(at.span, middle, span_text(ranked.moment), **style)
    axes.text(at.score, middle, f"{ranked.score:.2f}", ha="right", **style)
    if ranked.iou is not None:
        axes.text(at.iou, middle, f"{ranked.iou:.2f}" if ranked.iou else "–", ha="right", **style)


def _draw_strip(
    axes: Any, ranked: Ranked, truth: Sequence[Moment], middle: float, strip: tuple[float, float]
) -> None:
    """Draw the video as a line with the moment, and above it the right moments in this video."""
    in_video = [moment for moment in truth if moment.video_id == ranked.moment.video_id]
    duration = ranked.duration or max(moment.end for moment in (ranked.moment, *in_video))
    left, wide = strip[0], strip[1] - strip[0]

    def bar(moment: Moment, above: float, high: float, colour: str) -> None:
        begin, end = (left + wide * min(1.0, seconds / duration) for seconds in (moment.start, moment.end))
        axes.broken_barh([(begin, max(end - begin, 1.0))], (middle + above, high), color=colour, linewidth=0)

    axes.broken_barh([(left, wide)], (middle - 2.5, 5), color="#dcdfe1", linewidth=0)
    for moment in in_video:
        bar(moment, -7.0, 3, TRUTH)
    bar(ranked.moment, -2.5, 5, TRUTH if ranked.meets else GREY)
