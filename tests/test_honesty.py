"""What the pages say is so: commands parse and run, names exist, everything public is explained."""

from __future__ import annotations

import argparse
import ast
import contextlib
import doctest
import importlib
import importlib.metadata
import io
import itertools
import os
import pkgutil
import pydoc
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import whenabouts
from whenabouts.cli.main import build_parser, main

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = sorted(path for path in (ROOT / "packages").glob("*/src/*") if (path / "__init__.py").exists())
SOURCES = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
LOGS = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
MODULES = sorted(
    ".".join((package.name, *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__")
    for package in PACKAGES
    for path in package.rglob("*.py")
)


def _commands(page: Path) -> list[str]:
    """Every `whenabouts …` line of a page's console and shell blocks, and every command in running text."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, flags=re.S)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.replace("\\\n", "").splitlines()]
    typed = [line for line in lines if line.startswith("whenabouts ")]
    return typed + re.findall(r"`(whenabouts [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))


def _words(command: str) -> list[str]:
    words = shlex.split(command, comments=True)
    return words[1 : words.index("|")] if "|" in words else words[1:]


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """That of the command, with all its verbs."""
    return build_parser()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_on_the_pages_parses(page: Path, parser: argparse.ArgumentParser) -> None:
    verbs = {name for name, _ in _parsers(parser)} | {"doctor why"}
    for command in _commands(page):
        words = _words(command)
        if words[-1] in ("--help", "--version") or " ".join(words) in verbs:
            continue  # named, not run
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                options = parser.parse_args(words)
        except SystemExit:
            pytest.fail(f"{page.name}: {command!r}: {said.getvalue()}")
        assert options.verb == words[0]


def test_the_pages_have_commands_to_check() -> None:
    assert len(_commands(ROOT / "README.md")) >= 5
    assert len(_commands(ROOT / "docs" / "tutorial.md")) >= 8


@pytest.mark.slow
def test_the_tutorial_runs_on_the_sample_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    ran = []
    for command in _commands(ROOT / "docs" / "tutorial.md") + _commands(ROOT / "README.md"):
        words = _words(command)
        texts = " ".join(words)
        if "--vision" in words or not (
            "samples/videos" in texts or "friday.mp4" in texts or words[:1] == ["stats"]
        ):
            continue  # asks for files or models that the reader brings
        if "--corpus" not in words:
            words += ["--corpus", "my.corpus"]
        code = main(words)
        said = capsys.readouterr()
        assert code == 0, f"{command}: {said.out}{said.err}"
        ran.append(words[0])
    assert {"index", "show", "doctor"} <= set(ran)
    assert main(["search", "the space telescope in the cleanroom", "--corpus", "my.corpus"]) == 0


def _parsers(
    parser: argparse.ArgumentParser, name: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, below in action.choices.items():
                yield from _parsers(below, f"{name} {verb}".strip())


@pytest.mark.parametrize(("name", "verb_parser"), list(_parsers(build_parser())), ids=lambda v: str(v)[:20])
def test_every_verb_and_option_is_documented(name: str, verb_parser: argparse.ArgumentParser) -> None:
    parser, pages = verb_parser, "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert parser.description
    for verb in name.split():
        assert re.search(rf"`[^`]*\b{verb}\b", pages), f"no page names {verb}"
    help_page = parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        shown = action.option_strings[-1:] or [str(action.metavar)]
        documented = action.help not in (None, argparse.SUPPRESS) or action.metavar in ("QUERY",)
        assert documented or shown[0] in pages, f"{name} {shown[0]}: neither help nor page"
        assert shown[0] in help_page


def test_names_on_the_architecture_page_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([\w/]+\.py)\b", text)) | set(re.findall(r"`([\w]+/)`", text))
    assert len(names) >= 15
    inside = {path.relative_to(package).as_posix() for package in PACKAGES for path in package.rglob("*")}
    for name in names:
        bare = name.rstrip("/")
        assert any(path == bare or path.endswith(f"/{bare}") for path in inside), name
    for where, what in re.findall(r"`([\w/]+\.py): ([\w.]+)`", text):
        owner = next(path for path in SOURCES if path.as_posix().endswith(f"/{where}"))
        assert what.split(".")[-1] in owner.read_text(encoding="utf-8"), f"{where}: {what}"


def test_the_architecture_page_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for path in (path for package in PACKAGES for path in package.iterdir()):
        if path.suffix == ".py" and not path.name.startswith("__"):
            assert f"`{path.name}`" in text, path.name
        if path.is_dir() and path.name != "__pycache__":
            assert f"`{path.name}/`" in text, path.name


# Methods whose names say what they do, in every class. Properties need no docstring either, nor does a method
# that a protocol or a base class explains.
TRIVIAL_METHODS = {
    "add_arguments",
    "clear",
    "close",
    "drop",
    "from_json",
    "lines",
    "release",
    "stop",
    "to_json",
    "write",
}


def test_everything_public_is_explained() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    inherited = _explained_methods(trees.values())
    bare = [
        f"{path.relative_to(ROOT)}, the module" for path, tree in trees.items() if not ast.get_docstring(tree)
    ]
    bare += [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, tree in trees.items()
        for node, is_method in _public(tree.body)
        if not ast.get_docstring(node)
        and not (is_method and (_is_property(node) or node.name in TRIVIAL_METHODS | inherited))
    ]
    assert not bare, ", ".join(bare)


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _explained_methods(trees: Iterable[ast.Module]) -> set[str]:
    """Names of the methods that protocols and base classes explain, those of paths and streams among them."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {ast.unparse(base).split("[")[0] for node in classes for base in node.bases}
    return {*dir(Path), *dir(io.RawIOBase)} | {
        method.name
        for node in classes
        if node.name in bases or any(ast.unparse(base).startswith("Protocol") for base in node.bases)
        for method, _ in _public(node.body, in_class=True)
        if ast.get_docstring(method)
    }


def _is_property(node: Definition) -> bool:
    return any("property" in ast.unparse(mark) for mark in node.decorator_list)


def _public(body: list[ast.stmt], *, in_class: bool = False) -> Iterator[tuple[Definition, bool]]:
    """Public definitions, and whether each is a method."""
    for node in body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        if all(ast.unparse(mark) != "overload" for mark in node.decorator_list):
            yield node, in_class and not isinstance(node, ast.ClassDef)
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body, in_class=True)


@pytest.mark.slow
def test_examples_in_docstrings_run() -> None:
    # `__main__` is left out: importing it is the command itself.
    results = [
        doctest.testmod(importlib.import_module(name)) for name in MODULES if not name.endswith("__main__")
    ]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) >= 30


def test_every_module_is_importable_by_its_package() -> None:
    for package in PACKAGES:
        found = {m.name for m in pkgutil.walk_packages([str(package)], f"{package.name}.")}
        assert {name for name in MODULES if name.startswith(f"{package.name}.")} <= found


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_no_tracked_file_names_a_machine_or_a_package_mirror() -> None:
    # Written apart, so that this file does not name them.
    home, work = "/ho" + "me/", "/wo" + "rk/"
    machine = re.compile(
        rf"(?<![\w.~*]){work}(?:main|shared)|/ro" + rf"ot/|{home}(?!user\b)\w+/|/Us" + r"ers/\w+/"
    )
    mirror = re.compile("--(extra-)?index-" + "url|PIP_" + "INDEX|arti" + "factory|pypi-" + "proxy")
    for path in _tracked():
        if not path.is_file() or path.suffix in {".mp4", ".webm", ".mp3", ".png"}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for pattern in (machine, mirror):
            found = pattern.search(text)
            assert found is None, f"{path.relative_to(ROOT)}: {found and found.group()}"


def _declared() -> set[str]:
    """Names of the distributions that the packages declare, our own among them."""
    wanted: list[str] = []
    for file in _projects():
        declared = tomllib.loads(file.read_text(encoding="utf-8"))
        extras = declared["project"].get("optional-dependencies", {}).values()
        wanted += [
            declared["project"]["name"],
            *declared["project"]["dependencies"],
            *itertools.chain(*extras),
        ]
        wanted += [
            name for name in declared.get("dependency-groups", {}).get("dev", []) if isinstance(name, str)
        ]
    return {re.split(r"[\[<>=!~;\s]", name)[0].lower() for name in wanted}


def test_no_page_or_message_installs_a_package_that_is_not_declared() -> None:
    # A README that names a package of somebody else makes its readers run a stranger's code.
    declared, seen = _declared(), 0
    kinds = {".md", ".py", ".j2", ".js", ".html", ".toml"}
    shown = [path for path in _tracked() if path.suffix in kinds and "tests" not in path.parts]
    for path in shown:
        for line in re.findall(r"pip install ([^`\n]*)", path.read_text(encoding="utf-8")):
            words = re.split(r"[\s,;:)]+", re.split(r"[#.:;]\s|\"$", line)[0])
            names = [
                re.split(r"[\[<>=]", word.strip("'\"\\"))[0] for word in words if not word.startswith("-")
            ]
            for name in names[: names.index("") if "" in names else None]:
                if re.fullmatch(r"[A-Za-z][\w.-]+", name) and name not in {
                    "and",
                    "then",
                    "or",
                    "makes",
                    "works",
                }:
                    seen += 1
                    assert name.lower() in declared, f"{path.relative_to(ROOT)}: pip install {name}"
                else:
                    break
    assert seen > 20


def _projects() -> list[Path]:
    return [ROOT / "pyproject.toml", *sorted((ROOT / "packages").glob("*/pyproject.toml"))]


def test_the_version_is_the_same_everywhere() -> None:
    for package in PACKAGES:
        module = importlib.import_module(package.name)
        assert module.__version__ == whenabouts.__version__
        assert importlib.metadata.version(package.name.replace("_", "-")) == whenabouts.__version__
    pins = re.findall(r"whenabouts(?:-\w+)?(?:\[\w+\])?==([\w.]+)", "".join(map(Path.read_text, _projects())))
    assert len(pins) > 5 and set(pins) == {whenabouts.__version__}


def test_the_change_log_has_a_place_for_what_is_not_released() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", text, flags=re.S | re.M)
    assert section and "- " in section.group(1)


@pytest.mark.parametrize(
    "page", [*PAGES, *LOGS, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", [*PAGES, *LOGS], ids=lambda page: page.name)
def test_raw_numbers_that_a_page_names_are_there(page: Path) -> None:
    text, results = page.read_text(encoding="utf-8"), ROOT / "benchmarks" / "results"
    for line in re.findall(r"^Raw numbers: .*", text, flags=re.M):
        assert all((results / name).exists() for name in re.findall(r"`([^`]+\.[^`]+)`", line)), line
    for name in re.findall(r"benchmarks/results/([\w.-]+\w)", text):
        assert (results / name).exists(), f"{page.name}: {name}"


def test_links_into_the_api_reference_name_what_is_there() -> None:
    # mkdocs does not check the anchors that mkdocstrings makes.
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = set(re.findall(r"\(api/\w+\.md#(whenabouts[\w.]+)\)", text))
    assert names
    for name in names:
        assert pydoc.locate(name) is not None, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_waits_for_a_number(page: Path) -> None:
    assert not re.findall(r"@@\w+@@", page.read_text(encoding="utf-8"))


def test_everything_the_package_offers_can_be_had() -> None:
    for name in whenabouts.__all__:
        assert getattr(whenabouts, name) is not None
        # Else `from whenabouts import *` fails where the other packages are missing.
        assert whenabouts._HOMES.get(name, "whenabouts.types").startswith("whenabouts.")


def test_the_front_page_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) < 900


def test_every_room_is_in_the_api_reference_and_every_page_in_the_site() -> None:
    reference = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    rooms = {
        f"{package.name}.{path.stem}"
        for package in PACKAGES
        for path in package.iterdir()
        if not path.name.startswith("__") and path.suffix in {"", ".py"} and path.name != "experiments"
    }
    assert rooms == set(re.findall(r"^::: (whenabouts[\w.]+)$", reference, flags=re.M))
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").as_posix() in site, page.name


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "class" in (tmp_path / "site" / "api" / "product" / "index.html").read_text(encoding="utf-8")
