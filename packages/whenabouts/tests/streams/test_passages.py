"""Passages: sentence-aware rows of what is said."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from whenabouts.index.lookup import query_words, says, search_words
from whenabouts.streams._passages import (
    CONTEXT_LENGTHS,
    PASSAGE_SECONDS,
    passage_vectors,
    passages_of,
    pieces_of,
    weight_of,
)
from whenabouts.video.cue import Cue as Line


def lines(text: str, seconds: float, *, at: float = 0.0) -> list[Line]:
    """A cue per sentence-like part of `text`, each `seconds` long."""
    return [
        Line(at + i * seconds, at + (i + 1) * seconds, part.strip()) for i, part in enumerate(text.split("|"))
    ]


def talk(count: int, seconds: float = 3.0) -> list[Line]:
    return [Line(i * seconds, (i + 1) * seconds, f"This is sentence number {i}.") for i in range(count)]


def test_nothing_said_gives_no_passage() -> None:
    assert passages_of([]) == []
    assert passages_of([Line(0, 1, "  \n "), Line(1, 2, "\u200b")]) == []


def test_a_long_talk_is_cut_into_passages_of_about_the_wanted_length_at_ends_of_sentences() -> None:
    passages = passages_of(talk(400))
    lengths = [p.end - p.start for p in passages]
    assert all(0.7 * PASSAGE_SECONDS <= length <= 1.6 * PASSAGE_SECONDS for length in lengths[:-1])
    assert all(p.text.endswith(".") for p in passages)


def test_passages_follow_sentences_across_cues() -> None:
    cues = lines("We begin the | talk. Now for something else | that goes on. | The end.", 5.0)
    texts = [p.text for p in passages_of(cues, 72.0)]
    assert texts == ["We begin the talk.", "Now for something else that goes on.", "The end."]


def test_times_inside_a_cue_are_interpolated_by_letters() -> None:
    pieces = pieces_of([Line(10.0, 20.0, "Abcde fgh. Abcde fgh.")])
    assert [piece.text for piece in pieces] == ["Abcde fgh.", "Abcde fgh."]
    assert pieces[0].start == 10.0
    assert pieces[1].end == pytest.approx(20.0)
    assert pieces[0].end == pytest.approx(15.0, abs=0.3)


def test_a_short_video_keeps_the_precision_of_its_cues() -> None:
    cues = [
        Line(0.0, 0.999, "Hildy!"),
        Line(1.0, 1.499, "How are you?"),
        Line(1.5, 2.999, "Tell me, is the lord of the universe in?"),
        Line(3.0, 4.299, "Yes, he's in - in a bad humor"),
        Line(4.3, 6.0, "Somebody must've stolen the crown jewels"),
    ]
    passages = passages_of(cues, 6.17)
    assert [(p.start, p.end, p.text) for p in passages] == [(c.start, c.end, c.text) for c in cues]


def test_the_context_of_a_passage_holds_the_words_said_around_it() -> None:
    passages = passages_of(talk(400))
    middle = passages[40]
    around = (middle.start + middle.end) / 2
    half = CONTEXT_LENGTHS * PASSAGE_SECONDS / 2
    near = [p for p in passages if abs((p.start + p.end) / 2 - around) <= half]
    assert middle.context == search_words(" ".join(p.text for p in near))
    assert len(near) >= 3


def test_the_context_in_a_short_video_is_shorter_too() -> None:
    passages = passages_of([Line(i, i + 1.0, f"word{i}") for i in range(12)], 12.0)
    assert len(passages) == 12
    assert "word11" not in passages[0].context


def test_neighbouring_words_are_joined_for_the_full_text_index() -> None:
    assert search_words("Block space") == "block space blockspace"
    assert "opvault" in search_words("use OP_VAULT").split()
    assert search_words("   ") == ""
    assert "谈谈比特币" in search_words("谈谈比特币")
    assert query_words("Use OP_VAULT!") == (["use", "op", "vault"], ["useop", "opvault"])
    assert query_words("हिन्दी में שָׁלוֹם") == (["हिन्दी", "में", "שָׁלוֹם"], ["हिन्दीमें", "मेंשָׁלוֹם"])
    assert query_words(f"{'x' * 30} {'y' * 30}")[1] == []


def letters(texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors that count letters: an encoder whose meaning can be checked by hand."""
    counts = np.array([[text.lower().count(letter) for letter in "abcdefgh"] for text in texts], np.float32)
    length = np.linalg.norm(counts, axis=1, keepdims=True)
    return np.asarray(counts / np.maximum(length, 1e-9), np.float32)


def test_a_passage_is_nearest_to_its_own_words_and_knows_its_neighbours() -> None:
    cues = [Line(i * 20.0, i * 20.0 + 20, f"{letter * 5}.") for i, letter in enumerate("abcdefgh" * 4)]
    passages = passages_of(cues)
    vectors = passage_vectors(passages, letters)
    assert vectors.shape == (len(passages), 8)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    at = 12
    likeness = vectors[at] @ letters("abcdefgh").T
    assert likeness[at % 8] == likeness.max()
    assert likeness[(at + 1) % 8] > 0
    assert likeness[(at - 1) % 8] > 0


def test_one_passage_has_the_vector_of_its_words() -> None:
    passages = passages_of([Line(0, 100, "abba")])
    np.testing.assert_allclose(passage_vectors(passages, letters), letters(["abba"]), rtol=1e-5)


def test_passages_without_a_direction_and_none_at_all_do_no_harm() -> None:
    assert np.isfinite(passage_vectors(passages_of([Line(0, 5, "xyz")]), letters)).all()
    assert passage_vectors([], lambda texts: np.zeros((len(texts), 8), np.float32)).shape == (0, 8)


def test_minutes_are_about_a_minute_of_neighbouring_passages() -> None:
    passages = passages_of(talk(400))
    numbers = [p.minute for p in passages]
    assert numbers[0] == 0
    assert all(later - earlier in (0, 1) for earlier, later in pairwise(numbers))
    for number in set(numbers):
        inside = [p for p in passages if p.minute == number]
        assert inside[-1].end - inside[0].start <= 70


def test_a_silence_starts_a_new_passage() -> None:
    cues = [Line(0, 2, "Thirteen, Houston"), Line(300, 302, "Go ahead")]
    passages = passages_of(cues, 86400.0)
    assert [p.text for p in passages] == ["Thirteen, Houston", "Go ahead"]
    assert passages[0].context == "thirteen houston thirteenhouston"


def test_speech_without_punctuation_is_still_cut() -> None:
    cues = [Line(i * 3.0, i * 3.0 + 3, "so yeah we have a matrix here") for i in range(100)]
    lengths = [p.end - p.start for p in passages_of(cues)]
    assert max(lengths) <= 1.6 * PASSAGE_SECONDS + 1e-6


def test_one_endless_cue_is_cut_with_interpolated_times() -> None:
    passages = passages_of([Line(0, 600, "word " * 2000)])
    assert len(passages) >= 20
    assert passages[0].start == 0
    assert passages[-1].end == pytest.approx(600)
    assert all(weight_of(p.text) <= 900 for p in passages)


def test_one_endless_cue_without_spaces_is_cut_too() -> None:
    passages = passages_of([Line(0, 60, "x" * 10_000)])
    assert "".join(p.text for p in passages).replace(" ", "") == "x" * 10_000


def test_chinese_sentences_end_without_spaces_and_weigh_more() -> None:
    cues = [Line(0, 40, "我们今天谈谈比特币。它是一种电子货币。" * 4)]
    pieces = pieces_of(cues)
    assert len(pieces) == 8
    assert all(piece.closes for piece in pieces)
    endless = passages_of([Line(0, 60, "我们今天谈谈比特币" * 200)])
    assert max(len(p.text.replace(" ", "")) for p in endless) <= 300
    assert "".join(p.text.replace(" ", "") for p in endless) == "我们今天谈谈比特币" * 200


def test_abbreviated_numbers_do_not_end_a_sentence() -> None:
    assert len(pieces_of([Line(0, 5, "Version 0.21 costs 3.5 bitcoin today.")])) == 1


def test_cues_out_of_order_and_overlapping_give_passages_by_start() -> None:
    cues = [Line(50, 60, "Later."), Line(0, 30, "First, for long."), Line(10, 12, "Over it.")]
    passages = passages_of(cues, 3600.0)
    assert [p.start for p in passages] == sorted(p.start for p in passages)
    assert all(p.start < p.end for p in passages)


def test_times_that_make_no_sense_are_put_right_or_left_out() -> None:
    cues = [
        Line(math.nan, 2, "no start"),
        Line(0, math.inf, "no end"),
        Line(-5, -1, "before the start"),
        Line(-1, 1, "Straddles."),
        Line(9, 9, "No length."),
    ]
    passages = passages_of(cues, 3600.0)
    assert [p.text for p in passages] == ["Straddles.", "No length."]
    assert passages[0].start == 0
    assert passages[1].end > passages[1].start


@pytest.mark.slow
def test_fifty_thousand_cues_take_a_moment_even_when_all_overlap() -> None:
    began = time.process_time()
    spread = passages_of([Line(i * 0.5, i * 0.5 + 0.6, f"Line {i} of many.") for i in range(50_000)])
    heap = passages_of([Line(1.0, 2.0, f"Line {i} of many.") for i in range(5_000)])
    assert len(spread) > 1000
    assert len(heap) > 50
    assert sum(len(p.context) for p in heap) < 100 * sum(len(p.text) for p in heap)
    assert time.process_time() - began < 30


@given(
    st.lists(
        st.builds(
            Line,
            st.floats(0, 5000),
            st.floats(0, 5000),
            st.text(alphabet="ab .!?,;\n。你好", max_size=120),
        ),
        max_size=40,
    ),
    st.one_of(st.none(), st.floats(0.1, 10_000)),
)
def test_no_word_is_lost_and_every_passage_has_a_length(cues: list[Line], duration: float | None) -> None:
    passages = passages_of(cues, duration)
    said = sorted("".join("".join(cue.text.split()) for cue in cues if cue.end > 0))
    assert sorted("".join("".join(p.text.split()) for p in passages)) == said
    assert all(0 <= p.start < p.end for p in passages)
    assert [p.start for p in passages] == sorted(p.start for p in passages)
    assert all(set(_words(p.text)) <= set(p.context.split()) for p in passages)


def _words(text: str) -> list[str]:
    return search_words(text).split()


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("Bitcoin's OP_VAULT, explained.", "op vault bitcoin", True),
        ("Bitcoin's OP_VAULT, explained.", "vaults", False),
        ("There is another.", "the", False),
        ("他说中文很好吃", "中文", True),
        ("他说中文很好吃", "英文", False),
        ("Überall im CAFÉ", "café überall", True),
        ("", "word", False),
    ],
)
def test_a_text_says_words_only_as_they_are_written(text: str, query: str, expected: bool) -> None:
    assert says(text, query_words(query)[0]) is expected
