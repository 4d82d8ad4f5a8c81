"""HERO's lists: numbers become videos, and odd entries are reported."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.formats.conftest import write_lists
from tests.golden_folder import cases, golden_folder

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench import formats
from whenabouts_bench.formats.conversion import convert

pytest.importorskip("lmdb")


def read(path: Path) -> dict[str, list[tuple[str, float]]]:
    found: dict[str, list[tuple[str, float]]] = {}
    for block in formats.open_run(path).blocks("VR"):
        for number, query_id in enumerate(block.query_ids):
            rows = slice(int(block.offsets[number]), int(block.offsets[number + 1]))
            names = [block.video_ids[code] for code in block.video[rows].tolist()]
            found[query_id] = list(zip(names, block.score[rows].tolist(), strict=True))
    return found


@pytest.mark.slow
def test_the_lists_of_the_authors_program_come_back_in_its_order(tmp_path: Path) -> None:
    files = cases("conquer", "*.npz")
    if not files:
        pytest.skip(f"{golden_folder()} has no conquer folder")
    for case in files:
        with np.load(case) as arrays:
            raw = {
                name.rsplit(".", 1)[1]: arrays[name].tobytes()
                for name in arrays.files
                if name.startswith("hero_ranklist_msgpack.")
            }
        if not raw:
            continue
        decoded = {name: msgspec.msgpack.decode(data) for name, data in raw.items()}
        numbers = sorted({entry[0] for entries in decoded.values() for entry in entries})
        told = {"val": {f"v{number}": [9.0, number] for number in numbers}}
        place = tmp_path / case.stem
        place.mkdir()
        found = read(write_lists(place / "val_top100", dict(raw), told))
        assert found == {
            name: [(f"v{entry[0]}", entry[1]) for entry in entries] for name, entries in decoded.items()
        }


@pytest.mark.slow
def test_a_folder_and_its_file_are_the_same_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "val_top100").mkdir()
    file = write_lists(tmp_path / "val_top100" / "data.mdb", {"7": [[4, 2.0], [9, 1.0]]})
    (file.parent / "tvr_video2dur_idx.json").rename(tmp_path / "tvr_video2dur_idx.json")
    assert read(file) == read(tmp_path / "val_top100") == {"7": [("a", 2.0), ("b", 1.0)]}
    monkeypatch.chdir(file.parent)
    assert read(Path()) == read(Path("data.mdb")) == read(file)
    for named in (None, "hero"):
        done = convert(file.parent, tmp_path / "out.jsonl", "jsonl", from_=named)
        assert (done.kind, done.source, done.rows) == ("run", str(file.parent), 2)


def test_videos_may_be_named_and_then_no_file_says_what_numbers_mean(tmp_path: Path) -> None:
    lists = {"7": [["b", 2.0], ["a", 1.0]], "0": [], "8": [["a", 3.0]]}
    path = write_lists(tmp_path / "lists", lists)
    (tmp_path / "tvr_video2dur_idx.json").unlink()
    assert read(path) == {name: [tuple(row) for row in rows] for name, rows in lists.items()}
    mixed = write_lists(tmp_path / "mixed", {"7": [["b", 2.0], [4, 1.0]]})
    with pytest.raises(FormatError, match=r"entry 2 has '4' where others have the name of a video"):
        read(mixed)


def test_only_the_first_two_fields_count(tmp_path: Path) -> None:
    path = write_lists(tmp_path / "lists", {"7": [[4, 2, 0.1, "x"], [9, 1.5, None]]})
    assert read(path) == {"7": [("a", 2.0), ("b", 1.5)]}


def test_scores_out_of_order_count_and_are_told_once(tmp_path: Path, caplog: Any) -> None:
    path = write_lists(tmp_path / "lists", {"1": [[4, 1.0], [9, 3.0]], "2": [[4, 3.0], [9, 1.0]]})
    source = formats.open_run(path)
    with caplog.at_level(logging.WARNING, "whenabouts"):
        (block,) = source.blocks("VR")
        list(source.blocks("VR"))
    assert [block.video_ids[code] for code in block.video.tolist()] == ["b", "a", "a", "b"]
    assert len(caplog.messages) == 1
    assert "the scores of 1 queries contradict the order" in caplog.messages[0]


def test_long_lists_come_in_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whenabouts_bench.formats.hero.BLOCK_ROWS", 4)
    lists = {str(query): [[4, 2.0], [9, 1.0]] for query in range(7)} | {"empty": []}
    path = write_lists(tmp_path / "lists", lists)
    blocks = list(formats.open_run(path).blocks("VR"))
    assert [len(block) for block in blocks] == [2, 2, 2, 2]
    assert read(path) == {name: [("a", 2.0), ("b", 1.0)][: len(rows)] for name, rows in lists.items()}


@pytest.mark.parametrize("form", [{"a": 4, "b": 9}, {"a": [30.0, 4], "b": [41.5, 9]}])
def test_the_numbers_may_be_without_splits(tmp_path: Path, form: Any) -> None:
    assert read(write_lists(tmp_path / "lists", {"7": [[9, 1.0]]}, form)) == {"7": [("b", 1.0)]}


def test_numbers_of_several_splits_are_read_by_the_name_of_the_lists(tmp_path: Path) -> None:
    numbers = {"train": {"a": [1.0, 0]}, "val": {"b": [1.0, 0]}, "test_public": {"c": [1.0, 0]}}
    named = {"train_top2000": "a", "val_top100": "b", "Validation.mdb": "b", "tvr_test_top100": "c"}
    for name, video in named.items():
        assert read(write_lists(tmp_path / name, {"7": [[0, 1.0]]}, numbers)) == {"7": [(video, 1.0)]}
    for name in ("lists", "retrieval_top100"):  # which has the letters of "val"
        path = write_lists(tmp_path / name, {"7": [[0, 1.0]]}, numbers)
        with pytest.raises(FormatError, match="number 0 is 'a' and, in 'val', 'b'; accepted: numbers of one"):
            formats.open_run(path)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([], "is not an object"),
        ({"val": {"a": [30.0, "4"]}}, "a: is not the number of a video"),
        ({"val": {"a": 4, "b": 4}}, "b: is also the number of 'a': 4"),
    ],
)
def test_a_file_of_numbers_that_is_none_is_named(tmp_path: Path, numbers: Any, said: str) -> None:
    path = write_lists(tmp_path / "lists", {"7": [[4, 1.0]]}, numbers)
    with pytest.raises(FormatError, match=rf"tvr_video2dur_idx\.json: {said}"):
        formats.open_run(path)


def test_without_a_file_of_numbers_and_with_two_the_remedy_is_said(tmp_path: Path) -> None:
    path = write_lists(tmp_path / "lists", {"7": [[4, 1.0]]})
    (tmp_path / "other_video2dur_idx.json").write_text(json.dumps({"a": 4}))
    with pytest.raises(FormatError, match=r"has 2 files beside it .*other_video2dur_idx\.json, tvr_"):
        formats.open_run(path)
    for file in tmp_path.glob("*.json"):
        file.unlink()
    with pytest.raises(FormatError, match=r"has their names; accepted: one file …video2dur"):
        formats.open_run(path)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (b"\xc1", "is not msgpack"),
        ({"a": 1}, "holds a dict"),
        ([4, 9], "entry 1 is not a video with a score: 4"),
        ([[4, 1.0], [5, 1.0]], r"entry 2 names video number 5, which .* does not have \(it has 2\)"),
        ([[True, 1.0]], "entry 1 names video number True"),
        ([[4, float("inf")]], "entry 1 has the score inf, not a finite number"),
        ([[4, None]], "entry 1 has the score None"),
    ],
)
def test_a_list_that_is_none_is_named_by_its_query(tmp_path: Path, entries: Any, said: str) -> None:
    path = write_lists(tmp_path / "lists", {"6": [[4, 1.0]], "7": entries})
    with pytest.raises(FormatError, match=f"lists: query '7': {said}"):
        read(path)


def test_lists_without_queries_and_other_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="holds no answers"):
        read(write_lists(tmp_path / "lists", {}))
    path = write_lists(tmp_path / "more", {"7": [[4, 1.0]]})
    with pytest.raises(UsageError, match="holds VR, not VCMR"):
        list(formats.open_run(path).blocks("VCMR"))


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, packed: Callable[[Path], Path]) -> None:
    path = write_lists(tmp_path / "lists", {str(query): [[4, 1.0]] * 500 for query in range(50)})
    path.write_bytes(path.read_bytes()[:-5000])
    for one in (path, packed(path)):
        with pytest.raises(FormatError, match=r"is cut off|is not a complete LMDB file"):
            read(one)
