"""Reading features: our store beside the containers it could have been, and the speed of memory.

    python benchmarks/features.py [--folder DIR] [--rounds 5] [--out benchmarks/results/features.json]

Random numbers in two shapes, clips of videos and tokens of sentences, are written into every container. Each
is opened, and all items are read in one random order and copied into one array, so that every way moves
the same bytes to the same place. Files are in the page cache: what is measured is the container, not the
disk. The limit is one plain copy of the same bytes, item by item, from memory: the quickest of all rounds.
Ways take turns; of each the median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DATE = "2026-11-21"
SHAPES = {"video": (4000, 50, 1024), "query": (20_000, 12, 768)}
Rows = NDArray[np.float16]
Get = Callable[[str], Any]


@dataclass(frozen=True)
class Way:
    """A container: how it is written, and what opens it."""

    write: Callable[[Path, dict[str, Rows]], None]
    opens: Callable[[Path], Any]


def items_of(count: int, mean_length: int, width: int) -> dict[str, Rows]:
    """Rows by id; lengths vary by half around their mean."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(mean_length // 2, mean_length + mean_length // 2 + 1, count)
    whole = rng.standard_normal((int(lengths.sum()), width), dtype=np.float32).astype(np.float16)
    ends = np.cumsum(lengths)
    return {
        f"video_{n:06}": whole[end - size : end]
        for n, (end, size) in enumerate(zip(ends, lengths, strict=True))
    }


def write_store(path: Path, items: dict[str, Rows]) -> None:
    from whenabouts_systems.features import Fingerprint
    from whenabouts_systems.features.layouts import store

    store.write_store(path, items.items(), Fingerprint())


def write_hdf5(path: Path, items: dict[str, Rows]) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, rows in items.items():
            file.create_dataset(name, data=rows)


def write_safetensors(path: Path, items: dict[str, Rows]) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(rows) for name, rows in items.items()}, path)


def write_arrow(path: Path, items: dict[str, Rows]) -> None:
    import pyarrow

    width = next(iter(items.values())).shape[1]
    flat = pyarrow.array(np.concatenate(list(items.values())).reshape(-1))
    rows = pyarrow.FixedSizeListArray.from_arrays(flat, width)
    offsets = np.cumsum([0, *map(len, items.values())], dtype=np.int32)
    column = pyarrow.ListArray.from_arrays(pyarrow.array(offsets), rows)
    table = pyarrow.table({"id": list(items), "rows": column})
    with pyarrow.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


def write_npz(path: Path, items: dict[str, Rows]) -> None:
    path.mkdir()
    for name, rows in items.items():
        np.savez(path / f"{name}.npz", features=rows)


def write_npy(path: Path, items: dict[str, Rows]) -> None:
    path.mkdir()
    for name, rows in items.items():
        np.save(path / f"{name}.npy", rows)


def write_lmdb(path: Path, items: dict[str, Rows]) -> None:
    import lmdb
    import msgpack

    size = 2 * sum(rows.nbytes for rows in items.values()) + (1 << 26)
    with lmdb.open(str(path), map_size=size) as environment, environment.begin(write=True) as writing:
        for name, rows in items.items():
            packed = {
                b"nd": True,
                b"type": "<f2",
                b"kind": b"",
                b"shape": rows.shape,
                b"data": rows.tobytes(),
            }
            writing.put(name.encode(), msgpack.packb({"features": packed}))


@contextmanager
def open_ours(path: Path) -> Iterator[Get]:
    from whenabouts_systems.features import open_features

    with open_features(path) as source:
        yield source.get


@contextmanager
def open_h5py(path: Path) -> Iterator[Get]:
    import h5py

    with h5py.File(path, "r") as file:
        yield lambda name: file[name][()]


@contextmanager
def open_safetensors(path: Path) -> Iterator[Get]:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        yield file.get_tensor


@contextmanager
def open_arrow(path: Path) -> Iterator[Get]:
    import pyarrow

    with pyarrow.memory_map(str(path)) as mapped:
        table = pyarrow.ipc.open_file(mapped).read_all()
        places = {name: place for place, name in enumerate(table["id"].to_pylist())}
        column = table["rows"].chunk(0)

        def get(name: str) -> Any:
            rows = column[places[name]].values
            return rows.flatten().to_numpy(zero_copy_only=True).reshape(len(rows), -1)

        yield get


WAYS = {
    "our store": Way(write_store, open_ours),
    "safetensors": Way(write_safetensors, open_safetensors),
    "arrow": Way(write_arrow, open_arrow),
    "hdf5, h5py alone": Way(write_hdf5, open_h5py),
    "hdf5": Way(write_hdf5, open_ours),
    "lmdb of msgpack": Way(write_lmdb, open_ours),
    "folder of npz": Way(write_npz, open_ours),
    "folder of npy": Way(write_npy, open_ours),
}


def read_all(get: Get, items: dict[str, Rows], order: list[str], into: Rows) -> None:
    at = 0
    for name in order:
        rows = get(name)
        into[at : at + len(rows)] = rows
        at += len(rows)
    assert at == len(into)


def measure(shape: tuple[int, int, int], folder: Path, rounds: int) -> dict[str, Any]:
    """All ways on one shape: write once, then read in turn."""
    items = items_of(*shape)
    rows, size = sum(map(len, items.values())), sum(rows.nbytes for rows in items.values())
    into = np.zeros((rows, shape[2]), np.float16)
    order = [list(items)[place] for place in np.random.default_rng(1).permutation(len(items))]
    found: dict[str, dict[str, list[float]]] = {name: {"open": [], "read": []} for name in WAYS}
    written, limit = {}, []
    for name, way in WAYS.items():
        started = time.perf_counter()
        way.write(folder / name, items)
        written[name] = time.perf_counter() - started
    for _ in range(rounds):
        limit.append(_timed(partial(read_all, items.__getitem__, items, order, into)))
        for name, way in WAYS.items():
            started = time.perf_counter()
            with way.opens(folder / name) as get:
                get(order[0])
                found[name]["open"].append(time.perf_counter() - started)
                found[name]["read"].append(_timed(partial(read_all, get, items, order, into)))
    at = 0
    for name in order:
        assert np.array_equal(into[at : at + len(items[name])], items[name])
        at += len(items[name])
    fastest = min(limit)
    return {
        "items": len(items),
        "rows": rows,
        "width": shape[2],
        "megabytes": round(size / 1e6, 1),
        "plain_copy_s": round(fastest, 4),
        "plain_copy_gb_per_s": round(size / fastest / 1e9, 2),
        "ways": {
            name: _told(folder / name, found[name], written[name], fastest, size, len(items)) for name in WAYS
        },
        **_commands(folder, size),
    }


def _told(
    path: Path, found: dict[str, list[float]], written: float, limit: float, size: int, count: int
) -> dict[str, float]:
    read = statistics.median(found["read"])
    files = path.rglob("*") if path.is_dir() else [path]
    return {
        "open_and_first_item_ms": round(statistics.median(found["open"]) * 1e3, 2),
        "read_all_s": round(read, 4),
        "us_an_item": round(read / count * 1e6, 1),
        "gb_per_s": round(size / read / 1e9, 2),
        "times_a_plain_copy": round(read / limit, 2),
        "bytes_over_the_rows_percent": round(100 * (sum(f.stat().st_size for f in files) / size - 1), 2),
        "write_s": round(written, 2),
    }


def _commands(folder: Path, size: int) -> dict[str, float]:
    """Megabytes of rows a second of the three commands' work, on the HDF5 file and our store."""
    from whenabouts_systems.features import open_features
    from whenabouts_systems.features.compare import compare
    from whenabouts_systems.features.layouts.store import convert_to_store
    from whenabouts_systems.features.summary import summarise

    with open_features(folder / "hdf5") as source, open_features(folder / "our store") as ours:
        return {
            "show_hdf5_mb_per_s": round(size / _timed(lambda: summarise(source)) / 1e6),
            "convert_hdf5_mb_per_s": round(
                size / _timed(lambda: convert_to_store(source, folder / "again")) / 1e6
            ),
            "compare_hdf5_with_ours_mb_per_s": round(size / _timed(lambda: compare(source, ours)) / 1e6),
        }


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def machine() -> dict[str, Any]:
    """What ran it, without saying where."""
    model = "unknown"
    if Path("/proc/cpuinfo").is_file():
        model = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())[0]
    from importlib.metadata import version

    packages = ("numpy", "h5py", "lmdb", "msgpack", "safetensors", "pyarrow")
    return {
        "processor": model,
        "processors": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="where to write some 5 GB (default: a temporary folder)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "features.json")
    given = parser.parse_args()
    result: dict[str, Any] = {"date": DATE, "machine": machine(), "rounds": given.rounds, "shapes": {}}
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            result["shapes"][name] = measure(shape, Path(folder), given.rounds)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
