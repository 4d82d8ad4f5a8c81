"""Names say what a value is: a short list of words is not used as a name anywhere in the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "packages"

# Words that say nothing of a value, and pictures where the field has a term (docs/glossary.md has the terms).
_VAGUE = """
told one found known heard said asked wanted thing things stuff lesson lessons desk desks sheet sheets
shelf shelves witness witnesses lane lanes seat seats asking trial trials
"""
VAGUE = frozenset(_VAGUE.split())


def _bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(name, line) of everything that a module binds: variables, parameters, functions, classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store(), lineno=line):
                yield name, line
            case ast.arg(arg=name, lineno=line):
                yield name, line
            case ast.FunctionDef(name=name, lineno=line) | ast.AsyncFunctionDef(name=name, lineno=line):
                yield name, line
            case ast.ClassDef(name=name, lineno=line):
                yield name, line


def _vague(name: str) -> bool:
    plain = name.strip("_")
    pieces = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", plain) if plain[:1].isupper() else [plain]
    return any(piece.lower() in VAGUE for piece in pieces)


def vague_names(folder: Path) -> list[str]:
    """`file:line name` of each name in a folder that is on the list."""
    return [
        f"{path.relative_to(SOURCE)}:{line} {name}"
        for path in sorted(folder.glob("*/src/**/*.py"))
        for name, line in _bound(ast.parse(path.read_text(encoding="utf-8")))
        if _vague(name)
    ]


def test_no_name_is_a_word_that_says_nothing() -> None:
    vague = vague_names(SOURCE)
    assert not vague, f"{len(vague)} names; the first: " + ", ".join(vague[:20])


def test_the_check_sees_each_way_to_bind_a_name() -> None:
    source = "found = 1\ndef _told(one, *, known=2): pass\nclass Shelf: pass\nfor heard in (): pass\n"
    names = [name for name, _ in _bound(ast.parse(source)) if _vague(name)]
    assert sorted(names) == ["Shelf", "_told", "found", "heard", "known", "one"]
