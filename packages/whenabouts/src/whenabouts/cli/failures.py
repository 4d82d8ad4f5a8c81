"""Turns the error that ended a command into a message and an exit code.

Our own errors name cause and remedy; a missing package names the extra that brings it. Any other error is a
bug of the program, which is said in one line. All give exit code 2, because 1 means "no match"; Ctrl-C gives
130, a pipe whose reader left 0. `--debug` or WHENABOUTS_DEBUG=1 show the traceback.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from whenabouts import plugins
from whenabouts.cli.terminal import drop_output, for_terminal
from whenabouts.extras import lacking
from whenabouts.intake.lacks import lack_of
from whenabouts.types import WhenaboutsError

MATCH, WRONG = 0, 2
INTERRUPTED, TERMINATED = 130, 143
DEBUG_VARIABLE = "WHENABOUTS_DEBUG"
_MOST_LETTERS = 500


def exit_code_of(error: BaseException, arguments: Sequence[str]) -> int:
    """Report an error that ended a command on standard error, and return its exit code."""
    if isinstance(error, BrokenPipeError) and _reader_left():
        # The reader of a pipe has seen enough and reads no message.
        drop_output()
        return MATCH
    if "--debug" in arguments or os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exception(error)
    with contextlib.suppress(OSError, ValueError):
        print("whenabouts: " + "\n".join(map(for_terminal, message_of(error).splitlines())), file=sys.stderr)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        drop_output()  # Python would try to write it again at exit
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else WRONG


def message_of(error: BaseException) -> str:
    """An error in words: what happened, and what to do."""
    if isinstance(error, WhenaboutsError):
        lack = lack_of(error)
        return str(error) if lack is None or lack in str(error) else lack
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    if lack := lacking(error):
        return lack
    if type(error).__name__ == "OutOfMemoryError":  # PyTorch's, of a GPU
        return "there is not enough memory for this; process less at once, or free some memory"
    if lack := lack_of(error):
        return lack
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"{error.filename or 'output'}: the disk is full; free some space and run the same command again"
        )
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}; check that it exists and that you have permission"
    text = " ".join(str(error).split())[:_MOST_LETTERS]
    whose, place = _whose(error)
    return (
        f"a fault of {whose}: {type(error).__name__}{f': {text}' if text else ''}{place}; "
        "to report it, add the output of `whenabouts --debug VERB …`"
    )


def _whose(error: BaseException) -> tuple[str, str]:
    """Whose code failed, ours or a plugin's, and its last place as a parenthesis; "" if there is none."""
    packages = {re.split("[.:]", entry.value)[0] for entry in plugins.declared()}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        module = frame.f_globals.get("__name__", "")
        is_ours = module.startswith("whenabouts")
        if is_ours or module.partition(".")[0] in packages:
            whose = "the program" if is_ours else f"the plugin {module}"
            return whose, f" ({Path(frame.f_code.co_filename).name}, line {line})"
    return "the program", ""


def _reader_left() -> bool:
    """Whether standard output is a pipe that nobody reads from."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        look = select.poll()
        look.register(sys.stdout.fileno(), 0)
        return any(events & select.POLLERR for _, events in look.poll(0))
    return False
