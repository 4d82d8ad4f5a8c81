"""Who speaks, where subtitles say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.video.cue import Cue
from whenabouts.video.cues import read_cue_file
from whenabouts.video.speakers import LONGEST_NAME, Turn, marks_of, turns_of


def write(folder: Path, *texts: str, seconds: float = 4.0) -> Path:
    path = folder / "a.srt"
    stamps = [f"00:00:{at * seconds:06.3f}".replace(".", ",") for at in range(len(texts) + 1)]
    blocks = [f"{row + 1}\n{stamps[row]} --> {stamps[row + 1]}\n{text}\n" for row, text in enumerate(texts)]
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def turns(folder: Path, *texts: str) -> list[tuple[float, float, str]]:
    return [
        (turn.start, turn.end, turn.speaker) for turn in turns_of(read_cue_file(write(folder, *texts)).cues)
    ]


def test_a_name_before_a_colon_speaks_until_the_next_one_does(tmp_path: Path) -> None:
    found = turns(tmp_path, "CMP: Roger.", "We copy.", "CDR: Okay.", "CMP: Go.", "CDR: Going.")
    assert found == [(0, 8, "CMP"), (8, 12, "CDR"), (12, 16, "CMP"), (16, 20, "CDR")]


def test_voice_tags_count_whatever_the_name_and_share_their_cue_by_letters(tmp_path: Path) -> None:
    path = tmp_path / "a.vtt"
    path.write_text(
        "WEBVTT\n\n00:00.000 --> 00:04.000\n<v Note>Hello you</v>\n<v dr. who>Hello me</v>\n\n"
        "00:04.000 --> 00:06.000\nAnna: is no tag\n",
        encoding="utf-8",
    )
    first, second = turns_of(read_cue_file(path).cues)
    assert first.speaker == "Note" and second.speaker == "dr. who"
    assert first.start == 0 and first.end == second.start == pytest.approx(2.0, abs=0.3) and second.end == 6


@pytest.mark.parametrize(
    "texts",
    [
        ("Note: bring water.", "Note: it is hot.", "Note: no shade."),
        ("We meet at 12:30", "and at 13:45.", "Warning: hot.", "Warning: wet."),
        ("The trick is: wait.", "The trick is: look.", "The trick is: go."),
        ("http://example.org", "https: is safe", "Step 1: cut.", "Step 2: sew.", "Step 3: iron."),
        ("[Music]", "[Music] and on", "[Laughter] ha", "(Applause) thanks"),
        ("Anna: only once.", "Then nobody."),
        ("-15? I say -15.", "-3 and -4.", "- Hello.", "- Who is it?"),
    ],
)
def test_what_only_looks_like_a_speaker_is_none(tmp_path: Path, texts: tuple[str, ...]) -> None:
    assert turns(tmp_path, *texts) == []


def test_arrows_and_dashes_change_the_speaker_and_names_behind_them_count(tmp_path: Path) -> None:
    found = turns(
        tmp_path, ">> ANNA: Hello.", "Go on.", ">> BEN: Hi.", ">> Who?", ">> ANNA: Me.", "- BEN: Ah."
    )
    assert found == [(0, 4, "ANNA"), (8, 12, "BEN"), (16, 20, "ANNA"), (20, 24, "BEN")]


def test_names_in_brackets_speak_for_their_cue_alone(tmp_path: Path) -> None:
    found = turns(tmp_path, "[Student] Why?", "Because.", "[Student] I see.", "Good.", "[Student] Thanks.")
    assert [turn[2] for turn in found] == ["Student"] * 3
    assert [turn[:2] for turn in found] == [(0, 4), (8, 12), (16, 20)]


def test_who_looks_like_a_name_but_once_ends_a_turn_and_begins_none(tmp_path: Path) -> None:
    texts = ["CDR: One.", "LMP: Two."] * 60
    found = turns(tmp_path, *texts[:10], "Weitz (LCC): Lift-off.", *texts[:10])
    assert {turn[2] for turn in found} == {"CDR", "LMP"}
    assert not any(start < 42 < end for start, end, _ in found)


def test_overlapping_cues_give_overlapping_turns() -> None:
    cues = [Cue(0, 5, "A: x", speakers=((0, "A"),)), Cue(3, 8, "B: y", speakers=((0, "B"),))]
    assert turns_of(cues) == [Turn(0, 5, "A"), Turn(3, 8, "B")]


def test_after_a_pause_nobody_is_known_to_speak() -> None:
    cues = [Cue(0, 5, "A: x", speakers=((0, "A"),)), Cue(30, 35, "y")]
    assert turns_of(cues) == [Turn(0, 5, "A")]


def test_five_hundred_speakers_are_told_apart(tmp_path: Path) -> None:
    cues = marks_of([[f"Speaker {number}: I am number {number}."] for number in range(500)] * 2)
    assert {name for marks in cues for _, name in marks} == {f"Speaker {number}" for number in range(500)}


def test_a_name_is_cut_and_holds_no_control_characters(tmp_path: Path) -> None:
    long = "A" * 200
    path = tmp_path / "a.vtt"
    path.write_text(
        f"WEBVTT\n\n00:00.000 --> 00:04.000\n<v {long}\x1b[31m>Hi\n\n00:04.000 --> 00:06.000\n"
        "<v ../../etc/passwd>Hi\n\n00:06.000 --> 00:08.000\n<v &lt;img src=x&gt;>Ho\n",
        encoding="utf-8",
    )
    names = {turn.speaker for turn in turns_of(read_cue_file(path).cues)}
    assert all(len(name) <= LONGEST_NAME and name.isprintable() for name in names)
    assert "../../etc/passwd" in names


@given(st.lists(st.text(max_size=60), max_size=12))
def test_marks_lie_in_their_text_in_order(texts: list[str]) -> None:
    cues = [[line for line in text.split("\n") if line] or ["x"] for text in texts]
    for lines, marks in zip(cues, marks_of(cues), strict=True):
        places = [place for place, _ in marks]
        assert places == sorted(places) and all(0 <= place <= len(" ".join(lines)) for place in places)
        assert marks_of([lines], {"x"})
