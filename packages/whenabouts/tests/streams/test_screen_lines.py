"""Readings of frames become texts with their times."""

from __future__ import annotations

from collections.abc import Mapping
from unittest.mock import Mock

import pytest

from whenabouts.streams import _screen_lines
from whenabouts.streams._screen_lines import Reading, ScreenText, in_reading_order, screen_texts
from whenabouts.video.text_reader import Box, TextLine

HERE: Box = (0.1, 0.1, 0.6, 0.2)
BELOW: Box = (0.1, 0.3, 0.6, 0.4)
CORNER: Box = (0.8, 0.8, 0.95, 0.9)


def readings(*frames: Mapping[Box, str | tuple[str, float]]) -> list[Reading]:
    """One reading a frame."""
    read = []
    for number, frame in enumerate(frames):
        pairs = [(box, text if isinstance(text, tuple) else (text, 0.99)) for box, text in frame.items()]
        read.append(
            Reading(number, number, tuple(TextLine(text, score, box) for box, (text, score) in pairs))
        )
    return read


def spans(texts: list[ScreenText]) -> list[tuple[int, int, str]]:
    return [(text.first, text.last, text.text) for text in texts]


def test_a_line_that_stays_is_one_text_from_first_to_last_sight() -> None:
    texts = screen_texts(readings({}, {HERE: "Hello"}, {HERE: "Hello"}, {HERE: "Hello"}, {}, {}, {}))
    assert spans(texts) == [(1, 3, "Hello")]
    assert texts[0].box == HERE and texts[0].around == texts[0].others == ""


def test_a_frame_stands_until_the_next_is_read() -> None:
    line = TextLine("A slide", 0.9, HERE)
    assert spans(screen_texts([Reading(0, 149, (line,)), Reading(150, 151, ())])) == [(0, 149, "A slide")]


def test_a_line_that_is_missed_in_one_reading_is_still_there_and_two_are_not_bridged() -> None:
    assert spans(screen_texts(readings({HERE: "Exit"}, {}, {HERE: "Exit"}))) == [(0, 2, "Exit")]
    apart = screen_texts(readings({HERE: "Exit"}, {}, {}, {HERE: "Exit"}, {}, {}))
    assert spans(apart) == [(0, 0, "Exit"), (3, 3, "Exit")]


def test_the_text_that_was_read_most_surely_most_often_wins_and_the_others_are_kept() -> None:
    texts = screen_texts(
        readings({HERE: ("RE16 TCK", 0.8)}, {HERE: ("RE16 TGK", 0.95)}, {HERE: ("RE16 TGK", 0.95)})
    )
    assert spans(texts) == [(0, 2, "RE16 TGK")]
    assert texts[0].others == "RE16 TCK"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The orchard of harbour", "The lantern of harbour"),
        ("1 : 0", "2 : 0"),
        ("Slide 7 of 20", "Slide 8 of 20"),
    ],
)
def test_what_is_read_surely_and_differs_is_another_line(first: str, second: str) -> None:
    assert spans(screen_texts(readings({HERE: first}, {HERE: second}))) == [(0, 0, first), (1, 1, second)]


def test_a_sign_that_moves_is_one_text_placed_where_it_is_in_the_middle_of_its_time() -> None:
    left, middle, right = (0.1, 0.5, 0.2, 0.6), (0.4, 0.5, 0.5, 0.6), (0.7, 0.5, 0.8, 0.6)
    texts = screen_texts(readings({left: "AZ41 CUK"}, {middle: "AZ41 CUK"}, {right: "AZ41 CUK"}))
    assert spans(texts) == [(0, 2, "AZ41 CUK")]
    assert texts[0].box == middle


def test_lines_that_come_and_go_together_are_one_text_in_reading_order() -> None:
    slide = {BELOW: "second", HERE: "first"}
    texts = screen_texts(readings(slide, slide, slide, {}, {}))
    assert spans(texts) == [(0, 2, "first\nsecond")]
    assert texts[0].box == (0.1, 0.1, 0.6, 0.4)


def test_lines_that_are_added_one_by_one_are_seen_together() -> None:
    title, both = {HERE: "Title"}, {HERE: "Title", BELOW: "added later"}
    texts = screen_texts(readings(title, title, both, both, both, both, {}, {}, {}))
    assert spans(texts) == [(0, 5, "Title"), (2, 5, "added later")]
    assert [text.around for text in texts] == ["added later", "Title"]


def test_what_stands_throughout_is_no_part_of_what_else_is_shown() -> None:
    frames = [{CORNER: "CHANNEL 5", HERE: f"news of {word}"} for word in ("storms", "trains", "courts")]
    texts = screen_texts(readings(*[frame for frame in frames for _ in range(3)]))
    assert [text.text for text in texts if text.last - text.first == 8] == ["CHANNEL 5"]
    assert all("CHANNEL" not in text.around for text in texts)


def test_a_logo_that_is_often_missed_is_one_text() -> None:
    frames = [{CORNER: "CHANNEL 5"} if number % 5 < 2 or number == 29 else {} for number in range(30)]
    assert spans(screen_texts(readings(*frames))) == [(0, 29, "CHANNEL 5")]


def test_single_letters_are_no_text_and_chinese_ones_are() -> None:
    assert spans(screen_texts(readings({HERE: "I", BELOW: "出"}))) == [(0, 0, "出")]


def test_reading_order_goes_by_rows() -> None:
    right, left, below = (0.5, 0.11, 0.9, 0.19), (0.1, 0.1, 0.4, 0.2), (0.1, 0.25, 0.9, 0.35)
    placed = in_reading_order([(below, "three"), (right, "two"), (left, "one")])
    assert [text for _, text in placed] == ["one", "two", "three"]


def test_nothing_read_is_no_text() -> None:
    assert screen_texts([]) == []


def test_long_films_are_compared_only_with_what_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Mock(side_effect=_screen_lines._are_together)
    voted = Mock(side_effect=vars(_screen_lines._Line)["texts"].fget)
    monkeypatch.setattr(_screen_lines, "_are_together", compared)
    monkeypatch.setattr(_screen_lines._Line, "texts", property(lambda line: voted(line)))
    captions = [{HERE: str(number) * 9, CORNER: "CHANNEL 5"} for number in range(300)]
    assert len(screen_texts(readings(*captions))) == 301
    assert compared.call_count < 20 * 300 and voted.call_count < 20 * 300
