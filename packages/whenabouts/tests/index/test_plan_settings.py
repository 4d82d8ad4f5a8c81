from __future__ import annotations

from pathlib import Path

import pytest

from whenabouts.index.plan import Settings, parse_metadata, read_metadata_file
from whenabouts.types import UsageError


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
