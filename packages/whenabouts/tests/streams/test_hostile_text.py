"""Whatever a caption, a name or a question holds, scanning it takes time in proportion to its length."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.hostile_text import hostile, scanners, seconds_for

from whenabouts.video.cues import read_cue_file

# Ten times what the slowest takes on a busy machine; what takes the square of the length takes far more.
_SECONDS_PER_KILOBYTE = 0.05
# What took minutes, or the square of the length, before: each by its sign and its end.
_SLOW = [
    (".", "x"),
    ("!?", "x"),
    ("۔", "x"),
    ("<v ", ""),
    (" ", "x"),
    ("\r", ""),
    ("{", ""),
    ("[a", ""),
    ("&#1", ""),
]
_NAMES = sorted(scanners(Path()))


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize(("sign", "tail"), _SLOW)
def test_hostile_text_is_scanned_in_proportion_to_its_length(
    tmp_path: Path, name: str, sign: str, tail: str
) -> None:
    scanner = scanners(tmp_path)[name]
    for text in (hostile([sign], tail, 60_000), f"<v{hostile([sign], tail, 60_000)}", f"[{'a' * 60_000}"):
        assert seconds_for(scanner, text) < 60 * _SECONDS_PER_KILOBYTE, text[:20]


def test_a_caption_of_300_000_dots_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "dots.srt"
    path.write_text(f"1\n00:00:00,000 --> 00:00:02,000\n{'.' * 300_000}x\n")
    (cue,) = read_cue_file(path).cues
    assert len(cue.text) == 300_001
    assert seconds_for(scanners(tmp_path)["passages"], cue.text) < 300 * _SECONDS_PER_KILOBYTE


def test_an_entity_of_thousands_of_digits_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.srt"
    path.write_text(
        f"1\n00:00:00,000 --> 00:00:02,000\nA &amp; B\n\n2\n00:00:03,000 --> 00:00:04,000\n&#{'1' * 5000};\n"
    )
    first, second = read_cue_file(path).cues
    assert first.text == "A & B"
    assert second.text.startswith("&#111")


def test_runs_of_carriage_returns_end_as_many_lines_as_before(tmp_path: Path) -> None:
    path = tmp_path / "a.srt"
    path.write_bytes(b"1\r\r\n00:00:00,000 --> 00:00:02,000\r\r\none\r\ntwo\r\rthree\rfour\n")
    (cue,) = read_cue_file(path).cues
    assert cue.text == "one two three four"
