"""Every option of the command line is on a doc page and in a test, and there are not too many."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from whenabouts.cli.main import build_parser

pytest.importorskip("whenabouts_bench", reason="counts the options of all packages")
pytest.importorskip("whenabouts_systems", reason="counts the options of all packages")
pytest.importorskip("whenabouts_cluster", reason="counts the options of all packages")

ROOT = Path(__file__).resolve().parents[1]
MOST_DECLARED = 341
"""Options that differ in name, values or help text. `--json` counts once, not once for each verb."""
MOST_IN_ALL_VERBS = 578
"""Options added up over all verbs: `--json` counts once for each verb that has it."""


def options_under(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The options of a parser and of all verbs under it, without --help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from options_under(child)
        elif action.option_strings and not isinstance(action, argparse._HelpAction):
            yield action


OPTIONS = list(options_under(build_parser(None)))
NAMES = sorted({tuple(option.option_strings) for option in OPTIONS})
"""The spellings of each option, such as --follow and --no-follow."""


def declaration(option: argparse.Action) -> tuple[object, ...]:
    """What a user has to learn about an option; verbs that share a declaration share all of it."""
    values = (option.type, option.nargs, tuple(option.choices or ()), option.metavar)
    return (type(option), *option.option_strings, *values, option.help)


def words_of(files: Iterator[Path]) -> frozenset[str]:
    """Every run of letters, digits, `_` and `-`: an option counts where it stands whole."""
    texts = (path.read_text(encoding="utf-8") for path in files)
    return frozenset(word for text in texts for word in re.findall(r"[\w-]+", text))


DOCS = words_of(path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
TESTS = words_of(
    path
    for folder in (ROOT / "tests", *sorted((ROOT / "packages").glob("*/tests")))
    for path in sorted(folder.rglob("*.py"))
    if path != Path(__file__)
)


def test_options_stay_few() -> None:
    assert len({declaration(option) for option in OPTIONS}) <= MOST_DECLARED
    assert len(OPTIONS) <= MOST_IN_ALL_VERBS


@pytest.mark.parametrize("spellings", NAMES, ids="/".join)
def test_an_option_is_on_a_doc_page_and_in_a_test(spellings: tuple[str, ...]) -> None:
    assert DOCS.intersection(spellings)
    assert TESTS.intersection(spellings)


def test_the_help_of_every_verb_comes_without_heavy_libraries() -> None:
    heavy = (
        "torch",
        "ray",
        "matplotlib",
        "onnxruntime",
        "fastapi",
        "transformers",
        "lancedb",
        "pyarrow",
        "av",
    )
    code = (
        "import sys; from whenabouts.cli.main import build_parser; build_parser(None);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "removed",
    [
        ("relevance", "pairs", "--queries", "x", "--out", "y", "--examples", "3"),
        ("relevance", "ranked", "--queries", "x", "--out", "y", "--input-format", "tvr"),
        ("relevance", "figures", "--truth", "x", "--out", "y", "--rows", "3"),
        ("build", "queries", "--annotations", "x", "--out", "y", "--tries", "3"),
        ("build", "judging", "--run", "x", "--out", "y", "--still-relevant", "2"),
    ],
)
def test_an_option_that_was_removed_is_refused(
    removed: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        build_parser([removed[0]]).parse_args(removed)
    assert f"unrecognized arguments: {removed[-2]} {removed[-1]}" in capsys.readouterr().err
