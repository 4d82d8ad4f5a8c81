"""Damaged, hostile and wrong files: one line that names file, item, what was found and what is accepted."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import msgpack
import numpy as np
import pytest
from tests.features.conftest import VARIANTS, make_items, npz_bytes, packed, write_hdf5, write_lmdb

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.features import ReaderMissing, open_features
from whenabouts_systems.features.source import FeatureSource

ROWS = np.ones((2, 3), np.float32)


def refused(path: Path, item: str | None = None, **options: Any) -> str:
    """The one line with which a file, or an item of it, is refused."""
    with pytest.raises(FormatError) as error, open_features(path, **options) as source:
        source.get(item) if item is not None else list(source)
    line = str(error.value)
    assert "\n" not in line and str(path) in line
    assert item is None or repr(item) in line
    return line


class Trap:
    """A pickle of this would leave a file behind where it is loaded."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self._path),)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "an empty file is in no known layout; accepted: .*HDF5"),
        (b"just text, nothing else", "begins with b'just text, nothi' is in no known layout"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer.*git lfs pull"),
    ],
)
def test_a_file_that_holds_no_features(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "features.h5"
    path.write_bytes(content)
    import re

    assert re.search(told, refused(path))


def test_nothing_there_no_file_and_a_folder_without_features(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "nothing")
    assert "a folder without files is in no known layout" in refused(tmp_path)
    (tmp_path / "a.txt").touch()
    assert "a folder of 1 file, such as 'a.txt'" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "neither a file nor a folder" in refused(tmp_path / "pipe")


def test_an_unknown_layout_is_named_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"layout 'hdf6' is not known; known: activitynet, arrays, .*whenabouts"
    ):
        open_features(tmp_path, layout="hdf6")


@pytest.mark.parametrize("keep", [20, 100, 0.5, 0.99])
def test_an_hdf5_file_that_is_cut_off(tmp_path: Path, keep: float) -> None:
    path = write_hdf5(tmp_path / "f.h5", make_items(count=30))
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if keep < 1 else int(keep)])
    assert "is not a complete HDF5 file" in refused(path) and "fetch it again" in refused(path)


def test_an_hdf5_file_that_is_damaged_inside(tmp_path: Path) -> None:
    path = VARIANTS["hdf5 in chunks"][1](
        tmp_path / "f.h5", {"a": np.random.default_rng(0).normal(size=(400, 9))}
    )
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    path.write_bytes(bytes(data))
    assert "is damaged or packed in a way" in refused(path, "a")


def test_an_hdf5_file_without_entries_or_with_other_groups(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "f.h5", {})
    assert "an HDF5 file without entries" in refused(path)
    write_hdf5(path, {"v_1/i3d": ROWS, "v_1/flow": ROWS})
    assert "an HDF5 file whose entry 'v_1' holds ['flow', 'i3d'] is in no known layout" in refused(path)
    assert "convert … --layout activitynet --key NAME" in refused(path)
    assert "holds ['flow', 'i3d']; accepted: a group with 'c3d_features'" in refused(
        path, "v_1", layout="activitynet"
    )
    assert "is a group of ['flow', 'i3d']; accepted: a data set" in refused(path, "v_1", layout="hdf5")
    with open_features(path, layout="activitynet", key="i3d") as source:
        np.testing.assert_array_equal(source.get("v_1"), ROWS)


def test_an_entry_of_another_kind_among_many(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "f.h5", {"a": ROWS, "z/c3d_features": ROWS})
    assert "is a group of ['c3d_features']" in refused(path, "z")
    path = write_hdf5(tmp_path / "g.h5", {"a/c3d_features": ROWS, "z": ROWS})
    assert "holds one data set; accepted: a group with 'c3d_features'" in refused(path, "z")


def test_links_and_numbers_outside_an_hdf5_file_are_not_followed(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "other.h5", {"secret": ROWS})
    (tmp_path / "raw").write_bytes(ROWS.tobytes())
    path = tmp_path / "f.h5"
    layout = h5py.VirtualLayout(shape=(2, 3), dtype="f4")
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "secret", shape=(2, 3))
    with h5py.File(path, "w") as file:
        file["good"] = ROWS
        file["link away"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "secret")
        file["soft"] = h5py.SoftLink("/good")
        file.create_dataset("raw", (2, 3), "f4", external=[(str(tmp_path / "raw"), 0, 24)])
        file.create_virtual_dataset("virtual", layout)
    assert "is a link, which is not followed" in refused(path, "link away")
    assert "is a link, which is not followed" in refused(path, "soft")
    for item in ("raw", "virtual"):
        assert "keeps its numbers in another file" in refused(path, item)
    with open_features(path, layout="hdf5") as source:
        np.testing.assert_array_equal(source.get("good"), ROWS)


def test_objects_text_and_nothing_in_hdf5_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["a"] = ROWS
        file.create_dataset("text", data=["one", "two"], dtype=h5py.string_dtype())
        file.create_dataset("ragged", (2,), dtype=h5py.vlen_dtype(np.float32))
        file.create_dataset("null", data=h5py.Empty("f4"))
        file.create_dataset("record", data=np.zeros(3, [("x", "f4")]))
    for item in ("text", "ragged"):
        assert "holds objects, not numbers" in refused(path, item)
    assert "has shape ()" in refused(path, "null")
    assert "holds void32; accepted: arrays of float16" in refused(path, "record")


def test_a_size_that_only_the_file_believes_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.ones((1, 1 << 20), np.float32)
        file.create_dataset("vast", (1 << 30, 1 << 20), "f4", chunks=(1, 1 << 20))
    assert path.stat().st_size < 10_000_000
    assert "claims to be 4,503,599,627,370,496 bytes large" in refused(path, "vast")


def test_hdf5_is_not_read_into_memory_whole_and_needs_no_lock(tmp_path: Path, monkeypatch: Any) -> None:
    path = write_hdf5(tmp_path / "f.h5", {"a": ROWS})
    seen: list[dict[str, Any]] = []
    real = h5py.File

    def spy(*given: Any, **named: Any) -> Any:
        seen.append(named)
        return real(*given, **named)

    monkeypatch.setattr(h5py, "File", spy)
    with open_features(path) as source:
        np.testing.assert_array_equal(source.get("a"), ROWS)
    assert seen and all(named.get("driver") is None and named["locking"] is False for named in seen)


@pytest.mark.parametrize("locking", [True, False, "best-effort"])
def test_an_hdf5_file_that_this_process_has_open_already_is_read(tmp_path: Path, locking: Any) -> None:
    path = write_hdf5(tmp_path / "f.h5", {"a": ROWS})
    with h5py.File(path, "r", locking=locking), open_features(path) as source:
        np.testing.assert_array_equal(source.get("a"), ROWS)


@pytest.mark.parametrize(
    ("variant", "package"),
    [("hdf5", "h5py"), ("tacos", "h5py"), ("lmdb of msgpack", "lmdb"), ("lmdb of msgpack", "msgpack")],
)
def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(
    variant: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = VARIANTS[variant][1](tmp_path / "f", make_items())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ReaderMissing, match=r"which is not installed: pip install 'whenabouts\[research\]'"):
        open_features(path)


@pytest.mark.parametrize("package", ["h5py", "lmdb", "msgpack"])
def test_other_layouts_do_without_a_package_that_is_missing(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for number, (variant, (layout, make)) in enumerate(VARIANTS.items()):
        if layout in ("arrays", "moment-detr", "whenabouts"):
            with open_features(make(tmp_path / f"{number}", make_items())) as source:
                assert source.layout == layout, variant


def test_an_lmdb_folder_without_its_data(tmp_path: Path) -> None:
    (tmp_path / "lock.mdb").touch()
    assert "lock.mdb but without data.mdb" in refused(tmp_path)
    (tmp_path / "data.mdb").touch()
    assert "is not a complete LMDB file" in refused(tmp_path)
    (tmp_path / "data.mdb").write_bytes(b"text" * 5000)
    assert "is not a complete LMDB file" in refused(tmp_path)


@pytest.mark.parametrize("pages", [2, 3, 30])
def test_an_lmdb_file_that_is_cut_off_does_not_end_the_program(tmp_path: Path, pages: int) -> None:
    many = {f"{number:04}": packed(np.ones((9, 64), np.float32)) for number in range(100)}
    data = write_lmdb(tmp_path / "f", many) / "data.mdb"
    data.write_bytes(data.read_bytes()[: pages * 4096])
    assert "is cut off: it has" in refused(tmp_path / "f")


@pytest.mark.parametrize(
    ("page", "at", "wrong", "said"),
    [
        (2, 0, bytes(4096), "MDB_CORRUPTED"),  # zeros, as an unfinished copy has them
        (3, 10, b"\x29", "MDB_CORRUPTED"),  # a page of a value, which the library looks at
    ],
)
def test_an_lmdb_file_with_damaged_pages_does_not_end_the_program(
    tmp_path: Path, page: int, at: int, wrong: bytes, said: str
) -> None:
    rows = np.ones((9, 300), np.float32)
    file = write_lmdb(tmp_path / "f", {f"{number:04}": packed(rows) for number in range(5)}) / "data.mdb"
    data = bytearray(file.read_bytes())
    data[page * 4096 + at : page * 4096 + at + len(wrong)] = wrong
    file.write_bytes(data)
    told = refused(tmp_path / "f")
    assert "is damaged (" in told and said in told


def test_an_lmdb_file_whose_map_is_larger_than_the_usual_is_read(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(3000, 1024)).astype(np.float32)
    path = write_lmdb(tmp_path / "f", {"a": packed(rows)})
    assert (path / "data.mdb").stat().st_size > 10 << 20, "the map of lmdb.open is 10 MiB unless told"
    with open_features(path) as source:
        np.testing.assert_array_equal(source.get("a"), rows)


def test_a_folder_of_lmdb_that_may_not_be_written_to_is_read_and_left_alone(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "f", {"a": packed(ROWS)})
    (path / "lock.mdb").unlink()
    before = {file.name: file.stat().st_mtime_ns for file in path.iterdir()}
    path.chmod(0o555)
    with open_features(path) as source:
        source.get("a")
    assert {file.name: file.stat().st_mtime_ns for file in path.iterdir()} == before


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"\xc1", "is neither msgpack nor npz"),
        (packed(ROWS)[:-3], "is neither msgpack nor npz"),
        (b"PK\x03\x04 no zip", "is cut off, damaged or not npz"),
        (b"\x04\x22\x4d\x18 no lz4", "is damaged LZ4"),
        (
            msgpack.packb([[3, 0.5], [1, 0.2]]),
            "holds a list, as a list of ranked videos does; accepted: msgpack",
        ),
        (msgpack.packb({"feature": 1}), "has the keys ['feature']; accepted: msgpack of {'features': array}"),
        (msgpack.packb({"features": [[1.0, 2.0]]}), "holds a list as 'features'"),
        (packed(ROWS, kind=b"O"), "holds Python objects (a pickle), which is not read"),
        (packed(ROWS, type="|O"), "holds type '|O', which is not read"),
        (packed(ROWS, kind=b"V", type=[["x", "<f4"]]), "which is not read; accepted: arrays of float16"),
        (packed(ROWS, shape=(2, 4)), "holds 24 bytes, but its shape [2, 4] needs 32"),
        (packed(ROWS, shape=(1 << 40, 1 << 40)), "holds 24 bytes, but its shape"),
        (packed(ROWS, shape=(-2, -3)), "has the shape [-2, -3]; accepted: a list of sizes"),
        (packed(ROWS, shape="23"), "has the shape 23; accepted: a list of sizes"),
        (packed(ROWS, data=7), "holds a int, but"),
        (npz_bytes(feature=ROWS), "has the arrays 'feature'; accepted: an array named 'features'"),
    ],
)
def test_a_record_of_lmdb_that_is_no_array(tmp_path: Path, value: bytes, told: str) -> None:
    path = write_lmdb(tmp_path / "f", {"a": packed(ROWS), "bad": value})
    assert told in refused(path, "bad")
    with open_features(path) as source:
        np.testing.assert_array_equal(source.get("a"), ROWS)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_a_pickle_in_numpys_files_is_never_loaded(tmp_path: Path, suffix: str) -> None:
    folder = VARIANTS[suffix][1](tmp_path / "f", make_items())
    objects = np.array([Trap(tmp_path / "sprung")], dtype=object)
    if suffix == "npy":
        np.save(folder / "bad.npy", objects, allow_pickle=True)
    else:
        np.savez(folder / "bad.npz", objects)
    assert "holds Python objects (a pickle), which are never read" in refused(folder, "bad")
    (folder / f"bad.{suffix}").write_bytes(b"\x80\x04N.")
    assert "is cut off, damaged or not" in refused(folder, "bad")
    assert not (tmp_path / "sprung").exists()


def test_a_npy_whose_header_never_closes_a_bracket(tmp_path: Path) -> None:
    folder = VARIANTS["npy"][1](tmp_path / "f", {"a": ROWS, "b": ROWS})
    data = (folder / "b.npy").read_bytes()
    (folder / "b.npy").write_bytes(data.replace(b"(2, 3)", b"(2, 3(", 1))
    assert "is cut off, damaged or not .npy" in refused(folder, "b")


@pytest.mark.parametrize("shape", [(10**30, 4), (0, 10**30), (2**62, 4), (-2, -3), (True, 3), (2.0, 3), "ab"])
@pytest.mark.parametrize("variant", ["npy", "npz"])
def test_numpys_files_with_a_shape_that_no_array_has(tmp_path: Path, variant: str, shape: object) -> None:
    folder = VARIANTS[variant][1](tmp_path / "f", {"a": ROWS})
    text = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + ROWS.tobytes()
    if variant == "npy":
        (folder / "a.npy").write_bytes(data)
    else:
        with zipfile.ZipFile(folder / "a.npz", "w") as packed:
            packed.writestr("features.npy", data)
    assert "is cut off, damaged or not" in refused(folder, "a")


@pytest.mark.parametrize("variant", ["npy", "npz", "moment-detr", "moment-detr compressed"])
@pytest.mark.parametrize("keep", [0, 5, 60, 0.5, 0.97])
def test_numpys_files_that_are_cut_off(tmp_path: Path, variant: str, keep: float) -> None:
    folder = VARIANTS[variant][1](tmp_path / "f", make_items())
    path = next(folder.glob("s13-d21.np*"))
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if 0 < keep < 1 else int(keep)])
    assert "is cut off, damaged or not" in refused(folder, "s13-d21")


def test_an_npz_with_a_wrong_checksum(tmp_path: Path) -> None:
    folder = VARIANTS["moment-detr"][1](tmp_path / "f", {"a": ROWS, "b": ROWS})
    data = bytearray((folder / "b.npz").read_bytes())
    at = data.index(ROWS.tobytes())
    data[at] ^= 1
    (folder / "b.npz").write_bytes(bytes(data))
    assert "is cut off, damaged or not npz (Bad CRC-32" in refused(folder, "b")


@pytest.mark.parametrize("claimed", [(1 << 40, 1 << 20), (3, 3), (1,) * 40])
def test_an_npz_whose_header_claims_more_than_it_holds(tmp_path: Path, claimed: tuple[int, ...]) -> None:
    folder = VARIANTS["moment-detr"][1](tmp_path / "f", {"a": ROWS})
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": claimed})
    with zipfile.ZipFile(folder / "b.npz", "w") as packed_file:
        packed_file.writestr("features.npy", header.getvalue() + ROWS.tobytes())
    line = refused(folder, "b")
    assert "is cut off, damaged or not npz" in line or "has shape" in line


def test_an_npz_that_unpacks_to_more_than_an_item_may_be(tmp_path: Path, monkeypatch: Any) -> None:
    folder = VARIANTS["moment-detr compressed"][1](tmp_path / "f", {"a": np.zeros((1000, 64), np.float32)})
    assert (folder / "a.npz").stat().st_size < 2000
    monkeypatch.setattr("whenabouts_systems.features.source.MOST_BYTES", 10_000)
    assert "claims to be 256,000 bytes large; accepted: items of at most 10,000 bytes" in refused(folder, "a")


def test_links_in_a_folder_are_followed_only_inside_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "outside.npz", features=ROWS)
    for variant, suffix in (("moment-detr", "npz"), ("npz", "npz")):
        folder = VARIANTS[variant][1](tmp_path / variant, {"a": ROWS})
        (folder / "good.npz").symlink_to("a.npz")
        (folder / "out.npz").symlink_to("../outside.npz")
        (folder / "loop.npz").symlink_to("loop.npz")
        (folder / "none.npz").symlink_to("nobody.npz")
        assert "is a link that leads out of the folder; accepted: files in the folder" in refused(
            folder, "out"
        )
        assert "is a link that leads nowhere" in refused(folder, "none"), suffix
        assert "is a link that leads nowhere" in refused(folder, "loop")
        with open_features(folder) as source:
            np.testing.assert_array_equal(source.get("good"), ROWS)
        (tmp_path / f"link to {variant}").symlink_to(folder)
        with open_features(tmp_path / f"link to {variant}") as source:
            np.testing.assert_array_equal(source.get("a"), ROWS)


def test_a_sentence_of_moment_detr_has_its_qid_for_an_id_and_two_arrays(tmp_path: Path) -> None:
    tokens, pooled = np.ones((5, 4), np.float16), np.full(4, 2, np.float16)
    for qid in ("12", "7"):
        np.savez(tmp_path / f"qid{qid}.npz", last_hidden_state=tokens, pooler_output=pooled)
    with open_features(tmp_path) as source:
        assert sorted(source.ids()) == ["12", "7"]
        np.testing.assert_array_equal(source.get("7"), tokens, strict=True)
    with open_features(tmp_path, key="pooler_output") as source:
        np.testing.assert_array_equal(source.get("7"), pooled[None], strict=True)
    assert "has the arrays 'last_hidden_state', 'pooler_output'" in refused(tmp_path, "7", key="features")
    np.savez(tmp_path / "7.npz", last_hidden_state=tokens)
    assert "item '7': has two files, '7.npz' and 'qid7.npz'; accepted: one" in refused(tmp_path)


def test_two_files_or_entries_of_one_id(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    np.savez(tmp_path / "a.npz", ROWS)
    assert "item 'a': has two files, 'a.npy' and 'a.npz'" in refused(tmp_path)
    path = write_hdf5(tmp_path / "f.h5", {"a": ROWS, "a.avi": ROWS})
    assert "item 'a': has two entries, 'a' and 'a.avi'" in refused(path, layout="tacos")


def test_an_npz_with_several_arrays_needs_to_be_told_which(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=ROWS)
    np.savez(tmp_path / "b.npz", x=ROWS, y=ROWS)
    assert "has the arrays 'x', 'y'; accepted: one array, or name it with key" in refused(tmp_path, "b")
    with open_features(tmp_path, key="x") as source:
        np.testing.assert_array_equal(source.get("b"), ROWS)


@pytest.mark.parametrize("variant", ["hdf5", "tacos", "whenabouts"])
def test_a_key_where_an_item_is_one_array_is_refused(variant: str, tmp_path: Path) -> None:
    path = VARIANTS[variant][1](tmp_path / "f", make_items())
    with pytest.raises(UsageError, match="key 'x': an item of layout"):
        open_features(path, key="x")


def test_tacos_videos_are_found_under_both_of_their_names(tmp_path: Path) -> None:
    made = make_items()
    with open_features(VARIANTS["tacos"][1](tmp_path / "f", made)) as source:
        assert "s13-d21.avi" in source and "s13-d21" in source and "s13-d21.mp4" not in source
        np.testing.assert_array_equal(source.get("s13-d21.avi"), made["s13-d21"])
        assert source.length("s13-d21.avi") == len(made["s13-d21"])


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ([1], "holds a list or a bare value; accepted: one JSON object"),
        ({"extra": 3}, "extra: is 3; accepted: a JSON object"),
        ({"clip_seconds": -1}, "clip_seconds: is too small: -1; accepted: a finite number above 0"),
        ({"frame_rate": "three"}, "frame_rate: is not a number: 'three'; accepted: a finite number above 0"),
        ({"weights_sha256": "abc"}, "weights_sha256: is 'abc'; accepted: 64 hexadecimal digits"),
        ({"encoder": " "}, "encoder: is empty"),
    ],
)
@pytest.mark.parametrize("variant", ["npy", "moment-detr", "whenabouts"])
def test_a_fingerprint_that_makes_no_sense(tmp_path: Path, variant: str, facts: Any, told: str) -> None:
    folder = VARIANTS[variant][1](tmp_path / "f", make_items())
    (folder / "fingerprint.json").write_text(json.dumps(facts))
    with pytest.raises(FormatError) as error, open_features(folder) as source:
        _ = source.fingerprint
    assert told in str(error.value)


def test_a_reader_that_reads_another_shape_than_it_announced_is_caught(tmp_path: Path) -> None:
    from whenabouts_systems.features.source import OpenOptions, UnreadArray

    class Liar(FeatureSource):
        layout = "liar"

        def _items_by_id(self) -> dict[str, int]:
            return {"a": 1}

        def _inspect(self, item: str, where: Any) -> UnreadArray:
            return UnreadArray((2, 3), np.dtype("f4"), lambda: np.ones((3, 3), np.float32))

    with pytest.raises(FormatError, match=r"has shape \(3, 3\), but \(2, 3\) was announced"):
        Liar(tmp_path, OpenOptions()).get("a")
