"""What a package that is not installed is called, and the extra that brings it."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from whenabouts.extras import EXTRAS, lacking

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PACKAGES = {"bench": "whenabouts-bench", "research": "whenabouts-systems", "cluster": "whenabouts-cluster"}
"""Extra -> the package of this repository whose requirements it brings."""


def _extras() -> dict[str, list[str]]:
    """Extra, or `PACKAGE[extra]` -> its requirements."""
    extras: dict[str, list[str]] = dict(PROJECT["optional-dependencies"])
    for extra, name in PACKAGES.items():
        text = (ROOT / "packages" / name / "pyproject.toml").read_text("utf-8")
        project = tomllib.loads(text)["project"]
        extras[extra] = [*extras[extra], *project["dependencies"]]
        for more, requirements in project.get("optional-dependencies", {}).items():
            extras[f"{name}[{more}]"] = requirements
    return extras


def _plain(requirement: str) -> str:
    """The name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=;!~]", requirement, maxsplit=1)[0]).lower()


def test_every_extra_that_is_named_exists() -> None:
    assert set(EXTRAS.values()) <= set(_extras())


def test_every_package_of_an_extra_is_known_by_an_extra_that_brings_it() -> None:
    brought: dict[str, set[str]] = defaultdict(set)
    for extra, requirements in _extras().items():
        for requirement in requirements:
            brought[_plain(requirement)].add(extra)
    del brought["whenabouts"]
    modules = defaultdict(set)
    for module, distributions in importlib.metadata.packages_distributions().items():
        for distribution in distributions:
            modules[_plain(distribution)].add(module)
    installed = {name: extras for name, extras in brought.items() if modules[name]}
    assert installed
    for name, extras in installed.items():
        assert extras & {EXTRAS[module] for module in modules[name] & set(EXTRAS)}, name


@pytest.mark.parametrize(
    ("module", "extra"), [("torch", "research"), ("h5py._hl", "research"), ("uvicorn", "server")]
)
def test_what_an_extra_brings_is_said_with_the_command_that_brings_it(module: str, extra: str) -> None:
    text = lacking(ModuleNotFoundError(f"No module named {module!r}", name=module)) or ""
    assert text.startswith(f"{module} is not installed")
    assert text.endswith(f"pip install 'whenabouts[{extra}]'")


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("x", name="whenabouts.none"), ModuleNotFoundError("x"), KeyError("torch")]
)
def test_other_errors_are_mended_by_no_extra(error: Exception) -> None:
    assert lacking(error) is None
