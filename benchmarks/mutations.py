"""Measure which planted faults the tests of a room notice.

    nice python -m benchmarks.mutations whenabouts/confidence whenabouts_bench/relevance [--faults 12] \\
        [--out benchmarks/results/mutations.json]
    python -m benchmarks.mutations whenabouts/index --files stranger.py --tests test_stranger.py \\
        [--tests-of COMMIT]
    python -m benchmarks.mutations --commit 5955fe97 src/whenabouts/times.py:tests/test_times.py

A room is a folder of a package, or a module beside these folders. SOURCE:TESTS, two paths, names a room of a
`--commit` that has other folders. The kinds of fault are: a comparison reversed, a number increased by one,
`and` for `or`, a `not` removed, + for -, * for /, and None in place of a returned value. A seed draws the
faults from the room's source, so the same source has the same faults.

Each fault is planted alone in a copy of the committed tree. The room's tests run there until the first
failure. A run that takes far longer than without a fault counts as noticed. `--tests-of` takes the tests of
another commit, to compare two sets of tests on the same faults. Some faults have no visible effect, and no
test can notice them. Intervals of shares are Clopper and Pearson's.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine

from whenabouts.confidence.rates import exact_interval

ROOT = Path(__file__).resolve().parents[1]
OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
# The time limit of a run: this many times its time without a fault, plus a minute for a busy machine.
PATIENCE, ALLOWANCE = 4.0, 60.0


@dataclass(frozen=True)
class Fault:
    """A change of one expression in a file, with the code before and after it."""

    file: str
    line: int
    was: str
    now: str
    source: str
    """The whole file with the fault."""

    def to_json(self) -> dict[str, Any]:
        """The fault as a JSON object, without the file's text."""
        return {"file": self.file, "line": self.line, "was": self.was, "now": self.now}


def places_in(text: str) -> list[int]:
    """The numbers (in the order of `ast.walk`) of a module's nodes where a fault can be planted."""
    tree = ast.parse(text)
    skipped = set(_skipped(tree))
    return [number for number, node in enumerate(ast.walk(tree)) if number not in skipped and _change(node)]


def planted(file: str, text: str, place: int) -> Fault:
    """Plant the fault at a place, a number from `places_in`."""
    tree = ast.parse(text)
    node: Any = next(each for number, each in enumerate(ast.walk(tree)) if number == place)
    was, changed = ast.unparse(node), _change(node)
    assert changed is not None
    _replace(tree, node, changed)
    made = ast.unparse(ast.fix_missing_locations(tree))
    return Fault(file, node.lineno, was[:200], ast.unparse(changed)[:200], made)


def _skipped(tree: ast.Module) -> Iterator[int]:
    """The numbers of nodes in annotations and in blocks that tests never run."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        hidden: list[ast.AST | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            hidden.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            hidden.append(node.returns)
        elif isinstance(node, ast.If) and ast.unparse(node.test) in (
            "TYPE_CHECKING",
            "__name__ == '__main__'",
        ):
            hidden.append(node)
        inside.update(id(each) for part in hidden if part is not None for each in ast.walk(part))
    yield from (number for number, node in enumerate(ast.walk(tree)) if id(node) in inside)


def _change(node: ast.AST) -> ast.AST | None:
    """A copy of the node with a fault; None if no kind of fault fits the node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return ast.Compare(node.left, [_opposite(node.ops[0])], node.comparators)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(_opposite(node.op), node.values)
    if isinstance(node, ast.BinOp) and type(node.op) in OPPOSITE:
        return ast.BinOp(node.left, _opposite(node.op), node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return None if isinstance(node.value, bool) else ast.Constant(node.value + 1)
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        return ast.Return(ast.Constant(None))
    return None


def _opposite(operator: ast.AST) -> Any:
    return OPPOSITE[type(operator)]()


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if each is old else each for each in value]


def copied(place: Path, commit: str, tests_of: str | None) -> None:
    """Copy a commit's tree to `place`; `tests_of` is a commit whose tests replace those of the tree."""
    _unpack(commit, place)
    if tests_of is not None:
        named = subprocess.run(
            ["git", "ls-tree", "-r", "--name-only", tests_of],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        is_test = [
            name
            for name in named.stdout.splitlines()
            if name == "conftest.py" or name.split("/")[0] == "tests" or "/tests/" in name
        ]
        _unpack(tests_of, place, *is_test)


def _unpack(commit: str, place: Path, *names: str) -> None:
    packed = subprocess.run(["git", "archive", commit, *names], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(place, filter="data")


@dataclass(frozen=True)
class Room:
    """The source files of a room and its tests, as paths relative to the tree."""

    name: str
    sources: list[str]
    tests: list[str]


def room_named(name: str, tree: Path, files: Sequence[str] = (), tests: Sequence[str] = ()) -> Room:
    """Find a room. Raises SystemExit if it has no source or no tests."""
    given, _, given_tests = name.partition(":")
    package, _, inside = name.partition("/")
    folder = Path("packages", package.replace("_", "-"))
    source = Path(given) if given_tests else folder / "src" / package / inside
    own = [Path(given_tests) if given_tests else folder / "tests" / inside]
    if (tree / source).is_dir():
        sources = sorted(str(path.relative_to(tree)) for path in (tree / source).rglob("*.py"))
    elif given_tests:
        sources = [given]
    else:
        sources = [f"{source}.py"]
        own = [folder / "tests" / f"test_{inside}.py"]
    if files:
        sources = [each for each in sources if Path(each).name in files]
    if tests:
        own = [own[0] / each for each in tests]
    missing = [str(each) for each in [*map(Path, sources), *own] if not (tree / each).exists()]
    if missing or not sources:
        raise SystemExit(f"{name}: {', '.join(missing) or 'no source'}: there is no such file")
    return Room(name, sources, [str(each) for each in own])


def run_tests(room: Room, tree: Path, limit: float | None) -> tuple[int | None, float]:
    """(exit code of the room's tests, or None if they exceeded `limit` seconds; their time in seconds)."""
    path = os.pathsep.join(str(source) for source in [*sorted(tree.glob("packages/*/src")), tree / "src"])
    surroundings = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    surroundings.setdefault("WHENABOUTS_SHARED_DATA", str(ROOT.parent / "shared" / "data"))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0", *room.tests]
    began = time.monotonic()
    try:
        done = subprocess.run(command, cwd=tree, env=surroundings, capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, time.monotonic() - began
    return done.returncode, time.monotonic() - began


def measure(
    room: Room, tree: Path, count: int, seed: int, said: Callable[[str], None] = print
) -> dict[str, Any]:
    """Plant `count` faults, one at a time. Raises SystemExit if the tests fail without a fault."""
    texts = {file: (tree / file).read_text("utf-8") for file in room.sources}
    every = [(file, place) for file, text in texts.items() for place in places_in(text)]
    drawn = random.Random(f"{seed} {room.name}").sample(every, min(count, len(every)))
    code, seconds = run_tests(room, tree, None)
    if code != 0:
        raise SystemExit(
            f"{room.name}: its tests end with {code} without a fault, so nothing can be measured"
        )
    unnoticed, slow = [], 0
    for number, (file, place) in enumerate(drawn, 1):
        fault = planted(file, texts[file], place)
        (tree / file).write_text(fault.source, "utf-8")
        try:
            code, took = run_tests(room, tree, PATIENCE * seconds + ALLOWANCE)
        finally:
            (tree / file).write_text(texts[file], "utf-8")
        slow += code is None
        if code == 0:
            unnoticed.append(fault.to_json())
        outcome = "not noticed" if code == 0 else "noticed"
        said(f"{room.name} {number}/{len(drawn)} {outcome} in {took:.0f} s: {fault.to_json()}")
    noticed = len(drawn) - len(unnoticed)
    return {
        "date": date.today().isoformat(),
        "tests": room.tests,
        "sources": len(room.sources),
        "possible_faults": len(every),
        "seed": seed,
        "planted": len(drawn),
        "noticed": noticed,
        "of_these_by_time": slow,
        "share": round(noticed / len(drawn), 3),
        "interval": [round(end, 3) for end in exact_interval(noticed, len(drawn))],
        "seconds_without_fault": round(seconds),
        "not_noticed": unnoticed,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure rooms, and add each to the file of results as soon as it is measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="+", metavar="PACKAGE/ROOM")
    parser.add_argument("--commit", default="HEAD", help="the tree to measure (default: HEAD)")
    parser.add_argument("--faults", type=int, default=12, metavar="N", help="faults a room (default: 12)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", nargs="+", default=[], help="only faults in these files of the room")
    parser.add_argument("--tests", nargs="+", default=[], help="only these of the room's test files")
    parser.add_argument("--tests-of", metavar="COMMIT", help="tests of another commit")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="whenabouts-mutations-") as folder:
        tree = Path(folder, "tree")
        copied(tree, options.commit, options.tests_of)
        for name in options.rooms:
            room = room_named(name, tree, options.files, options.tests)
            result = measure(room, tree, options.faults, options.seed)
            low, high = result["interval"]
            print(f"{name}: {result['noticed']} of {result['planted']} noticed, {low:.0%} to {high:.0%}")
            if options.out is not None:
                kept = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
                kept["machine"] = describe_machine()
                part = "rooms" if options.commit == "HEAD" else f"rooms of {options.commit}"
                kept.setdefault(part, {})[name] = result
                options.out.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
