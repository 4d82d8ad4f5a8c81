"""A served task set, and the Chromium of the tests of the other page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.judging.served_set import serving, small_set
from tests.server.page.conftest import browser as browser
from tests.server.page.conftest import open_tab as open_tab

from whenabouts_bench.judging.tasks import TaskSet


@pytest.fixture
def address() -> str:
    """Tabs are opened at links."""
    return ""


@pytest.fixture
def judging(tmp_path: Path, samples: Path) -> Iterator[Callable[..., tuple[TaskSet, dict[str, str]]]]:
    """Serves a new task set; gives it, and the links."""
    with ExitStack() as running:

        def serve_one(*names: str, **more: Any) -> tuple[TaskSet, dict[str, str]]:
            tasks = small_set(tmp_path / "set", samples, **more)
            return tasks, running.enter_context(serving(tasks, tmp_path / "cache", *names))

        yield serve_one
