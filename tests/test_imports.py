"""Imports go in no circle, types included, and no room reaches into a private module of another."""

from __future__ import annotations

import ast
import graphlib
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = tomllib.loads((ROOT / "budgets.toml").read_text(encoding="utf-8"))


@cache
def modules() -> dict[str, ast.Module]:
    """The source of each module of the four packages, by its name."""
    parsed = {}
    for source in ROOT.glob("packages/*/src"):
        for file in source.rglob("*.py"):
            name = ".".join(file.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
            parsed[name] = ast.parse(file.read_text(encoding="utf-8"))
    return parsed


@cache
def imports_of(name: str) -> frozenset[str]:
    """The modules of ours that a module imports, those for types and inside functions too."""
    return frozenset(_imported(name))


def _imported(name: str) -> Iterator[str]:
    for node in ast.walk(modules()[name]):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in modules() else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {name: {other for other in imports_of(name) if other in modules()} - {name} for name in modules()}
    assert len(graph) > 500
    graphlib.TopologicalSorter(graph).prepare()  # CycleError names the circle


def test_no_room_imports_a_private_module_of_another() -> None:
    reaches = []
    for name in modules():
        room = name.split(".")[:2]
        for other in imports_of(name):
            parts = other.split(".")
            if parts[0].startswith("whenabouts") and parts[:2] != room:
                reaches += [
                    f"{name} -> {other}" for part in parts if part.startswith("_") and part[1:2] != "_"
                ]
    assert not reaches


def test_few_imports_of_ours_stand_inside_functions() -> None:
    inside = sum(
        isinstance(node, ast.ImportFrom) and str(node.module).startswith("whenabouts")
        for tree in modules().values()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    )
    assert inside <= BUDGETS["imports"]["inside_functions"]
