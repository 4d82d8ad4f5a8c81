"""What goes into the wheel and the sdist, and how the front page reads on an index."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import MadeOnce

ROOT = Path(__file__).resolve().parents[1]
RELATIVE = re.compile(r"\]\((?!https?://|#)[^)]*\)")


def _build(target: str) -> Callable[[Path], object]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d"]
    return lambda folder: subprocess.run([*command, str(folder)], cwd=ROOT, check=True, capture_output=True)


def _settings() -> dict[str, Any]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    hatch: dict[str, Any] = tomllib.loads(text)["tool"]["hatch"]
    return hatch


def test_links_of_the_front_page_are_absolute_on_an_index() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?://|#)([^)]*)\)", text)
    for rule in _settings()["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    assert len(targets) > 20 and not RELATIVE.findall(text)
    assert text.count("(https://raw.githubusercontent.com/") == len(re.findall(r"!\[[^\]]*\]\(", text)) > 0
    assert all(f"/main/{target})" in text for target in targets)


@pytest.mark.slow
def test_the_wheel_has_the_experiments_and_a_front_page_without_relative_links(made_once: MadeOnce) -> None:
    (wheel,) = made_once("built-wheel", _build("wheel")).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode("utf-8")
    experiments = {path.relative_to(ROOT).as_posix() for path in (ROOT / "experiments").rglob("*.toml")}
    assert {f"whenabouts/{name}" for name in experiments} <= names
    assert "# whenabouts" in text and not RELATIVE.findall(text)


@pytest.mark.slow
def test_the_sdist_has_every_tracked_file_that_tests_can_read(made_once: MadeOnce) -> None:
    (sdist,) = made_once("built-sdist", _build("sdist")).glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    tracked = {name for name in listed.stdout.decode().split("\0") if name}
    assert tracked - names == set()
