"""Read and write files: format detection, gzip, JSON, TOML, writing as a whole.

Invalid files raise FormatError, whose message is one line.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import logging
import os
import re
import secrets
import shutil
import tomllib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

from whenabouts.intake.opening import open_regular
from whenabouts.types import WhenaboutsError

_log = logging.getLogger("whenabouts")

_GZIP = b"\x1f\x8b"
LMDB_START = rb"(?s).{16}(?:.{8})?\xde\xc0\xef\xbe"
"""Beginning of an LMDB file (32 or 64 bits, little-endian), as a regular expression."""
_HEAD_BYTES = 65_536
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|"|[\[\]{},]', re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}
_DEEPEST = 100
# A gzip file may unpack to 64 MiB, or to 100 times its size if that is more; text seldom exceeds 30 times.
_FREELY_UNPACKED, _MOST_TIMES_PACKED = 64 << 20, 100
_LARGEST_DOCUMENT = 1 << 30
_MOST_VALUES = 24_000_000
"""Most values of a JSON document read at once: each takes some 100 bytes of memory."""
_REMEDY = "which is too much to be read at once; split it, or write it as JSON lines (docs/formats.md)"
_SHORT_NUMBERS = "whole numbers of at most 64 bits"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_MANY_DIGITS = re.compile(rb"\d{19}")
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
ABSENT: Any = object()
"""Default of `FormatError(value=...)`: no value is shown. None cannot serve, it stands for JSON's null."""


class FormatError(WhenaboutsError):
    """A file with invalid content; one line names file, line, field, value and what is accepted."""

    def __init__(
        self,
        path: str | Path,
        problem: str,
        *,
        line: int | None = None,
        field: str | None = None,
        value: Any = ABSENT,
        accepted: str = "",
    ) -> None:
        where = f"{path}" + (f", line {line}" if line is not None else "")
        what = f"{_in_line(field)}: " if field else ""
        shown = "" if value is ABSENT else f" {_short(value)}"
        remedy = f"; accepted: {accepted}" if accepted else ""
        super().__init__(f"{where}: {what}{problem}{shown}{remedy}")


class ReaderMissing(WhenaboutsError):
    """The package that reads this layout is not installed; the message has the command that installs it."""

    def __init__(self, path: Path, kind: str, package: str) -> None:
        super().__init__(
            f"{path}: reading {kind} needs the package {package}, which is not installed: "
            "pip install 'whenabouts[research]'"
        )


def _in_line(field: str) -> str:
    """A field's name, which may be any key of a file, made safe for one line."""
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in field[:120])
    return text if len(field) <= 120 else text + "..."


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = "a value that is nested too deeply to be shown"
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True)
class Sign:
    """How files of a format begin; the first of `keys`, `line` and `start` that is set counts."""

    keys: str = ""
    """Required keys of its first JSON value: "qid vid". "*/times" is a key of an entry of that object or
    list, "*/*/times" of an entry of an entry."""
    without: str = ""
    """Forbidden keys."""
    line: str = ""
    """Beginning of its first line that is not blank: a regular expression."""
    start: bytes = b""
    """Beginning of its bytes: a regular expression."""


@dataclass(frozen=True)
class FileHead:
    """The beginning of a file, enough to recognise its format."""

    path: Path
    head: bytes
    whole: bool
    """Whether `head` is the whole file."""

    @property
    def suffix(self) -> str:
        """The file's suffix in lower case, without .gz: ".jsonl"."""
        name = self.path.name.lower()
        return Path(name.removesuffix(".gz")).suffix

    @cached_property
    def first_line(self) -> str:
        """The first line that is not blank, or ""."""
        for line in self.head.decode("utf-8", "replace").lstrip("\ufeff").splitlines():
            if line.strip():
                return line.strip()
        return ""

    @cached_property
    def first_value(self) -> Any:
        """The first JSON value; if it exceeds the head, its part in the head.

        None if the file does not begin with an object or a list, or if the value is invalid.
        """
        text = self.head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
        if text[:1] not in ("{", "["):
            return None
        try:
            return json.JSONDecoder().raw_decode(text)[0]
        except (ValueError, RecursionError):
            return None if self.whole else _completed(text)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Keys of the first JSON value, its entries and their entries, in the notation of `Sign.keys`."""
        levels, inner = set[str](), [self.first_value]
        for depth in range(3):
            levels |= {"*/" * depth + key for value in inner if isinstance(value, dict) for key in value}
            inner = [entry for value in inner for entry in _entries(value)]
        return frozenset(levels)

    def has(self, sign: Sign) -> bool:
        """Whether the beginning of the file matches a sign."""
        if sign.keys:
            return self.keys.issuperset(sign.keys.split()) and self.keys.isdisjoint(sign.without.split())
        if sign.line:
            return re.match(sign.line, self.first_line) is not None
        return re.match(sign.start, self.head) is not None

    @property
    def is_json_document(self) -> bool:
        """Whether it begins like a JSON object or list."""
        return self.first_line[:1] in ("{", "[")

    def describe(self) -> str:
        """The beginning, for an error message."""
        if not self.head.strip():
            return "an empty file"
        return f"a file that begins with {_short(self.first_line[:60])}"


def _completed(text: str) -> Any:
    """The truncated value, cut after its last complete member and closed."""
    open_brackets: list[str] = []
    keep, closing = 0, ""
    for token in _TOKEN.finditer(text):
        sign = token.group()
        if sign == '"':  # a truncated string
            break
        if sign in _CLOSING:
            open_brackets.append(_CLOSING[sign])
        elif sign in ("}", "]"):
            if not open_brackets or open_brackets.pop() != sign:
                return None
        elif sign != ",":
            continue
        if len(open_brackets) < _DEEPEST:
            keep = token.start() if sign == "," else token.end()
            closing = "".join(reversed(open_brackets))
    try:
        return json.loads(text[:keep] + closing)
    except (ValueError, RecursionError):
        return None


def _entries(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def read_head(path: Path) -> FileHead:
    """The beginning of a file, unpacked. Raises FormatError if it cannot be read."""
    with open_unpacked(path) as stream:
        head = stream.read(_HEAD_BYTES)
        whole = len(head) < _HEAD_BYTES
    return FileHead(path, head, whole)


def most_unpacked(stored: int) -> int:
    """The most bytes that `stored` packed bytes may unpack to: the larger of 64 MiB and 100 times as many."""
    return max(_FREELY_UNPACKED, _MOST_TIMES_PACKED * stored)


@contextmanager
def open_unpacked(path: Path) -> Iterator[IO[bytes]]:
    """A stream of a file's bytes, unpacked if it is gzip, whatever its name.

    Raises FormatError, also during reading, for a file that is missing or unreadable, or a gzip file that is
    truncated, damaged, or unpacks to more than `most_unpacked` of its size.
    """
    try:
        with open_regular(path) as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            if packed:
                size = os.fstat(raw.fileno()).st_size
                with gzip.open(raw, "rb") as stream:
                    bounded = _Bounded(path, cast(IO[bytes], stream), most_unpacked(size))
                    yield io.BufferedReader(bounded, _HEAD_BYTES)
            else:
                yield raw
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from None


class _Bounded(io.RawIOBase):
    """The bytes of a gzip file, up to a limit."""

    def __init__(self, path: Path, stream: IO[bytes], most: int) -> None:
        self._path, self._stream, self._most, self._left = path, stream, most, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # These errors are raised here, because `write_atomically` takes an OSError for one of its own file.
        try:
            piece = self._stream.read(len(buffer))
        except EOFError:
            problem = "the gzip file is cut off: it ends before its end mark; fetch it again"
            raise FormatError(self._path, problem) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise FormatError(self._path, f"the gzip file is damaged ({error}); fetch it again") from None
        self._left -= len(piece)
        if self._left < 0:
            raise FormatError(
                self._path,
                f"the gzip file unpacks to more than {self._most >> 20} MiB, over a hundred times its size; "
                "if that is intended, unpack it with gunzip and give the unpacked file",
            )
        buffer[: len(piece)] = piece
        return len(piece)


def read_document(path: Path) -> bytes:
    """All bytes of a file, unpacked. Raises FormatError for more than 1 GiB."""
    pieces, length = list[bytes](), 0
    with open_unpacked(path) as stream:
        while piece := stream.read(1 << 20):
            pieces.append(piece)
            length += len(piece)
            if length > _LARGEST_DOCUMENT:
                raise FormatError(path, f"is larger than {_LARGEST_DOCUMENT >> 20} MiB, {_REMEDY}")
    return b"".join(pieces)


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A stream to write `path`, packed if its name ends in .gz.

    `path` is replaced when the block succeeds; otherwise it stays as it was.

    Links are followed; an existing path that is not a file (a device, a pipe, a folder) is refused.
    """
    packed = path.name.endswith(".gz")
    try:
        path = Path(os.path.realpath(path)) if path.is_symlink() else path
        if path.exists() and not path.is_file():
            raise FormatError(path, "is not a regular file; name a regular file or a new one")
        aside = _beside(path)
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise FormatError(path, f"cannot be written: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as raw:
            if packed:
                # No name and no time in the header, so that equal content gives equal bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
                    yield cast(IO[bytes], stream)
            else:
                yield raw
        aside.replace(path)
    except OSError as error:
        raise FormatError(path, f"cannot be written: {error.strerror or error}") from None
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """A new folder beside `path` to fill; it is renamed to `path` if the block succeeds, else removed.

    Raises FormatError if it cannot be written.
    """
    try:
        folder = _beside(path)
        folder.mkdir()
    except OSError as error:
        raise FormatError(path, f"cannot be written: {error.strerror or error}") from None
    try:
        yield folder
        folder.rename(path)
    except OSError as error:
        raise FormatError(path, f"cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _beside(path: Path) -> Path:
    """A new hidden name beside a path, whose folder is made if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.parent / f".{path.name[:40]}.{secrets.token_hex(4)}"


def is_lmdb(head: bytes) -> bool:
    """Whether these are the first bytes of an LMDB environment."""
    return re.match(LMDB_START, head) is not None


def lmdb_file_in(folder: Path) -> Path | None:
    """The data file of an LMDB environment in a folder; None without one."""
    file = folder / "data.mdb"
    return file if file.is_file() else None


def sibling_file(path: Path, name: str) -> Path | None:
    """`name` or `name`.gz in the folder of `path`; None if neither exists."""
    names = (path.with_name(name), path.with_name(f"{name}.gz"))
    return next((candidate for candidate in names if candidate.exists()), None)


def read_json(path: Path) -> Any:
    """The JSON value of a file, whose objects have unique keys.

    Raises FormatError for repeated keys, of which JSON parsers silently keep the last; for invalid JSON, with
    its line; for too many values; and for `faults`.
    """
    return parse_json(path, read_document(path))


def parse_json(path: Path, data: bytes) -> Any:
    """A JSON value under the rules of `read_json`."""
    values = sum(data.count(sign) for sign in (b",", b"[", b"{"))
    if values > _MOST_VALUES:
        raise FormatError(path, f"has about {values:,} values, more than {_MOST_VALUES:,}, {_REMEDY}")
    try:
        # NaN and Infinity are left to the code that reads the field.
        value = loads_unique(data.decode("utf-8-sig"), path)
    except (ValueError, RecursionError) as error:
        raise json_error(path, error) from None
    check_values(value, data, path)
    return value


def parse_toml(path: Path | str, data: bytes, accepted: str = "") -> dict[str, Any]:
    """The tables of a TOML file.

    Raises FormatError for invalid TOML, and for values that no reader could use: whole numbers beyond 64
    bits (TOML's own limit), NUL characters, tables nested deeper than 100.
    """
    try:
        document = tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FormatError(path, f"is not UTF-8 text (byte {error.start})") from None
    except RecursionError:
        raise FormatError(path, "is nested too deeply to be read") from None
    except tomllib.TOMLDecodeError as error:
        raise FormatError(path, f"is not TOML: {error}", accepted=accepted) from None
    except ValueError:
        raise FormatError(path, "has a number with thousands of digits", accepted=_SHORT_NUMBERS) from None
    waiting: list[tuple[str, Any, int]] = [("", document, 0)]
    while waiting:
        field, value, depth = waiting.pop()
        if depth > _DEEPEST:
            raise FormatError(path, "is nested too deeply to be read", field=field)
        if isinstance(value, dict):
            waiting += [(f"{field}.{key}".lstrip("."), inner, depth + 1) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(field, inner, depth + 1) for inner in value]
        elif isinstance(value, int) and not _SMALLEST <= value <= -1 - _SMALLEST:
            problem = "is a whole number beyond 64 bits"
            raise FormatError(path, problem, field=field, accepted="numbers from -2^63 to 2^63 - 1")
        if "\0" in field or (isinstance(value, str) and "\0" in value):
            raise FormatError(path, "contains a NUL character", field=field)
    return document


def loads_unique(text: str, path: Path, line: int | None = None) -> Any:
    """`json.loads`, but FormatError for an object with a repeated key; `line` if the text is one line."""

    def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
            accepted = "each key once in its object"
            raise FormatError(path, "the key comes twice:", line=line, value=twice, accepted=accepted)
        return fields

    return json.loads(text, object_pairs_hook=without_repeats)


def check_values(value: Any, raw: bytes, path: Path, line: int | None = None) -> None:
    """Raise FormatError for the first of the `faults` of `value`, which was parsed from `raw`."""
    for where, problem, inner in faults(value, raw):
        accepted = "text without lone surrogates" if isinstance(inner, str) else "a smaller number"
        raise FormatError(path, problem, line=line, field=where, value=inner, accepted=accepted)


def json_error(
    path: Path, error: ValueError | RecursionError, line: int | None = None, accepted: str = ""
) -> FormatError:
    """The error for text that is not JSON; `line` is given if the text is one line of the file."""
    if isinstance(error, UnicodeDecodeError):
        of_line = "" if line is None else " of the line"
        return FormatError(path, f"is not UTF-8 text (byte {error.start}{of_line})", line=line)
    if isinstance(error, json.JSONDecodeError):
        problem = f"is not JSON ({error.msg}, column {error.colno})"
        return FormatError(path, problem, line=error.lineno if line is None else line, accepted=accepted)
    if isinstance(error, RecursionError):
        return FormatError(path, "is nested too deeply to be read", line=line)
    # The one other ValueError is Python's limit on digits; its message advises to raise the limit.
    return FormatError(path, "has a number with thousands of digits", line=line, accepted=_SHORT_NUMBERS)


@dataclass
class Losses:
    """The parts of a run or of judgements that a format cannot hold; logged once the file is written."""

    path: Path
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, times: int = 1) -> None:
        """Note that something was lost `times` times."""
        if times:
            self.counts[what] = self.counts.get(what, 0) + times

    def log(self) -> None:
        """Log a warning for each loss."""
        for what, times in self.counts.items():
            _log.warning("%s: %d %s", self.path, times, what)


def refuse_overwriting(target: Path, *sources: Path | str) -> None:
    """Raise FormatError if the file to write is one of the sources."""
    for source in map(Path, sources):
        with contextlib.suppress(OSError):
            if target.samefile(source):
                raise FormatError(target, "is read here and would be overwritten; write to another file")


def line_containing(path: Path, text: str) -> int | None:
    """The number of the first line that contains an id as a whole ("q1", not "q10"), or None."""
    forms = b"|".join(re.escape(form.encode()) for form in (text, json.dumps(text)[1:-1]))
    whole = re.compile(rb"(?<![\w.-])(?:" + forms + rb")(?![\w.-])")
    with contextlib.suppress(WhenaboutsError), open_unpacked(path) as stream:
        return next((number for number, line in enumerate(stream, 1) if whole.search(line)), None)
    return None


def loads(text: str | bytes, **options: Any) -> Any:
    """The value of a JSON text; `options` are those of `json.loads`.

    Raises ValueError for invalid JSON or UTF-8, for nesting too deep to parse (instead of Python's
    RecursionError), and for whole numbers beyond 64 bits. Lone surrogates are kept, because file names
    that are not UTF-8 have them.
    """
    try:
        value = json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deeply to be read") from None
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
            raise
        raise ValueError("it has a whole number with thousands of digits") from None
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    for place, _, inner in faults(value, raw) if _MANY_DIGITS.search(raw) else ():
        if isinstance(inner, int):
            raise ValueError(f"{place or 'it'} is a whole number of more than 64 bits")
    return value


def faults(value: Any, raw: bytes) -> Iterator[tuple[str, str, Any]]:
    """(field, problem, value) of each text with a lone surrogate and each whole number beyond 64 bits.

    `value` was parsed from `raw`.
    """
    if not (_SURROGATE.search(raw) or _MANY_DIGITS.search(raw)):
        return
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        field, inner = waiting.pop()
        if isinstance(inner, dict):
            waiting += [(field, key) for key in inner]
            waiting += [(f"{field}.{key}" if field else key, member) for key, member in inner.items()]
        elif isinstance(inner, list):
            waiting += [(f"{field}[{number}]", member) for number, member in enumerate(inner)]
        elif isinstance(inner, str) and any("\ud800" <= letter <= "\udfff" for letter in inner):
            yield field, "is not valid Unicode:", inner
        elif isinstance(inner, int) and not _SMALLEST <= inner <= _LARGEST:
            yield field, "is a whole number of more than 64 bits:", inner
