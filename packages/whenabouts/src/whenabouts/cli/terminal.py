"""What a command prints: tables and lines on a terminal, JSON in a pipe, notes and bars on standard error."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console


@contextlib.contextmanager
def encoding_bar(model: str) -> Iterator[Callable[[int, int], None]]:
    """What shows how many videos are encoded; silent where nobody looks."""
    with counting_bar(f"encoding videos with {for_terminal(model)}") as show:
        yield show


@contextlib.contextmanager
def counting_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """What shows how much is done, and of how much; silent where nobody looks."""
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn(what, markup=False)
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        job = bar.add_task("", total=None)
        yield lambda done, of: bar.update(job, completed=done, total=of)


def wants_json(options: argparse.Namespace) -> bool:
    """JSON when it is asked for or when a program reads."""
    return bool(options.json) or not (options.table or sys.stdout.isatty())


def print_either(
    options: argparse.Namespace, document: Callable[[], Any], lines: Callable[[], Iterable[str]]
) -> None:
    """The JSON document or the lines for people, as the options and the output say."""
    if wants_json(options):
        print_json(document())
    else:
        print_lines(lines())


def print_json(value: Any) -> None:
    """One JSON document on standard output; text that is no valid Unicode is escaped."""
    # What an output cannot encode must be escaped as JSON does it, or the document is none.
    in_ascii = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=in_ascii, indent=2 if sys.stdout.isatty() else None)
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Lines for people on standard output."""
    for line in lines:
        print(for_terminal(line))


def print_notes(notes: Iterable[str]) -> None:
    """Each note once, on standard error."""
    out = console(sys.stderr)
    for note in dict.fromkeys(notes):
        out.print(for_terminal(f"note: {note}"), style="dim", markup=False, soft_wrap=True)


def for_terminal(text: str) -> str:
    """Text on one line that cannot command a terminal: names of files and subtitles come from anywhere.

    >>> for_terminal("two\\nlines \\x1b[31mred")
    'two\\\\nlines \\\\x1b[31mred'
    """
    shown = text.encode("utf-8", "backslashreplace").decode()
    return "".join(
        repr(letter)[1:-1] if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else letter
        for letter in shown
    )


def encode_anything() -> None:
    """Let output that a terminal's encoding lacks be escaped; an answer is worth more than its accents."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def console(stream: TextIO | None = None) -> Console:
    """Where tables go; None is standard output.

    A pipe that is closed early is left to `main`, for rich would exit with the code of "no match".
    """
    from rich.console import Console

    class PipeConsole(Console):
        """A console that does not end the program."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PipeConsole(file=stream, highlight=False)
