"""Files of queries: judgements, our queries.jsonl, and plain text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from whenabouts.intake.files import FormatError
from whenabouts_bench.formats.queries import read_queries


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return path


def texts(path: Path) -> dict[str, str]:
    return {query.id: query.text for query in read_queries(path).queries}


def test_a_text_file_has_a_query_a_line_called_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "q.txt"
    path.write_bytes("\ufeffein Hund läuft\n\n  a dog runs \r\n".encode())
    assert texts(path) == {"1": "ein Hund läuft", "3": "a dog runs"}


def test_our_queries_are_read_without_judgements_also_packed(tmp_path: Path) -> None:
    line = {"query_id": 7, "text": "a dog runs", "kind": "seen"}
    path = tmp_path / "queries.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(line).encode()))
    (query,) = read_queries(path).queries
    assert (query.id, query.text, query.metadata["kind"]) == ("7", "a dog runs", "seen")


def test_judgements_bring_the_videos_that_they_name(tmp_path: Path) -> None:
    written(tmp_path / "qrels.jsonl", {"query_id": "a", "video_id": "dogs.mp4", "start": 1, "end": 2})
    written(tmp_path / "queries.jsonl", {"query_id": "a", "text": "a dog runs"})
    for place in (tmp_path, tmp_path / "qrels.jsonl"):
        found = read_queries(place)
        assert [video.id for video in found.videos] == ["dogs.mp4"]
        assert [query.text for query in found.queries] == ["a dog runs"]


def test_other_formats_of_judgements_are_read(tmp_path: Path) -> None:
    line = {"vid_name": "v", "duration": 9, "desc": "a dog runs", "desc_id": 3, "type": "v", "ts": [0, 2]}
    assert texts(written(tmp_path / "tvr.jsonl", line)) == {"3": "a dog runs"}


def test_the_text_of_charades_sta_is_judgements(tmp_path: Path) -> None:
    (tmp_path / "charades_sta_test.txt").write_text("3MSZA 24.3 30.4##person turns a light on.\n")
    assert texts(tmp_path / "charades_sta_test.txt") == {"3MSZA#0": "person turns a light on."}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.txt", b"a dog\n\xff\xfe\n", r"q\.txt, line 2: is not UTF-8"),
        ("q.txt", b"\n \n", r"q\.txt: has no queries; accepted: at least one query"),
        ("qrels.jsonl", b'{"query_id": "a", "video_id": "v"}\n', r"qrels\.jsonl: query 'a' has no words"),
        ("q.jsonl", b'{"query_id": "a", "text": "x"}\n{"query_id": "a", "text": "y"}\n', "comes again with"),
        ("q.jsonl", b'{"query_id": "a", "text": "x"}\n{"query_id": 2.5, "text": "y"}\n', r"line 2: query_id"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=message):
        read_queries(tmp_path / name)


def test_a_run_is_no_file_of_queries(tmp_path: Path) -> None:
    path = written(tmp_path / "run.jsonl", {"query_id": "a", "moments": []})
    with pytest.raises(FormatError, match="is in a run, not in judgements"):
        read_queries(path)
