"""HDF5 files of a few bytes that describe gigabytes are refused by their headers, before the cost."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.features.conftest import npz_bytes, packed, write_lmdb

from whenabouts.intake.files import FormatError
from whenabouts.resident import forget_peak, peak_bytes
from whenabouts_systems.features import open_features

ROWS = np.ones((2, 3), np.float32)
MOST_SECONDS, MOST_BYTES = 3.0, 100 << 20


def zeros(size: int) -> bytes:
    """So many zeros as gzip packs them, without having them at once."""
    packer = zlib.compressobj(9)
    return b"".join([packer.compress(bytes(1 << 20)) for _ in range(size >> 20)] + [packer.flush()])


def packed_well(file: h5py.File) -> None:
    data = file.create_dataset("bad", (1 << 20, 450), "f4", chunks=(1 << 14, 450), compression="gzip")
    for start in range(0, 1 << 20, 1 << 14):
        data.id.write_direct_chunk((start, 0), PACKED_CHUNK)


PACKED_CHUNK = zeros(4 * 450 << 14)


def chunk_without_end(file: h5py.File) -> None:
    data = file.create_dataset("bad", (100, 10), "f4", chunks=(100, 10), compression="gzip")
    data.id.write_direct_chunk((0, 0), zeros(1 << 28))


def same_data_set_often(file: h5py.File) -> None:
    data = file.create_dataset("bad", (1 << 14, 450), "f4", chunks=(1 << 14, 450), compression="gzip")
    data.id.write_direct_chunk((0, 0), PACKED_CHUNK)
    for number in range(1000):
        file[f"bad {number:03}"] = data


def unknown_filter(file: h5py.File) -> None:
    file.create_dataset("bad", data=ROWS, chunks=(2, 3), scaleoffset=3)


def packed_twice(file: h5py.File) -> None:
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((2, 3))
    for _ in range(3):
        plan.set_filter(1, 0, (9,))
    space = h5py.h5s.create_simple((2, 3))
    h5py.h5d.create(file.id, b"bad", h5py.h5t.NATIVE_FLOAT, space, plan)


HOSTILE: dict[str, tuple[Callable[[h5py.File], Any], str]] = {
    "chunks that unpack to gigabytes": (
        packed_well,
        "unpacks from .* bytes to 1,887,436,800, over a hundred",
    ),
    "a chunk that unpacks without end": (
        chunk_without_end,
        "has a chunk that unpacks to more than its 4,004",
    ),
    "one data set under many names": (same_data_set_often, "the items before it unpack from a file of"),
    "a filter that may cost anything": (unknown_filter, r"is packed by the filters \[6\]"),
    "gzip in gzip in gzip": (packed_twice, r"is packed by the filters \[1, 1, 1\]"),
    "chunks that were never written": (
        lambda file: file.create_dataset("bad", (1 << 20, 60), "f4", chunks=(1024, 60)),
        "unpacks from 0 bytes to 251,658,240",
    ),
    "millions of chunks": (
        lambda file: file.create_dataset("bad", (16 << 20, 1), "f4", chunks=(1, 1), compression="gzip"),
        "has 16,777,216 chunks, most of which are not in the file",
    ),
    "a chunk larger than its data set": (
        lambda file: file.create_dataset(
            "bad", (2, 3), "f4", chunks=(30_000, 30_000), maxshape=(None, None), compression="gzip"
        ),
        "unpacks from 0 bytes to 3,600,000,000",
    ),
    "numbers that are nowhere": (
        lambda file: file.create_dataset("bad", (1 << 20, 450), ">f4"),
        "from 0 bytes",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_small_file_that_describes_gigabytes_is_refused_before_they_are_made(
    tmp_path: Path, kind: str
) -> None:
    make, said = HOSTILE[kind]
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver="latest") as file:
        make(file)
    forget_peak()
    before, began = peak_bytes(), time.process_time()
    with pytest.raises(FormatError, match=said) as error, open_features(path, layout="hdf5") as source:
        for item in source:
            source.get(item)
    assert str(error.value).startswith(f"{path}: item 'bad") and "; accepted: items as `h5repack" in str(
        error.value
    )
    assert time.process_time() - began < MOST_SECONDS and peak_bytes() - before < MOST_BYTES


def test_packed_items_as_people_write_them_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    rows = np.random.default_rng(0).normal(size=(3000, 40)).astype(np.float32)
    ways: list[dict[str, Any]] = [
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True, "fletcher32": True, "chunks": (3000, 40)},
        {"compression": "lzf", "shuffle": True},
        {"fletcher32": True},
        {"chunks": (7, 40)},
    ]
    with h5py.File(path, "w") as file:
        for number, way in enumerate(ways):
            file.create_dataset(f"{number}", data=rows, **way)
        file.create_dataset("silence", data=np.zeros((60_000, 40), np.float32), compression="gzip")
    with open_features(path) as source:
        for number in range(len(ways)):
            np.testing.assert_array_equal(source.get(f"{number}"), rows)
            np.testing.assert_array_equal(source.get(f"{number}"), rows)
        assert not source.get("silence").any()


def test_a_large_chunk_that_was_stored_without_gzip_is_read_and_a_damaged_one_is_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "f.h5"
    rows = np.random.default_rng(0).normal(size=(4000, 64)).astype(np.float32)
    with h5py.File(path, "w") as file:
        settings: dict[str, Any] = {"chunks": (4000, 64), "compression": "gzip"}
        plain = file.create_dataset("plain", (8000, 64), "f4", **settings)
        plain.id.write_direct_chunk((0, 0), rows.tobytes(), filter_mask=1)
        damaged = file.create_dataset("damaged", (4000, 64), "f4", **settings)
        damaged.id.write_direct_chunk((0, 0), b"\xff" * 900_000)
    with open_features(path, layout="hdf5") as source:
        np.testing.assert_array_equal(source.get("plain"), np.vstack([rows, 0 * rows]))
        with pytest.raises(FormatError, match=r"item 'damaged': is damaged or packed .*incorrect header"):
            source.get("damaged")


def test_attributes_that_are_damaged_or_too_many_are_named(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["a"] = ROWS
        file.attrs["clip_seconds"] = 1.5
        file.attrs["list"] = np.zeros(3000)
    with open_features(path) as source:
        assert source.clip_seconds == 1.5
    data = path.read_bytes()
    at = data.index(b"clip_seconds") - 8
    path.write_bytes(data[:at] + b"\xff" * 8 + data[at + 8 :])
    for said in ("attributes that cannot be read", "1,500 attributes, more than 1,000"):
        with pytest.raises(FormatError, match=said) as error, open_features(path) as source:
            _ = source.fingerprint
        assert "accepted: a file whose attributes are whole" in str(error.value)
        with h5py.File(path, "w", libver="latest") as file:
            file["a"] = ROWS
            for number in range(1500):
                file.attrs[f"{number}"] = 1


def test_names_that_are_not_utf8_and_a_stored_type_among_the_items(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file[b"\xffname"] = ROWS
        file.attrs[b"\xfffact"] = 1
    with open_features(path, layout="hdf5") as source:
        np.testing.assert_array_equal(source.get("\udcffname"), ROWS)
        assert source.fingerprint.extra == {"\udcfffact": 1}
    with open_features(path) as source:
        assert source.layout == "hdf5"
    with h5py.File(path, "w") as file:
        file["type"] = np.dtype("f4")
    with open_features(path) as source, pytest.raises(FormatError, match="item 'type': is a stored type;"):
        source.get("type")


@pytest.mark.slow
def test_an_npz_or_lz4_record_that_unpacks_to_a_thousand_times_its_size(tmp_path: Path) -> None:
    import zipfile

    import pyarrow

    vast = np.zeros((40_000, 600), np.float32)
    folder = tmp_path / "npz"
    folder.mkdir()
    np.savez(folder / "a.npz", features=vast[:2])
    np.savez_compressed(folder / "b.npz", features=vast)
    with (
        zipfile.ZipFile(folder / "c.npz", "w", zipfile.ZIP_BZIP2) as other,
        zipfile.ZipFile(folder / "a.npz") as plain,
    ):
        other.writestr("features.npy", plain.read("features.npy"))
    data = bytearray((folder / "b.npz").read_bytes())
    packed_bytes = data.rindex(b"PK\x01\x02") + 20  # in the directory
    data[packed_bytes : packed_bytes + 4] = (10_000_000).to_bytes(4, "little")
    (folder / "d.npz").write_bytes(data)
    with open_features(folder) as source:
        for item, said in {
            "b": "claims 96,000,000 bytes from 93,",
            "c": "not packed as numpy",
            "d": "claims 96,000,000 bytes from 93,",
        }.items():
            with pytest.raises(FormatError, match=said):
                source.get(item)
    record = pyarrow.compress(packed(vast), codec="lz4", asbytes=True)
    assert len(record) < 500_000
    lmdb = write_lmdb(tmp_path / "lmdb", {"a": packed(ROWS), "b": record, "c": npz_bytes(features=ROWS)})
    with open_features(lmdb) as source:
        np.testing.assert_array_equal(source.get("c"), ROWS)
        with pytest.raises(
            FormatError,
            match=r"item 'b': has .* bytes that unpack to too many.* accepted: at most 67,108,864",
        ):
            source.get("b")
