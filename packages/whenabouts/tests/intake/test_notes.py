"""Notes of this user: the newest are kept, and a folder that cannot be written keeps none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whenabouts.intake.notes import Notes


def test_only_the_newest_notes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    notes = Notes("things", most=3)
    for number in range(5):
        notes.add(str(number))
        os.utime(notes.place(str(number)), (number, number))
    assert [notes.has(str(number)) for number in range(5)] == [False, False, True, True, True]
    notes.remove("4")
    assert not notes.has("4")


def test_a_note_has_the_text_that_was_noted_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    notes = Notes("things", most=3)
    assert notes.text("one") == ""
    for text in ("ä", "b"):
        notes.add("one", text)
        assert notes.text("one") == text
    notes.add("two")
    assert notes.text("two") == ""


def test_a_folder_that_cannot_be_written_keeps_no_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    notes = Notes("things", most=3)
    notes.add("one")
    notes.remove("one")
    assert not notes.has("one")
