"""Output of commands: tables and lines on a terminal, JSON in a pipe, notes and bars on standard error."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from whenabouts.lines import is_unseen

if TYPE_CHECKING:
    from rich.console import Console


@contextlib.contextmanager
def counting_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A callback for a progress bar (done, total); does nothing unless standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}", markup=False)  # its own text would be a format string
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        job = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(job, completed=done, total=of)


@contextlib.contextmanager
def share_bar(what: str) -> Iterator[Callable[[float], None]]:
    """A callback for a progress bar of a share in [0, 1], like `counting_bar`."""
    with counting_bar(f"{what}, %") as show:
        yield lambda share: show(int(100 * share), 100)


def wants_json(options: argparse.Namespace) -> bool:
    """Whether to print JSON: --json and --table decide; without them, if standard output is no terminal."""
    return bool(options.json) or not (options.table or sys.stdout.isatty())


def print_either(
    options: argparse.Namespace, document: Callable[[], Any], lines: Callable[[], Iterable[str]]
) -> None:
    """Print a JSON document or lines, as `wants_json` decides."""
    if wants_json(options):
        print_json(document())
    else:
        print_lines(lines())


def print_json(value: Any) -> None:
    """Print one JSON document; invalid Unicode is escaped, on a terminal also what `for_terminal` escapes."""
    # JSON must itself escape what the output cannot encode, or the document is invalid.
    in_ascii = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    is_terminal = sys.stdout.isatty()
    text = json.dumps(value, ensure_ascii=in_ascii, indent=2 if is_terminal else None)
    if is_terminal:
        text = "".join(json.dumps(letter)[1:-1] if _is_unsafe(letter) else letter for letter in text)
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines as `for_terminal` shows them; None is standard output."""
    for line in lines:
        print(for_terminal(line), file=stream)


def print_notes(notes: Iterable[str]) -> None:
    """Print each note once, on standard error."""
    out = console(sys.stderr)
    for note in dict.fromkeys(notes):
        out.print(for_terminal(f"note: {note}"), style="dim", soft_wrap=True)


def for_terminal(text: str) -> str:
    """Text on one line, with invisible characters escaped, because names and subtitles are untrusted.

    >>> for_terminal("two\\nlines \\x1b[31mred")
    'two\\\\nlines \\\\x1b[31mred'
    """
    if text.isprintable():
        return text
    shown = text.encode("utf-8", "backslashreplace").decode()
    return "".join(repr(letter)[1:-1] if letter < " " or _is_unsafe(letter) else letter for letter in shown)


def _is_unsafe(letter: str) -> bool:
    """Whether a letter after "~" is invisible or breaks the line. Callers escape the controls below 32."""
    return letter > "~" and (is_unseen(letter) or letter in "\u2028\u2029")


def open_outputs() -> None:
    """Replace closed output streams, which Python sets to None, by `os.devnull`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (open until exit)


def encode_anything() -> None:
    """Escape characters that a terminal cannot encode, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Discard all further standard output."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def console(stream: TextIO | None = None) -> Console:
    """A console for tables; None is standard output.

    On a closed pipe rich would exit with 1, which means "no match" here. This console raises
    BrokenPipeError, which `main` handles.
    """
    from rich.console import Console

    class PipeConsole(Console):
        """A console that raises instead of ending the program."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    # Otherwise rich would read "[b]" and ":smile:" in names and queries as a style and an emoji.
    return PipeConsole(file=stream, markup=False, emoji=False, highlight=False)
