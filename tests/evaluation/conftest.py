"""Where the numbers of the released programs lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def golden() -> Path:
    """Golden vectors beside the project; CUEPOINT_GOLDEN names another folder of the same layout."""
    folder = Path(os.environ.get("CUEPOINT_GOLDEN", ROOT.parent / "shared" / "golden"))
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here: it holds the numbers of the released programs")
    return folder
