"""An index run by processes of this machine against one by `--ray local`: python -m benchmarks.cluster

Words (transcripts that are written here) and the sample videos with `--likeness`, each copied some times. The
two run one after the other; what comes after the files (merging, calibration) is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

from whenabouts import Corpus
from whenabouts.calibration import measuring
from whenabouts.index import build
from whenabouts.index.executor import Clips
from whenabouts.index.workers import Message, Part

SAMPLES = Path(__file__).parents[1] / "samples" / "videos"
RESULT = Path(__file__).parent / "results" / "cluster.json"
TRANSCRIPTS, CUES, COPIES = 12, 240, 2


class ObjectStorePeak:
    """The most bytes of Ray's object store while the block runs, looked at ten times a second."""

    def __enter__(self) -> ObjectStorePeak:
        self.bytes = self.looks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        import ray
        from ray._private.internal_api import node_stats

        while not self._stop.wait(0.1):
            if ray.is_initialized():
                # The cluster comes up, or goes down.
                with contextlib.suppress(ray.exceptions.RaySystemError, ConnectionError, RuntimeError):
                    nodes = [node for node in ray.nodes() if node["Alive"]]
                    stores = [
                        node_stats(node["NodeManagerAddress"], node["NodeManagerPort"]).store_stats
                        for node in nodes
                    ]
                    self.looks += 1
                    self.bytes = max(self.bytes, sum(store.object_store_bytes_used for store in stores))


def main() -> None:
    measuring.is_due = lambda *given: False
    result: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d"),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, fill, options in (("words", words, {}), ("videos", videos, {"likeness": True})):
            files = Path(folder) / name
            files.mkdir()
            fill(files)
            result[name] = compared(files, Path(folder) / f"{name}-corpora", options)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


def words(folder: Path) -> None:
    """Transcripts of an hour each, with other words in each."""
    for number in range(TRANSCRIPTS):
        lines = ["WEBVTT\n"]
        for cue in range(CUES):
            at = cue * 15
            times = [f"{t // 3600:02d}:{t // 60 % 60:02d}:{t % 60:02d}.000" for t in (at, at + 12)]
            text = f"Talk {number}: point {cue} compares method {cue * 7 % 31} with result {cue * 11 % 53}."
            lines.append(f"{times[0]} --> {times[1]}\n{text}\n")
        (folder / f"talk{number}.vtt").write_text("\n".join(lines), encoding="utf-8")


def videos(folder: Path) -> None:
    for number in range(COPIES):
        for path in sorted(SAMPLES.iterdir()):
            if path.suffix in (".mp4", ".webm"):
                copy = folder / f"{number}-{path.name}"
                shutil.copy(path, copy)
                with copy.open("ab") as file:
                    file.write(bytes([number]))  # equal contents are taken once


def compared(files: Path, place: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Seconds of both, their ratio, and what a cluster took."""
    here, _ = seconds(files, place / "here", options)
    with ObjectStorePeak() as peak:
        there, moved = seconds(files, place / "there", options | {"ray": "local"})
    return {
        "local_seconds": round(here, 1),
        "ray_local_seconds": round(there, 1),
        "ratio": round(there / here, 2),
        "object_store_peak_mb": round(peak.bytes / 1e6, 1),
        "looks_at_the_object_store": peak.looks,
        "vectors_through_driver_mb": round(moved / 1e6, 2),
    }


def seconds(files: Path, place: Path, options: dict[str, Any]) -> tuple[float, int]:
    """How long a run takes, and the bytes of vectors and times that its writer was given."""
    moved = 0
    take = build._Writer.take

    def counted(writer: Any, message: Message) -> None:
        nonlocal moved
        if isinstance(message, Part) and isinstance(message.content, Clips):
            for columns in message.content.columns.values():
                moved += columns.start.nbytes + columns.end.nbytes
                moved += 0 if columns.vectors is None else columns.vectors.nbytes
        take(writer, message)

    with mock.patch.object(build._Writer, "take", counted):
        summary = Corpus(place, create=True).add(files, **options)
    assert not summary.failed, summary.failed
    return summary.seconds, moved


if __name__ == "__main__":
    main()
