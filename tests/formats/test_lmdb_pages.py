"""Damaged LMDB files: told as such, where the library by itself would end the process."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path

import pytest

from whenabouts.formats._lmdb import close_environment, open_environment
from whenabouts.formats._lmdb_pages import check_pages
from whenabouts.formats.files import FormatError

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
    mark, environment = open_environment(lmdb, path)
    try:
        with environment.begin() as reading, reading.cursor() as cursor:
            return dict(cursor)
    finally:
        close_environment(mark)


def put(data: bytes, at: int, what: bytes) -> bytes:
    return data[:at] + what + data[at + len(what) :]


def test_whole_files_are_read_also_after_records_went_and_came(file: Path) -> None:
    assert read(file) == RECORDS
    with lmdb.open(str(file), subdir=False, lock=False, map_size=1 << 24) as environment:
        for wanted in (b"one more", b"and another"):
            with environment.begin(write=True) as writing:
                writing.delete(b"key 050")
                writing.delete(b"long 3")
                writing.put(wanted, wanted * 1000)
    found = read(file)
    assert len(found) == len(RECORDS)
    assert found[b"and another"] == b"and another" * 1000


@pytest.mark.parametrize("records", [{}, {b"a": b""}, {b"a": b"b" * 50_000}])
def test_files_of_no_record_and_of_one_are_whole(tmp_path: Path, records: dict[bytes, bytes]) -> None:
    assert read(write(tmp_path / "data.mdb", records)) == records


def test_named_databases_are_whole(tmp_path: Path) -> None:
    check_pages(write(tmp_path / "data.mdb", RECORDS, create=True))


def test_a_page_of_zeros_is_told_wherever_it_is(file: Path) -> None:
    data, told = file.read_bytes(), 0
    for page in range(len(data) // PAGE):
        file.write_bytes(put(data, page * PAGE, bytes(PAGE)))
        try:
            assert read(file).keys() == RECORDS.keys()  # a page of a value, or of nothing
        except FormatError as error:
            assert re.search("is damaged|is no whole LMDB file", str(error))
            told += 1
    assert told > 8


def test_pages_in_each_others_place_are_told(file: Path) -> None:
    data, leaves = file.read_bytes(), []
    for page in range(2, len(data) // PAGE):
        (kind,) = struct.unpack_from("<H", data, page * PAGE + 10)
        if kind == 2:
            leaves.append(page * PAGE)
    one, other = leaves[1], leaves[2]
    first = data[one : one + PAGE]
    file.write_bytes(put(put(data, one, data[other : other + PAGE]), other, first))
    with pytest.raises(FormatError, match=r"data\.mdb: is damaged \(page \d+ is none of the tree\)"):
        read(file)


@pytest.mark.parametrize(
    ("at", "what", "said"),
    [
        (40, struct.pack("<I", 0), "pages of 0 bytes"),
        (40, struct.pack("<I", 1 << 20), "pages of 1,048,576 bytes"),
        (10, b"\0\0", "page 0 is no first page"),
        (PAGE + 16, b"\0", "page 1 is no first page"),
        (PAGE + 92, b"\4", "its database is of another kind"),
        (PAGE + 120, struct.pack("<Q", 107), "it says that it has 107 records, and 106 are found"),
        (PAGE + 128, struct.pack("<Q", 1), "pages are named that are not there"),
        (PAGE + 128, struct.pack("<Q", 1 << 40), "pages are named that are not there"),
        (PAGE + 136, struct.pack("<Q", 1 << 40), "is cut off"),
    ],
)
def test_first_pages_that_cannot_be_right_are_told(file: Path, at: int, what: bytes, said: str) -> None:
    data = file.read_bytes()
    turns = [struct.unpack_from("<Q", data, page * PAGE + 144)[0] for page in (0, 1)]
    assert turns[1] > turns[0]  # the second one counts
    file.write_bytes(put(data, at, what))
    with pytest.raises(FormatError, match=said.replace("(", r"\(")):
        read(file)


def test_a_value_behind_the_end_is_told(file: Path) -> None:
    data = file.read_bytes()
    at = data.index(b"long 0") + len(b"long 0")
    file.write_bytes(put(data, at, struct.pack("<Q", len(data) // PAGE - 1)))
    with pytest.raises(FormatError, match="has a value that is not in the file"):
        read(file)


def test_no_bytes_that_are_wrong_end_the_process(file: Path) -> None:
    data, draw, told = file.read_bytes(), random.Random(0), 0
    for _ in range(120):
        page, wrong = draw.randrange(len(data) // PAGE), data
        for _ in range(3):
            wrong = put(wrong, page * PAGE + draw.randrange(160), bytes([draw.randrange(256)]))
        file.write_bytes(wrong)
        try:
            read(file)
        except FormatError as error:
            assert str(file) in str(error)
            told += 1
        except lmdb.Error:  # the library's own word, which readers pass on
            told += 1
    assert 20 < told < 120


def test_a_file_that_ends_early_is_told_wherever_it_ends(file: Path) -> None:
    data = file.read_bytes()
    for size in (24, 100, PAGE, 2 * PAGE - 1, 3 * PAGE, len(data) - PAGE):
        file.write_bytes(data[:size])
        with pytest.raises(FormatError, match=r"is damaged|is cut off"):
            read(file)
