"""Corpora of strangers whose tables hold anything: a StoreError that says what is damaged, never a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest
from tests.index.test_store_places import corpus_at

from whenabouts.index.checksums import CHECKSUMS_FILE
from whenabouts.index.records import StoreError
from whenabouts.index.store import Store


def changed(place: Path, table: str, column: str, value: Any, row: int = 0) -> None:
    """Put a value into a cell, as whoever made the corpus may have done."""
    opened = lancedb.connect(place).open_table(table)
    rows = opened.to_arrow()
    values = rows.column(column).to_pylist()
    values[row] = value
    number, field = rows.schema.get_field_index(column), rows.schema.field(column)
    lancedb.connect(place).create_table(
        table, rows.set_column(number, field, pa.array(values, field.type)), mode="overwrite"
    )
    (place / CHECKSUMS_FILE).unlink(missing_ok=True)


def described(place: Path, key: str, text: str | None) -> None:
    opened = lancedb.connect(place).open_table("corpus")
    row = {name: [None] for name in opened.schema.names} | {"key": [key], "value": [text]}
    opened.add(pa.table(row, schema=opened.schema))
    (place / CHECKSUMS_FILE).unlink(missing_ok=True)


@pytest.mark.parametrize(
    "text", ["[]", "7", "null", "[" * 3000, '{"version": []}', '{"version": 1e999}', "{", None]
)
def test_a_description_of_another_form_is_named(tmp_path: Path, text: str | None) -> None:
    corpus_at(tmp_path)
    lancedb.connect(tmp_path).open_table("corpus").delete("key = 'format'")
    described(tmp_path, "format", text)
    with pytest.raises(
        StoreError, match="is damaged: 'format' in its description is not what whenabouts writes"
    ):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stream:x", {"name": "../x", "encoder": "", "fingerprint": "", "dimension": 1}),
        ("stream:x", {"name": "x", "encoder": "", "fingerprint": "", "dimension": "1"}),
        ("stream:x", ["x"]),
        ("table:x", {"name": "../../x"}),
        ("table:x", {"name": ""}),
        ("index:x", {"rows": None, "partitions": 1}),
    ],
)
def test_a_stream_table_or_index_of_another_form_is_named(tmp_path: Path, key: str, value: Any) -> None:
    corpus_at(tmp_path)
    described(tmp_path, key, json.dumps(value))
    with pytest.raises(StoreError, match=f"is damaged: '{key}' in its description"):
        Store.open(tmp_path)


def test_a_fact_that_is_no_object_is_named_when_it_is_read(tmp_path: Path) -> None:
    corpus_at(tmp_path)
    described(tmp_path, "fact:people", "[1]")
    store = Store.open(tmp_path)
    with pytest.raises(StoreError, match="'people' in its description"):
        store.fact("people")
    with pytest.raises(StoreError, match="'people' in its description"):
        store.facts("pe")


def test_a_ledger_without_a_column_is_named(tmp_path: Path) -> None:
    corpus_at(tmp_path)
    lancedb.connect(tmp_path).open_table("videos").drop_columns(["has_picture"])
    (tmp_path / CHECKSUMS_FILE).unlink(missing_ok=True)
    with pytest.raises(StoreError, match="the ledger is damaged: a row lacks its has_picture"):
        Store.open(tmp_path).videos()


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("metadata", "[" * 3000, "metadata of '.*' holds no JSON object"),
        ("metadata", "7", "metadata of '.*' holds no JSON object"),
        ("streams", "", "streams of '.*' holds no JSON object"),
        ("size", None, "a row lacks its size"),
        ("path", None, "a row lacks its path"),
        ("path", b"a\0b.mp4", "the path of '.*' holds the character NUL"),
        ("state", None, "a row lacks its state"),
        ("title", None, "a row lacks its title"),
        ("indexed_at", None, "a row lacks its indexed_at"),
        ("indexed_at", float("nan"), "'.*' was indexed at no date"),
        ("indexed_at", 1e308, "'.*' was indexed at no date"),
    ],
)
def test_a_row_of_the_ledger_of_another_form_is_named(
    tmp_path: Path, column: str, value: Any, said: str
) -> None:
    corpus_at(tmp_path)
    changed(tmp_path, "videos", column, value)
    with pytest.raises(StoreError, match=f"the ledger is damaged: {said}"):
        Store.open(tmp_path).videos()


@pytest.mark.parametrize(
    "mark",
    [
        {"command": 7},
        {"labels": []},
        {"labels": {"subtitle": 7}},
        {"labels": {"subtitle": [7]}},
        {"videos": 7},
        {"videos": [7]},
        {"dropped": 7},
        {"dropped": [None]},
    ],
)
def test_an_erasing_of_another_form_is_named_when_the_corpus_is_written(tmp_path: Path, mark: Any) -> None:
    corpus_at(tmp_path)
    described(tmp_path, "fact:erasing", json.dumps(mark))
    store = Store.open(tmp_path)
    with pytest.raises(StoreError, match="'erasing' in its description"), store.writing():
        pass
    with pytest.raises(StoreError, match="'erasing' in its description"):
        store.labels("subtitle")


@pytest.mark.parametrize("mark", [{}, {"command": "x", "answer": {"a": [1]}}])
def test_an_erasing_of_nothing_is_finished(tmp_path: Path, mark: Any) -> None:
    corpus_at(tmp_path)
    described(tmp_path, "fact:erasing", json.dumps(mark))
    store = Store.open(tmp_path)
    with store.writing():
        pass
    assert store.erasing is None
    assert len(store.videos()) == 3


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("index", None, "lacks its index"),
        ("start", None, "lacks its start"),
        ("end", float("nan"), r"is from [0-9.]+ to nan s"),
        ("start", 1e9, r"is from 1000000000.0 to [0-9.]+ s"),
    ],
)
def test_a_clip_of_another_form_is_named(tmp_path: Path, column: str, value: Any, reason: str) -> None:
    corpus_at(tmp_path)
    tables = sorted(path.stem for path in tmp_path.glob("*.lance"))
    clips = next(name for name in tables if name not in ("videos", "corpus") and "subtitle" in name)
    changed(tmp_path, clips, column, value)
    store = Store.open(tmp_path)
    with pytest.raises(StoreError, match=f"the table of clips is damaged: a row {reason}"):
        store.clips_of("subtitle", [record.video_id for record in store.videos()])
