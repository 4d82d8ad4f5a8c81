"""Starts Ray clusters of several nodes on this machine, whose nodes can vanish or have changed modules."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted((ROOT / "packages").glob("*/src"))
_STORE = {"object_store_memory": 100_000_000}
# Ray waits 30 s for a node, which is too short where other programs use all cores.
_REGISTERED_SECONDS = 180.0


@contextmanager
def cluster_head() -> Iterator[Any]:
    """A cluster whose head has no cores; a run gets its `address`."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    # A short path, because names of sockets are limited in length.
    with (
        tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Ray writes the address of the last cluster to this folder. If only the head had it, Ray would use
        # /tmp/ray, which does not exist before the first cluster of a machine.
        patch.setenv("RAY_TMPDIR", folder)
        head = {"wait": False, "num_cpus": 0, "include_dashboard": False, **_STORE}
        started = Cluster(initialize_head=True, head_node_args=head)
        try:
            started.wait_for_nodes(_REGISTERED_SECONDS)
            yield started
        finally:
            ray.shutdown()
            started.shutdown()


@contextmanager
def nodes(cluster: Any, *places: Path | None, **environment: str) -> Iterator[list[Any]]:
    """Add a node of two cores for each place; modules in its place take precedence on that node."""
    made: list[Any] = []
    try:
        for place in places:
            path = [str(folder) for folder in (place, *SOURCES, ROOT) if folder is not None]
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", os.pathsep.join(path))
                for name, value in environment.items():
                    patch.setenv(name, value)
                made.append(cluster.add_node(wait=False, num_cpus=2, **_STORE))
            cluster._wait_for_node(made[-1], _REGISTERED_SECONDS)
        yield made
    finally:
        for node in made:
            if node in cluster.worker_nodes:
                cluster.remove_node(node, allow_graceful=False)


def overlay(place: Path, behind: Mapping[str, str]) -> Path:
    """Copies of some modules with code appended, as a folder of packages (`whenabouts/__init__.py`: code)."""
    for name, code in behind.items():
        module = place / name
        real = next(source for source in SOURCES if (source / name).exists())
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text((real / name).read_text(encoding="utf-8") + "\n" + code + "\n", encoding="utf-8")
        for folder in module.relative_to(place).parents:
            if folder.parts:
                _with_the_rest(place / folder, real / folder)
    return place


def _with_the_rest(package: Path, real: Path) -> None:
    """Make a package here find its missing modules in the real package."""
    file = package / "__init__.py"
    text = file.read_text(encoding="utf-8") if file.exists() else (real / "__init__.py").read_text("utf-8")
    line = f"__path__.append({str(real)!r})\n"
    if line not in text:
        # Before the first import of a module that only the real package has.
        head, future, rest = text.rpartition("from __future__ import annotations\n")
        file.write_text(f"{head}{future}{line}{rest}", encoding="utf-8")
