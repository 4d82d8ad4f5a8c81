"""What was read last, so many bytes of it."""

from __future__ import annotations

from whenabouts.index.remembered import Remembered


def test_what_was_asked_for_longest_ago_is_forgotten_first() -> None:
    kept: Remembered[str, bytes] = Remembered(10, len)
    kept.put({"a": b"1234", "b": b"1234"})
    assert kept.those(["a", "x"]) == {"a": b"1234"}
    kept.put({"c": b"1234"})
    assert kept.those("abc") == {"a": b"1234", "c": b"1234"}


def test_a_value_put_again_counts_once_and_one_too_large_is_not_kept() -> None:
    kept: Remembered[str, bytes] = Remembered(10, len)
    kept.put({"a": b"12345678"})
    kept.put({"a": b"12"})
    kept.put({"b": b"12345678"})
    assert kept.those("ab") == {"a": b"12", "b": b"12345678"}
    kept.put({"c": b"1" * 11})
    assert kept.those("abc") == {}
    kept.put({"a": b"1"})
    kept.forget()
    assert kept.those("a") == {}
