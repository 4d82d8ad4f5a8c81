"""LMDB files are read by a child process: damaged ones are refused, even if the library crashes."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import signal
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from whenabouts.intake.files import FormatError
from whenabouts_bench.formats.lmdb_records import LmdbRecords

lmdb = pytest.importorskip("lmdb")

PAGE = 4096
SHORT = {f"key {number:03d}".encode(): b"value" * 40 for number in range(100)}
LONG = {f"long {number}".encode(): b"value" * 2000 for number in range(6)}
RECORDS = SHORT | LONG
"""Some 8 leaves below a root, and values that have pages of their own."""


def write(path: Path, records: dict[bytes, bytes], **how: object) -> Path:
    with (
        lmdb.open(
            str(path), subdir=False, lock=False, map_size=1 << 24, max_dbs=2 if how else 0
        ) as environment,
        environment.begin(write=True) as writing,
    ):
        database = environment.open_db(b"named", writing, **how) if how else None
        for key, value in records.items():
            writing.put(key, value, db=database)
    return path


@pytest.fixture()
def file(tmp_path: Path) -> Path:
    path = write(tmp_path / "data.mdb", RECORDS)
    data = path.read_bytes()
    assert struct.unpack_from("<I", data, 40) == (PAGE,)
    return path


def read(path: Path) -> dict[bytes, bytes]:
    with LmdbRecords(path) as records:
        return {key: records.get(key) for key in records.all_keys()}


def put(data: bytes, at: int, what: bytes) -> bytes:
    return data[:at] + what + data[at + len(what) :]


def test_whole_files_are_read_also_after_records_went_and_came(file: Path) -> None:
    assert read(file) == RECORDS
    with lmdb.open(str(file), subdir=False, lock=False, map_size=1 << 24) as environment:
        for key in (b"one more", b"and another"):
            with environment.begin(write=True) as writing:
                writing.delete(b"key 050")
                writing.delete(b"long 3")
                writing.put(key, key * 1000)
    records = read(file)
    assert len(records) == len(RECORDS)
    assert records[b"and another"] == b"and another" * 1000


@pytest.mark.parametrize("records", [{}, {b"a": b""}, {b"a": b"b" * 50_000}])
def test_files_of_no_record_and_of_one_are_whole(tmp_path: Path, records: dict[bytes, bytes]) -> None:
    assert read(write(tmp_path / "data.mdb", records)) == records


def test_named_databases_are_whole(tmp_path: Path) -> None:
    assert list(read(write(tmp_path / "data.mdb", RECORDS, create=True))) == [b"named"]


@pytest.mark.slow
def test_a_page_of_zeros_is_refused_wherever_it_is(file: Path) -> None:
    data, refused = file.read_bytes(), 0
    for page in range(len(data) // PAGE):
        file.write_bytes(put(data, page * PAGE, bytes(PAGE)))
        try:
            assert read(file).keys() == RECORDS.keys()  # a page of a value, or of nothing
        except FormatError as error:
            assert re.search("is damaged|is not a complete LMDB file", str(error))
            refused += 1
    assert refused > 8


def test_a_library_that_dies_is_reported_with_its_signal(file: Path) -> None:
    with LmdbRecords(file) as records:
        records._child._process.send_signal(signal.SIGABRT)
        for _ in range(2):
            with pytest.raises(FormatError, match=r"data\.mdb: is damaged \(reading it ended .*: SIGABRT\)"):
                records.get(b"key 000")


def test_pages_in_each_others_place_are_refused(file: Path) -> None:
    data, leaves = file.read_bytes(), []
    for page in range(2, len(data) // PAGE):
        (kind,) = struct.unpack_from("<H", data, page * PAGE + 10)
        if kind == 2:
            leaves.append(page * PAGE)
    first, second = leaves[1], leaves[2]
    swapped = put(data, first, data[second : second + PAGE])
    file.write_bytes(put(swapped, second, data[first : first + PAGE]))
    with pytest.raises(FormatError, match=r"data\.mdb: is damaged \(its keys are out of order\)"):
        read(file)


@pytest.mark.parametrize(
    ("at", "what", "message"),
    [
        (40, struct.pack("<I", 0), "is damaged|is not a complete"),
        (40, struct.pack("<I", 1 << 20), "is damaged|is not a complete"),
        (10, b"\0\0", "is not a complete LMDB file"),
        (PAGE + 16, b"\0", "is not a complete LMDB file"),
        (PAGE + 120, struct.pack("<Q", 107), "it says that it has 107 records, and 106 are there"),
        (PAGE + 128, struct.pack("<Q", 1), "is damaged"),
        (PAGE + 128, struct.pack("<Q", 1 << 40), "is damaged"),
        (PAGE + 136, struct.pack("<Q", 1 << 40), "is cut off|is not a complete"),
    ],
)
def test_first_pages_that_cannot_be_right_are_refused(file: Path, at: int, what: bytes, message: str) -> None:
    data = file.read_bytes()
    turns = [struct.unpack_from("<Q", data, page * PAGE + 144)[0] for page in (0, 1)]
    assert turns[1] > turns[0]  # the second one counts
    file.write_bytes(put(data, at, what))
    with pytest.raises(FormatError, match=message):
        read(file)


@pytest.mark.parametrize("number", [0, 5])
def test_a_value_behind_the_end_is_refused(file: Path, number: int) -> None:
    data = file.read_bytes()
    at = data.index(b"long %d" % number) + len(b"long 0")
    file.write_bytes(put(data, at, struct.pack("<Q", len(data) // PAGE - 1)))
    with pytest.raises(FormatError, match="is damaged"):
        read(file)


def test_a_value_as_long_as_memory_is_refused(file: Path) -> None:
    data = file.read_bytes()
    at = data.index(b"long 0") - 8
    assert struct.unpack_from("<HH", data, at) == (10_000, 0)
    file.write_bytes(put(data, at, struct.pack("<HH", 0xFFFF, 0x7FFF)))
    with pytest.raises(FormatError, match="is damaged"):
        read(file)


def test_a_reply_that_fails_after_its_length_ends_the_child(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "fake" / "lmdb" / "__init__.py"
    fake.parent.mkdir(parents=True)
    fake.write_text(
        "import contextlib, ctypes\n"
        "class Error(Exception): pass\n"
        "class Transaction:\n"
        "    def get(self, key): return (ctypes.c_char * 4096).from_address(16)\n"
        "class Environment:\n"
        "    def stat(self): return {'psize': 4096}\n"
        "    def info(self): return {'last_pgno': 2}\n"
        "    def begin(self, buffers): return Transaction()\n"
        "def open(*args, **options): return Environment()\n",
        encoding="utf-8",
    )
    spec = importlib.util.spec_from_file_location("lmdb", fake)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with (
        LmdbRecords(file) as records,
        pytest.raises(FormatError, match=r"is damaged \(reading it ended the LMDB library: 1"),
    ):
        records.get(b"key 000")


@pytest.mark.slow
def test_no_bytes_that_are_wrong_end_the_process(file: Path) -> None:
    data, draw, refused = file.read_bytes(), random.Random(0), 0
    for _ in range(30):
        page, wrong = draw.randrange(len(data) // PAGE), data
        for _ in range(3):
            wrong = put(wrong, page * PAGE + draw.randrange(160), bytes([draw.randrange(256)]))
        file.write_bytes(wrong)
        try:
            read(file)
        except FormatError as error:
            assert str(file) in str(error)
            refused += 1
    assert 5 < refused < 30


def test_a_file_that_ends_early_is_refused_wherever_it_ends(file: Path) -> None:
    data = file.read_bytes()
    for size in (24, 100, PAGE, 2 * PAGE - 1, 3 * PAGE, len(data) - PAGE):
        file.write_bytes(data[:size])
        with pytest.raises(FormatError, match=r"is damaged|is cut off|is not a complete LMDB file"):
            read(file)


def test_threads_and_forked_processes_get_their_own_replies(file: Path) -> None:
    with LmdbRecords(file) as records:
        keys = records.all_keys() * 3
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(records.get, keys)) == [RECORDS[key] for key in keys]
        forked = os.fork()
        if not forked:  # the child of a fork ends here, whatever happens
            try:
                os._exit(0 if all(records.get(key) == RECORDS[key] for key in keys) else 1)
            finally:
                os._exit(2)
        assert all(records.get(key) == RECORDS[key] for key in keys)
        assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0


def test_closing_ends_the_child_process(file: Path) -> None:
    records = LmdbRecords(file)
    process = records._child._process
    assert process.poll() is None
    records.close()
    assert process.poll() is not None
