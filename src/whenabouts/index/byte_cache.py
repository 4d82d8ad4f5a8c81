"""A least-recently-used cache bounded by the bytes of its values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class ByteCache(Generic[Key, Value]):
    """The most recently used values, at most `most` bytes of them by `bytes_of`; safe between threads."""

    def __init__(self, most: int, bytes_of: Callable[[Value], int]) -> None:
        self._most, self._bytes_of, self._bytes = most, bytes_of, 0
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get_many(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """The kept values of some keys."""
        with self._lock:
            there = [key for key in keys if key in self._values]
            for key in there:
                self._values.move_to_end(key)
            return {key: self._values[key] for key in there}

    def put(self, values: Mapping[Key, Value]) -> None:
        """Keep values; the least recently used are dropped."""
        with self._lock:
            for key, value in values.items():
                if key in self._values:
                    self._bytes -= self._bytes_of(self._values.pop(key))
                self._values[key] = value
                self._bytes += self._bytes_of(value)
            while self._bytes > self._most:
                self._bytes -= self._bytes_of(self._values.popitem(last=False)[1])

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._values.clear()
            self._bytes = 0
