"""The first JSON value of a file, from a prefix that ends anywhere."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.intake.files import (
    FileHead,
    FormatError,
    line_containing,
    open_unpacked,
    read_json,
    write_atomically,
)
from whenabouts_bench import formats
from whenabouts_bench.formats.annotations import AnnotationBuilder

PROSE = st.text(st.sampled_from('ab ,:[]{}"\\\n\té–犬'), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | PROSE
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PROSE, inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.lists(VALUES, max_size=4) | st.dictionaries(PROSE, VALUES, max_size=4)


def encoded(value: Any, ends: list[int], ascii_only: bool, before: int = 0) -> bytes:
    """JSON without blanks; `ends` gets where each text, number or constant ends, in bytes."""
    if not isinstance(value, dict | list):
        told = json.dumps(value, ensure_ascii=ascii_only).encode()
        ends.append(before + len(told))
        return told
    told = b"{" if isinstance(value, dict) else b"["
    for number, member in enumerate(value):
        told += b"," if number else b""
        if isinstance(value, dict):
            told += json.dumps(member, ensure_ascii=ascii_only).encode() + b":"
        inner = value[member] if isinstance(value, dict) else member
        told += encoded(inner, ends, ascii_only, before + len(told))
    return told + (b"}" if isinstance(value, dict) else b"]")


def leaves(value: Any) -> list[Any]:
    """The texts, numbers and constants of a value, with where they stand, in their order."""
    if not isinstance(value, dict | list):
        return [((), value)]
    members = value.items() if isinstance(value, dict) else enumerate(value)
    return [((key, *place), leaf) for key, inner in members for place, leaf in leaves(inner)]


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(DOCUMENTS, st.booleans())
def test_whatever_ended_before_the_cut_is_there_and_nothing_else(document: Any, ascii_only: bool) -> None:
    ends: list[int] = []
    data = encoded(document, ends, ascii_only)
    assert json.loads(data) == document
    expected = leaves(document)
    for cut in range(1, len(data)):
        found = FileHead(Path("cut"), data[:cut], whole=False).first_value
        assert type(found) is type(document)
        assert leaves(found) == expected[: sum(end < cut for end in ends)], data[:cut]


def test_a_value_that_ends_is_the_first_whatever_comes_after_it() -> None:
    assert FileHead(Path("cut"), b'\xef\xbb\xbf {"a": "b, {"}\n{"c": ', whole=False).first_value == {
        "a": "b, {"
    }


@pytest.mark.parametrize("text", [b'{"a": ,', b"[1 2,", b"{]", b'{"a" "b",', b'"text, ', b"", b"17", b"\xff"])
def test_what_is_no_json_is_nothing(text: bytes) -> None:
    assert FileHead(Path("cut"), text, whole=False).first_value is None


def test_a_value_that_is_too_deep_is_cut_where_it_gets_too_deep() -> None:
    found = FileHead(Path("cut"), b'{"a": 1, "b": ' + b"[" * 60_000, whole=False).first_value
    assert found["a"] == 1


@pytest.mark.parametrize("name", formats.format_names("write_annotations"))
def test_a_file_of_prose_is_recognised_wherever_its_beginning_ends(name: str, tmp_path: Path) -> None:
    """Sentences hold what looks like structure."""
    collector = AnnotationBuilder("prose")
    for number in range(6):
        collector.add_query(f"v#{number}", 'a man, a "dog", [laughs], and {a: cat}, then, as ever, \\ more')
        collector.judge(f"v#{number}", "v", number, number + 1)
    path = tmp_path / "file"
    formats.write_annotations(collector.annotations(), path, name)
    module = next(module for module in formats.all_formats() if name == module.NAME)
    data = path.read_bytes()
    for cut in range(len(data) // 4, len(data)):
        assert formats.reader_of(module, FileHead(path, data[:cut], whole=False)), data[:cut][-60:]


@pytest.mark.slow
def test_a_gzip_file_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb") as stream:
        stream.write(b"[" + b"[]," * 30_000_000)
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"unpacks to more than 64 MiB.*gunzip"):
        read_json(path)
    with pytest.raises(FormatError, match="gunzip"), open_unpacked(path) as stream:
        while stream.read(1 << 20):
            pass
    assert tracemalloc.get_traced_memory()[1] < 300 << 20
    tracemalloc.stop()


def test_a_document_of_more_values_than_memory_is_filled_with_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whenabouts.intake.files._MOST_VALUES", 1000)
    (tmp_path / "a.json").write_text("[" + "1," * 900 + "1]")
    assert len(read_json(tmp_path / "a.json")) == 901
    (tmp_path / "b.json").write_text("[" + "[]," * 900 + "1]")
    with pytest.raises(FormatError, match=r"b\.json: has about 1,801 values, more than 1,000.*JSON lines"):
        read_json(tmp_path / "b.json")
    monkeypatch.setattr("whenabouts.intake.files._LARGEST_DOCUMENT", 100)
    with pytest.raises(FormatError, match=r"larger than .*split it"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(("damage", "problem"), [(8, "is cut off"), (0, "is damaged")])
def test_a_damaged_gzip_file_is_named_and_not_the_file_that_is_written_from_it(
    tmp_path: Path, damage: int, problem: str
) -> None:
    packed = bytearray(gzip.compress(b"a line\n" * 1000))
    packed[-8] ^= 1  # the checksum
    path = tmp_path / "given.gz"
    path.write_bytes(packed[: len(packed) - damage])
    with (
        pytest.raises(FormatError, match=rf"given\.gz: the gzip file {problem}"),
        open_unpacked(path) as stream,
        write_atomically(tmp_path / "made") as target,
    ):
        target.write(stream.read())
    assert not (tmp_path / "made").exists()


def test_a_link_to_itself_is_replaced_and_permissions_are_those_of_the_umask(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with write_atomically(tmp_path / "loop") as target:
        target.write(b"{}")
    usual = tmp_path / "usual"
    usual.touch()
    assert (tmp_path / "loop").stat().st_mode == usual.stat().st_mode


def test_a_file_of_the_longest_name_is_written_and_of_a_longer_one_refused(tmp_path: Path) -> None:
    longest = tmp_path / ("é" * 125 + ".json")  # 255 bytes
    with write_atomically(longest) as target:
        target.write(b"{}")
    refused = pytest.raises(FormatError, match="cannot be written: File name too long")
    with refused, write_atomically(tmp_path / ("é" * 126 + ".json")) as target:
        target.write(b"{}")
    assert list(tmp_path.iterdir()) == [longest]


@pytest.mark.parametrize(("name", "line"), [("q1", 3), ("q10", 1), ("q", None), ("a.b", 4), ("é", 2)])
def test_a_line_is_found_by_a_whole_id(tmp_path: Path, name: str, line: int | None) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"id": "q10"}\n{"id": "\\u00e9"}\n{"id": "q1"}\naxb a.b 1\n')
    assert line_containing(path, name) == line
