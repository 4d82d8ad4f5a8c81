"""A served task set, and the Chromium of the tests of the other page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.judging.served_set import SECRET, small_set
from tests.server.page.conftest import browser as browser
from tests.server.page.conftest import open_tab as open_tab

from whenabouts.server.run import Server, link, listen
from whenabouts.server.settings import Settings
from whenabouts_bench.judging.server import Application
from whenabouts_bench.judging.server_people import People
from whenabouts_bench.judging.tasks import TaskSet


@contextmanager
def serving(tasks: TaskSet, cache: Path, *names: str) -> Iterator[dict[str, str]]:
    """Name -> link while a server runs in a thread; "" is the lead."""
    people = People.of(names, "login", SECRET)
    settings = Settings(token=people.lead_token, cache=cache, port=0)
    started = threading.Event()
    with listen(settings) as bound:
        server = Server(Application(tasks, people, settings), settings, started.set)
        thread = threading.Thread(target=lambda: server.run(sockets=[bound]))
        thread.start()
        try:
            assert started.wait(60), "the server did not start"
            tokens = {name: token for token, name in people.tokens.items()} | {"": people.lead_token}
            yield {name: link(settings, bound, token) for name, token in tokens.items()}
        finally:
            server.should_exit = True
            thread.join(60)


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
