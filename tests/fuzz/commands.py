"""Commands of the program in processes of their own, some of them killed.

Times are processor time, which hardly minds what else a machine does: a kill falls anywhere in the work.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

Command = tuple[str | Path, ...]

# No command here needs a tenth of either: one that waits for ever is a finding, a busy machine is none.
_MOST_PROCESSOR_SECONDS, MOST_SECONDS = 600, 3600
LOOK_SECONDS = 0.005

# Started in the background, a shell's children ignore Ctrl-C, and so would every command here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Begin a command in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "whenabouts", "--no-config", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    limit = _MOST_PROCESSOR_SECONDS, _MOST_PROCESSOR_SECONDS
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(process.pid, resource.RLIMIT_CPU, limit)
    return process


def run(*arguments: str | Path, fails: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raises RuntimeError if it fails, unless it may."""
    process = start(*arguments)
    out, err = process.communicate(timeout=MOST_SECONDS)
    if "Traceback" in err or (process.returncode and not fails):
        raise RuntimeError(f"{arguments}: {process.returncode}\n{err[-3000:]}")
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def timed(*arguments: str | Path) -> float:
    """Run a command to its end; the processor seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*arguments)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime


def kill(process: subprocess.Popen[str], is_time: Callable[[], bool]) -> int:
    """Kill a process with all that it started once it is time; 0 if it ended before."""
    until = time.monotonic() + MOST_SECONDS
    while process.poll() is None:
        if is_time() or time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return 1
        time.sleep(LOOK_SECONDS)
    process.communicate()
    return 0


def after_work(process: subprocess.Popen[str], seconds: float, rng: random.Random) -> Callable[[], bool]:
    """Whether a process has worked for a random share of `seconds`."""
    chosen = rng.uniform(0.1, seconds)
    return lambda: processor_seconds(process.pid) >= chosen


def after_files(place: Path, rng: random.Random) -> Callable[[], bool]:
    """Whether some more files have appeared in a corpus: between two of its commits, or within one."""
    before, more = _files(place), rng.randint(1, 24)
    return lambda: _files(place) - before >= more


def _files(place: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(place))


def processor_seconds(process: int) -> float:
    """Processor time of a process so far, with that of the processes that it started and waited for."""
    try:
        facts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, facts[11:15])) / os.sysconf("SC_CLK_TCK")
