"""Interpreted questions in the output of commands, and the option that turns all rules off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Whenabouts = Callable[..., Any]

QUESTION = 'the first time "crown jewels" in friday.mp4'


def test_a_table_begins_with_what_was_understood(whenabouts: Whenabouts) -> None:
    done = whenabouts("search", QUESTION, "--table")
    assert done.code == 0
    assert done.out.splitlines()[0] == "understood: first; in: friday"
    assert "understood" not in whenabouts("search", "crown jewels", "--table").out


def test_json_names_the_rules_and_one_option_turns_them_off(whenabouts: Whenabouts) -> None:
    rules = whenabouts("search", QUESTION).json["understood"]
    assert [rule["name"] for rule in rules] == ["first", "in"]
    assert whenabouts("search", QUESTION, "--literal").json["understood"] == []


def test_a_mistyped_word_is_spelt_as_the_corpus_spells_it(whenabouts: Whenabouts) -> None:
    assert "did you mean: crown jewels" in whenabouts("search", "crown jewles", "--table").out
    assert whenabouts("search", "crown jewles").json["spelling"] == "crown jewels"
    assert "did you mean" not in whenabouts("search", "crown jewels", "--table").out


def test_a_file_whose_name_has_the_words_is_told(whenabouts: Whenabouts) -> None:
    assert "in the title of: friday.mp4" in whenabouts("search", "Friday", "--table").out
    assert whenabouts("search", "Friday").json["titled"] == ["friday.mp4"]
    assert "in the title" not in whenabouts("search", "Friday", "--within", "friday.mp4", "--table").out


def test_the_other_event_is_named_below_a_moment(whenabouts: Whenabouts) -> None:
    out = whenabouts("search", '"crown jewels" after "Hildy"', "--table").out
    assert 'understood: after: "Hildy"' in out
    assert "after 0:00.000 - 0:00.999" in out


def test_a_hostile_name_cannot_command_a_terminal(whenabouts: Whenabouts) -> None:
    done = whenabouts("search", "a saxophone in the video called two lines 31mred", "--table")
    assert "\x1b" not in done.out
    assert done.out.splitlines()[0] == "understood: in: two\\nlines \\x1b[31mred"


def test_every_place_in_order_of_time_is_listed_without_a_number(whenabouts: Whenabouts) -> None:
    every = whenabouts("search", 'every time "the"').json["moments"]
    assert len(every) > 10  # the default of -k
    assert len(whenabouts("search", 'every time "the"', "-k", "2").json["moments"]) == 2


def test_an_export_says_what_was_understood(whenabouts: Whenabouts, tmp_path: Path) -> None:
    out = tmp_path / "first.csv"
    done = whenabouts("export", QUESTION, "--out", str(out))
    assert done.code == 0 and "understood: first; in: friday" in done.err
    assert len(out.read_text().splitlines()) == 2
    plain = whenabouts("export", QUESTION, "--literal", "--out", str(tmp_path / "plain.csv"))
    assert "understood" not in plain.err
