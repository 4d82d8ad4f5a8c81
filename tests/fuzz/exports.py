"""Lists of moments whose names, words and notes are by chance, read again by real parsers."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import opentimelineio  # type: ignore[import-untyped]
import pysubs2
from tests.fuzz.media import SAMPLES
from tests.fuzz.texts import text
from tests.fuzz.trials import Did, many

from whenabouts.export import format_names, render
from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.types import WhenaboutsError

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _csv(data: str) -> int:
    rows = list(csv.reader(io.StringIO(data, newline=""), strict=True))
    assert len({len(row) for row in rows}) == 1, "rows of several lengths"
    for cell in (cell for row in rows[1:] for cell in row if cell.startswith(_FORMULA)):
        float(cell)  # a number may begin with a sign
    return len(rows) - 1


def _edl(data: str) -> int:
    return sum(line[:3].isdigit() and line[3:4] == " " for line in data.splitlines())


def _xml(tag: str) -> Callable[[str], int]:
    def count(data: str) -> int:
        return sum(1 for _ in ElementTree.fromstring(data).iter(tag))

    return count


def _otio(data: str) -> int:
    timeline = opentimelineio.adapters.read_from_string(data, "otio_json")
    return sum(len(list(track.find_clips())) for track in timeline.video_tracks())


def _lines(start: str) -> Callable[[str], int]:
    return lambda data: sum(line.startswith(start) for line in data.split("\n"))


COUNT: dict[str, Callable[[str], int]] = {
    "csv": _csv,
    "json": lambda data: len(json.loads(data)["moments"]),
    "edl": _edl,
    "otio": _otio,
    "vtt": lambda data: len(pysubs2.SSAFile.from_string(data, format_="vtt").events),
    "m3u": _lines("#EXTINF"),
    "ffconcat": _lines("file "),
    "fcpxml": _xml("asset-clip"),
}
_ONE_LINE = {"edl", "m3u", "ffconcat", "mpv"}


class Attack:
    """Writes some moments in every format a trial."""

    def __init__(self, folder: Path) -> None:
        self._films = [SAMPLES / name for name in ("friday.mp4", "flower.webm")]

    def try_once(self, rng: random.Random) -> Did:
        """Try many."""
        return many(self._one, rng)

    def _one(self, rng: random.Random) -> Did:
        """Make moments, write them, and read them again."""
        count = rng.choice((1, 2, 5))
        moments = [self._moment(rng, rank) for rank in range(1, count + 1)]
        title, done, findings = text(rng), Counter[str](), list[str]()
        for name in format_names():
            try:
                data, _ = render(moments, name, Options(title=title))
            except WhenaboutsError:
                done["refused"] += 1
                continue
            try:
                written = data.decode("utf-8")
                found = COUNT[name](written) if name in COUNT else count
                if found != count:
                    raise AssertionError(f"{found} moments of {count}")
                if name in _ONE_LINE and any(ord(sign) < 32 and sign not in "\r\n\t" for sign in written):
                    raise AssertionError("a control character")
            except Exception as error:
                findings.append(f"{name}: {type(error).__name__}: {error} of {[title, *moments]}")
            done[name] += 1
        return done, findings

    def _moment(self, rng: random.Random, rank: int) -> FileMoment:
        start = rng.choice((0.0, 0.5, 1.0 / 3))
        return FileMoment(
            rank,
            text(rng) or "v",
            str(rng.choice(self._films)),
            text(rng),
            start,
            start + rng.choice((0.001, 0.5, 1.0)),
            rng.choice((None, 0.5, -1e308)),
            rng.choice((None, 0.0, 1.0)),
            text(rng),
            text(rng),
            text(rng),
            tuple(text(rng) for _ in range(rng.randrange(3))),
        )
