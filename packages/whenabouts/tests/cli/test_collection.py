"""`whenabouts collection`, and collections in `export` and `cut`."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.commands import Whenabouts

from whenabouts.corpus import Corpus
from whenabouts.workplace.database import FILE


@pytest.fixture
def place(samples_corpus: Path, tmp_path: Path) -> str:
    shutil.copytree(samples_corpus, tmp_path / "c.corpus")
    return str(tmp_path / "c.corpus")


@pytest.mark.slow
def test_a_collection_from_empty_to_a_list_for_editors(
    bare: Whenabouts, place: str, samples: Path, tmp_path: Path
) -> None:
    at = ("--corpus", place)
    assert bare("collection", *at).code == 1
    assert bare("collection", "show", "film", *at).code == 2
    long = bare("collection", "add", "too long", "friday@0:01-99", *at).json
    assert 5 < long["items"][0]["end"] < 7, "it ends where the video ends"
    assert bare("collection", "delete", "too long", *at).code == 0
    made = bare("collection", "add", "film", "friday@0:01-0:03.5", "flower@1-2", *at).json
    assert [(item["start"], item["end"]) for item in made["items"]] == [(1.0, 3.5), (1.0, 2.0)]
    moved = bare("collection", "move", "film", "2", "1", *at).json
    assert [item["video_id"].split("-")[0] for item in moved["items"]] == ["flower", "friday"]
    changed = bare("collection", "change", "film", "2", "--start", "1.5", "--note", "asks", "--tag", "x", *at)
    assert changed.json["items"][1] | {"id": ""} == {
        "id": "",
        "video_id": made["items"][0]["video_id"],
        "start": 1.5,
        "end": 3.5,
        "note": "asks",
        "tags": ["x"],
        "query": "",
        "path": str(samples / "friday.mp4"),
    }
    assert bare("collection", "rename", "film", "opening", *at).json["name"] == "opening"
    table = bare("collection", "show", "opening", *at, "--table").out
    assert "opening: 2 moments" in table and "#x  asks" in table
    exported = bare("export", "--collection", "opening", "--format", "edl", *at)
    assert exported.code == 0
    assert exported.out.startswith("TITLE: opening")
    assert exported.out.index("flower.webm") < exported.out.index("friday.mp4")
    marked = bare("export", "--collection", "opening", "--format", "fcpxml", *at).out
    said = "Tell me, is the lord of the universe in?"
    assert f'value="asks" note="asks | {said} | #x"' in marked and '<keyword start="3/2s"' in marked
    assert f"WORDS {said}" in exported.out and "NOTE asks" in exported.out and "TAGS x" in exported.out
    for form in ("csv", "json", "otio"):
        text = bare("export", "--collection", "opening", "--format", form, *at).out
        assert f'"{said}",asks,x' in text or (f'"text": "{said}"' in text and '"note": "asks"' in text)
    cues = bare("export", "--collection", "opening", "--format", "vtt", *at).out
    shown = [block.split("\n", 2)[2].strip() for block in cues.split("\n\n") if "-->" in block]
    assert shown == ["moment 1", said], "no note, no file name, and nothing that is said outside the moment"
    film = tmp_path / "film.mp4"
    assert bare("cut", "--collection", "opening", "--join", "--out", str(film), *at).code == 0
    assert film.stat().st_size > 1000
    assert bare("collection", "remove", "opening", "1", *at).json["seconds"] == 2.0
    assert bare("collection", "delete", "opening", *at).code == 0
    assert bare("collection", *at).code == 1


def test_only_words_that_a_list_has_are_shown(bare: Whenabouts, place: str) -> None:
    at = ("--corpus", place)
    bare("collection", "add", "film", "friday@1.5-3.1", *at)
    shown = bare("collection", "show", "film", *at, "--table").out
    assert shown.rstrip().endswith("  Tell me, is the lord of the universe in?")
    assert (
        '"Tell me, is the lord of the universe in?",'
        in bare("export", "--collection", "film", "--format", "csv", *at).out
    )


@pytest.mark.slow
def test_clips_of_a_collection_are_in_its_order(bare: Whenabouts, place: str, tmp_path: Path) -> None:
    at, out = ("--corpus", place), tmp_path / "clips"
    moments = ("nasa_audio_only@3-4", "friday@1-1.5", "flower@1-1.5", *(["friday@1-1.5"] * 7))
    bare("collection", "add", "film", *moments, *at)
    assert bare("cut", "--collection", "film", "--out", str(out), *at).code == 0
    names = sorted(path.name for path in out.iterdir())
    assert names[:2] == ["01_nasa_audio_only_3.000-4.000.m4a", "02_friday_1.000-1.500.mp4"]
    assert names[2:] == ["03_flower_1.000-1.500.mp4", *(f"{n:02}_{names[1][3:]}" for n in range(4, 11))]
    (film,) = {
        cut["path"]
        for cut in bare("cut", "--collection", "film", "--join", "--out", str(out), *at).json["cuts"]
    }
    assert film == str(out / "joined.mp4")


def test_an_emptied_collection_is_a_success_and_an_empty_list_none(bare: Whenabouts, place: str) -> None:
    assert bare("collection", "add", "film", "friday@1-2", "--corpus", place).code == 0
    assert bare("collection", "remove", "film", "1", "--corpus", place).code == 0
    assert bare("collection", "rename", "film", "empty", "--corpus", place).code == 0
    assert bare("collection", "show", "empty", "--corpus", place).code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "nothing"), "no collection is called 'nothing'"),
        (("add", "film", "nobody@0-1"), "nobody"),
        (("add", "film", "friday@3-1"), "friday"),
        (("remove", "film", "7"), "no number 7"),
        (("change", "film", "1", "--start", "99"), "start < end"),
        (("change", "film", "1", "--end", "0.5"), "start < end"),
        (("change", "film", "1", "--start", "99", "--end", "100"), "after the end of"),
        (("move", "film", "1", "0"), "no number 0"),
        (("move", "film", "1"), "NAME FROM TO"),
        (("show",), "too few words; quote a name with spaces. whenabouts collection show NAME: list its"),
        (("show", "film", "1"), "too many words"),
        (("delete", "film", "noir"), "too many words"),
        (("add", "film", "friday@1-2", "--note", "good"), "no other action takes them"),
        (("--note", "good"), "no other action takes them"),
        (("change", "film", "1"), "needs one of --start, --end"),
        (("change", "film", "1", "--start", ""), "is not a time"),
        (("change", "film", "1", "--tag", "Leeds, Barnbow"), "commas separate tags"),
    ],
)
def test_what_cannot_be_done_is_refused(
    bare: Whenabouts, place: str, arguments: tuple[str, ...], said: str
) -> None:
    assert bare("collection", "add", "film", "friday@1-2", "--corpus", place).code == 0
    done = bare("collection", *arguments, "--corpus", place)
    assert done.code == 2
    assert said in done.err


def test_a_moment_of_a_file_that_was_replaced_is_told(bare: Whenabouts, place: str) -> None:
    at = ("--corpus", place)
    bare("collection", "add", "film", "friday@1-2", *at)
    store = Corpus(place).store
    (record,) = [each for each in store.videos() if each.video_id.startswith("friday")]
    with store.writing():
        store.put_records([replace(record, content_hash="another")])
    assert "(its file has changed since)" in bare("collection", "show", "film", *at, "--table").out
    corpus = Corpus(place)
    _, notes = corpus.moments_of(corpus.collections.get("film").items)
    assert notes == [f"friday.mp4 has changed since {record.video_id}@1.000-2.000 was collected"]


def test_an_invalid_collection_is_listed_with_its_fault(bare: Whenabouts, place: str) -> None:
    at = ("--corpus", place)
    for name in ("film", "other"):
        assert bare("collection", "add", name, "friday@1-2", *at).code == 0
    with contextlib.closing(sqlite3.connect(Path(place) / FILE)) as connection, connection:
        connection.execute(
            "UPDATE items SET end = 1e300 WHERE collection = (SELECT id FROM collections WHERE name = 'film')"
        )
    shown = bare("collection", *at, "--table").out
    assert "the collection 'film' contains an invalid moment" in shown and "other: 1 moment, " in shown
    assert [bool(each["problem"]) for each in bare("collection", *at).json] == [False, True]
    assert bare("collection", "show", "film", *at).code == 2
    assert bare("collection", "delete", "film", *at).code == 0
    assert [each["name"] for each in bare("collection", *at).json] == ["other"]
