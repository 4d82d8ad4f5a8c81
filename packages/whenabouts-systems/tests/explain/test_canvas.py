"""Texts that must fit: how they are broken into lines, and what is left out."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from whenabouts_systems.explain.canvas import shortened, text_width, wrapped

TEXT = "the rocket is launched from a platform in the sea"


def test_lines_fit_and_hold_all_words() -> None:
    lines = wrapped(TEXT, 80.0, 8.0, 10)
    assert len(lines) > 2
    assert " ".join(lines) == TEXT
    assert all(text_width(line, 8.0) <= 80.0 for line in lines)


def test_what_has_no_line_is_left_out_for_a_sign_after_whole_words() -> None:
    lines = wrapped(TEXT, 80.0, 8.0, 2)
    assert len(lines) == 2
    assert lines[1].endswith(" …")
    assert TEXT.startswith(f"{lines[0]} {lines[1].removesuffix(' …')}")
    assert set(lines[1].split()) <= {*TEXT.split(), "…"}
    assert all(text_width(line, 8.0) <= 80.0 for line in lines)


def test_a_word_too_long_for_a_line_is_broken() -> None:
    lines = wrapped("a " + "x" * 60 + " b", 80.0, 8.0, 20)
    assert all(text_width(line, 8.0) <= 80.0 for line in lines)
    assert "".join(lines).replace(" ", "") == "a" + "x" * 60 + "b"


def test_a_line_narrower_than_a_letter_still_ends() -> None:
    assert wrapped("ab", 0.1, 8.0, 5) == ["a", "b"]


def test_no_text_has_no_lines() -> None:
    assert wrapped("  ", 80.0, 8.0, 5) == []


def test_a_name_loses_its_middle() -> None:
    assert shortened("v" * 50, 60.0, 8.0).count("…") == 1
