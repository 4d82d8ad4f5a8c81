"""The boundary in the syntax of every module: who writes files, who prints, who joins names to folders.

Outside `intake/`, a file is written by `intake.files.write_atomically`, data reach a terminal through
`cli.terminal.for_terminal`, and a name of somebody else becomes a path by `intake.own_files.own_file`.
Each exception is listed with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import pytest
from tests.test_honesty import PACKAGES, SOURCES

ASIDE = "a new file under a name by chance, which takes its place when it is whole"
STREAM = "a copy of a pipe that the parent process gave"
WRITES = {
    "whenabouts/workplace/guests.py": ASIDE,
    "whenabouts/export/__init__.py": ASIDE,
    "whenabouts/cli/export.py": ASIDE,
    "whenabouts/server/decoding.py": "a new file in the server's cache, under a name that is a hash",
    "whenabouts/video/copying.py": ASIDE,
    "whenabouts/video/encoding.py": ASIDE,
    "whenabouts/resident.py": "a switch of the kernel",
    "whenabouts/cli/terminal.py": "the null device in the place of closed streams",
    "whenabouts/server/job_worker.py": STREAM,
    "whenabouts_bench/formats/_lmdb_child.py": STREAM,
    "whenabouts_bench/judging/model_judge.py": "a descriptor of `open_appending`",
    "whenabouts_bench/relevance/imprecise/making.py": "a descriptor of `open_appending`",
    "whenabouts_bench/systems/whenabouts.py": "in a temporary folder of its own, under a number",
    "whenabouts_systems/ranking/encoded_corpus.py": "in a new folder, which takes its place when it is whole",
    "whenabouts_systems/features/layouts/store.py": "in a new folder, which takes its place when it is whole",
    "whenabouts_systems/training/devices.py": "in a new folder of this process; names of a listed folder",
}
PRINTS = {
    "whenabouts/export/resolve_script.py": "runs inside Resolve, without this package",
    "whenabouts/agents/over_http.py": "the checked address of its own server",
    "whenabouts/cli/mcp.py": "a text that the package carries",
    "whenabouts/index/stranger.py": "to a pipe of the process that started it, names as ASCII",
}
OURS = "a name that this program makes"
LISTED = "names that the system listed in that folder"
PERSON = "a path of the person's own experiment, which may lie anywhere; a checkpoint's makes no folder"
JOINS = {
    "whenabouts/agents/tools.py": "`cut_name` and `_SAFE_NAME` leave no separator",
    "whenabouts/cli/cut.py": "`cut_name` leaves no separator",
    "whenabouts/confidence/background.py": LISTED,
    "whenabouts/drawing.py": OURS,
    "whenabouts/encoders/multimodal.py": "only JSON is read, at the path that the model's own library reads",
    "whenabouts/encoders/sentence_transformers.py": OURS,
    "whenabouts/encoders/weight_files.py": "a hash",
    "whenabouts/index/checksums.py": LISTED,
    "whenabouts/locking.py": OURS,
    "whenabouts/server/cache.py": "a hash",
    "whenabouts/server/service.py": OURS,
    "whenabouts/video/aside.py": OURS,
    "whenabouts/video/files.py": LISTED,
    "whenabouts_bench/datasets/activitynet_two_annotators.py": "names of splits, written in that module",
    "whenabouts_bench/datasets/titled_transcripts.py": "`_Name` leaves no separator; names of splits",
    "whenabouts_bench/judging/tasks.py": "recordings lie anywhere; they are opened as media or not at all",
    "whenabouts_bench/relevance/threshold_study.py": "the name of the file that the person gave",
    "whenabouts_systems/features/__init__.py": LISTED,
    "whenabouts_systems/features/cache.py": "the name of the file that is open, and a hash",
    "whenabouts_systems/features/layouts/_numpy_files.py": LISTED,
    "whenabouts_systems/models/staged.py": "`_is_inside` and the resolved path keep it in the folder",
    "whenabouts_systems/ranking/encoded_corpus.py": OURS,
    "whenabouts_systems/training/data.py": PERSON,
    "whenabouts_systems/training/devices.py": LISTED,
    "whenabouts_systems/training/experiment.py": PERSON,
    "whenabouts_systems/training/launch.py": OURS,
    "whenabouts_systems/training/retrieval_lists.py": PERSON,
    "whenabouts_systems/training/stages.py": "names of stages have no dot, and are stems of files",
}

_CLEANERS = {"for_terminal", "one_line", "number_of", "dumps"}
_FOLDERS = ("folder", "path", "parent", "aside", "cache", "dir", "root", "out", "home", "run")
_MODES = set("rwxabt+")


def writes_a_file(node: ast.AST, _: set[str]) -> bool:
    """`open(path, "w")`, `path.open("wb")`, `path.write_text(text)`, `path.write_bytes(data)`."""
    if not isinstance(node, ast.Call):
        return False
    if _called(node) in ("open", "fdopen"):
        modes = [*node.args[:2], *(word.value for word in node.keywords if word.arg == "mode")]
        texts = [str(mode.value) for mode in modes if isinstance(mode, ast.Constant)]
        return any(set(text) <= _MODES and set(text) & set("wxa+") for text in texts)
    return _called(node) in ("write_text", "write_bytes")


def prints_data(node: ast.AST, _: set[str]) -> bool:
    """`print(value)` and `console.print(f"{value}")` of a value that no cleaner was called on."""
    if not isinstance(node, ast.Call) or _called(node) != "print":
        return False
    is_plain = isinstance(node.func, ast.Name)
    return any(not _is_clean(value) for value in node.args if is_plain or isinstance(value, ast.JoinedStr))


def joins_a_name(node: ast.AST, constants: set[str]) -> bool:
    """`folder / name` and `path.with_name(name)` of a name that is not written in this module."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("joinpath", "with_name"):
            return not all(_is_constant(value, constants) for value in node.args)
        return ast.unparse(node.func) == "os.path.join"
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return False
    if _is_constant(node.right, constants):
        return False
    left = ast.unparse(node.left)
    is_folder = left.startswith("Path(") or left.split("(")[0].rpartition(".")[2].lower().endswith(_FOLDERS)
    is_number = isinstance(node.left, ast.BinOp) and not isinstance(node.left.op, ast.Div)
    return is_folder and not is_number


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_clean(value: ast.AST) -> bool:
    if isinstance(value, ast.JoinedStr):
        return all(_is_clean(part) for part in value.values)
    if isinstance(value, ast.FormattedValue):
        return _is_clean(value.value)
    if isinstance(value, ast.BinOp):
        return _is_clean(value.left) and _is_clean(value.right)
    if isinstance(value, ast.Name | ast.Attribute):
        return _is_constant(value, set())
    names = (getattr(inner, "id", getattr(inner, "attr", "")) for inner in ast.walk(value))
    return isinstance(value, ast.Constant) or not _CLEANERS.isdisjoint(names)


def _is_constant(value: ast.AST, constants: set[str]) -> bool:
    if isinstance(value, ast.Name | ast.Attribute):
        name = value.id if isinstance(value, ast.Name) else value.attr
        return name.lstrip("_").isupper() or name in constants
    if isinstance(value, ast.JoinedStr):
        inner = (part.value for part in value.values if isinstance(part, ast.FormattedValue))
        return all(_is_constant(part, constants) for part in inner)
    return isinstance(value, ast.Constant) or (
        isinstance(value, ast.Subscript) and _is_constant(value.value, constants)
    )


def _constants(nodes: Iterable[ast.AST]) -> set[str]:
    """Variables that run over values written in the module, or over numbers."""
    names: set[str] = set()
    for node in nodes:
        if not isinstance(node, ast.For | ast.comprehension):
            continue
        over = node.iter
        if isinstance(over, ast.Call) and _called(over) == "items":
            over = over.func.value  # type: ignore[attr-defined]
        parts = over.elts if isinstance(over, ast.Tuple | ast.List) else [over]
        firsts = [part.elts[0] if isinstance(part, ast.Tuple) else part for part in parts]
        inner = [part.value if isinstance(part, ast.Starred) else part for part in firsts]
        is_number = isinstance(over, ast.Call) and _called(over) in ("range", "enumerate")
        if is_number or all(_is_constant(part, set()) for part in inner):
            target = node.target.elts[0] if is_number and isinstance(node.target, ast.Tuple) else node.target
            names |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names


@cache
def _nodes() -> list[tuple[str, set[str], list[ast.AST]]]:
    """Each module outside `intake/`, its constants, and its calls and divisions."""
    modules = []
    for path in SOURCES:
        module = path.relative_to(next(top.parent for top in PACKAGES if top in path.parents)).as_posix()
        if not module.startswith("whenabouts/intake/"):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            looked_at: list[ast.AST] = [node for node in nodes if isinstance(node, ast.Call | ast.BinOp)]
            modules.append((module, _constants(nodes), looked_at))
    return modules


def _found(rule: Callable[[ast.AST, set[str]], bool]) -> Iterator[tuple[str, str]]:
    """(module, line and source) of every place outside `intake/` where a rule holds."""
    for module, constants, nodes in _nodes():
        for node in nodes:
            if rule(node, constants):
                yield module, f"{module}:{node.lineno}: {ast.unparse(node)[:90]}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [(writes_a_file, WRITES), (prints_data, PRINTS), (joins_a_name, JOINS)],
    ids=["writing", "printing", "joining"],
)
def test_only_listed_modules_do_it_and_each_listed_one_does(
    rule: Callable[[ast.AST, set[str]], bool], allowed: dict[str, str]
) -> None:
    found = list(_found(rule))
    assert [place for module, place in found if module not in allowed] == []
    assert allowed.keys() - {module for module, _ in found} == set()


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (writes_a_file, "open(p, 'w')", "open(p)"),
        (writes_a_file, "p.open(mode='ab')", "p.open('rb')"),
        (writes_a_file, "p.write_text(t)", "p.read_text()"),
        (prints_data, "print(name)", "print(for_terminal(name))"),
        (prints_data, "print(f'a {n.name}')", "print(f'a {number_of(n, 1)}')"),
        (prints_data, "out.print(f'{n.name}')", "out.print(table)"),
        (prints_data, "print('a', e)", "print('a')"),
        (joins_a_name, "folder / name", "folder / NAME"),
        (joins_a_name, "Path(out) / f'{x}.json'", "Path(out) / 'a.json'"),
        (joins_a_name, "path.with_name(x)", "path.with_name(_X)"),
        (joins_a_name, "folder / x['path']", "(1 - place) / name"),
        (joins_a_name, "[folder / n for n in names]", "[folder / n for n in ('a', NAME)]"),
    ],
)
def test_each_rule_tells_the_two_apart(
    rule: Callable[[ast.AST, set[str]], bool], bad: str, good: str
) -> None:
    def holds(text: str) -> bool:
        nodes = list(ast.walk(ast.parse(text)))
        return any(rule(node, _constants(nodes)) for node in nodes)

    assert holds(bad) and not holds(good)
