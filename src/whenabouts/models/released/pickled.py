"""What a pickle holds, read as data: no class is imported, no function is called.

A pickle is a program for a small machine that can call any function of the interpreter it runs in. Here the
program is stepped through with a machine that has plain values only: where it names a class or a function,
the name is kept, and what would be a call or an object stays a record of what was asked for. The opcodes are
those of Python's `pickletools`, which reads a pickle without running it.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable, Container
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
    """A class or function that is named: "package.module.attribute"."""

    path: str


@dataclass
class Call:
    """A call that was asked for, and not made."""

    path: str
    arguments: tuple[Any, ...]


@dataclass
class Thing:
    """An object of a class that is not looked up: what it was given."""

    path: str
    items: dict[Any, Any] = field(default_factory=dict)
    """What it holds as a mapping, or its attributes."""


@dataclass(frozen=True)
class Outside:
    """What is kept outside the pickle, by the id it has there."""

    id: Any


def read_pickle(stream: IO[bytes], calls: Container[str]) -> Any:
    """The value of the pickle at the place where a stream stands; the stream stands behind it afterwards.

    Made of None, bool, int, float, str, bytes, list, tuple, dict, and of `Name`, `Call`, `Thing`, `Outside`;
    an ordered dict is a dict. Raises PickleRefused for a call of what is not among `calls`, for an opcode
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
        return machine.value()
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        told = (str(error).splitlines() or [""])[0][:120]
        named = f"it asks for entry {told}, which is not there" if isinstance(error, KeyError) else told
        raise PickleRefused(f"is damaged or no pickle ({named or type(error).__name__})") from None


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
    """The stack, the marks on it, and the memo."""

    def __init__(self, calls: Container[str]) -> None:
        self._calls = calls
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def value(self) -> Any:
        """What is left at the end."""
        (value,) = self._stack
        return value

    def step(self, name: str, argument: Any) -> None:
        """Do one opcode."""
        if name in _PUSHED:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name]())
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in _IDLE:
            raise PickleRefused(f"has a step {name}, which data has no need of")

    def _mark(self, _: Any) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _marked(self) -> list[Any]:
        taken, self._stack = self._stack, self._below.pop()
        return taken

    def _popped(self, count: int) -> tuple[Any, ...]:
        if len(self._stack) < count:
            raise IndexError("the stack is empty")
        taken = self._stack[-count:]
        del self._stack[-count:]
        return tuple(taken)

    def _pop(self, _: Any) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._below.pop()

    def _pop_mark(self, _: Any) -> None:
        self._marked()

    def _twice(self, _: Any) -> None:
        self._stack.append(self._stack[-1])

    def _put(self, place: int) -> None:
        self._memo[place] = self._stack[-1]

    def _memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, place: int) -> None:
        self._stack.append(self._memo[place])

    def _tuple(self, _: Any) -> None:
        made = tuple(self._marked())
        self._stack.append(made)

    def _list(self, _: Any) -> None:
        made = self._marked()
        self._stack.append(made)

    def _dict(self, _: Any) -> None:
        pairs, made = self._marked(), dict[Any, Any]()
        _set_items(made, pairs)
        self._stack.append(made)

    def _append(self, _: Any) -> None:
        (value,) = self._popped(1)
        _extend(self._stack[-1], [value])

    def _appends(self, _: Any) -> None:
        values = self._marked()
        _extend(self._stack[-1], values)

    def _set_item(self, _: Any) -> None:
        pair = self._popped(2)
        _set_items(self._stack[-1], list(pair))

    def _set_many(self, _: Any) -> None:
        pairs = self._marked()
        _set_items(self._stack[-1], pairs)

    def _global(self, named: str) -> None:
        self._stack.append(Name(named.replace(" ", ".", 1)))

    def _global_of_stack(self, _: Any) -> None:
        module, attribute = self._popped(2)
        if not (isinstance(module, str) and isinstance(attribute, str)):
            raise TypeError("a name is no text")
        self._stack.append(Name(f"{module}.{attribute}"))

    def _call(self, _: Any) -> None:
        called, arguments = self._popped(2)
        path = called.path if isinstance(called, Name) else type(called).__name__
        if not isinstance(called, Name) or path not in self._calls or not isinstance(arguments, tuple):
            raise PickleRefused(f"asks for a call of {path[:120]!r}, which a checkpoint has no need of")
        if path == "collections.OrderedDict":
            made = dict[Any, Any]()
            _set_items(made, [value for pair in (arguments[0] if arguments else ()) for value in pair])
            self._stack.append(made)
        else:
            self._stack.append(Call(path, arguments))

    def _new(self, _: Any) -> None:
        named, *_rest = self._popped(2)
        self._thing(named)

    def _new_with_names(self, _: Any) -> None:
        named, *_rest = self._popped(3)
        self._thing(named)

    def _thing(self, named: Any) -> None:
        if not isinstance(named, Name):
            raise TypeError("an object of what is no class")
        self._stack.append(Thing(named.path))

    def _build(self, _: Any) -> None:
        """Attributes of an object; those of containers and tensors are let go."""
        (state,) = self._popped(1)
        built = self._stack[-1]
        if isinstance(built, Thing) and isinstance(state, dict):
            built.items.update(state)

    def _outside(self, id: str) -> None:
        self._stack.append(Outside(id))

    def _outside_of_stack(self, _: Any) -> None:
        (id,) = self._popped(1)
        self._stack.append(Outside(id))

    def _tuple_of(self, count: int) -> None:
        made = self._popped(count)
        self._stack.append(made)


def _extend(held: Any, values: list[Any]) -> None:
    """Append to a list; what an unknown object is given as a list is let go."""
    if isinstance(held, list):
        held.extend(values)
    elif not isinstance(held, Thing):
        raise TypeError("something is appended to what is no list")


def _set_items(held: Any, pairs: list[Any]) -> None:
    """Key, value, key, value ... into a dict, or an unknown object; keys are plain: hashing is cheap."""
    into = held.items if isinstance(held, Thing) else held
    if not isinstance(into, dict) or len(pairs) % 2:
        raise TypeError("items are set in what is no mapping")
    keys = pairs[::2]
    if not all(isinstance(key, str | bytes | int | float | None) for key in keys):
        raise TypeError("a key is neither text nor number")
    into.update(zip(keys, pairs[1::2], strict=True))


_PUSHED = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    }
)
_IDLE = frozenset({"PROTO", "FRAME", "STOP"})
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine._mark,
    "POP": _Machine._pop,
    "POP_MARK": _Machine._pop_mark,
    "DUP": _Machine._twice,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine._put),
    "MEMOIZE": _Machine._memoize,
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine._get),
    "TUPLE": _Machine._tuple,
    "TUPLE1": lambda machine, _: machine._tuple_of(1),
    "TUPLE2": lambda machine, _: machine._tuple_of(2),
    "TUPLE3": lambda machine, _: machine._tuple_of(3),
    "LIST": _Machine._list,
    "DICT": _Machine._dict,
    "APPEND": _Machine._append,
    "APPENDS": _Machine._appends,
    "SETITEM": _Machine._set_item,
    "SETITEMS": _Machine._set_many,
    "GLOBAL": _Machine._global,
    "STACK_GLOBAL": _Machine._global_of_stack,
    "REDUCE": _Machine._call,
    "NEWOBJ": _Machine._new,
    "NEWOBJ_EX": _Machine._new_with_names,
    "BUILD": _Machine._build,
    "PERSID": _Machine._outside,
    "BINPERSID": _Machine._outside_of_stack,
}
