"""A least-recently-used cache bounded by the bytes of its values."""

from __future__ import annotations

from whenabouts.index.keys import ByteCache


def test_the_least_recently_used_value_is_dropped_first() -> None:
    kept: ByteCache[str, bytes] = ByteCache(10, len)
    kept.put({"a": b"1234", "b": b"1234"})
    assert kept.get_many(["a", "x"]) == {"a": b"1234"}
    kept.put({"c": b"1234"})
    assert kept.get_many("abc") == {"a": b"1234", "c": b"1234"}


def test_a_value_put_again_counts_once_and_one_too_large_is_not_kept() -> None:
    kept: ByteCache[str, bytes] = ByteCache(10, len)
    kept.put({"a": b"12345678"})
    kept.put({"a": b"12"})
    kept.put({"b": b"12345678"})
    assert kept.get_many("ab") == {"a": b"12", "b": b"12345678"}
    kept.put({"c": b"1" * 11})
    assert kept.get_many("abc") == {}
    kept.put({"a": b"1"})
    kept.clear()
    assert kept.get_many("a") == {}
