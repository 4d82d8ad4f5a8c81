"""The JSON of 2D-TAN: the meaning of its records, and a test per kind of fault."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.intake.files import FormatError, read_head
from whenabouts.types import WhenaboutsError
from whenabouts_bench import formats
from whenabouts_bench.formats import timestamps_json
from whenabouts_bench.formats.timestamps_json import read_annotations

GOOD: dict[str, Any] = {"duration": 30.5, "timestamps": [[1, 4.5]], "sentences": [" a dog runs "]}
FRAMES: dict[str, Any] = {"fps": 29.4, "num_frames": 7346, "timestamps": [[141, 354]], "sentences": ["x"]}


def written(folder: Path, value: Any) -> Path:
    """A JSON file; text is written as it is."""
    path = folder / "some.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_sentence_is_a_query_with_its_moment_in_seconds(tmp_path: Path) -> None:
    two = {**GOOD, "timestamps": [[1, 4.5], [2, 3]], "sentences": ["one", "two"]}
    read = read_annotations(written(tmp_path, {"a": GOOD, "b": two}))
    assert [(video.id, video.duration) for video in read.videos] == [("a", 30.5), ("b", 30.5)]
    assert [(query.id, query.text) for query in read.queries] == [
        ("a#0", "a dog runs"),
        ("b#0", "one"),
        ("b#1", "two"),
    ]
    assert read.start.tolist() == [1, 1, 2]
    assert read.end.tolist() == [4.5, 4.5, 3]
    assert read.video.tolist() == [0, 1, 1]


def test_frames_become_seconds(tmp_path: Path) -> None:
    read = read_annotations(written(tmp_path, {"s30-d52.avi": FRAMES}))
    assert read.videos[0].duration == pytest.approx(249.86, abs=0.005)
    assert (read.start[0], read.end[0]) == pytest.approx((4.796, 12.041), abs=0.0005)


def test_a_moment_to_the_end_of_a_video_whose_length_was_rounded_is_whole(tmp_path: Path) -> None:
    record = {**GOOD, "duration": 104.53999999999999, "timestamps": [[52.79, 104.54]]}
    read = read_annotations(written(tmp_path, {"a": record}))
    assert read.counts == {}
    assert read.end.tolist() == [104.54]


@pytest.mark.slow
@given(
    rate=st.sampled_from([1.0, 25.0, 29.4, 29.97, 30.0]),
    frames=st.integers(1, 10**6),
    data=st.data(),
)
def test_a_moment_inside_the_frames_is_inside_the_seconds(
    rate: float, frames: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    first = data.draw(st.integers(0, frames - 1))
    last = data.draw(st.integers(first + 1, frames))
    record = {**FRAMES, "fps": rate, "num_frames": frames, "timestamps": [[first, last]]}
    read = read_annotations(written(tmp_path_factory.mktemp("f"), {"a": record}))
    assert read.counts == {}, "rounding neither cuts nor empties a moment"
    duration = read.videos[0].duration
    assert duration is not None
    assert 0 <= read.start[0] < read.end[0] <= duration


def test_gzip_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "some.json.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps({"a": GOOD}).encode()))
    assert len(read_annotations(path).queries) == 1


def test_the_format_is_recognised_and_that_of_mvmr_is_not(tmp_path: Path) -> None:
    assert formats.reader_of(timestamps_json, read_head(written(tmp_path, {"a": GOOD})))
    pooled = {**GOOD, "pos_moments": [[]], "retrieval_pool": [["a"]]}
    assert not formats.reader_of(timestamps_json, read_head(written(tmp_path, {"a": pooled})))
    assert not formats.reader_of(
        timestamps_json, read_head(written(tmp_path, [{"annotation_id": 1, "times": []}]))
    )
    assert formats.read_annotations(written(tmp_path, {"a": GOOD})).queries[0].id == "a#0"


def test_a_video_that_comes_twice_is_refused_not_lost(tmp_path: Path) -> None:
    one = json.dumps(GOOD)
    with pytest.raises(FormatError, match=r"the key comes twice: 'a'; accepted: each key once"):
        read_annotations(written(tmp_path, f'{{"a": {one}, "b": {one}, "a": {one}}}'))
    with pytest.raises(FormatError, match=r"the key comes twice: 'sentences'"):
        read_annotations(written(tmp_path, f'{{"a": {one[:-1]}, "sentences": []}}}}'))


def test_a_length_in_both_units_or_in_none_is_refused(tmp_path: Path) -> None:
    for record, found in (({**GOOD, "fps": 30}, "duration, fps"), ({**GOOD, "duration": 1}, None)):
        if found is None:
            del record["duration"]
        with pytest.raises(
            FormatError, match=f"a: does not say its unit: '{found or 'neither'}'; accepted: "
        ):
            read_annotations(written(tmp_path, {"a": record}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"timestamps": [[1, 4.5], [2, 3]]},
            r"a\.timestamps: has 2 entries and .* has 1: \[\(1\.0, .*a list of 1 entries",
        ),
        ({"timestamps": []}, r"a\.timestamps: has 0 entries"),
        ({"timestamps": {"0": [1, 2]}}, r"a\.timestamps: is not a list: \{'0': \[1, 2\]\}"),
        (
            {"timestamps": [[1, 2, 3]]},
            r"a\.timestamps\[0\]: is not a pair: \[1, 2, 3\]; .*two finite numbers",
        ),
        ({"timestamps": [5]}, r"a\.timestamps\[0\]: is not a list: 5"),
        (
            {"timestamps": [["1", 2]]},
            r"a\.timestamps\[0\]\[0\]: is not a number: '1'; accepted: \[start, end\]",
        ),
        ({"timestamps": [[True, 2]]}, r"a\.timestamps\[0\]\[0\]: is not a number: True"),
        ({"timestamps": [[None, 2]]}, r"a\.timestamps\[0\]\[0\]: is not a number: null"),
        (
            {"timestamps": [[0, 10**400]]},
            r"a\.timestamps\[0\]\[1\]: is a whole number of more than 64 bits",
        ),
        ({"sentences": "a dog"}, r"a\.sentences: is not a list: 'a dog'"),
        ({"sentences": [5]}, r"a\.sentences\[0\]: is not a text: 5"),
        ({"sentences": [" "]}, r"a\.sentences\[0\]: is empty: ' '; accepted: a text that is not empty"),
        ({"duration": 0}, r"a\.duration: is 0; accepted: a finite number above 0"),
        ({"duration": -3}, r"a\.duration: is too small: -3; accepted: a finite number above 0"),
        ({"duration": "30"}, r"a\.duration: is not a number: '30'"),
    ],
)
def test_a_wrong_field_is_one_line_with_file_field_value_and_what_is_accepted(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = written(tmp_path, {"a": {**GOOD, **change}})
    with pytest.raises(FormatError, match=message) as refused:
        read_annotations(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)
    assert "accepted: " in str(refused.value)
    assert len(str(refused.value)) < 400 + len(str(path))


@pytest.mark.parametrize("key", ["timestamps", "sentences"])
def test_a_missing_field_is_named_with_those_that_are_there(tmp_path: Path, key: str) -> None:
    record = {name: value for name, value in GOOD.items() if name != key}
    found = ", ".join(record)
    with pytest.raises(FormatError, match=rf"a\.{key}: is missing \(found: '{found}'\); accepted: a list"):
        read_annotations(written(tmp_path, {"a": record}))


@pytest.mark.parametrize("key", ["fps", "num_frames"])
def test_half_a_length_in_frames_is_refused(tmp_path: Path, key: str) -> None:
    record = {name: value for name, value in FRAMES.items() if name != key}
    with pytest.raises(FormatError, match=rf"a\.{key}: is missing"):
        read_annotations(written(tmp_path, {"a": record}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"is not an object: \[\]; accepted: an object, video id -> "),
        ("5", "is not an object: 5"),
        ('{"a": []}', r"a: is not an object: \[\]"),
        ('{"a": {"duration": NaN}}', "a.duration: is not finite: nan"),
        ('{"a": {"duration": 1\n,}}', r"line 2: is not JSON"),
        ("", "is not JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"": {}}', "video id: is empty"),
        ('{"a": {"duration": ' + "9" * 5000 + "}}", "has a number with thousands of digits"),
    ],
)
def test_what_is_no_such_document_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message) as refused:
        read_annotations(written(tmp_path, text))
    assert "\n" not in str(refused.value)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(FormatError, match=r"is not UTF-8 text \(byte 7\)"):
        read_annotations(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(
    record=st.fixed_dictionaries(
        {"timestamps": JSON | st.lists(st.lists(st.floats(-9, 99), min_size=2, max_size=2), max_size=2)},
        optional={
            "sentences": JSON | st.lists(st.text(), max_size=2),
            "duration": JSON,
            "fps": JSON,
            "num_frames": JSON,
        },
    )
)
def test_no_content_makes_anything_but_annotations_or_one_line(
    record: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = written(tmp_path_factory.mktemp("any"), {"a": record})
    try:
        read = read_annotations(path)
    except WhenaboutsError as error:
        assert "\n" not in str(error)
    else:
        assert len(read.query) == len(read.queries)
        assert (read.start <= read.end).all()
