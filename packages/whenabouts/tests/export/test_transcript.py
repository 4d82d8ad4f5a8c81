"""Transcripts as subtitles and as text: words that look like cues or styles are escaped."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from whenabouts.export.transcript import TranscriptFormat, transcript
from whenabouts.video.cues import read_cue_file


class Passage(NamedTuple):
    start: float
    end: float
    text: str


HOSTILE = [
    Passage(0.0, 1.5, "plain words"),
    Passage(1.5, 1.5, "two\nlines\n\n2\n00:00:00,000 --> 00:00:09,000\nforged"),
    Passage(3600.0, 3601.25, "<b>bold</b> & <i>italic</i>"),
]


@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_as_many_cues_are_read_as_were_written(tmp_path: Path, form: TranscriptFormat) -> None:
    path = tmp_path / f"words.{form}"
    path.write_bytes(transcript(HOSTILE, form))
    cues = read_cue_file(path).cues
    assert [(cue.start, cue.end) for cue in cues] == [(0.0, 1.5), (1.5, 1.501), (3600.0, 3601.25)]
    assert "forged" in cues[1].text


def test_text_is_a_line_a_passage() -> None:
    assert transcript(HOSTILE[:2], "txt").decode().splitlines() == [
        "plain words",
        "two lines 2 00:00:00,000 --> 00:00:09,000 forged",
    ]
    assert transcript([], "srt") == b""
