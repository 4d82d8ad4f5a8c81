"""Lists for editors over HTTP are byte for byte those that `whenabouts export` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.server.conftest import Client, Open, error_of, id_of

from whenabouts import export
from whenabouts.cli.main import main
from whenabouts.corpus import Corpus
from whenabouts.server.export_routes import NOTES_HEADER


@pytest.mark.parametrize("name", export.format_names())
def test_every_format_is_what_the_command_writes(
    client: Client, indexed: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "list"
    command = [
        "export",
        "crown jewels",
        "--corpus",
        str(indexed),
        "-k",
        "3",
        "--format",
        name,
        "--all-moments",
    ]
    assert main([*command, "--out", str(out)]) == 0
    question = {"query": "crown jewels", "k": 3, "all_moments": True}
    answer = client.get("/api/export", params={**question, "format": name})
    assert answer.status_code == 200
    assert answer.content == out.read_bytes()
    assert answer.headers["content-type"] == export.format_of(name).MEDIA_TYPE
    listed = client.json("/api/export", **question, format="json")["moments"]
    assert answer.headers["content-disposition"].startswith(
        f"attachment; filename*=utf-8''whenabouts-{len(listed)}-moments."
    )


def test_moments_by_name_keep_their_order(client: Client, friday: str) -> None:
    nasa = id_of(client, "nasa_13013.mp4")
    found = client.json("/api/export", moments=f"{nasa}@1-2.5,{friday}@0:04.3-6", format="json")
    assert [(one["video_id"], one["start"], one["end"]) for one in found["moments"]] == [
        (nasa, 1.0, 2.5),
        (friday, 4.3, 6.0),
    ]


def test_what_cannot_be_exported_is_refused(client: Client, friday: str) -> None:
    named = f"{friday}@1-2"
    assert client.error("/api/export") == (400, "invalid", "query")
    assert client.error("/api/export", query="a", moments=named) == (400, "invalid", "query")
    assert client.error("/api/export", query="a", format="exe") == (400, "unknown_format", "format")
    assert client.error("/api/export", query="a", format="../x") == (400, "invalid_parameter", "format")
    assert client.error("/api/export", moments="friday.mp4@1-2") == (404, "no_such_video", None)
    assert client.error("/api/export", moments="") == (400, "invalid_parameter", "moments")
    assert client.error("/api/export", moments=f"{named},,") == (400, "invalid_moment", "moments")
    many = ",".join([named] * 201)
    assert client.error("/api/export", moments=many) == (400, "too_many_moments", "moments")
    nothing = client.error("/api/export", query="crown jewels", before="1950-01-01")
    assert nothing == (404, "no_match", None)


def test_a_video_that_changed_is_not_exported(opened: Open, copied: tuple[Path, Path]) -> None:
    client = opened(copied[0])
    video = id_of(client, "friday.mp4")
    copied[1].write_bytes(b"another recording")
    answer = client.get(f"/api/export?moments={video}@1-2")
    assert error_of(answer)[0] == 409
    assert str(copied[1].parent) not in json.dumps(answer.json())


def test_a_format_that_needs_a_file_says_which_is_missing(opened: Open, copied: tuple[Path, Path]) -> None:
    client = opened(copied[0])
    video = id_of(client, "friday.mp4")
    made = client("POST", "/api/collections", json={"name": "film"}).json()["id"]
    client("POST", f"/api/collections/{made}/items", json={"moments": [f"{video}@1-2"]})
    copied[1].unlink()
    for format in ("edl", "otio", "fcpxml"):
        answer = client.get(f"/api/collections/{made}/export", params={"format": format})
        assert error_of(answer)[:2] == (410, "video_gone")
        assert "friday.mp4" in answer.text and str(copied[1].parent) not in answer.text
    assert client.get(f"/api/collections/{made}/export?format=csv").status_code == 200


@pytest.mark.slow
def test_a_format_that_needs_a_recording_names_a_transcript(opened: Open, tmp_path: Path) -> None:
    names = ("notes.vtt", "diary.vtt")
    for name in names:
        (tmp_path / name).write_text(f"WEBVTT\n\n00:00.000 --> 00:02.000\na note of {name}\n")
    Corpus(tmp_path / "c.corpus", create=True).add(tmp_path, processes=1)
    client = opened(tmp_path / "c.corpus")
    question = {"query": "a note", "all_moments": True}
    refused = client.get("/api/export", params={**question, "format": "edl"})
    assert error_of(refused)[:2] == (404, "no_recording")
    assert all(name in refused.text for name in names), "all are named at once"
    assert len(client.json("/api/export", **question, format="json")["moments"]) == 2


def test_notes_on_a_list_come_with_it(opened: Open, copied: tuple[Path, Path]) -> None:
    for shows_paths in (True, False):
        client = opened(copied[0], show_paths=shows_paths)
        video = id_of(client, "friday.mp4")
        answer = client.get(
            f"/api/export?format=edl&moments={','.join([f'{video}@{n}-99' for n in range(6)])}"
        )
        notes = json.loads(answer.headers[NOTES_HEADER])
        ended = "friday.mp4: the moment ends at 99.000 s, behind the end of the file; taken up to"
        assert notes[0].startswith(ended)
        assert any("file paths are not shown here" in note for note in notes) is not shows_paths
        plain = client.get(f"/api/export?format=csv&moments={video}@1-2")
        assert len(json.loads(plain.headers[NOTES_HEADER])) == (not shows_paths)


def test_what_did_not_match_is_exported_only_when_all_is_asked_for(client: Client) -> None:
    question = {"query": "crown jewels", "k": 3, "format": "json"}
    matched = client.json("/api/export", **question)["moments"]
    whole = client.json("/api/export", **question, all_moments=True)["moments"]
    found = client.json("/api/search", query="crown jewels", k=3)["data"]
    assert 0 < len(matched) < len(whole) == len(found)
    assert [one["start"] for one in matched] == [one["start"] for one in whole[: len(matched)]]


def test_what_is_no_match_is_not_exported(client: Client) -> None:
    question = "how do I renew a passport in Bolivia"
    assert client.json("/api/search", query=question)["answer"] == "no_match"
    refused = client.get("/api/export", params={"query": question, "format": "csv"})
    assert error_of(refused)[:2] == (404, "no_match")
