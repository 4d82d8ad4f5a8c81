"""Small files of every layout, written here with the containers' own packages."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import lmdb
import msgpack
import numpy as np
import pyarrow
import pytest
from numpy.typing import NDArray

Items = Mapping[str, NDArray[Any]]
Maker = Callable[[Path, Items], Path]


def make_items(seed: int = 0, count: int = 7, width: int = 6, dtype: str = "float32") -> dict[str, Any]:
    """Rows by id; ids as data sets have them."""
    rng = np.random.default_rng(seed)
    names = [
        "castle_s01e01_seg02_clip_20",
        "v_QOlSCBRmfWY",
        "3MSZA",
        "s13-d21",
        "_abc-DEF_0.0_150.0",
        "ünï",
        "9",
    ]
    names += [f"more {number}" for number in range(count - len(names))]
    return {name: rng.normal(size=(int(rng.integers(1, 9)), width)).astype(dtype) for name in names[:count]}


def write_hdf5(path: Path, items: Items, key: Callable[[str], str] = str, **attributes: Any) -> Path:
    with h5py.File(path, "w") as file:
        file.attrs.update(attributes)
        for name, rows in items.items():
            file.create_dataset(key(name), data=rows)
    return path


def packed_array(rows: NDArray[Any], **changed: Any) -> dict[bytes, Any]:
    """As msgpack-numpy writes it."""
    array = {
        b"nd": True,
        b"type": rows.dtype.str,
        b"kind": b"",
        b"shape": rows.shape,
        b"data": rows.tobytes(),
    }
    return array | {name.encode(): value for name, value in changed.items()}


def packed(rows: NDArray[Any], **changed: Any) -> bytes:
    value: bytes = msgpack.packb({"features": packed_array(rows, **changed)}, use_bin_type=True)
    return value


def npz_bytes(**arrays: Any) -> bytes:
    whole = io.BytesIO()
    np.savez_compressed(whole, **arrays)
    return whole.getvalue()


def write_lmdb(path: Path, values: Mapping[str, bytes], folder: bool = True) -> Path:
    with (
        lmdb.open(str(path), map_size=1 << 24, subdir=folder) as environment,
        environment.begin(write=True) as t,
    ):
        for name, value in values.items():
            t.put(name.encode(), value)
    return path


def _lmdb_of(pack: Callable[[NDArray[Any]], bytes], folder: bool = True) -> Maker:
    def make(path: Path, items: Items) -> Path:
        return write_lmdb(path, {name: pack(rows) for name, rows in items.items()}, folder)

    return make


def _lz4(value: bytes) -> bytes:
    squeezed = pyarrow.compress(value, codec="lz4", asbytes=True)
    assert squeezed[:4] == b"\x04\x22\x4d\x18"
    return bytes(squeezed)


def _folder(write: Callable[[Path, str, NDArray[Any]], None]) -> Maker:
    def make(path: Path, items: Items) -> Path:
        path.mkdir()
        for name, rows in items.items():
            write(path, name, rows)
        (path / "readme.txt").write_text("not features")
        return path

    return make


def _compressed(path: Path, name: str, rows: NDArray[Any]) -> None:
    np.savez_compressed(path / f"{name}.npz", features=rows)


def write_store_by_hand(path: Path, items: Items) -> Path:
    """Our store, written from its description and not by the code under test."""
    path.mkdir()
    np.save(path / "features.npy", np.concatenate(list(items.values())))
    lengths = [len(rows) for rows in items.values()]
    index = {"format": "whenabouts-features", "version": 1, "ids": list(items), "lengths": lengths}
    (path / "index.json").write_text(json.dumps(index))
    (path / "fingerprint.json").write_text(json.dumps({"encoder": "by hand", "content": None}))
    return path


VARIANTS: dict[str, tuple[str, Maker]] = {
    "hdf5": ("hdf5", write_hdf5),
    "hdf5 in chunks": (
        "hdf5",
        lambda path, items: _chunked(path, items),
    ),
    "tacos": ("tacos", lambda path, items: write_hdf5(path, items, "{}.avi".format)),
    "activitynet": ("activitynet", lambda path, items: write_hdf5(path, items, "{}/c3d_features".format)),
    "lmdb of msgpack": ("lmdb", _lmdb_of(packed)),
    "lmdb of npz": ("lmdb", _lmdb_of(lambda rows: npz_bytes(features=rows))),
    "lmdb of lz4": ("lmdb", _lmdb_of(lambda rows: _lz4(packed(rows)))),
    "lmdb of lz4 of npz": ("lmdb", _lmdb_of(lambda rows: _lz4(npz_bytes(features=rows)))),
    "lmdb in one file": ("lmdb", _lmdb_of(packed, folder=False)),
    "moment-detr": (
        "moment-detr",
        _folder(lambda path, name, rows: np.savez(path / f"{name}.npz", features=rows)),
    ),
    "moment-detr compressed": ("moment-detr", _folder(_compressed)),
    "npy": ("arrays", _folder(lambda path, name, rows: np.save(path / f"{name}.npy", rows))),
    "npz": ("arrays", _folder(lambda path, name, rows: np.savez(path / f"{name}.npz", rows))),
    "npy of Fortran": (
        "arrays",
        _folder(lambda path, name, rows: np.save(path / f"{name}.npy", np.asfortranarray(rows))),
    ),
    "npz of big-endian": (
        "arrays",
        _folder(lambda p, name, rows: np.savez(p / f"{name}.npz", rows.astype(rows.dtype.newbyteorder(">")))),
    ),
    "whenabouts": ("whenabouts", write_store_by_hand),
}


def _chunked(path: Path, items: Items) -> Path:
    with h5py.File(path, "w", libver="latest") as file:
        for name, rows in items.items():
            file.create_dataset(name, data=rows, chunks=True, compression="gzip", shuffle=True)
    return path


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> tuple[str, Maker]:
    """Name of a layout and what writes a file of it."""
    found: tuple[str, Maker] = VARIANTS[request.param]
    return found


@pytest.fixture()
def items() -> dict[str, Any]:
    return make_items()
