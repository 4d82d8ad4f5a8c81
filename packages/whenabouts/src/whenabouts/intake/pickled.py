"""Parses a pickle as data: no class is imported, no function is called.

A pickle is a program for a small machine that can call any function of the interpreter. Here Python's machine
(private, so a new Python may change it) executes only the opcodes that plain values need. A class or function
is kept by its name, an object by its attributes, a call by its arguments.

`torch.load(weights_only=True)` (2.13) refuses calls as well. But crafted files crashed the interpreter
(1 MB: nested tuples as a key of a dict), kept it busy without end (200 bytes: a key whose tuple is doubled 40
times) or made it take 1 GB (a zip file of 1 MB). It also needs each settings class by name and reads only
protocol 2. Here keys are text, bytes, numbers or None, and the size is bounded.
"""

from __future__ import annotations

import pickle
import pickletools
import struct
import warnings
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar, cast

from whenabouts.types import WhenaboutsError

MOST_PICKLE_BYTES = 4 << 20
"""The most bytes of a pickle; a few hundred tensors take some ten thousand, without their values."""

_LONGEST_INTEGER_BITS = 128
"""The magic number of PyTorch's old format has 77."""

_MOST_COPIED = 1_000_000
"""Most items copied from containers into mappings: a few bytes can name a large one again and again."""


class PickleRefused(WhenaboutsError):
    """A pickle is damaged or not plain data. The caller puts the file's path before the message."""


@dataclass(frozen=True)
class Name:
    """A class or function by its name: "package.module.attribute"."""

    path: str


@dataclass
class Call:
    """A call in the pickle, which is not executed."""

    path: str
    arguments: tuple[Any, ...]


@dataclass
class ForeignObject:
    """An object of a class that is not imported, with its data."""

    path: str
    items: dict[Any, Any] = field(default_factory=dict)
    """Its items as a mapping, or its attributes."""

    def extend(self, values: Sequence[Any]) -> None:
        """Ignore appended values."""

    append = extend


@dataclass(frozen=True)
class Persistent:
    """A value outside the pickle, by its persistent id."""

    id: Any


def read_pickle(stream: IO[bytes], calls: Container[str]) -> Any:
    """The value of the pickle at the stream's position, which moves to the end of the pickle.

    It consists of None, bool, int, float, str, bytes, list, tuple, dict (also for OrderedDict), and `Name`,
    `Call`, `ForeignObject`, `Persistent`. Raises PickleRefused for a call of a function whose path is not in
    `calls`, for an opcode that data do not need, and for a damaged pickle or one that exceeds a bound.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # invalid escapes in old pickles
            machine = _Machine(stream, calls)
            value = machine.load()
        if machine.stack:
            raise ValueError("values are left over")
        return value
    except (
        *(ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError),
        *(EOFError, pickle.UnpicklingError, struct.error),
    ) as error:
        reason = (str(error).splitlines() or [""])[0][:120]
        raise PickleRefused(f"is damaged or not a pickle ({reason or type(error).__name__})") from None


class _Bounded:
    """A stream from which at most MOST_PICKLE_BYTES are read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left = stream, MOST_PICKLE_BYTES

    def read(self, count: int) -> bytes:
        self._left -= count
        if self._left < 0:
            raise PickleRefused(f"is a pickle of more than {MOST_PICKLE_BYTES} bytes, which are not read")
        return self._stream.read(count)

    def readline(self) -> bytes:
        line = self._stream.readline(self._left + 1)
        self._left -= len(line)
        return line if self._left >= 0 else self.read(0)  # which refuses


class _Steps(dict[int, Callable[[Any], None]]):
    """The machine's functions by opcode; other opcodes are refused."""

    def __missing__(self, code: int) -> Callable[[Any], None]:
        names = [opcode.name for opcode in pickletools.opcodes if ord(opcode.code) == code]
        if not names:
            raise ValueError(f"{code:#x} is not an opcode")
        raise PickleRefused(f"has the opcode {names[0]}, which data do not need")


# These read, combine or memoize values; they call nothing.
_PLAIN = (
    *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE"),
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "EMPTY_LIST", "APPEND", "APPENDS"),
    *("EMPTY_DICT", "GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"),
    *("GLOBAL", "STACK_GLOBAL", "PERSID", "BINPERSID"),  # use find_class, persistent_load
)


def _checked_integer(code: int) -> Callable[[Any], None]:
    """Python's function for an integer, followed by a check of its length."""
    read = pickle._Unpickler.dispatch[code]

    def step(machine: Any) -> None:
        read(machine)
        machine.check_integer()

    return step


class _Machine(pickle._Unpickler):
    """Python's machine with every function replaced that makes objects or calls."""

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar = _Steps(
        {getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in _PLAIN}
    )

    def __init__(self, stream: IO[bytes], calls: Container[str]) -> None:
        super().__init__(cast("IO[bytes]", _Bounded(stream)), encoding="latin-1")
        self._calls = calls
        self._copied = 0

    def _count_copied(self, items: Any) -> None:
        self._copied += len(items)
        if self._copied > _MOST_COPIED:
            raise PickleRefused(f"copies more than {_MOST_COPIED} items, which a checkpoint does not need")

    def find_class(self, module: str, name: str) -> Name:
        return Name(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Persistent:
        return Persistent(pid)

    def keep_call(self) -> None:
        """REDUCE: keep a call as data, or refuse it."""
        arguments, function = self.stack.pop(), self.stack.pop()
        path = function.path if isinstance(function, Name) else type(function).__name__
        if not isinstance(function, Name) or path not in self._calls or not isinstance(arguments, tuple):
            raise PickleRefused(f"asks for a call of {path[:120]!r}, which a checkpoint does not need")
        if path == "collections.OrderedDict":
            pairs = arguments[0] if arguments else ()
            self._count_copied(pairs)
            if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs):
                raise TypeError("an ordered mapping without pairs")
            self.stack.append(_with_items({}, [value for pair in pairs for value in pair]))
        else:
            self.stack.append(Call(path, arguments))

    def new_object(self, count: int = 2) -> None:
        """NEWOBJ: an object of a class; its arguments are dropped."""
        kind, *_ = self.stack[-count:]
        if not isinstance(kind, Name):
            raise TypeError("an object without a class")
        self.stack[-count:] = [ForeignObject(kind.path)]

    def check_integer(self) -> None:
        """INT, LONG, LONG1, LONG4: refuse a long integer."""
        value = self.stack[-1]
        if isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER_BITS:
            raise PickleRefused(f"has an integer of {value.bit_length()} bits, which no checkpoint needs")

    def build(self) -> None:
        """BUILD: attributes of an object; those of containers and tensors are ignored."""
        state, built = self.stack.pop(), self.stack[-1]
        if isinstance(built, ForeignObject) and isinstance(state, dict):
            self._count_copied(state)
            built.items.update(state)

    def set_items(self, pairs: Sequence[Any]) -> None:
        """SETITEM(S): items of a mapping or of a foreign object."""
        container = self.stack[-1]
        _with_items(container.items if isinstance(container, ForeignObject) else container, pairs)

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items((key, value))

    def make_dict(self) -> None:
        """DICT: all values above the mark."""
        pairs = self.pop_mark()
        self.stack.append(_with_items({}, pairs))

    dispatch |= {
        pickle.REDUCE[0]: keep_call,
        pickle.NEWOBJ[0]: new_object,
        pickle.NEWOBJ_EX[0]: lambda self: self.new_object(3),
        pickle.BUILD[0]: build,
        pickle.DICT[0]: make_dict,
        pickle.SETITEM[0]: set_item,
        pickle.SETITEMS[0]: lambda self: self.set_items(self.pop_mark()),
        **{
            code[0]: _checked_integer(code[0])
            for code in (pickle.INT, pickle.LONG, pickle.LONG1, pickle.LONG4)
        },
    }


def _with_items(items: Any, pairs: Sequence[Any]) -> dict[Any, Any]:
    """Set alternating keys and values in a dict, and return it. Keys are plain, so that hashing is cheap."""
    if not isinstance(items, dict) or len(pairs) % 2:
        raise TypeError("items are set in a value that is not a mapping")
    keys = pairs[::2]
    if not all(isinstance(key, str | bytes | int | float | None) for key in keys):
        raise TypeError("a key is neither text nor number")
    items.update(zip(keys, pairs[1::2], strict=True))
    return items
