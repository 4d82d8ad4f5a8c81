"""Pseudo training sets of 72,842 captions (paper 004, 3.3): time, memory, and whether the bytes come again.

    python -m benchmarks.ranked_sets ANNOTATIONS... [--captions 72842] [--threads 2] [--again]
        [--out benchmarks/results/ranked_sets.json]

ANNOTATIONS are files of judgements with texts, taken in turn until there are enough different captions, each
with its moment. As in the paper 500 and 2,781 of them, drawn by chance, are the queries of validation and
test, and no query of a training set. `whenabouts relevance ranked` then writes top 1, 20 and 40 in the
released layout, in a process of its own; another process reads the largest. On a busy machine processor
seconds are the fair number.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine

DATE = "2026-11-23"
HELD_OUT = {"val": 500, "test": 2_781}
TOPS = (1, 20, 40)
_READ = "import sys, whenabouts_bench.formats as f; print(len(f.read_annotations(sys.argv[1]).query))"


def captioned(files: Sequence[str], count: int) -> list[dict[str, Any]]:
    """Judgements of so many different captions: query, words and moment."""
    from whenabouts_bench.formats import read_annotations

    moments: dict[str, dict[str, Any]] = {}
    for number, file in enumerate(files):
        judged = read_annotations(file)
        for query, video, start, end in zip(
            judged.query, judged.video, judged.start, judged.end, strict=True
        ):
            text = judged.queries[query].text.strip()
            if text and start < end and text not in moments and len(moments) < count:
                name = f"{number}-{judged.videos[video].id}"
                moments[text] = {"video_name": name, "timestamp": [start, end], "relevance": 1}
    return [{"query_id": n, "query": text, **moment} for n, (text, moment) in enumerate(moments.items())]


def write_corpus(rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    """The captions as judgements, and those of validation and test; what was written."""
    import numpy as np

    order = np.random.default_rng(0).permutation(len(rows))
    parts, begin = {"captions": rows}, 0
    for name, count in HELD_OUT.items():
        parts[name] = [rows[row] for row in order[begin : begin + count].tolist()]
        begin += count
    for name, lines in parts.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [folder / f"{name}.jsonl" for name in parts]


def spent(command: list[str], threads: int) -> tuple[str, dict[str, float]]:
    """What a command prints, with its seconds and its peak memory."""
    begin = time.perf_counter()
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    printed = process.stdout.read() if process.stdout else ""
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command[:6]} ended with {status}")
    return printed, {
        "wall_s": round(time.perf_counter() - begin, 1),
        "processor_s": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1024),
        "load": round(os.getloadavg()[0], 1),
    }


def made(corpus: list[Path], folder: Path, threads: int) -> dict[str, Any]:
    """The sets, made once."""
    command = [
        sys.executable,
        "-m",
        "whenabouts",
        "relevance",
        "ranked",
        "--queries",
        str(corpus[0]),
        "--json",
    ]
    command += [part for file in corpus[1:] for part in ("--leave-out", str(file))]
    command += [part for top in TOPS for part in ("--top", str(top))]
    printed, cost = spent([*command, "--out", str(folder / "train_top{top}.json")], threads)
    files = sorted(folder.glob("train_top*.json"))
    return {
        **cost,
        "sets": json.loads(printed)["files"],
        "sha256": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
        "mb": {file.name: round(file.stat().st_size / 1e6) for file in files},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("annotations", nargs="+")
    parser.add_argument("--captions", type=int, default=72_842)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="make them a second time and compare")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ranked_sets.json")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "date": DATE,
        **describe_machine("onnxruntime", "numpy"),
        "threads": options.threads,
    }
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        rows = captioned(options.annotations, options.captions)
        corpus = write_corpus(rows, folder)
        result |= {"captions": len(rows), "from": [Path(file).name for file in options.annotations]}
        result["made"] = made(corpus, folder, options.threads)
        for row in result["made"]["sets"]:
            row["file"] = Path(row["file"]).name
        printed, cost = spent(
            [sys.executable, "-c", _READ, str(folder / "train_top40.json")], options.threads
        )
        result["read_top40"] = {**cost, "judgements": int(printed)}
        options.out.write_text(json.dumps(result, indent=1) + "\n")
        if options.again:
            again = made(corpus, folder, options.threads)
            result["again"] = {key: again[key] for key in ("wall_s", "processor_s", "peak_mb", "load")}
            result["same_bytes"] = again["sha256"] == result["made"]["sha256"]
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
