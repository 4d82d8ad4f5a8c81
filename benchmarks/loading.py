"""How fast runs are read, and in how much memory, up to what a run of 100 million lines needs.

TREC runs and run.jsonl files of growing size are read block by block in a process of their own, and a TVR
submission of 10,895 queries x 100 rows x 3 lists whole. The reference beside them is what anybody would
write: a loop that splits or decodes each line and keeps lists in a dict; for the submission, `json.loads`
and arrays. Seconds are of the whole process, memory is the peak that the system saw (VmHWM). What 100
million lines take is carried on in a straight line from the two largest files.

    python benchmarks/loading.py [--folder DIR] [--out benchmarks/results/loading.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

MILLION = 1_000_000
TREC_LINES = (2 * MILLION, 5 * MILLION, 10 * MILLION, 20 * MILLION)
JSON_MOMENTS = (2 * MILLION, 5 * MILLION, 10 * MILLION)
REFERENCE_ROWS = 2 * MILLION
GOAL_ROWS = 100 * MILLION
ROWS_A_QUERY = 1_000
TVR_QUERIES, TVR_ROWS, TVR_VIDEOS = 10_895, 100, 2_179


def made_rows(rows: int) -> Iterator[tuple[str, list[str], list[float], list[float], list[float]]]:
    """(query, videos, starts, ends, scores) of a run of so many rows, best first."""
    rng = np.random.default_rng(rows)
    for query in range(rows // ROWS_A_QUERY):
        start = (rng.random(ROWS_A_QUERY) * 60).round(3)
        end = (start + 1 + rng.random(ROWS_A_QUERY) * 20).round(3)
        score = np.sort(rng.random(ROWS_A_QUERY).round(6))[::-1]
        videos = [
            f"castle_s{code % 9:02d}e10_seg02_clip_{code:05d}" for code in rng.integers(20_000, size=1000)
        ]
        yield f"{query:06d}", videos, start.tolist(), end.tolist(), score.tolist()


def make_trec(path: Path, rows: int) -> None:
    """A TREC run."""
    with path.open("w") as stream:
        for query, *columns in made_rows(rows):
            lines = enumerate(zip(*columns, strict=True), 1)
            stream.writelines(f"{query} Q0 {v}@{s:.3f}-{e:.3f} {i} {p} tag\n" for i, (v, s, e, p) in lines)


def make_jsonl(path: Path, rows: int) -> None:
    """A run.jsonl."""
    keys = ("video_id", "start", "end", "score")
    with path.open("w") as stream:
        for query, *columns in made_rows(rows):
            moments = [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]
            stream.write(json.dumps({"query_id": query, "moments": moments}) + "\n")


def make_tvr(path: Path, rows: int) -> None:
    """A TVR submission."""
    rng = np.random.default_rng(1)

    def entries() -> Iterator[dict[str, Any]]:
        for query in range(TVR_QUERIES):
            start = (rng.random(TVR_ROWS) * 60).round(2)
            columns = (rng.integers(TVR_VIDEOS, size=TVR_ROWS), start, start + 4.5, rng.random(TVR_ROWS))
            predictions = [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]
            yield {"desc_id": 90_000 + query, "desc": "Somebody says something.", "predictions": predictions}

    videos = {f"castle_s01e01_seg02_clip_{code:04d}": code for code in range(TVR_VIDEOS)}
    lists = {task: list(entries()) for task in ("VCMR", "SVMR", "VR")}
    path.write_text(json.dumps({"video2idx": videos, **lists}))


def read_ours(path: Path) -> int:
    """Rows that were read."""
    from whenabouts_bench import formats

    source = formats.open_run(path)
    return sum(len(block.video) for task in source.tasks for block in source.blocks(task))


def read_plainly(path: Path) -> int:
    """The same by a plain loop that keeps all rows."""
    run: dict[str, list[tuple[str, float, float, float]]] = {}
    if path.suffix == ".trec":
        with path.open() as stream:
            for line in stream:
                query, _, document, _, score, _ = line.split()
                video, times = document.rsplit("@", 1)
                start, end = times.split("-")
                run.setdefault(query, []).append((video, float(start), float(end), float(score)))
        for rows in run.values():
            rows.sort(key=lambda row: (-row[3], row))
        return sum(map(len, run.values()))
    if path.suffix == ".jsonl":
        with path.open() as stream:
            for line in stream:
                record = json.loads(line)
                moments = record["moments"]
                rows = [(m["video_id"], m["start"], m["end"], m["score"]) for m in moments]
                run[record["query_id"]] = sorted(rows, key=lambda row: (-row[3], row))
        return sum(map(len, run.values()))
    document_ = json.loads(path.read_text())
    lists = (
        np.array([e["predictions"] for e in document_[task]], np.float64) for task in ("VCMR", "SVMR", "VR")
    )
    return sum(array.shape[0] * array.shape[1] for array in lists)


def peak_megabytes() -> float:
    """The most memory this process ever held."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1000 if found else float("nan")


def measure(what: str, path: Path) -> dict[str, Any]:
    """Read a file in a process of its own."""
    began = time.perf_counter()
    command = [sys.executable, __file__, "--child", what, "--folder", str(path)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    told: dict[str, Any] = json.loads(answer.stdout)
    return {
        "rows": told["rows"],
        "file_megabytes": round(path.stat().st_size / 1e6),
        "seconds": round(seconds, 2),
        "rows_a_second": round(told["rows"] / seconds),
        "peak_megabytes": round(told["peak_megabytes"]),
    }


def growth(folder: Path, suffix: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    """Reading files of growing size, the reference at one of them, and what 100 million rows would take."""
    make = make_trec if suffix == "trec" else make_jsonl
    ours: list[dict[str, Any]] = []
    plain: dict[str, Any] = {}
    for rows in sizes:
        path = folder / f"run{rows}.{suffix}"
        make(path, rows)
        ours.append(measure("ours", path))
        if rows == REFERENCE_ROWS:
            plain = measure("plain", path)
        path.unlink()
        print(suffix, ours[-1], file=sys.stderr)
    last, before = ours[-1], ours[-2]
    slope = max(0.0, (last["peak_megabytes"] - before["peak_megabytes"]) / (last["rows"] - before["rows"]))
    per_row = (last["seconds"] - ours[0]["seconds"]) / (last["rows"] - ours[0]["rows"])
    return {
        "ours": ours,
        "plain": plain,
        "ratio_seconds": round(plain["seconds"] / ours[0]["seconds"], 2),
        "ratio_memory": round(plain["peak_megabytes"] / ours[0]["peak_megabytes"], 2),
        "carried_on_to_100_million_rows": {
            "peak_megabytes": round(last["peak_megabytes"] + slope * (GOAL_ROWS - last["rows"])),
            "seconds": round(last["seconds"] + per_row * (GOAL_ROWS - last["rows"])),
        },
    }


def submission(folder: Path) -> dict[str, Any]:
    """A TVR submission, ours and plainly."""
    path = folder / "submission.json"
    make_tvr(path, 0)
    ours, plain = measure("ours", path), measure("plain", path)
    path.unlink()
    return {
        "ours": ours,
        "plain": plain,
        "ratio_seconds": round(plain["seconds"] / ours["seconds"], 2),
        "ratio_memory": round(plain["peak_megabytes"] / ours["peak_megabytes"], 2),
    }


def machine() -> dict[str, Any]:
    import msgspec
    import pyarrow

    model = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": model[1].strip() if model else platform.processor(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyarrow": pyarrow.__version__,
        "msgspec": msgspec.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, help="where the runs are made (2 GB; default: a temporary folder)"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", choices=["ours", "plain"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        rows = (read_ours if options.child == "ours" else read_plainly)(options.folder)
        print(json.dumps({"rows": rows, "peak_megabytes": peak_megabytes()}))
        return
    began = machine()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        result = {
            "what": "reading runs block by block: seconds of the whole process and its peak memory",
            "date": date.today().isoformat(),
            "machine": began,
            "rows_a_query": ROWS_A_QUERY,
            "goal": {"peak_megabytes_of_100_million_lines": 2000},
            "trec": growth(folder, "trec", TREC_LINES),
            "jsonl": growth(folder, "jsonl", JSON_MOMENTS),
            "tvr": submission(folder),
        }
    text = json.dumps(result, indent=1) + "\n"
    if options.out:
        options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
