"""The real program in processes of its own, and what a corpus holds, to be compared."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.small_disk import mounted

from whenabouts.cli.main import main
from whenabouts.index.store import Store


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


# Asking what unrelated sentences score comes last and takes longer than all that is disturbed here.
_PROGRAM = """
import sys
from whenabouts.calibration import measuring
from whenabouts.cli.main import main
measuring.is_due = lambda store, known: False
sys.exit(main())
"""


class Program:
    """`whenabouts` in a process of its own; its corpora stay uncalibrated."""

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Begin a command in a process group of its own, so that Ctrl-C can be sent to all of it."""
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *(str(argument) for argument in arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self, process: subprocess.Popen[str], timeout: float = 120) -> Done:
        out, err = process.communicate(timeout=timeout)
        return Done(process.returncode, out, err)

    def __call__(self, *arguments: str | Path) -> Done:
        return self.end(self.start(*arguments))


@pytest.fixture(scope="session")
def program() -> Program:
    return Program()


@pytest.fixture(scope="session")
def here() -> Callable[..., Done]:
    """Run a command in this process; it leaves no traceback."""

    def run(*arguments: str | Path) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
        assert "Traceback" not in err.getvalue()
        return Done(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="session")
def write_talks() -> Callable[[Path, int, int], None]:
    """Write transcripts that stand alone: `number` talks of `lines` lines."""

    def write(folder: Path, number: int, lines: int = 4) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for talk in range(number):
            cues = [
                f"{line // 6:02d}:{line % 6}0.000 --> {line // 6:02d}:{line % 6}8.000\n"
                f"Talk {talk} says in line {line} what {'abcdefgh'[(talk + line) % 8] * 4} means.\n"
                for line in range(lines)
            ]
            (folder / f"talk{talk:03d}.vtt").write_text("\n".join(["WEBVTT\n", *cues]))

    return write


@pytest.fixture(scope="session")
def contents() -> Callable[[Path], dict[str, Any]]:
    """All that a corpus holds, but for times: equal corpora have equal contents."""

    def read(place: Path) -> dict[str, Any]:
        store = Store.open(place)
        held: dict[str, Any] = {}
        for record in store.videos():
            row = {
                name: getattr(record, name)
                for name in record.__slots__
                if name not in ("indexed_at", "stream_times")
            }
            held[f"row {record.video_id}"] = {
                **row,
                "streams": dict(row["streams"]),
                "metadata": dict(row["metadata"]),
            }
        for stream in store.streams:
            table = store._clips(stream).search().limit(None).to_arrow().sort_by("id")
            held[f"clips of {stream}"] = table.to_pylist()
        return held

    return read


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    with mounted(tmp_path / "small", megabytes=3) as folder:
        yield folder
