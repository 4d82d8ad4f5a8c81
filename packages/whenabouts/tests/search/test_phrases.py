"""Exact phrases: which parts of a query they are, and where they are said."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.search.phrases import mentions_of, parsed_query
from whenabouts.search.word_units import folded


@pytest.mark.parametrize(
    ("query", "phrases", "rest"),
    [
        ('who said "main bus" today', ("main bus",), "who said today"),
        ('"a b" "c"', ("a b", "c"), ""),
        ('"same" and "same"', ("same",), "and"),
        ("“curly” ”svenska” „deutsch“ »umgekehrt« «français»",
         ("curly", "svenska", "deutsch", "umgekehrt", "français"), ""),
        ("比特币「闪电网络」", ("闪电网络",), "比特币"),
        ('an "open end', (), 'an "open end'),
        ('5" and 7" pipes', (), '5" and 7" pipes'),
        ('"" and "?!"', (), '"" and "?!"'),
        ("it's the crew's", (), "it's the crew's"),
    ],
)  # fmt: skip
def test_what_is_quoted_is_a_phrase(query: str, phrases: tuple[str, ...], rest: str) -> None:
    parsed = parsed_query(query)
    assert (parsed.phrases, parsed.other_words) == (phrases, rest)


@pytest.mark.parametrize(
    ("phrase", "said"),
    [
        ("HOUSTON, we’ve", "Uh, Houston: we've had"),
        ("on-chain", "on chain fees"),
        ("on-chain", "onchain fees"),
        ("onchain", "the on-chain fees"),
        ("chain", "on-chain"),
        ("op vault", "with OP_VAULT"),
        ("cafe", "im Café"),
        ("CAFÉ", "the cafe"),
        ("strasse", "auf der Straße"),
        ("闪电网络", "比特币闪电 网络是"),
        ("ผู้", "นี่ผู้ชาย"),
        ("क्या है", "यह क्या है?"),
        ("1,000", "some 1,000 sats"),
    ],
)
def test_a_phrase_is_said_whatever_case_accents_signs_and_hyphens(phrase: str, said: str) -> None:
    assert mentions_of(phrase, [folded(said)]) == [(0, 0)]


@pytest.mark.parametrize(
    ("phrase", "said"),
    [
        ("on chain", "onchain"),
        ("the rapist", "a therapist"),
        ("main bus", "the bus is the main thing"),
        ("main bus", "main buses"),
        ("main bus", "main red bus"),
        ("网络", "络网"),
    ],
)
def test_other_words_another_order_and_endings_are_not_the_phrase(phrase: str, said: str) -> None:
    assert mentions_of(phrase, [folded(said)]) == []


def test_a_phrase_goes_over_borders_of_clips() -> None:
    texts = ["we have", "had a", "problem here", "we have had"]
    assert mentions_of("have had a problem", texts) == [(0, 2)]
    assert mentions_of("we have", texts) == [(0, 0), (3, 3)]
    assert mentions_of("闪电网络", ["比特币闪电", "网络是"]) == [(0, 1)]


words = st.text("ab -", min_size=1, max_size=8).filter(lambda text: any(sign.isalpha() for sign in text))


@given(words, st.lists(words, min_size=1, max_size=6))
def test_what_is_said_in_one_text_is_said_in_it_whatever_is_around(phrase: str, texts: list[str]) -> None:
    alone = {row for row, text in enumerate(texts) if mentions_of(phrase, [text])}
    assert alone <= {row for first, last in mentions_of(phrase, texts) for row in range(first, last + 1)}


def test_quotation_marks_without_end_cost_no_time() -> None:
    began = time.perf_counter()
    assert parsed_query("„“«「『 " * 20_000).phrases == ()
    assert parsed_query("« " * 100_000).phrases == ()
    assert mentions_of("a" * 2_000, ["a" * 200_000]) == []
    assert time.perf_counter() - began < 5


def test_signs_that_stand_for_hyphens_inside_take_no_exponential_time() -> None:
    began = time.process_time()
    assert mentions_of("l" + "\x01" * 40 + "e", ["l" + "\x01" * 60 + "x", "l\x01e"]) == [(1, 1)]
    assert time.process_time() - began < 1
