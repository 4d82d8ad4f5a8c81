"""Seconds for a kilobyte of hostile text, for everything that scans captions, names and questions.

    python benchmarks/hostile_text.py [--kilobytes 100] [--examples 150] [--budget 0.02]

Hypothesis makes texts of a few signs that mean something to some scanner, repeated to the length; the slowest
is printed for each scanner, with the time for a tenth of it. A scanner that takes the square of the length
takes a hundred times as long for ten times the text. Exits with 1 where the budget (processor seconds for a
kilobyte) is not kept.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from whenabouts.index.filters import Condition
from whenabouts.index.lookup import search_words
from whenabouts.index.records import natural_key, spoken_name
from whenabouts.intake.files import FileHead
from whenabouts.streams._passages import passages_of, pieces_of
from whenabouts.times import parse_date, parse_moment, parse_seconds
from whenabouts.types import WhenaboutsError
from whenabouts.video.cue import Cue
from whenabouts.video.cues import last_time, read_cue_file
from whenabouts.video.sentences import sentences_of

Scanner = Callable[[str], object]

SIGNS = (
    *('.!?…,;:"”)]*-_=/\\ \t\r\n<>{}&#@1a字é。،\u0301\u200b\ufeff\u202e'),
    *("...", '."', "<v", "<v ", "<v.a", "</", "<i", "<b.", "<!--", "-->", "->", "<script>", "</script>"),
    *(
        "{\\",
        "{\\p1",
        "{y:",
        "}",
        "&#1",
        "&amp",
        "00:",
        "1:",
        "00:00:00,000 --> ",
        "\\N",
        "a ",
        "[x]",
        "=a",
        "@1-",
    ),
    *("Dialogue: ", "0:00:00.00,", '"a', '\\"', "[{", "قال۔", "\r\r\n", "WEBVTT"),
)
_CUE = "1\n00:00:00,000 --> 00:00:02,000\n"
_ASS = "[Script Info]\n[Events]\nDialogue: 0,0:00:00.00,0:00:02.00,Default,,0,0,0,,"

TAILS = ("", "x", " x\n", ">", '"')


def scanners(folder: Path) -> dict[str, Scanner]:
    """What is measured, by name; `folder` is where files lie that some of them read."""
    path = folder / "captions.srt"

    def file_with(head: str) -> Scanner:
        def read(text: str) -> object:
            path.write_bytes((head + text + "\n").encode("utf-8", "surrogatepass"))
            return read_cue_file(path)

        return read

    def tail(text: str) -> object:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return last_time(path)

    return {
        "captions": file_with(""),
        "SubRip cue": file_with(_CUE),
        "WebVTT cue": file_with("WEBVTT\n\n00:00.000 --> 00:02.000\n"),
        "SubStation Alpha event": file_with(_ASS),
        "last time of captions": tail,
        "pieces": lambda text: pieces_of([Cue(0.0, 9.0, text)]),
        "passages": lambda text: passages_of([Cue(0.0, 9.0, text)]),
        "sentences": sentences_of,
        "words": search_words,
        "condition": Condition.parse,
        "condition, name": lambda text: Condition.parse("a" + text.replace("=", " ") + "= 1"),
        "time": parse_seconds,
        "date": parse_date,
        "moment": parse_moment,
        "title": lambda text: spoken_name(Path(text.replace("\0", ""))),
        "order of names": natural_key,
        "head of a file": lambda text: (
            FileHead(path, b'[{"a": ' + text.encode("utf-8", "replace"), False).keys
        ),
    }


def seconds_for(scanner: Scanner, text: str) -> float:
    """Processor time of one scan; a text that is refused in words counts like any other."""
    started = time.process_time()
    with contextlib.suppress(WhenaboutsError):
        scanner(text)
    return time.process_time() - started


def hostile(unit: list[str], tail: str, letters: int) -> str:
    """Some signs over and over, up to a length, and what stands behind them."""
    piece = "".join(unit)
    return (piece * (letters // len(piece) + 1))[:letters] + tail


def slowest(scanner: Scanner, letters: int, examples: int, limit: float) -> tuple[float, list[str], str]:
    """The slowest text found: seconds, its unit, its tail. The first over `limit` seconds ends the look."""
    worst: tuple[float, list[str], str] = (0.0, ["."], "")
    for sign, tail in product(SIGNS, TAILS):
        if worst[0] < limit:
            worst = max(worst, (seconds_for(scanner, hostile([sign], tail, letters)), [sign], tail))

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.sampled_from(SIGNS), min_size=1, max_size=4), st.sampled_from(TAILS))
    def look(unit: list[str], tail: str) -> None:
        nonlocal worst
        if worst[0] < limit:
            worst = max(worst, (seconds_for(scanner, hostile(unit, tail, letters)), unit, tail))

    look()
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kilobytes", type=int, default=100)
    parser.add_argument("--examples", type=int, default=150)
    parser.add_argument("--budget", type=float, default=0.02, help="processor seconds for a kilobyte")
    options = parser.parse_args()
    letters, limit = 1000 * options.kilobytes, options.budget * options.kilobytes
    is_kept = True
    with tempfile.TemporaryDirectory() as folder:
        for name, scanner in scanners(Path(folder)).items():
            seconds, unit, tail = slowest(scanner, letters, options.examples, limit)
            is_kept &= seconds <= limit
            growth = seconds / max(seconds_for(scanner, hostile(unit, tail, letters // 10)), 1e-4)
            cost = 1000 * seconds / options.kilobytes
            print(
                f"{name:24} {cost:8.3f} ms/kB, {growth:5.0f} times a tenth; {unit!r} + {tail!r}", flush=True
            )
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
