"""`make demo`: index the sample corpus, then search it, with the same commands that a person types."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parent / "demo.corpus"

QUERIES = (
    ["the space telescope in the cleanroom"],
    ["somebody stole the jewels of the crown"],
    ["asking how a person feels", "--within", "friday.mp4", "-k", "2"],
    ["how to train a pack of sled dogs"],
)


def run(*arguments: str) -> int:
    """Show a command, run it, show what it prints."""
    shown = shlex.join(["whenabouts", *(a.replace(str(HERE.parent) + "/", "") for a in arguments)])
    print(f"\n$ {shown}", flush=True)
    return subprocess.run([sys.executable, "-m", "whenabouts", *arguments], check=False).returncode


def main() -> int:
    """The tour; its exit code is that of the first command that went wrong."""
    videos = str(HERE / "videos")
    if code := run("index", videos, "--corpus", str(CORPUS), "--table"):
        return code
    for query in QUERIES:
        # 0: found, 1: not in this corpus; both are answers.
        if (code := run("search", *query, "--corpus", str(CORPUS), "--table")) > 1:
            return code
    return run("stats", "--corpus", str(CORPUS), "--table")


if __name__ == "__main__":
    sys.exit(main())
