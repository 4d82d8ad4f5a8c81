"""What was read last, so many bytes of it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """Values that were asked for last, `most` bytes of them as `bytes_of` counts; safe between threads."""

    def __init__(self, most: int, bytes_of: Callable[[Value], int]) -> None:
        self._most, self._bytes_of, self._bytes = most, bytes_of, 0
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def those(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """What is remembered of some keys."""
        with self._lock:
            there = [key for key in keys if key in self._values]
            for key in there:
                self._values.move_to_end(key)
            return {key: self._values[key] for key in there}

    def put(self, values: Mapping[Key, Value]) -> None:
        """Remember values; those asked for longest ago are forgotten."""
        with self._lock:
            for key, value in values.items():
                if key in self._values:
                    self._bytes -= self._bytes_of(self._values.pop(key))
                self._values[key] = value
                self._bytes += self._bytes_of(value)
            while self._bytes > self._most:
                self._bytes -= self._bytes_of(self._values.popitem(last=False)[1])

    def forget(self) -> None:
        """Remember nothing."""
        with self._lock:
            self._values.clear()
            self._bytes = 0
