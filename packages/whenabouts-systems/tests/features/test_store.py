"""Our own store: whole or not at all, streamed, and refused when it is not what it says."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.features.conftest import make_items, write_hdf5, write_store_by_hand

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.features import Fingerprint, open_features
from whenabouts_systems.features.layouts.store import content_hash, convert_to_store, write_store
from whenabouts_systems.features.summary import summarise

BARE = Fingerprint()
_FLOATS = st.sampled_from(["<f2", "<f4", "<f8", ">f4"]).flatmap(
    lambda dtype: st.integers(1, 4).flatmap(
        lambda width: st.lists(
            hnp.arrays(dtype, st.tuples(st.integers(1, 5), st.just(width))), min_size=1, max_size=6
        )
    )
)


@pytest.mark.slow
@given(_FLOATS)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_floats_come_back_bit_by_bit(tmp_path_factory: pytest.TempPathFactory, arrays: list[Any]) -> None:
    path = tmp_path_factory.mktemp("any") / "store"
    write_store(path, ((f"item {number}", rows) for number, rows in enumerate(arrays)), BARE)
    with open_features(path) as source:
        assert len(source) == len(arrays)
        for number, rows in enumerate(arrays):
            found = source.get(f"item {number}")
            native = rows.astype(rows.dtype.newbyteorder("="))
            assert found.dtype == native.dtype and found.tobytes() == native.tobytes()


def test_rows_are_mapped_and_not_copied(tmp_path: Path) -> None:
    with open_features(write_store_by_hand(tmp_path / "s", make_items())) as source:
        first, again = source.get("9"), source.get("9")
        assert np.shares_memory(first, again)
        assert not first.flags.writeable and not first.flags.owndata
        assert type(first) is np.ndarray


def test_other_programs_read_it_with_numpy_and_json(tmp_path: Path) -> None:
    made = make_items()
    write_store(tmp_path / "s", made.items(), Fingerprint(encoder="x"))
    rows = np.load(tmp_path / "s" / "features.npy", allow_pickle=False)
    np.testing.assert_array_equal(rows, np.concatenate(list(made.values())))
    index = json.loads((tmp_path / "s" / "index.json").read_text())
    assert index["ids"] == list(made) and index["lengths"] == [len(rows) for rows in made.values()]
    told = json.loads((tmp_path / "s" / "fingerprint.json").read_text())
    assert told["encoder"] == "x" and told["frame_rate"] is None and len(told["content"]) == 64
    assert {file.name for file in (tmp_path / "s").iterdir()} == {
        "features.npy",
        "index.json",
        "fingerprint.json",
    }


def test_the_same_content_makes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_store(tmp_path / name, make_items().items(), BARE)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_the_hash_does_not_depend_on_order_but_on_ids_and_every_number() -> None:
    made = make_items()
    whole = content_hash(made.items())
    assert content_hash(reversed(made.items())) == whole
    renamed = {("other" if item == "9" else item): rows for item, rows in made.items()}
    assert content_hash(renamed.items()) != whole
    assert content_hash((item, rows.astype(np.float64)) for item, rows in made.items()) != whole
    joined = {"9": np.concatenate([made["9"], made["3MSZA"]])}
    assert content_hash([*joined.items()]) != content_hash([("9", made["9"]), ("3MSZA", made["3MSZA"])])


def test_nothing_is_left_behind_where_the_source_fails(tmp_path: Path) -> None:
    def failing() -> Iterator[tuple[str, Any]]:
        yield from list(make_items().items())[:3]
        raise FormatError("src.h5", "is damaged")

    with pytest.raises(FormatError, match="is damaged"):
        write_store(tmp_path / "s", failing(), BARE)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "folder", "link"):
        with pytest.raises(UsageError, match="is there already; nothing is overwritten"):
            write_store(tmp_path / name, make_items().items(), BARE)
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(FormatError, match=r"cannot be written: (Not a directory|File exists)"):
        write_store(tmp_path / "file" / "s", make_items().items(), BARE)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("whenabouts_systems.features.layouts.store._Writer.finish", full)
    with pytest.raises(FormatError, match="s: cannot be written: No space left on device"):
        write_store(tmp_path / "s", make_items().items(), BARE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong", ["../x", "a/../x", "/etc/passwd", "", ".", "..\\x", "a\nb", "a\x00b", "\x1b[31m"]
)
def test_an_id_that_is_a_path_or_no_text_is_neither_written_nor_read(tmp_path: Path, wrong: str) -> None:
    rows = np.ones((2, 3), np.float32)
    with pytest.raises(
        FormatError, match="is not an id; accepted: printable text that is not a path"
    ) as error:
        write_store(tmp_path / "s", [("good/with folder", rows), (wrong, rows)], BARE)
    assert repr(wrong) in str(error.value) and "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []
    path = write_store_by_hand(tmp_path / "by hand", {"a": rows, wrong: rows})
    with pytest.raises(FormatError, match="is not an id"):
        open_features(path)


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (("a", np.ones((1, 3), np.float32)), "item 'a' comes twice"),
        (("b", np.ones((1, 4), np.float32)), "item 'b' is 4 wide; accepted: 3"),
        (("b", np.ones((1, 3), np.float64)), "item 'b' is float64, and the first one was float32.*--dtype"),
        (("b", np.ones((0, 3), np.float32)), r"item 'b' is float32 of shape \(0, 3\)"),
        (("b", np.ones(3, np.float32)), "accepted: .T, D. floats with at least one row"),
        (("b", np.ones((1, 3), np.int32)), "item 'b' is int32"),
    ],
)
def test_items_that_do_not_go_together(tmp_path: Path, second: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        write_store(tmp_path / "s", [("a", np.ones((2, 3), np.float32)), second], BARE)
    assert list(tmp_path.iterdir()) == []


def test_a_narrower_item_fits_and_another_type_is_only_taken_when_asked(tmp_path: Path) -> None:
    half, single = np.ones((1, 2), np.float16), np.full((2, 2), 1 / 3, np.float32)
    write_store(tmp_path / "wide", [("a", single), ("b", half)], BARE)
    with open_features(tmp_path / "wide") as source:
        assert source.get("b").dtype == np.float32
    written = write_store(tmp_path / "narrow", [("a", single), ("b", half)], BARE, np.dtype(np.float16))
    assert written.dtype == "float16"
    with open_features(tmp_path / "narrow") as source:
        np.testing.assert_array_equal(source.get("a"), single.astype(np.float16), strict=True)
    with pytest.raises(UsageError, match="numbers too large for float16; take a wider type"):
        write_store(tmp_path / "over", [("a", single * 1e6)], BARE, np.dtype(np.float16))
    with pytest.raises(UsageError, match="there are no items to write"):
        write_store(tmp_path / "none", [], BARE)


def _index(**changed: Any) -> dict[str, Any]:
    return {"format": "whenabouts-features", "version": 1, "ids": ["a", "b"], "lengths": [2, 3]} | changed


@pytest.mark.parametrize(
    ("index", "told"),
    [
        ([], "is not an object: .*; accepted: a JSON object with"),
        (_index(format="other"), "format: is 'other'; accepted: 'whenabouts-features'"),
        (_index(version=2), "version: is 2; accepted: 1"),
        (_index(ids=["a"]), "ids, lengths: have different lengths"),
        (_index(ids=[], lengths=[]), "ids: is empty"),
        (_index(lengths=7), "lengths: is not a list: 7"),
        (_index(lengths=[5, 0]), r"lengths\[1\]: is too small: 0; accepted: 1 or more rows"),
        (_index(lengths=[6, -1]), r"lengths\[1\]: is too small: -1"),
        (_index(lengths=[2.0, 3.0]), r"lengths\[0\]: is not a whole number: 2.0"),
        (_index(lengths=[2, 1 << 62]), r"lengths\[1\]: is too large"),
        (_index(lengths=[2, 4]), r"has shape \(5, 6\); accepted: \(rows, width\) with the 6 rows"),
        (
            _index(lengths=[1 << 47, 1 << 47]),
            r"lengths: list too many rows: 281474976710656; accepted: at most",
        ),
        (_index(ids=["a", "a"]), "item 'a': is listed twice"),
        (_index(ids=["a", 3]), r"ids\[1\]: is not a text: 3"),
    ],
)
def test_an_index_that_does_not_fit(tmp_path: Path, index: Any, told: str) -> None:
    path = write_store_by_hand(tmp_path / "s", {"a": np.ones((2, 6)), "b": np.ones((3, 6))})
    (path / "index.json").write_text(json.dumps(index))
    with pytest.raises(FormatError, match=told) as error:
        open_features(path)
    assert str(path) in str(error.value)


def test_lengths_whose_sum_overflows_to_the_number_of_rows(tmp_path: Path) -> None:
    path = write_store_by_hand(tmp_path / "s", {"a": np.ones((5, 6))})
    lengths = [1 << 47] * (1 << 17) + [5]  # 2^64 + 5
    (path / "index.json").write_text(
        json.dumps(_index(ids=[*map(str, range(len(lengths)))], lengths=lengths))
    )
    with pytest.raises(FormatError, match=f"lengths: list too many rows: {2**64 + 5}"):
        open_features(path)


def test_rows_that_do_not_fit(tmp_path: Path) -> None:
    path = write_store_by_hand(tmp_path / "s", {"a": np.ones((50, 6))})
    whole = (path / "features.npy").read_bytes()
    for data in (b"", whole[:40], whole[:-1], b"no npy" * 99):
        (path / "features.npy").write_bytes(data)
        with pytest.raises(
            FormatError, match=r"features\.npy: item 'all rows': is cut off, damaged or not .npy"
        ):
            open_features(path)
    np.save(path / "features.npy", np.ones(50))
    with pytest.raises(FormatError, match=r"has shape \(50,\)"):
        open_features(path)
    np.save(path / "features.npy", np.ones((50, 2), np.int32))
    with pytest.raises(FormatError, match="item 'a': holds int32"):
        open_features(path)
    np.save(path / "features.npy", np.ones((50, 2), ">f4"))
    with pytest.raises(FormatError, match="descr: is '>f4'; accepted: <f2, <f4, <f8"):
        open_features(path)
    np.save(path / "features.npy", np.array([[None]]), allow_pickle=True)
    with pytest.raises(FormatError, match="Python objects"):
        open_features(path)


def test_rows_that_are_a_link_out_of_the_store(tmp_path: Path) -> None:
    path = write_store_by_hand(tmp_path / "s", make_items())
    (path / "features.npy").rename(tmp_path / "elsewhere.npy")
    (path / "features.npy").symlink_to(tmp_path / "elsewhere.npy")
    with pytest.raises(FormatError, match="is a link that leads out of the store"):
        open_features(path)


def test_rows_that_were_changed_are_found_out(tmp_path: Path) -> None:
    write_store(tmp_path / "s", make_items().items(), BARE)
    with open_features(tmp_path / "s") as source:
        assert summarise(source).fingerprint.content is not None
    data = bytearray((tmp_path / "s" / "features.npy").read_bytes())
    data[-1] ^= 1
    (tmp_path / "s" / "features.npy").write_bytes(bytes(data))
    with open_features(tmp_path / "s") as source, pytest.raises(FormatError, match="were changed or damaged"):
        summarise(source)


FACTS = {"frame_rate": 3.0, "note": "mine", "unknown": "yes"}  # the last is also a name in `Fingerprint`


def test_converting_keeps_what_is_known_and_refuses_what_contradicts_it(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "x_cl-1.5.h5", make_items(), encoder="i3d", simulated=True)
    with open_features(path) as source:
        convert_to_store(source, tmp_path / "s", facts={**FACTS, "encoder": "i3d"})
        for facts in ({"encoder": "c3d"}, {"clip_seconds": 2.0}, {"simulated": "no"}):
            with pytest.raises(UsageError, match="leave it out"):
                convert_to_store(source, tmp_path / "t", facts=facts)
        with pytest.raises(UsageError, match="dtype 'int8' is not stored"):
            convert_to_store(source, tmp_path / "t", dtype="int8")
    assert not (tmp_path / "t").exists()
    with open_features(tmp_path / "s") as ours:
        told = ours.fingerprint
    assert (told.encoder, told.clip_seconds, told.frame_rate) == ("i3d", 1.5, 3.0)
    assert dict(told.extra) == {"simulated": True, "note": "mine", "unknown": "yes"}


def test_a_large_source_is_converted_with_little_memory(tmp_path: Path) -> None:
    rows = np.ones((1000, 256), np.float32)

    def many() -> Iterator[tuple[str, Any]]:
        for number in range(100):
            yield f"item {number}", rows

    tracemalloc.start()
    try:
        written = write_store(tmp_path / "s", many(), BARE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert written.bytes > 100_000_000
    assert peak < 8 << 20
