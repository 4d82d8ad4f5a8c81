"""The contract of every format; a new one is found automatically and needs a sample in conftest."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts.intake.files import FormatError, read_head
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench import formats
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.conversion import convert
from whenabouts_bench.formats.runs import MemoryRun

MODULES = {module.NAME: module for module in formats.all_formats()}
READ = [(name, way) for way in ("read_annotations", "open_run") for name in formats.format_names(way)]
OF_TEXT = [pair for pair in READ if pair[0] != "hero"]
WRITTEN = [
    *((name, "read_annotations") for name in formats.format_names("write_annotations")),
    *((name, "open_run") for name in formats.format_names("write_run")),
]
OF_LINES = [
    *((name, way) for name in ("jsonl", "trec", "qvhighlights") for way in ("read_annotations", "open_run")),
    ("tvr", "read_annotations"),
    ("videosearch-r1", "open_run"),
]
Sample = Callable[[str, str], Path]


def read_all(path: Path, way: str, name: str | None = None) -> Any:
    """The whole contents of a file, so that late errors are found."""
    if way == "read_annotations":
        return formats.read_annotations(path, name)
    source = formats.open_run(path, name)
    return {task: list(source.blocks(task)) for task in source.tasks}


def complaint(path: Path, way: str, name: str) -> str:
    """The message with which a file is refused: one line that names the file."""
    with pytest.raises(WhenaboutsError) as caught:
        read_all(path, way, name)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    assert len(message) < 400 + len(str(path))
    return message


@pytest.mark.parametrize("name", MODULES)
def test_a_format_says_its_name_and_how_its_files_begin(name: str) -> None:
    module = MODULES[name]
    assert name == name.lower()
    ways = ("read_annotations", "open_run", "write_annotations", "write_run")
    assert any(hasattr(module, way) for way in ways)
    assert set(module.SIGNS) == {way for way in ways[:2] if hasattr(module, way)}


def test_no_two_formats_have_the_same_name() -> None:
    assert len(MODULES) == len(formats.all_formats())


@pytest.mark.parametrize(("name", "way"), READ)
def test_a_file_is_recognised_by_its_own_format_and_no_other(name: str, way: str, sample: Sample) -> None:
    opening = read_head(sample(name, way))
    readers = {other: formats.reader_of(module, opening) for other, module in MODULES.items()}
    assert {other: reader for other, reader in readers.items() if reader} == {name: way}


@pytest.mark.parametrize(("name", "way"), READ)
def test_a_long_file_is_recognised_by_its_beginning(
    name: str, way: str, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sample(name, way)
    monkeypatch.setattr("whenabouts.intake.files._HEAD_BYTES", len(path.read_bytes()) * 3 // 4)
    opening = read_head(path)
    assert not opening.whole
    assert formats.reader_of(MODULES[name], opening) == way


@pytest.mark.parametrize(("name", "way"), READ)
def test_content_decides_and_not_the_name_of_the_file(name: str, way: str, sample: Sample) -> None:
    path = sample(name, way)
    other = path.rename(path.with_name("renamed.txt"))
    read_all(other, way)


@pytest.mark.parametrize("name", formats.format_names("write_annotations"))
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_judgements_come_back_as_they_were_written(
    name: str, suffix: str, annotations: Annotations, tmp_path: Path
) -> None:
    path = tmp_path / f"judgements{suffix}"
    formats.write_annotations(annotations, path, name)
    again = formats.read_annotations(path)
    assert again.qrels == annotations.qrels
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == bool(suffix)
    formats.write_annotations(again, tmp_path / f"second{suffix}", name)
    assert (tmp_path / f"second{suffix}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", formats.format_names("write_run"))
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_run_comes_back_as_it_was_written(
    name: str, suffix: str, run: MemoryRun, annotations: Annotations, tmp_path: Path, rows: Callable[..., Any]
) -> None:
    path = tmp_path / f"run{suffix}"
    formats.write_run(run, path, name, annotations)
    again = formats.open_run(path)
    assert rows(again) == rows(run)
    assert rows(again) == rows(again), "a run can be read more than once"
    formats.write_run(again, tmp_path / f"second{suffix}", name, annotations)
    assert (tmp_path / f"second{suffix}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("name", "way"), READ)
def test_gzip_is_read_whatever_the_name_says(
    name: str, way: str, sample: Sample, packed: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = packed(sample(name, way)).rename(tmp_path / "plain")
    read_all(path, way)


@pytest.mark.parametrize(("name", "way"), READ)
@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_a_gzip_file_that_is_cut_off_is_refused_in_one_line(
    name: str, way: str, keep: float, sample: Sample, packed: Callable[[Path], Path]
) -> None:
    path = packed(sample(name, way))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    assert "cut off" in complaint(path, way, name)


@pytest.mark.parametrize(("name", "way"), READ)
def test_a_gzip_file_that_is_damaged_is_refused_in_one_line(
    name: str, way: str, sample: Sample, packed: Callable[[Path], Path]
) -> None:
    path = packed(sample(name, way))
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF  # in the checksum
    path.write_bytes(data)
    assert "damaged" in complaint(path, way, name)


BAD = {
    "an empty file": b"",
    "blank lines": b"\n  \n\r\n",
    "binary junk": bytes(range(256)) * 40,
    "not UTF-8": b'{"query_id": "\xff\xfe"}\n',
    "a number": b"17\n",
    "a text": b'"judgements"\n',
    "null": b"null\n",
    "a list of numbers": b"[1, 2, 3]\n",
    "a list of lists": b"[[1], [2]]\n",
    "an object of numbers": b'{"a": 1, "b": 2}\n',
    "an object of texts": b'{"a": "b"}\n',
    "not JSON": b'{"a": ,}\n',
    "cut off JSON": b'{"query_id": "q", "moments": [{"video_id": "v",',
    "deep nesting": b"[" * 200_000 + b"]" * 200_000,
    "deep nesting in an object": b'{"query_id": ' * 100_000 + b"1" + b"}" * 100_000,
    "a number of many digits": b'{"a": {"duration": ' + b"1" * 10_000 + b"}}",
    "a line of zeros": bytes(5000),
    "prose": b"once upon a time\nthere was a file\n",
}


@pytest.mark.parametrize(("name", "way"), READ)
@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_such_file_is_refused_in_one_line(name: str, way: str, bad: str, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(BAD[bad])
    complaint(path, way, name)
    with pytest.raises(WhenaboutsError):
        read_all(path, way)


@pytest.mark.parametrize(("name", "way"), READ)
def test_what_cannot_be_opened_is_refused_in_one_line(name: str, way: str, tmp_path: Path) -> None:
    complaint(tmp_path / "missing", way, name)
    (tmp_path / "folder").mkdir()
    with pytest.raises(FormatError, match=r"folder"):
        read_all(tmp_path / "folder", way, name)
    with pytest.raises(FormatError, match="cannot be read: a name with a NUL character"):
        read_head(Path("a\0b.jsonl"))
    with pytest.raises(FormatError, match=r"folder: (is a folder without qrels\.jsonl|cannot be read)"):
        read_all(tmp_path / "folder", way)


@pytest.mark.parametrize(("name", "way"), READ)
def test_a_file_without_permission_is_refused_in_one_line(
    name: str, way: str, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sample(name, way)
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may read everything

        def refuse(path: Path) -> Any:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr("whenabouts.intake.opening.open_descriptor", refuse)
    assert "Permission denied" in complaint(path, way, name)


@pytest.mark.parametrize(("name", "way"), OF_LINES)
def test_a_byte_order_mark_windows_line_ends_and_blank_lines_change_nothing(
    name: str, way: str, sample: Sample, rows: Callable[..., Any]
) -> None:
    path = sample(name, way)
    other = path.with_name("windows")
    other.write_bytes(b"\xef\xbb\xbf\r\n" + path.read_bytes().replace(b"\n", b"\r\n\r\n  \r\n"))
    if way == "open_run":
        assert rows(formats.open_run(other)) == rows(formats.open_run(path))
    else:
        assert formats.read_annotations(other).qrels == formats.read_annotations(path).qrels


@pytest.mark.parametrize(("name", "way"), OF_LINES)
def test_the_last_line_may_lack_its_end(
    name: str, way: str, sample: Sample, rows: Callable[..., Any]
) -> None:
    path = sample(name, way)
    other = path.with_name("other")
    other.write_bytes(path.read_bytes().removesuffix(b"\n"))
    if way == "open_run":
        assert rows(formats.open_run(other)) == rows(formats.open_run(path))
    else:
        assert formats.read_annotations(other).qrels == formats.read_annotations(path).qrels


@pytest.mark.parametrize(("name", "way"), OF_TEXT)
def test_a_byte_order_mark_is_passed_over(name: str, way: str, sample: Sample) -> None:
    path = sample(name, way)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    read_all(path, way)


def _mutations(data: bytes, rng: random.Random) -> bytes:
    """Corrupted bytes: some replaced, dropped, doubled, or a value exchanged."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(made) + 1)
        end = min(len(made), at + rng.randint(0, 8))
        filler = rng.choice(
            [
                b"",
                b"\x00",
                b"\xff",
                b"null",
                b"-1",
                b"NaN",
                b"1e999",
                b"[]",
                b"{}",
                b'"',
                b",",
                b"\n",
                b" ",
                b"@",
                b"true",
            ]
        )
        made[at:end] = filler
    return bytes(made)


@pytest.mark.parametrize(("name", "way"), READ)
def test_a_damaged_file_is_read_or_refused_in_one_line_and_nothing_else(
    name: str, way: str, sample: Sample
) -> None:
    path = sample(name, way)
    data = path.read_bytes()
    rng = random.Random(f"{name} {way}")
    refused = 0
    times = 40 if name == "hero" else 120  # each reading of LMDB starts a process
    for _ in range(times):
        path.write_bytes(_mutations(data, rng))
        try:
            read_all(path, way, name)
        except WhenaboutsError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > times // 6


WRONG: list[Any] = [None, True, 0.5, -3, "x", "", [], {}, [[]], [{}], {"a": {}}, 10**400]


def _scalars(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a JSON value there is a number, a text, a list or an object."""
    found = [path] if path else []
    if isinstance(value, dict):
        members: Any = value.items()
    else:
        members = enumerate(value) if isinstance(value, list) else ()
    return found + [place for key, inner in members for place in _scalars(inner, (*path, key))]


@pytest.mark.parametrize(("name", "way"), [pair for pair in OF_TEXT if pair[0] not in ("trec", "charades")])
def test_a_wrong_type_anywhere_is_read_or_refused_in_one_line(name: str, way: str, sample: Sample) -> None:
    path = sample(name, way)
    text = path.read_text(encoding="utf-8")
    whole = json.loads(text.splitlines()[0] if (name, way) in OF_LINES else text)
    refused = 0
    for place in _scalars(whole):
        for wrong in WRONG:
            changed = json.loads(json.dumps(whole))
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = wrong
            path.write_text(json.dumps(changed) + "\n", encoding="utf-8")
            try:
                read_all(path, way, name)
            except WhenaboutsError as error:
                assert "\n" not in str(error) and str(path) in str(error), place
                refused += 1
    assert refused > 20


@pytest.mark.parametrize(("name", "way"), WRITTEN)
def test_a_file_that_cannot_be_written_leaves_nothing(
    name: str, way: str, annotations: Annotations, run: MemoryRun, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    target = tmp_path / "file" / "out"
    with pytest.raises(FormatError, match="cannot be written"):
        if way == "open_run":
            formats.write_run(run, target, name, annotations)
        else:
            formats.write_annotations(annotations, target, name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", formats.format_names("write_run"))
def test_a_run_that_fails_while_it_is_read_leaves_nothing(
    name: str, sample: Sample, annotations: Annotations, tmp_path: Path
) -> None:
    path = sample("jsonl", "open_run")
    path.write_bytes(path.read_bytes() + b"no json\n")
    source = formats.open_run(path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(FormatError, match="line 3"):
        formats.write_run(source, tmp_path / "out", name, annotations)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("read", [formats.read_annotations, formats.open_run])
def test_a_file_of_no_format_is_told_what_every_command_can_do_about_it(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "pools.json"
    path.write_text("{}")
    with pytest.raises(UsageError) as caught:
        read(path)
    told = str(caught.value)
    assert "pools.json: a file that begins with '{}' is in no format that is known for" in told
    assert "`whenabouts convert" in told and "--from NAME`" in told
    assert ("--truth-format" in told) == (read is formats.read_annotations)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"desc_id": 1, "ts": [0, 1]}, "; it lacks 'desc' to be tvr;"),
        ({"query_id": 1, "ts": [0, 1]}, "; it lacks 'video_id' to be jsonl;"),
        ([{"annotation_id": 1, "times": []}], "; it lacks 'description' to be didemo;"),
        ({"start": 1}, "); if it is in one"),
        ({"query_id": 1, "ts": [0, 1], "notes": "x" * 70_000}, "; it lacks 'video_id' to be jsonl;"),
    ],
)
def test_the_key_that_a_file_lacks_is_named(line: Any, told: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(UsageError) as caught:
        formats.read_annotations(path)
    assert told in str(caught.value)
    with pytest.raises(UsageError) as caught:
        convert(path, tmp_path / "out.jsonl", "jsonl")
    assert told.removesuffix(";").removesuffix(" if it is in one").removeprefix(")") in str(caught.value)


def test_a_file_of_pools_that_is_taken_for_a_run_is_called_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mvmr.json"
    entry = {"timestamps": [[0, 1]], "sentences": ["a"], "pos_moments": [[]], "retrieval_pool": [["v"]]}
    path.write_text(json.dumps({"v": entry}))
    with pytest.raises(UsageError, match=r"mvmr\.json: is a file of judgements \(mvmr\); .* goes to --pools"):
        formats.open_run(path)


def test_a_run_in_memory_names_the_lists_that_it_has(run: MemoryRun) -> None:
    with pytest.raises(UsageError, match="run holds VCMR, not SVMR"):
        list(run.blocks("SVMR"))


def test_gzip_files_of_the_same_content_are_the_same_bytes(annotations: Annotations, tmp_path: Path) -> None:
    for name in ("first.gz", "second.gz"):
        formats.write_annotations(annotations, tmp_path / name, "jsonl")
    first, second = ((tmp_path / name).read_bytes() for name in ("first.gz", "second.gz"))
    assert first == second
    assert gzip.decompress(first).startswith(b'{"query_id"')
