"""Texts from outside by chance: each reader gives a value that holds what it promises, or a line of ours."""

from __future__ import annotations

import json
import math
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whenabouts.intake.files import FormatError, loads, parse_json, parse_toml
from whenabouts.search.question_scopes import Names
from whenabouts.search.questions import read
from whenabouts.times import format_time, parse_date, parse_instant, parse_moment, parse_seconds
from whenabouts.types import LONGEST_SECONDS, UsageError
from whenabouts.video.cues import SubtitleError, read_cue_file
from whenabouts.video.ignored import Patterns

FEW = settings(max_examples=60)
PLACE = Path("given")


def pieces(*texts: str) -> st.SearchStrategy[str]:
    """Texts put together from pieces that mean something to a reader, and from any letters."""
    return st.lists(st.sampled_from(texts) | st.text(max_size=3), max_size=14).map("".join)


def refused_in_a_line(error: pytest.ExceptionInfo[Any] | Exception) -> None:
    said = str(error)
    assert "\n" not in said and len(said) < 2000 and "set_int_max_str_digits" not in said


CUES = pieces(
    *("WEBVTT\n\n", "00:00:01,000 --> 00:00:02,000\n", "00:01.000 --> 00:00.500\n", "99:99:99,999 --> "),
    *(
        "[Events]\n",
        "Format: Start, End, Text\n",
        "Dialogue: 0:00:01.00,0:00:09.00,",
        "0:00:01.00,0:00:02.00\n",
    ),
    *(
        "1\n",
        "\n\n",
        "->",
        " -->",
        "<v Ann>",
        "</i>",
        "{\\an8}",
        "&lt;",
        "&#1114112;",
        "\x00",
        "9" * 40,
        "- hello",
    ),
)


@FEW
@given(CUES, st.sampled_from(["utf-8", "utf-16", "cp1252"]))
@example("00:00:01,000 --> 00:00:02,000\n&#55296;", "utf-8")
def test_subtitles(tmp_path_factory: pytest.TempPathFactory, text: str, encoding: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.srt"
    path.write_bytes(text.encode(encoding, "replace"))
    try:
        track = read_cue_file(path)
    except SubtitleError as error:
        refused_in_a_line(error)
        return
    for cue in track.cues:
        assert 0 <= cue.start < cue.end < math.inf and cue.text.strip() and "\x00" not in cue.text
    assert list(track.cues) == sorted(track.cues, key=lambda cue: cue.start)


TIMES = pieces(
    "0", "1", "59", "60", ":", ".", ",", ";", "s", "-", "–", "e9", "nan", "inf", "9" * 25, "٣", " ", "@"
)


@FEW
@given(TIMES)
def test_times(text: str) -> None:
    for parse, least in ((parse_seconds, 0), (parse_instant, 1), (parse_moment, 1)):
        try:
            found: Any = parse(text)
        except UsageError as error:
            refused_in_a_line(error)
            continue
        values = (found,) if least == 0 else found[1:]
        assert all(0 <= value < math.inf for value in values)
        assert least == 0 or text.startswith(found[0])


@FEW
@given(st.floats(0, LONGEST_SECONDS))
def test_a_time_comes_back_as_it_was_written(seconds: float) -> None:
    assert parse_seconds(format_time(seconds)) == pytest.approx(seconds, abs=0.001)


@FEW
@given(pieces("2024", "-05", "-01", "T12:00", "Z", "+23:59", "9999", "0000", "-99"))
def test_dates(text: str) -> None:
    try:
        assert parse_date(text).tzinfo is not None
    except UsageError as error:
        refused_in_a_line(error)


@FEW
@given(
    st.lists(pieces("*", "**", "/", "!", "#", "[", "]", "a", "?", "\\", "..", "[!", "[a-z]", " "), max_size=6)
)
def test_ignore_patterns(lines: list[str]) -> None:
    try:
        patterns = Patterns.of(lines).beneath(Path("/v"))
    except UsageError as error:
        refused_in_a_line(error)
        return
    for name in ("a.mp4", "a/b/" + "a" * 200 + ".mp4"):
        assert patterns.fits(Path("/v") / name) in (True, False)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@FEW
@given(
    VALUES.map(json.dumps)
    | pieces("{", "}", "[", "]", ",", ":", '"a"', "1e999", "9" * 5000, "NaN", '"\\ud800"')
)
@example("9" * 5000)
@example("[" * 100_000)
def test_json(text: str) -> None:
    try:
        value = parse_json(PLACE, text.encode())
    except FormatError as error:
        refused_in_a_line(error)
    else:
        assert json.dumps(value) == json.dumps(json.loads(text))
    try:
        loads(text)
    except ValueError as error:
        refused_in_a_line(error)


@FEW
@given(
    pieces(
        "a",
        "=",
        "1",
        '"x"',
        "\n",
        "[t]",
        "[[t]]",
        "{",
        "}",
        "9" * 5000,
        "0x" + "f" * 5000,
        "1979-05-27",
        "nan",
    ),
    st.binary(max_size=3),
)
@example("a = " + "9" * 5000, b"")
@example("a = " + "[" * 100_000, b"")
def test_toml(text: str, more: bytes) -> None:
    try:
        tables = parse_toml(PLACE, text.encode("utf-8", "replace") + more)
    except FormatError as error:
        refused_in_a_line(error)
    else:
        assert isinstance(tables, dict)


def test_a_number_of_thousands_of_digits_is_refused_in_our_words() -> None:
    for parse, text in ((parse_toml, "a = " + "9" * 5000), (parse_json, "9" * 5000)):
        with pytest.raises(
            FormatError, match="has a number with thousands of digits; accepted: whole numbers"
        ):
            parse(PLACE, text.encode())
    with pytest.raises(ValueError, match=r"^it has a whole number with thousands of digits$"):
        loads("9" * 5000)


QUESTIONS = pieces(
    *(
        "every time ",
        "the first time ",
        "last ",
        "before ",
        "after ",
        " while ",
        "without ",
        "jedes Mal wenn ",
    ),
    *(
        "in the video called ",
        "from 2024 ",
        "last week ",
        '"',
        "“",
        "”",
        "rabbits run ",
        "a dog ",
        "?",
        "\ue000",
        " ",
    ),
)


@FEW
@given(QUESTIONS)
def test_questions_by_rule(text: str) -> None:
    question = read(text, Names([]), date(2026, 5, 17))
    if question is None:
        return
    assert question.rules
    words = " ".join(text.split())
    for part in (question.text, question.other, question.without):
        assert not any("\ue000" <= sign <= "\uf8ff" for sign in part if sign not in words)
        assert len(part) <= len(words)
