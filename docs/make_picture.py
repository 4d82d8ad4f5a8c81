"""Draws `docs/terminal.svg`, the README's picture: what real commands print on the sample corpus."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 104
COMMANDS = (
    ["index", "samples/videos", "--corpus", "my.corpus"],
    ["search", "the space telescope in the cleanroom", "--corpus", "my.corpus", "-k", "3"],
    ["search", "somebody stole the jewels of the crown", "--corpus", "my.corpus", "-k", "1"],
    ["search", "how to train a pack of sled dogs", "--corpus", "my.corpus", "-k", "1"],
)


def printed_by(arguments: list[str], folder: str) -> str:
    """What a command prints to a terminal, colours included."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    done = subprocess.Popen(
        [sys.executable, "-m", "whenabouts", *arguments],
        stdout=theirs, stderr=subprocess.DEVNULL, cwd=folder, env=environment,
    )  # fmt: skip
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    done.wait()
    return b"".join(parts).decode().replace("\r\n", "\n")


def main() -> None:
    """Run the commands and draw them."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "samples").symlink_to(ROOT / "samples")
        for arguments in COMMANDS:
            shown = " ".join(f'"{a}"' if " " in a else a for a in arguments)
            console.print(Text.assemble(("$ ", "dim"), (f"whenabouts {shown}", "bold")))
            console.print(Text.from_ansi(printed_by(arguments, folder).rstrip().replace(f"{folder}/", "")))
            console.print()
    console.save_svg(str(ROOT / "docs" / "terminal.svg"), title="whenabouts")


if __name__ == "__main__":
    main()
