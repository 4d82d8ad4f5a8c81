"""Checks corpora that this user did not write: a separate process reads them whole before they are opened.

LanceDB ends the whole process for some damaged files: a length of 64 GB is enough, because Rust ends a
process that gets no memory. So a stranger's corpus could end a server. A corpus that this user wrote, or has
read without harm, is noted outside the corpus, where no stranger writes: `$XDG_STATE_HOME/whenabouts/corpora`
has an empty file for each state. A state is the names, sizes and times of the files, so a copy that keeps
times is known too.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from whenabouts.index.checksums import table_files
from whenabouts.index.lance import LANCE_ERRORS, connect, is_panic
from whenabouts.index.records import StoreError
from whenabouts.intake.files import most_unpacked
from whenabouts.intake.lacks import MachineLack
from whenabouts.intake.notes import Notes

_NOTES = Notes("corpora", most=1_000)
_ROOM_BYTES = 2 << 30
# Time limit of a check: bytes a second of a very slow disk, and seconds to start (LanceDB needs one).
_SLOWEST_BYTES, _START_SECONDS = 10 << 20, 60
_TOO_LARGE, _LACKING = 3, 4


def check(place: str, folder: Path) -> None:
    """Raise StoreError if LanceDB could not read an unknown corpus without ending the process.

    That includes corpora that take too long, or that unpack to more than a hundred times their size.
    """
    files = list(table_files(folder))
    if not files or _NOTES.has(_state(files)) or _NOTES.has(_being_written(folder)):
        return
    stored = sum(status.st_size for _, status in files)
    if reason := _harm(folder, stored):
        raise StoreError(
            f"{place}: LanceDB cannot read {reason}, and would end this program. Somebody else wrote "
            "this corpus, or a disk has changed it: restore it from a copy, or index again into a new folder"
        )
    _NOTES.add(_state(files))


def begin(folder: Path) -> None:
    """Note that this user writes a corpus from now on, so that it is not checked meanwhile."""
    _NOTES.add(_being_written(folder))


def finish(folder: Path) -> None:
    """Note the state that this user has written."""
    _NOTES.add(_state(list(table_files(folder))))
    _NOTES.remove(_being_written(folder))


def _state(files: Iterable[tuple[str, os.stat_result]]) -> str:
    facts = sorted(f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in files)
    return "\n".join(facts)


def _being_written(folder: Path) -> str:
    try:
        status = folder.stat()
    except OSError:
        return "gone"
    return f"writing {folder} {status.st_dev} {status.st_ino}"


def _harm(folder: Path, stored: int) -> str:
    """The table or index whose reading ends a process, and how it ends; "" if none does."""
    # -P: a module of the current folder, which may be a stranger's, is not imported.
    command = [sys.executable, "-P", "-m", __name__, str(folder), str(stored)]
    seconds = _START_SECONDS + stored / _SLOWEST_BYTES
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        try:
            steps, errors = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            steps, errors = child.communicate()
            return f"{_last(steps)} within {seconds:.0f} s"
    if child.returncode in (0, _LACKING):
        return ""
    if child.returncode == _TOO_LARGE:
        return f"{_last(steps)}, which unpacks to more than a hundred times its size"
    cause = next((line for line in errors.splitlines() if b"memory allocation" in line), b"")
    ended = cause.decode("utf-8", "replace")[:200] or f"it ends with {child.returncode}"
    return f"{_last(steps)} ({ended})"


def _last(steps: bytes) -> str:
    return (steps.decode("utf-8", "replace").splitlines() or ["its tables"])[-1][:200]


def _read(folder: str, stored: int) -> int:
    """Read all tables and indices of a corpus, naming each before it is read; returns the exit status."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = _ROOM_BYTES + 2 * stored
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    left = most_unpacked(stored)
    try:
        tables = connect(folder, None)
    except MachineLack:
        return _LACKING
    for place in sorted(Path(folder).glob("*.lance")):
        name = ascii(place.stem)
        try:
            print(f"its table {name}", flush=True)
            table = tables.open_table(place.stem)
            for batch in table.search().limit(None).with_row_id(True).to_batches():
                left -= batch.nbytes
                if left < 0:
                    return _TOO_LARGE
            for index in table.list_indices():
                print(f"the index {index.name!a} of its table {name}", flush=True)
                table.prewarm_index(index.name)
        except BaseException as error:
            # Opening the corpus raises this error again, with the place of the damage.
            if not isinstance(error, LANCE_ERRORS) and not is_panic(error):
                raise
    return 0


if __name__ == "__main__":
    sys.exit(_read(sys.argv[1], int(sys.argv[2])))
