"""scipy is used in one place: the package asks for it only there."""

from __future__ import annotations

import re
from pathlib import Path

import whenabouts
import whenabouts_bench
import whenabouts_systems

PACKAGES = (whenabouts, whenabouts_bench, whenabouts_systems)


def test_only_the_matching_of_windows_needs_scipy() -> None:
    using = {
        path.name
        for package in PACKAGES
        for path in Path(str(package.__file__)).parent.rglob("*.py")
        if re.search(r"^\s*(?:import|from) scipy", path.read_text(encoding="utf-8"), flags=re.M)
    }
    assert using == {"window_targets.py"}
