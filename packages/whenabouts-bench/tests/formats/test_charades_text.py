"""The text of Charades-STA, with and without the csv that knows the lengths."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.intake.files import FormatError, read_head
from whenabouts_bench import formats
from whenabouts_bench.formats import charades_text
from whenabouts_bench.formats.charades_text import read_annotations

LINES = "3MSZA 24.3 30.4##person turn a light on.\nAMT7R 4.3 12.5## a picture on a wall. \n"
LINES += "\r\n3MSZA 0.0 4.0##person ## flips a switch.\r\n"


def written(folder: Path, text: str, name: str = "charades_sta_test.txt") -> Path:
    """A text file."""
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_lines_are_queries_numbered_video_by_video(tmp_path: Path) -> None:
    read = read_annotations(written(tmp_path, LINES))
    assert [(query.id, query.text) for query in read.queries] == [
        ("3MSZA#0", "person turn a light on."),
        ("AMT7R#0", "a picture on a wall."),
        ("3MSZA#1", "person ## flips a switch."),
    ]
    assert [(video.id, video.duration) for video in read.videos] == [("3MSZA", None), ("AMT7R", None)]
    assert read.start.tolist() == [24.3, 4.3, 0.0]
    assert read.end.tolist() == [30.4, 12.5, 4.0]
    assert read.counts == {}


@pytest.mark.parametrize("packed", [False, True])
def test_lengths_come_from_the_csv_beside_the_text(tmp_path: Path, packed: bool) -> None:
    table = 'id,script,length\n3MSZA,"a ""light"", and\nmore",29.96\n'
    name = "Charades_v1_test.csv"
    if packed:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(table.encode()))
    else:
        written(tmp_path, table, name)
    read = read_annotations(written(tmp_path, LINES))
    assert [(video.id, video.duration) for video in read.videos] == [("3MSZA", 29.96), ("AMT7R", None)]
    assert read.end.tolist() == [29.96, 12.5, 4.0]
    assert dict(read.counts) == {
        "moments end after their video": 1,
        "videos have no length in the csv beside the text": 1,
    }


def test_both_csv_are_read(tmp_path: Path) -> None:
    written(tmp_path, "id,length\n3MSZA,31\n", "Charades_v1_test.csv")
    written(tmp_path, "id,length\nAMT7R,32\n", "Charades_v1_train.csv")
    read = read_annotations(written(tmp_path, LINES))
    assert [video.duration for video in read.videos] == [31.0, 32.0]


def test_reversed_and_negative_times_follow_the_rules_for_odd_data(tmp_path: Path) -> None:
    read = read_annotations(written(tmp_path, "A 9 3##x\nA -1.5 3##y\nA 4 4##z\n"))
    assert dict(read.counts) == {
        "moments end before they start": 1,
        "moments start before 0": 1,
        "moments have no length": 1,
    }
    assert (read.start[1], read.end[1]) == (0.0, 3.0)


def test_the_format_is_recognised(tmp_path: Path) -> None:
    assert formats.reader_of(charades_text, read_head(written(tmp_path, LINES)))
    assert not formats.reader_of(
        charades_text, read_head(written(tmp_path, "q1 Q0 a@0.000-3.000 1 0.5 tag\n"))
    )
    assert formats.read_annotations(written(tmp_path, LINES)).queries[0].id == "3MSZA#0"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "3MSZA 24.3 30.4 person",
            "line 2: is not a line of Charades-STA: '3MSZA 24.3 30.4 person'; accepted: ",
        ),
        ("3MSZA 24.3##person", "line 2: is not a line of Charades-STA"),
        ("3MSZA 1 2 3##person", "line 2: is not a line of Charades-STA"),
        ("3MSZA 24,3 30.4##person", "line 2: START: is not a number: '24,3'; accepted: finite seconds"),
        ("3MSZA 24.3 nan##person", "line 2: END: is not a number: 'nan'"),
        ("3MSZA 24.3 inf##person", "line 2: END: is not a number: 'inf'"),
        ("3MSZA 24.3 30.4## ", "line 2: SENTENCE: is empty"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path, f"A 1 2##x\n{line}\n")
    with pytest.raises(FormatError, match=message) as refused:
        read_annotations(path)
    assert str(refused.value).startswith(str(path))


def test_what_is_no_text_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_bytes(b"A 1 2##x\nA 1 2##caf\xe9\n")
    with pytest.raises(FormatError, match=r"line 2: is not UTF-8 text"):
        read_annotations(path)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("id,seconds\nA,3\n", r"line 1: lacks the column 'length'$"),
        ("video,seconds\nA,3\n", r"line 1: lacks the column 'id'$"),
        ("", r"line 1: lacks the column 'id'$"),
        ("id,length\nA\n", r"line 2: has no length for this video$"),
        ("length,id\n3\n", r"line 2: has no id for this video$"),
        ("id,length\nA,3\nB,long\n", r"line 3: length: is not a number: 'long'"),
        ("id,length\nA,0\n", r"line 2: length: is '0'; accepted: above 0"),
        ("id,length\nA," + "9" * 200_000 + "\n", r"is not CSV \(field larger than field limit"),
    ],
)
def test_a_wrong_csv_is_named(tmp_path: Path, table: str, message: str) -> None:
    path = written(tmp_path, table, "Charades_v1_test.csv")
    with pytest.raises(FormatError, match=message) as refused:
        read_annotations(written(tmp_path, "A 1 2##x\n"))
    assert str(refused.value).startswith(str(path))


@settings(max_examples=40)
@given(text=st.text(max_size=60))
def test_no_line_makes_anything_but_a_query_or_one_line(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "some.txt"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        read = read_annotations(path)
    except FormatError as error:
        assert "\n" not in str(error)
    else:
        assert all(query.text for query in read.queries)
