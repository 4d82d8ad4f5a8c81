"""ARCHITECTURE.md and the budgets of the packages say what is so."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = tomllib.loads((ROOT / "budgets.toml").read_text(encoding="utf-8"))


def lines_of(package: str) -> int:
    """Lines of Python in the source of a package."""
    files = (ROOT / "packages" / package / "src").rglob("*.py")
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


@pytest.mark.parametrize("package", BUDGETS["lines"])
def test_a_package_has_no_more_lines_than_its_budget(package: str) -> None:
    assert lines_of(package) <= BUDGETS["lines"][package]


def test_every_package_has_a_budget() -> None:
    packages = {path.parent.parent.name for path in (ROOT / "packages").glob("*/src/*") if path.is_dir()}
    assert packages == set(BUDGETS["lines"])


def test_the_pages_have_no_more_words_than_their_budget() -> None:
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in (ROOT / "docs").glob("*.md"))
    assert words <= BUDGETS["words"]["docs"]
    assert (
        len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split())
        <= BUDGETS["words"]["architecture"]
    )


def test_the_ways_of_the_architecture_page_are_those_that_were_measured() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results" / "ways.json").read_text(encoding="utf-8"))["ways"]
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z ]+) \| (\d+) \| (\d+) \| ([\d,]+) \|$", text, flags=re.M)
    shown = {
        name: (int(files), int(aim), int(changes.replace(",", ""))) for name, files, aim, changes in rows
    }
    assert shown == {name: (way["files"], way["aim"], way["changes"]) for name, way in measured.items()}


@pytest.mark.slow
def test_no_way_goes_through_more_files_than_its_budget(tmp_path: Path) -> None:
    from benchmarks.ways import walk_all

    for name, way in walk_all("whenabouts", tmp_path).items():
        files, changes = BUDGETS["ways"][name]
        assert way["files"] <= files, name
        assert way["changes"] <= changes, name
