"""The JSON of DiDeMo: several annotators' marks, and the resulting truth."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.intake.files import FormatError, read_head
from whenabouts_bench import formats
from whenabouts_bench.formats import didemo
from whenabouts_bench.formats.didemo import read_annotations

GOOD: dict[str, Any] = {
    "annotation_id": 7,
    "description": " the dog looks up ",
    "video": "12@N00_34_ab.mov",
    "num_segments": 6,
    "times": [[1, 1], [1, 1], [0, 2], [1, 1]],
}


def written(folder: Path, value: Any) -> Path:
    """A JSON file; text is written as it is."""
    path = folder / "some.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def spans(folder: Path, times: list[list[int]], **change: Any) -> list[tuple[float, float]]:
    """The true moments of one description."""
    read = read_annotations(written(folder, [{**GOOD, "times": times, **change}]))
    return list(zip(read.start.tolist(), read.end.tolist(), strict=True))


def test_segments_are_five_seconds_and_inclusive(tmp_path: Path) -> None:
    read = read_annotations(written(tmp_path, [GOOD]))
    assert [(video.id, video.duration) for video in read.videos] == [("12@N00_34_ab", 30.0)]
    assert [(query.id, query.text) for query in read.queries] == [("7", "the dog looks up")]
    assert (read.start.tolist(), read.end.tolist(), read.relevance.tolist()) == ([5.0], [10.0], [1.0])
    assert read.queries[0].metadata["annotated"] == ((5.0, 10.0), (5.0, 10.0), (0.0, 15.0), (5.0, 10.0))


def test_every_span_that_two_annotators_agree_on_is_true_the_most_marked_first(tmp_path: Path) -> None:
    assert spans(tmp_path, [[0, 2], [1, 1], [0, 2], [1, 1]]) == [(0.0, 15.0), (5.0, 10.0)]
    assert spans(tmp_path, [[0, 0], [4, 4], [4, 4], [0, 0], [4, 4]]) == [(20.0, 25.0), (0.0, 5.0)]
    assert spans(tmp_path, [[0, 1], [1, 1], [2, 2], [2, 2]]) == [(10.0, 15.0)]


def test_where_no_two_agree_nothing_is_made_up(tmp_path: Path) -> None:
    read = read_annotations(written(tmp_path, [{**GOOD, "times": [[0, 0], [1, 1], [2, 2]]}]))
    assert len(read.queries) == 1
    assert len(read.query) == 0
    assert dict(read.counts) == {"queries have no span that two annotators agree on": 1}


def test_a_reversed_span_is_no_vote(tmp_path: Path) -> None:
    read = read_annotations(written(tmp_path, [{**GOOD, "times": [[3, 1], [3, 1], [2, 2], [2, 2]]}]))
    assert (read.start.tolist(), read.end.tolist()) == ([10.0], [15.0])
    assert dict(read.counts) == {"moments end before they start": 2}


def test_a_span_beyond_the_annotated_part_is_cut(tmp_path: Path) -> None:
    assert spans(tmp_path, [[4, 5], [4, 5]], num_segments=5) == [(20.0, 25.0)]
    assert spans(tmp_path, [[5, 8], [5, 8]], num_segments=9) == [(25.0, 30.0)], "videos were cut at 30 s"


def test_a_video_under_two_file_names_is_one_and_has_its_longer_length(tmp_path: Path) -> None:
    other = {**GOOD, "annotation_id": 8, "video": "12@N00_34_ab.mp4"}
    rows = [{**GOOD, "num_segments": 5, "times": [[5, 5], [5, 5]]}, other]
    read = read_annotations(written(tmp_path, rows))
    assert [(video.id, video.duration) for video in read.videos] == [("12@N00_34_ab", 30.0)]
    assert read.videos[0].metadata["file_names"] == ("12@N00_34_ab.mov", "12@N00_34_ab.mp4")
    assert dict(read.counts) == {"videos have two file names": 1}
    assert read.end.tolist() == [30.0, 10.0], "the first is not cut at the shorter length"


@pytest.mark.parametrize(("name", "video_id"), [("a.b.mov", "a.b"), ("a", "a"), ("a@N.mov.mp4", "a@N.mov")])
def test_only_the_last_ending_is_cut_off(tmp_path: Path, name: str, video_id: str) -> None:
    assert read_annotations(written(tmp_path, [{**GOOD, "video": name}])).videos[0].id == video_id


def test_an_id_with_another_text_is_left_out(tmp_path: Path) -> None:
    other = {**GOOD, "description": "something else", "times": [[5, 5], [5, 5]]}
    read = read_annotations(written(tmp_path, [GOOD, other]))
    assert [query.text for query in read.queries] == ["the dog looks up"]
    assert read.start.tolist() == [5.0]
    assert dict(read.counts) == {"query ids come twice": 1}


@given(times=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=7))
def test_what_is_true_is_what_a_plain_count_says(
    times: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    votes = Counter((first, last) for first, last in times if first <= last)
    expected = {(5.0 * first, 5.0 * last + 5) for (first, last), count in votes.items() if count > 1}
    found = spans(tmp_path_factory.mktemp("votes"), [list(pair) for pair in times])
    assert len(found) == len(set(found))
    assert set(found) == expected
    ranks = [votes[(int(start / 5), int(end / 5) - 1)] for start, end in found]
    assert ranks == sorted(ranks, reverse=True)


def test_the_format_is_recognised(tmp_path: Path) -> None:
    assert formats.reader_of(didemo, read_head(written(tmp_path, [GOOD])))
    assert not formats.reader_of(didemo, read_head(written(tmp_path, {"annotation_id": 1, "times": []})))
    assert not formats.reader_of(didemo, read_head(written(tmp_path, [{"query_id": 1}])))
    assert formats.read_annotations(written(tmp_path, [GOOD])).queries[0].id == "7"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"times": [[1]]}, r"\[1\]\.times\[0\]: is not a pair: \[1\]; accepted: \[first, last\] in segments"),
        ({"times": [[1, 1], 5]}, r"\[1\]\.times\[1\]: is not a list: 5; accepted: \[first, last\]"),
        ({"times": "1-2"}, r"\[1\]\.times: is not a list: '1-2'; accepted: a list of \[first, last\]"),
        ({"times": [[-1, 2]]}, r"\[1\]\.times\[0\]\[0\]: is too small: -1; accepted: .*whole numbers from 0"),
        ({"times": [[0.5, 2]]}, r"\[1\]\.times\[0\]\[0\]: is not a whole number: 0\.5"),
        ({"times": [["0", 2]]}, r"\[1\]\.times\[0\]\[0\]: is not a number: '0'"),
        ({"times": [[False, 2]]}, r"\[1\]\.times\[0\]\[0\]: is not a number: False"),
        (
            {"num_segments": 0},
            r"\[1\]\.num_segments: is too small: 0; accepted: a whole number, 1 or more",
        ),
        ({"num_segments": None}, r"\[1\]\.num_segments: is not a number: null"),
        ({"video": ".mov"}, r"\[1\]\.video: has no name before its ending: '\.mov'"),
        ({"video": 5}, r"\[1\]\.video: is not a text: 5; accepted: a text"),
        ({"description": " "}, r"\[1\]\.description: is empty: ' '"),
        (
            {"annotation_id": None},
            r"\[1\]\.annotation_id: is not an id: null; accepted: a whole number or a text",
        ),
        ({"annotation_id": ""}, r"\[1\]\.annotation_id: is empty: ''"),
    ],
)
def test_a_wrong_field_is_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = written(tmp_path, [GOOD, {**GOOD, "annotation_id": 8, **change}])
    with pytest.raises(FormatError, match=message) as refused:
        read_annotations(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", sorted(GOOD))
def test_a_missing_field_is_named(tmp_path: Path, key: str) -> None:
    record = {name: value for name, value in GOOD.items() if name != key}
    found = ", ".join(record)
    with pytest.raises(FormatError, match=rf"\[0\]\.{key}: is missing \(found: '{found}'\); accepted: a "):
        read_annotations(written(tmp_path, [record]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", r"is not a list: \{\}; accepted: a list of "),
        ("[5]", r"\[0\]: is not an object: 5; accepted: a list of "),
        ('[{"video": "a.mov", "video": "b.mov"}]', "the key comes twice: 'video'"),
        ("[", "line 1: is not JSON"),
    ],
)
def test_what_is_no_such_document_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_annotations(written(tmp_path, text))
