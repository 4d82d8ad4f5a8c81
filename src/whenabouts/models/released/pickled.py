"""The value of a pickle, read as data: no class is imported, no function is called.

A pickle is a program for a small machine that can call any function of the interpreter it runs in. This
machine has plain values only: a class or function is kept by its name, an object of a class by what it was
given, a call by its arguments. The opcodes are those of Python's `pickletools`, which reads a pickle without
running it.

`torch.load(weights_only=True)` (2.13) refuses calls as well, but was not taken in place of this reader. Tried
with crafted files, it crashed the interpreter (1 MB: nested tuples as a key of a dict), never returned (200
bytes: a key whose tuple is doubled 40 times) and made 1 GB out of a zip file of 1 MB. It needs each class of
settings by name and reads no protocol but 2. Here keys are texts and numbers, and steps, values and sizes are
bounded.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, cast

from whenabouts.types import WhenaboutsError

MOST_OPCODES = 1_000_000
"""A checkpoint of a few hundred tensors has some ten thousand."""

MOST_VALUE_BYTES = 1 << 24
"""A text or number in it: names of tensors, some notes. The values of tensors lie elsewhere."""


class PickleRefused(WhenaboutsError):
    """A pickle that asks for what data has no need of, or that is damaged; the message is part of a line."""


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


@dataclass(frozen=True)
class Persistent:
    """A value that is kept outside the pickle, by the persistent id it has there."""

    id: Any


def read_pickle(stream: IO[bytes], calls: Container[str]) -> Any:
    """The value of the pickle at the place where a stream stands; the stream stands behind it afterwards.

    Made of None, bool, int, float, str, bytes, list, tuple, dict (an OrderedDict too), and of `Name`, `Call`,
    `ForeignObject`, `Persistent`. Raises PickleRefused for a call of what is not among `calls`, for an opcode
    that data has no need of, and for a pickle that is damaged.
    """
    machine = _Machine(calls)
    steps = pickletools.genops(cast("IO[bytes]", _Bounded(stream)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # odd escapes in texts of old pickles
            for count, (opcode, argument, _) in enumerate(steps):
                if count >= MOST_OPCODES:
                    raise PickleRefused(f"has more than {MOST_OPCODES} steps")
                machine.step(opcode.name, argument)
        (value,) = machine.stack
        return value
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        reason = (str(error).splitlines() or [""])[0][:120]
        if isinstance(error, KeyError):
            reason = f"it asks for entry {reason}, which is not there"
        raise PickleRefused(f"is damaged or no pickle ({reason or type(error).__name__})") from None


class _Bounded:
    """A stream that is never asked for more at once than a pickle of names and numbers can hold."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, count: int) -> bytes:
        """So many bytes, fewer at the end."""
        if count > MOST_VALUE_BYTES:
            raise PickleRefused(f"has a value of {count} bytes; at most {MOST_VALUE_BYTES} are read")
        return self._stream.read(count)

    def readline(self) -> bytes:
        """A line."""
        return self._stream.readline(MOST_VALUE_BYTES)


class _Machine:
    """The stack, the stacks below its marks, and the memo."""

    def __init__(self, calls: Container[str]) -> None:
        self._calls = calls
        self.stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        """Do one opcode. Raises PickleRefused for those that data has no need of."""
        if opcode in _PUSHED:
            self.stack.append(argument)
        elif opcode in _MADE:
            value = _MADE[opcode](self, argument)  # before the push: it may replace the stack
            self.stack.append(value)
        elif opcode in _DONE:
            _DONE[opcode](self, argument)
        elif opcode not in _IDLE:
            raise PickleRefused(f"has a step {opcode}, which data has no need of")

    def pop(self) -> None:
        """Take the top away: a value, else a mark."""
        if self.stack:
            self.stack.pop()
        else:
            self.stack = self._below.pop()

    def popped(self, count: int) -> tuple[Any, ...]:
        """The `count` values at the top, which are taken away."""
        if len(self.stack) < count:
            raise IndexError("the stack is empty")
        taken = self.stack[-count:]
        del self.stack[-count:]
        return tuple(taken)

    def mark(self) -> None:
        """Begin values that an opcode will take together."""
        self._below.append(self.stack)
        self.stack = []

    def marked(self) -> list[Any]:
        """The values above the last mark, which are taken away with it."""
        taken, self.stack = self.stack, self._below.pop()
        return taken

    def remember(self, place: int | None) -> None:
        """Keep the top in the memo; None: at its next place."""
        self._memo[len(self._memo) if place is None else place] = self.stack[-1]

    def remembered(self, place: int) -> Any:
        """What the memo has there."""
        return self._memo[place]

    def called(self) -> Any:
        """A call of what lies below its arguments, if it is one that data needs."""
        function, arguments = self.popped(2)
        path = function.path if isinstance(function, Name) else type(function).__name__
        if not isinstance(function, Name) or path not in self._calls or not isinstance(arguments, tuple):
            raise PickleRefused(f"asks for a call of {path[:120]!r}, which a checkpoint has no need of")
        if path != "collections.OrderedDict":
            return Call(path, arguments)
        return _mapping([value for pair in (arguments[0] if arguments else ()) for value in pair])

    def extend(self, values: Sequence[Any]) -> None:
        """Append to the list at the top; what an unknown object is given as a list is let go."""
        container = self.stack[-1]
        if isinstance(container, list):
            container.extend(values)
        elif not isinstance(container, ForeignObject):
            raise TypeError("something is appended to what is no list")

    def set_items(self, pairs: Sequence[Any]) -> None:
        """Set items of the mapping, or unknown object, at the top."""
        container = self.stack[-1]
        _set_items(container.items if isinstance(container, ForeignObject) else container, pairs)

    def build(self) -> None:
        """Give an object its attributes; those of containers and tensors are let go."""
        (state,) = self.popped(1)
        built = self.stack[-1]
        if isinstance(built, ForeignObject) and isinstance(state, dict):
            built.items.update(state)


def _named(module: Any, attribute: Any) -> Name:
    if not (isinstance(module, str) and isinstance(attribute, str)):
        raise TypeError("a name is no text")
    return Name(f"{module}.{attribute}")


def _object(kind: Any, *_: Any) -> ForeignObject:
    """An object of a class, whatever its constructor is given."""
    if not isinstance(kind, Name):
        raise TypeError("an object of what is no class")
    return ForeignObject(kind.path)


def _mapping(pairs: Sequence[Any]) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    _set_items(made, pairs)
    return made


def _set_items(items: Any, pairs: Sequence[Any]) -> None:
    """Key, value, key, value ... into a dict. Keys are plain, so that hashing is cheap."""
    if not isinstance(items, dict) or len(pairs) % 2:
        raise TypeError("items are set in what is no mapping")
    keys = pairs[::2]
    if not all(isinstance(key, str | bytes | int | float | None) for key in keys):
        raise TypeError("a key is neither text nor number")
    items.update(zip(keys, pairs[1::2], strict=True))


_Step = Callable[[_Machine, Any], Any]
_IDLE = frozenset({"PROTO", "FRAME", "STOP"})
# Opcodes whose argument is the value.
_PUSHED = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    }
)
# Opcodes that put a value on the stack. Those that take values from it first do so before the push.
_MADE: dict[str, _Step] = {
    "NONE": lambda *_: None,
    "NEWTRUE": lambda *_: True,
    "NEWFALSE": lambda *_: False,
    "EMPTY_TUPLE": lambda *_: (),
    "EMPTY_LIST": lambda *_: [],
    "EMPTY_DICT": lambda *_: {},
    "TUPLE": lambda machine, _: tuple(machine.marked()),
    "TUPLE1": lambda machine, _: machine.popped(1),
    "TUPLE2": lambda machine, _: machine.popped(2),
    "TUPLE3": lambda machine, _: machine.popped(3),
    "LIST": lambda machine, _: machine.marked(),
    "DICT": lambda machine, _: _mapping(machine.marked()),
    "DUP": lambda machine, _: machine.stack[-1],
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, place: machine.remembered(place)),
    "GLOBAL": lambda _, named: Name(named.replace(" ", ".", 1)),
    "STACK_GLOBAL": lambda machine, _: _named(*machine.popped(2)),
    "REDUCE": lambda machine, _: machine.called(),
    "NEWOBJ": lambda machine, _: _object(*machine.popped(2)),
    "NEWOBJ_EX": lambda machine, _: _object(*machine.popped(3)),
    "PERSID": lambda _, id: Persistent(id),
    "BINPERSID": lambda machine, _: Persistent(*machine.popped(1)),
}
# Opcodes that change what is there.
_DONE: dict[str, _Step] = {
    "MARK": lambda machine, _: machine.mark(),
    "POP": lambda machine, _: machine.pop(),
    "POP_MARK": lambda machine, _: machine.marked(),
    "MEMOIZE": lambda machine, _: machine.remember(None),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda machine, place: machine.remember(place)),
    "APPEND": lambda machine, _: machine.extend(machine.popped(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.marked()),
    "SETITEM": lambda machine, _: machine.set_items(machine.popped(2)),
    "SETITEMS": lambda machine, _: machine.set_items(machine.marked()),
    "BUILD": lambda machine, _: machine.build(),
}
