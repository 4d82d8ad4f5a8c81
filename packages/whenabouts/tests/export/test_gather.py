"""Moments for lists and cuts: from an answer, from a file of answers, and by name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts.export import render
from whenabouts.export.json import ResultsError, read_moments
from whenabouts.export.moments import (
    FileMoment,
    check_unchanged,
    moment_of_file,
    moment_of_record,
    moments_of_result,
)
from whenabouts.index.records import VideoRecord
from whenabouts.search.search_result import SearchResult
from whenabouts.types import Moment, ScoredMoment, UsageError, WhenaboutsError
from whenabouts.video.files import content_hash
from whenabouts.video.probe import MediaError

Film = Any


def record_of(path: Path) -> VideoRecord:
    status = path.stat()
    return VideoRecord(
        "film-00ff00ff",
        str(path),
        size=status.st_size,
        modified_ns=status.st_mtime_ns,
        content_hash=content_hash(path),
    )


def answer(path: Path) -> SearchResult:
    found = [
        ScoredMoment(Moment("film-00ff00ff", 1.0, 2.0), 3.5, 0.99, text="Hello."),
        ScoredMoment(Moment("film-00ff00ff", 3.25, 4.0), -1.0, None),
    ]
    return SearchResult("a greeting", "match", tuple(found), {"film-00ff00ff": record_of(path)})


def test_an_answer_and_what_search_prints_of_it_give_the_same_moments(
    films: dict[str, Film], tmp_path: Path
) -> None:
    result = answer(films["25"].path)
    printed = tmp_path / "results.json"
    printed.write_text(json.dumps(result.to_json()))
    moments = moments_of_result(result)
    assert read_moments(printed) == moments
    assert moments[0] == FileMoment(
        1, "film-00ff00ff", str(films["25"].path), "pal.mp4", 1.0, 2.0, 3.5, 0.99, "Hello.", "a greeting"
    )


def test_an_exported_json_is_read_again(films: dict[str, Film], tmp_path: Path) -> None:
    moments = moments_of_result(answer(films["25"].path))
    (tmp_path / "out.json").write_bytes(render(moments, "json")[0])
    assert read_moments(tmp_path / "out.json") == moments


def test_a_name_that_is_no_unicode_is_found_by_its_link(films: dict[str, Film], tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"caf\xe9.mp4")
    try:
        place.write_bytes(films["25"].path.read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    (tmp_path / "results.json").write_text(json.dumps(answer(place).to_json()))
    assert read_moments(tmp_path / "results.json")[0].path == str(place)


def changed(path: Path, change: Callable[[dict[str, Any]], Any]) -> Any:
    document = answer(path).to_json()
    return change(document) or document


def with_moment(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["moments"][1].update(values)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: ["x"], r"accepted: an object with a list `moments`"),
        (lambda d: {"moments": "x"}, r"moments: 'x'; accepted: a list"),
        (lambda d: {"moments": [3]}, r"moments\[0\]: 3; accepted: an object"),
        (lambda d: d.update(query=3), r"query: 3; accepted: text"),
        (with_moment(start="1"), r"moments\[1\]\.start: '1'; accepted: a number"),
        (with_moment(start=True), r"moments\[1\]\.start: True; accepted: a number"),
        (with_moment(end=None), r"moments\[1\]\.start, end: \(3\.25, None\)"),
        (with_moment(start=5, end=4), r"moments\[1\]\.start, end: .*0 <= start < end"),
        (with_moment(start=-1), r"moments\[1\]\.start, end"),
        (with_moment(end=10**400), r"moments\[1\]\.end"),
        (with_moment(rank=0), r"moments\[1\]\.rank: 0; accepted: a whole number"),
        (with_moment(confidence=1.5), r"moments\[1\]\.confidence: 1\.5; accepted: a number from 0 to 1"),
        (with_moment(text=["x"]), r"moments\[1\]\.text: \['x'\]; accepted: text"),
        (
            with_moment(path="relative.mp4"),
            r"moments\[1\]\.path: 'relative\.mp4'; accepted: the absolute path",
        ),
        (with_moment(path="/a\0b"), r"moments\[1\]\.path"),
        (with_moment(path="/etc/passwd"), r"moments\[1\]\.link: .*accepted: the link of /etc/passwd"),
        (with_moment(link="https://example.org/x.mp4"), r"moments\[1\]\.link"),
        (
            with_moment(path="/dev/zero", link=None),
            r"moments\[1\]\.path: '/dev/zero'; accepted: a regular file",
        ),
        (with_moment(path="/", link=None), r"accepted: a regular file"),
    ],
)
def test_what_is_wrong_in_a_file_of_answers_is_told_by_place_and_value(
    films: dict[str, Film], tmp_path: Path, change: Callable[[dict[str, Any]], Any], told: str
) -> None:
    document = changed(films["25"].path, change)
    (tmp_path / "results.json").write_text(json.dumps(document))
    with pytest.raises(ResultsError, match=rf"results\.json.*{told}"):
        read_moments(tmp_path / "results.json")


@pytest.mark.parametrize("text", ["", "{", "\xff\xfe", '{"moments": [NaN]}', "[" * 100_000])
def test_what_is_no_json_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ResultsError, match="is not JSON"):
        read_moments(tmp_path / "results.json")


def test_files_of_answers_that_cannot_be_read_are_told(tmp_path: Path, films: dict[str, Film]) -> None:
    with pytest.raises(ResultsError, match="cannot be read"):
        read_moments(tmp_path / "gone.json")
    with pytest.raises(ResultsError, match="a folder, not a file"):
        read_moments(tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ResultsError, match="not a regular file"):
        read_moments(tmp_path / "pipe.json")
    (tmp_path / "none.json").write_text('{"moments": []}')
    with pytest.raises(UsageError, match="no moments"):
        read_moments(tmp_path / "none.json")
    gone = changed(films["25"].path, with_moment(path="/nowhere/a.mp4", link=None))
    (tmp_path / "moved.json").write_text(json.dumps(gone))
    with pytest.raises(MediaError, match=r"/nowhere/a\.mp4 is not there"):
        read_moments(tmp_path / "moved.json")


def test_a_moment_is_named_by_record_or_file(films: dict[str, Film], tmp_path: Path) -> None:
    path = films["25"].path
    assert moment_of_record(record_of(path), 1, 2).path == str(path)
    moment = moment_of_file(path, 1, 2, rank=3)
    assert (moment.rank, moment.name, moment.score, moment.query) == (3, "pal.mp4", None, "")
    with pytest.raises(UsageError, match="no such file"):
        moment_of_file(tmp_path / "gone.mp4", 1, 2)
    with pytest.raises(UsageError, match="start < end"):
        moment_of_file(path, 2, 1)


def test_a_file_that_changed_after_it_was_indexed_is_refused(films: dict[str, Film], tmp_path: Path) -> None:
    place = tmp_path / "a.mp4"
    place.write_bytes(films["25"].path.read_bytes())
    record = record_of(place)
    check_unchanged(record)
    os.utime(place, (1, 1))
    check_unchanged(record)  # touched, and its content the same
    data = bytearray(place.read_bytes())
    data[-1] ^= 1
    place.write_bytes(data)  # replaced by another of the same size
    with pytest.raises(MediaError, match=r"has changed since it was indexed.*whenabouts index"):
        check_unchanged(record)
    place.write_bytes(films["29.97"].path.read_bytes())
    with pytest.raises(MediaError, match="has changed"):
        check_unchanged(record)
    place.unlink()
    with pytest.raises(MediaError, match=r"is gone.*whenabouts remove"):
        check_unchanged(record)
    with pytest.raises(WhenaboutsError, match="cannot be read"):
        check_unchanged(VideoRecord("x", str(films["25"].path / "inside.mp4"), size=3))


def test_all_files_that_are_missing_are_named_at_once(films: dict[str, Film], tmp_path: Path) -> None:
    there = record_of(films["25"].path)
    gone = [VideoRecord(f"v{n}", str(tmp_path / f"{n}.mp4"), size=3) for n in range(7)]
    with pytest.raises(MediaError) as told:
        check_unchanged(there, *gone[:2], gone[0])
    assert [str(told.value).count(f"{n}.mp4: is gone") for n in range(3)] == [1, 1, 0]
    with pytest.raises(MediaError, match=r"4\.mp4: is gone[^…]*; … and 2 more files$"):
        check_unchanged(*gone)
