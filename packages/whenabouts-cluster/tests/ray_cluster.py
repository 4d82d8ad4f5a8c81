"""A Ray cluster of several raylets on this machine, whose nodes come, go, and have what they should not."""

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


@contextmanager
def cluster_head() -> Iterator[Any]:
    """A cluster with a head that has no cores; its `address` is what a run is given."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    # A short path: the names of sockets are bounded.
    with (
        tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Ray notes the address of the last cluster in this folder; given only to the head, it is written to
        # /tmp/ray, which does not exist before the first cluster of a machine.
        patch.setenv("RAY_TMPDIR", folder)
        started = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **_STORE}
        )
        try:
            yield started
        finally:
            ray.shutdown()
            started.shutdown()


@contextmanager
def nodes(cluster: Any, *places: Path | None, **environment: str) -> Iterator[list[Any]]:
    """A node of two cores for each place; modules in its place come before those of everybody."""
    made: list[Any] = []
    try:
        for place in places:
            path = [str(folder) for folder in (place, *SOURCES, ROOT) if folder is not None]
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", os.pathsep.join(path))
                for name, value in environment.items():
                    patch.setenv(name, value)
                made.append(cluster.add_node(num_cpus=2, **_STORE))
        yield made
    finally:
        for node in made:
            if node in cluster.worker_nodes:
                cluster.remove_node(node, allow_graceful=False)


def overlay(place: Path, behind: Mapping[str, str]) -> Path:
    """A copy of packages in which code comes behind that of some modules (`whenabouts/__init__.py`: …)."""
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
    """Have modules that a package here lacks found in the real one."""
    file = package / "__init__.py"
    text = file.read_text(encoding="utf-8") if file.exists() else (real / "__init__.py").read_text("utf-8")
    line = f"__path__.append({str(real)!r})\n"
    if line not in text:
        # Before the first import of a module that lies in the real package only.
        head, future, rest = text.rpartition("from __future__ import annotations\n")
        file.write_text(f"{head}{future}{line}{rest}", encoding="utf-8")
