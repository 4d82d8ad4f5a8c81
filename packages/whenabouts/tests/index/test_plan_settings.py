from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from whenabouts.index.plan import Settings, parse_metadata, read_metadata_file
from whenabouts.types import UsageError
from whenabouts.video.objects import source_path


def test_the_most_exact_name_wins(tmp_path: Path) -> None:
    file = tmp_path / "meta.jsonl"
    file.write_text(
        '{"path": "talk.mp4", "title": "By name", "year": 2020}\n\n'
        '{"video_id": "talk", "title": "By stem", "speaker": "Ada"}\n'
        f'{{"path": "{tmp_path}/talk.mp4", "year": 2021}}\n'
    )
    settings = Settings(metadata={"speaker": "all", "room": "1"}, metadata_of=read_metadata_file(file))
    said = settings.metadata_for(tmp_path / "talk.mp4")
    assert said == {"speaker": "Ada", "room": "1", "title": "By name", "year": 2021}
    assert settings.metadata_for(Path("other.mp4")) == {"speaker": "all", "room": "1"}


@pytest.mark.parametrize("sign", ["\u2028", "\x85", "犬"])
def test_signs_at_which_python_splits_lines_may_be_in_a_title(tmp_path: Path, sign: str) -> None:
    file = tmp_path / "meta.jsonl"
    lines = [json.dumps({"path": name, "title": f"a{sign}b"}, ensure_ascii=False) for name in ("x", "y")]
    file.write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    assert read_metadata_file(file) == {name: {"title": f"a{sign}b"} for name in ("x", "y")}


@pytest.mark.parametrize("line", ["{", '{"title": "no path"}', "[1]", '"x"', '{"path": 3}'])
def test_a_line_that_names_no_file_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "meta.jsonl"
    file.write_text('{"path": "a"}\n' + line + "\n")
    with pytest.raises(UsageError, match="line 2"):
        read_metadata_file(file)


def test_faults_name_the_value() -> None:
    with pytest.raises(UsageError, match="speaker"):
        parse_metadata(["speaker"])
    with pytest.raises(UsageError, match="missing"):
        read_metadata_file(Path("missing.jsonl"))


@pytest.mark.parametrize("key", ["recorded", "creation_time", "date"])
@pytest.mark.parametrize("value", ["2024-02-30", "", 20240501, ["2024"]])
def test_a_date_that_cannot_be_read_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    file = tmp_path / "meta.jsonl"
    file.write_text('{"path": "a"}\n' + json.dumps({"path": "b", key: value}))
    with pytest.raises(UsageError, match=rf"^{key}=.* is not a date; write 2024, 2024-05-01 or"):
        Settings(metadata={key: value})
    with pytest.raises(UsageError, match=rf"meta.jsonl, line 2: {key}=.* is not a date; write 2024"):
        read_metadata_file(file)


@pytest.mark.parametrize("value", [2024, "2024", "2024-05", "2024-05-01T13:30Z", None])
def test_a_date_that_can_be_read_is_taken(tmp_path: Path, value: Any) -> None:
    file = tmp_path / "meta.jsonl"
    file.write_text(json.dumps({"path": "a", "recorded": value, "filmed": "2024-02-30"}))
    assert read_metadata_file(file)["a"]["recorded"] == value
    assert Settings(metadata={"recorded": value}).metadata["recorded"] == value


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("./talks/a.mp4", "/videos/talks/a.mp4"),
        ("caf\u00e9.mp4", "/videos/cafe\u0301.mp4"),
        ("cafe\u0301", "/videos/caf\u00e9.mp4"),
        ("s3://films/talks/a.mp4", "s3://films/talks/a.mp4"),
    ],
)
def test_a_path_is_the_same_however_it_is_written(tmp_path: Path, written: str, path: str) -> None:
    file = tmp_path / "meta.jsonl"
    file.write_text(json.dumps({"path": written, "year": 2021}))
    settings = Settings(metadata_of=read_metadata_file(file))
    assert settings.metadata_for(source_path(path)) == {"year": 2021}


def test_without_metadata_of_single_files_the_ends_of_paths_are_not_looked_up() -> None:
    """They take 50 µs a file."""
    with patch("whenabouts.index.plan.Path", side_effect=AssertionError):
        assert Settings(metadata={"room": "1"}).metadata_for(Path("/videos/a/b.mp4")) == {"room": "1"}
