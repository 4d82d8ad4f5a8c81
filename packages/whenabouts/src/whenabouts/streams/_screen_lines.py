"""Turns readings of a video's frames into texts with the time that each is on the screen.

Lines are tracked from reading to reading. Two readings are of one line if their texts are at least 85 %
similar, wherever they stand. At the same place 60 % is enough if the reader is uncertain of either. If it is
certain of both, texts with equally many but different digits are different lines. A line's text is the one
with the highest total score. Lines that appear and disappear together form one text. A text that spans at
least 80 % of the video (a channel's logo) is left out of `around` of the others, so that its words do not
find every other text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import partial
from itertools import takewhile
from operator import attrgetter

from whenabouts.video.text_reader import Box, TextLine

# Least similarity of two readings of a line; the second value holds at the same place if either is uncertain.
_ALIKE, _ALIKE_IF_UNSURE = 0.85, 0.6
# Two boxes with at least this overlap (a share of the smaller one) are at the same place.
_SAME_PLACE = 0.5
# Consecutive readings that may miss a visible line: in moving film about one in four is blurred.
_MISSED_READINGS = 1
# From this certainty of both readings on, different digits mean a different line, such as a score or a clock.
_SURE = 0.9
# Lines that appear and disappear within this many frames of each other belong together.
_TOGETHER_FRAMES = 1
# A text is a logo if its first and last frame are this share of the video apart, whether read between or not.
_THROUGHOUT = 0.8
# Separate lines are joined to one logo only if they are read in this share of the frames.
_OFTEN = 0.4
# Texts that share this much of their time are seen together.
_SEEN_TOGETHER = 0.5
_LEAST_LETTERS = 2
_DIGITS = re.compile(r"\d")
_DENSE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")


@dataclass(frozen=True, slots=True)
class Reading:
    """The lines read in frame `first`, shown until frame `last` (inclusive)."""

    first: int
    last: int
    lines: tuple[TextLine, ...]


@dataclass(frozen=True, slots=True)
class ScreenText:
    """Lines shown from frame `first` to frame `last` (inclusive), in reading order, with their box.

    `sure` in [0, 1] is the reader's certainty of the lines, weighted by letters. `others` are alternative
    readings of the same lines, one of which may be right (a line that moves through the picture is read in
    parts). `around` are the other texts shown at the same time; logos only if this text is a logo too.
    """

    first: int
    last: int
    text: str
    box: Box
    sure: float
    others: str
    around: str = ""


@dataclass(slots=True, eq=False)
class _Line:
    """A tracked line: its readings with text and box, and the number of the last reading."""

    sightings: list[tuple[Reading, TextLine]] = field(default_factory=list)
    reading: int = 0

    @property
    def first(self) -> int:
        return self.sightings[0][0].first

    @property
    def last(self) -> int:
        return self.sightings[-1][0].last

    @property
    def latest(self) -> TextLine:
        return self.sightings[-1][1]

    @property
    def frames(self) -> int:
        """The number of frames for which the line was read."""
        return sum(reading.last - reading.first + 1 for reading, _ in self.sightings)

    @property
    def texts(self) -> list[str]:
        """The distinct texts read, highest total score (certainty times length) first."""
        votes: defaultdict[str, float] = defaultdict(float)
        for _, line in self.sightings:
            votes[line.text] += line.score * len(line.text)
        return sorted(votes, key=lambda text: (-votes[text], text))

    @property
    def sure(self) -> float:
        """The greatest certainty of the first of `texts`."""
        text = self.texts[0]
        return max(line.score for _, line in self.sightings if line.text == text)

    def box_at(self, frame: int) -> Box:
        """The line's box in the reading nearest to a frame."""
        return min(self.sightings, key=lambda seen: abs(seen[0].first + seen[0].last - 2 * frame))[1].box


def screen_texts(readings: Sequence[Reading]) -> list[ScreenText]:
    """The texts of one video, by start; `readings` are in order of time, without gaps."""
    frames = readings[-1].last - readings[0].first + 1 if readings else 0
    lines = _joined_throughout(_followed(readings), frames)
    groups: list[list[_Line]] = []
    for line in sorted(lines, key=lambda line: (line.first, line.last)):
        recent = takewhile(partial(_begins_with, line), reversed(groups))
        group = next((group for group in recent if _belongs(line, group[0])), None)
        if group is None:
            groups.append([line])
        else:
            group.append(line)
    texts = [_text(group) for group in groups]
    logos = [text for text in texts if text.last - text.first + 1 >= _THROUGHOUT * frames]
    passing = [text for text in texts if text not in logos]
    return [replace(text, around=_around(text, texts if text in logos else passing)) for text in texts]


def _text(group: Sequence[_Line]) -> ScreenText:
    """The lines of a group as one text."""
    first, last = min(line.first for line in group), max(line.last for line in group)
    middle = (first + last) // 2
    placed = in_reading_order([(line.box_at(middle), line.texts[0]) for line in group])
    left, top, right, bottom = zip(*(box for box, _ in placed), strict=True)
    box = (min(left), min(top), max(right), max(bottom))
    others = "\n".join(text for line in group for text in line.texts[1:])
    letters = [len(line.texts[0]) for line in group]
    sure = sum(line.sure * count for line, count in zip(group, letters, strict=True)) / sum(letters)
    return ScreenText(first, last, "\n".join(text for _, text in placed), box, sure, others)


def _begins_with(line: _Line, group: Sequence[_Line]) -> bool:
    """Whether a line appears together with the first of a group, which appears no later."""
    return line.first - group[0].first <= _TOGETHER_FRAMES


def _belongs(line: _Line, other: _Line) -> bool:
    """Whether two lines that appear together also disappear together."""
    return abs(line.last - other.last) <= _TOGETHER_FRAMES and _are_together(line, other)


def _are_together(first: _Line | ScreenText, second: _Line | ScreenText) -> bool:
    """Whether two texts share enough of their time to be seen together."""
    shared = min(first.last, second.last) - max(first.first, second.first) + 1
    either = max(first.last, second.last) - min(first.first, second.first) + 1
    return shared >= _SEEN_TOGETHER * either


def _around(text: ScreenText, texts: Sequence[ScreenText]) -> str:
    """Those of `texts`, which are by start, that are seen together with `text`, one after the other."""
    # A text that starts earlier by more than this one lasts shares less than half of their time.
    earliest = 2 * text.first - text.last - 1
    begin = bisect_left(texts, earliest, key=attrgetter("first"))
    end = bisect_right(texts, text.last, key=attrgetter("first"))
    near = (other for other in texts[begin:end] if other is not text and _are_together(text, other))
    return "\n".join(other.text for other in near)


def in_reading_order(placed: Iterable[tuple[Box, str]]) -> list[tuple[Box, str]]:
    """Lines by row, then from the left. A row has the lines whose middle is level with its first line."""
    rows: list[list[tuple[Box, str]]] = []
    for box, text in sorted(placed, key=lambda line: (line[0][1] + line[0][3], line)):
        above = rows[-1][0][0] if rows else None
        middle = (box[1] + box[3]) / 2
        if above is not None and above[1] <= middle <= above[3]:
            rows[-1].append((box, text))
        else:
            rows.append([(box, text)])
    return [line for row in rows for line in sorted(row)]


def _followed(readings: Sequence[Reading]) -> list[_Line]:
    """All lines, each tracked through the readings that contain it."""
    lines: list[_Line] = []
    recent: list[_Line] = []
    for number, reading in enumerate(readings):
        recent = [line for line in recent if number - line.reading <= 1 + _MISSED_READINGS]
        free = list(recent)
        texts = {line.latest.text for line in free}
        # Lines with unchanged text are assigned first.
        for seen in sorted(filter(_is_text, reading.lines), key=lambda seen: seen.text not in texts):
            line = max(free, key=lambda line: _sameness(line.latest, seen), default=None)
            if line is None or not _sameness(line.latest, seen):
                line = _Line()
                lines.append(line)
                recent.append(line)
            else:
                free.remove(line)
            line.sightings.append((reading, seen))
            line.reading = number
    return lines


def _joined_throughout(lines: Sequence[_Line], frames: int) -> list[_Line]:
    """The lines; those of the same text (but for case) at the same place are joined if they are a logo.

    Together they must span 80 % of the video and be read in 40 % of its frames. Otherwise a logo that some
    readings miss would become many texts.
    """
    joined: list[_Line] = []
    by_text: defaultdict[str, list[_Line]] = defaultdict(list)
    for line in lines:
        by_text[line.texts[0].casefold()].append(line)
    for same in by_text.values():
        logo = [line for line in same if _overlap(line.latest.box, same[0].latest.box) >= _SAME_PLACE]
        is_often = sum(line.frames for line in logo) >= _OFTEN * frames
        if len(logo) > 1 and is_often and logo[-1].last - logo[0].first + 1 >= _THROUGHOUT * frames:
            logo[0].sightings = [sighting for line in logo for sighting in line.sightings]
            same = [line for line in same if line is logo[0] or line not in logo]
        joined += same
    return joined


def _is_text(line: TextLine) -> bool:
    """Whether a line has two letters or digits, or a Chinese, Japanese or Korean one; others are noise."""
    return sum(letter.isalnum() for letter in line.text) >= _LEAST_LETTERS or bool(_DENSE.search(line.text))


def _sameness(before: TextLine, now: TextLine) -> float:
    """Similarity of a line to an earlier one in [0, 3]: 0 if they differ, 2 or more if the text is equal."""
    overlap = _overlap(before.box, now.box)
    if before.text == now.text:
        return 2 + overlap
    is_sure = min(before.score, now.score) >= _SURE
    if is_sure and _numbers_differ(before.text, now.text):
        return 0.0
    needed = _ALIKE if is_sure or overlap < _SAME_PLACE else _ALIKE_IF_UNSURE
    matcher = SequenceMatcher(None, before.text, now.text, autojunk=False)
    if matcher.real_quick_ratio() < needed or matcher.quick_ratio() < needed:
        return 0.0
    return likeness + overlap if (likeness := matcher.ratio()) >= needed else 0.0


def _numbers_differ(first: str, second: str) -> bool:
    """Whether two texts have equally many digits, but not the same sequence of digits."""
    first_digits, second_digits = _DIGITS.findall(first), _DIGITS.findall(second)
    return len(first_digits) == len(second_digits) and first_digits != second_digits


def _overlap(first: Box, second: Box) -> float:
    """Area shared by two boxes, relative to the smaller one."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    if width <= 0 or height <= 0:
        return 0.0
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (first, second))
    return width * height / smaller
