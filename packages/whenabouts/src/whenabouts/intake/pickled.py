"""The value of a pickle, read as data: no class is imported, no function is called.

A pickle is a program for a small machine that can call any function of the interpreter it runs in. Here
Python's own machine does only the steps that plain values need. A class or function is kept by its name, an
object of a class by its attributes, a call by its arguments.

`torch.load(weights_only=True)` (2.13) refuses calls as well, but was not taken in place of this reader. Tried
with crafted files, it crashed the interpreter (1 MB: nested tuples as a key of a dict), never returned (200
bytes: a key whose tuple is doubled 40 times) and made 1 GB out of a zip file of 1 MB. It needs each class of
settings by name and reads no protocol but 2. Here keys are texts and numbers, and the size is bounded.
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
"""A checkpoint of a few hundred tensors has some ten thousand: the values of tensors lie elsewhere."""


_LONGEST_INTEGER_BITS = 128
"""PyTorch's own magic number has 77; a longer one cannot even be written into a message."""

_MOST_COPIED = 1_000_000
"""Items that calls and objects may take over: a few bytes can name a large container again and again."""


class PickleRefused(WhenaboutsError):
    """A pickle that is damaged or does more than data needs; the message is part of a line."""


@dataclass(frozen=True)
class Name:
    """A class or function by its name: "package.module.attribute"."""

    path: str


@dataclass
class Call:
    """A call that the pickle asks for, which is not made."""

    path: str
    arguments: tuple[Any, ...]


@dataclass
class ForeignObject:
    """An object of a class that is not looked up: what the pickle gives it."""

    path: str
    items: dict[Any, Any] = field(default_factory=dict)
    """What it holds as a mapping, or its attributes."""

    def extend(self, values: Sequence[Any]) -> None:
        """Ignore what the pickle appends."""

    append = extend


@dataclass(frozen=True)
class Persistent:
    """A value that is kept outside the pickle, by the persistent id it has there."""

    id: Any


def read_pickle(stream: IO[bytes], calls: Container[str]) -> Any:
    """The value of the pickle at the place where a stream stands; the stream stands behind it afterwards.

    Made of None, bool, int, float, str, bytes, list, tuple, dict (an OrderedDict too), and of `Name`, `Call`,
    `ForeignObject`, `Persistent`. Raises PickleRefused for a call of what is not among `calls`, for an opcode
    that data has no need of, and for a pickle that is damaged or too long.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # odd escapes in texts of old pickles
            machine = _Unpickler(stream, calls)
            value = machine.load()
        if machine.stack:
            raise ValueError("values are left over")
        return value
    except (
        *(ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError),
        *(EOFError, pickle.UnpicklingError, struct.error),
    ) as error:
        reason = (str(error).splitlines() or [""])[0][:120]
        raise PickleRefused(f"is damaged or no pickle ({reason or type(error).__name__})") from None


class _Bounded:
    """A stream of which no more is read than a pickle of names and numbers can hold."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left = stream, MOST_PICKLE_BYTES

    def read(self, count: int) -> bytes:
        """So many bytes, fewer at the end."""
        self._left -= count
        if self._left < 0:
            raise PickleRefused(f"is a pickle of more than {MOST_PICKLE_BYTES} bytes, which are not read")
        return self._stream.read(count)

    def readline(self) -> bytes:
        """A line."""
        line = self._stream.readline(self._left + 1)
        self._left -= len(line)
        return line if self._left >= 0 else self.read(0)


class _Steps(dict[int, Callable[[Any], None]]):
    """What the machine does for each opcode; others are refused."""

    def __missing__(self, code: int) -> Callable[[Any], None]:
        names = [opcode.name for opcode in pickletools.opcodes if ord(opcode.code) == code]
        if not names:
            raise ValueError(f"{code:#x} is no opcode")
        raise PickleRefused(f"has a step {names[0]}, which data has no need of")


# These take a value from the pickle, put it together with others, or keep it; they call nothing.
_PLAIN = (
    *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE"),
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "EMPTY_LIST", "APPEND", "APPENDS"),
    *("EMPTY_DICT", "GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"),
    *("GLOBAL", "STACK_GLOBAL", "PERSID", "BINPERSID"),  # through the two methods below
)


def _checked_integer(code: int) -> Callable[[Any], None]:
    """Python's step for an integer, and then a look at how long it is."""
    read = pickle._Unpickler.dispatch[code]

    def step(machine: Any) -> None:
        read(machine)
        machine.integer()

    return step


class _Unpickler(pickle._Unpickler):
    """Python's machine, of which all that makes objects or calls is replaced."""

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
            raise PickleRefused(f"copies more than {_MOST_COPIED} items, which a checkpoint has no need of")

    def find_class(self, module: str, name: str) -> Name:
        """The name alone: nothing is looked up."""
        return Name(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Persistent:
        """The id alone: its value is looked up by who reads the file."""
        return Persistent(pid)

    def call(self) -> None:
        """REDUCE: a call, if it is one that data needs."""
        arguments, function = self.stack.pop(), self.stack.pop()
        path = function.path if isinstance(function, Name) else type(function).__name__
        if not isinstance(function, Name) or path not in self._calls or not isinstance(arguments, tuple):
            raise PickleRefused(f"asks for a call of {path[:120]!r}, which a checkpoint has no need of")
        if path == "collections.OrderedDict":
            pairs = arguments[0] if arguments else ()
            self._count_copied(pairs)
            if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs):
                raise TypeError("an ordered mapping of what is no pairs")
            self.stack.append(_with_items({}, [value for pair in pairs for value in pair]))
        else:
            self.stack.append(Call(path, arguments))

    def new_object(self, count: int = 2) -> None:
        """NEWOBJ: an object of a class, whatever its constructor is given."""
        kind, *_ = self.stack[-count:]
        if not isinstance(kind, Name):
            raise TypeError("an object of what is no class")
        self.stack[-count:] = [ForeignObject(kind.path)]

    def integer(self) -> None:
        """INT, LONG, LONG1, LONG4: a number as large as numbers of files are."""
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
        """SETITEM(S): items of a mapping, or of an unknown object."""
        container = self.stack[-1]
        _with_items(container.items if isinstance(container, ForeignObject) else container, pairs)

    def set_item(self) -> None:
        """SETITEM: one of them."""
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items((key, value))

    def make_dict(self) -> None:
        """DICT: all values above the mark."""
        pairs = self.pop_mark()
        self.stack.append(_with_items({}, pairs))

    dispatch |= {
        pickle.REDUCE[0]: call,
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
    """A dict with key, value, key, value ... set in it. Keys are plain, so that hashing is cheap."""
    if not isinstance(items, dict) or len(pairs) % 2:
        raise TypeError("items are set in what is no mapping")
    keys = pairs[::2]
    if not all(isinstance(key, str | bytes | int | float | None) for key in keys):
        raise TypeError("a key is neither text nor number")
    items.update(zip(keys, pairs[1::2], strict=True))
    return items
