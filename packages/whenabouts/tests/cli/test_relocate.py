"""`whenabouts relocate`: finds moved files by their content and changes nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.cli.commands import Whenabouts

from whenabouts import indexing
from whenabouts.corpus import Corpus
from whenabouts.index.folders import indexed_folders

pytestmark = pytest.mark.usefixtures("unmeasured")


@pytest.fixture
def films(samples: Path, tmp_path: Path) -> Path:
    """Three files in a folder, indexed into `own.corpus` beside it."""
    films = tmp_path / "films"
    films.mkdir()
    for name in ("friday.mp4", "friday.vtt", "flower.webm", "nasa_audio_only.srt"):
        shutil.copy(samples / name, films)
    Corpus(tmp_path / "own.corpus", create=True).add(films, processes=1)
    return films


@pytest.mark.slow
def test_moved_files_are_planned_then_found_by_their_content(
    bare: Whenabouts, films: Path, samples: Path
) -> None:
    disk, at = films.parent / "disk", ("--corpus", str(films.parent / "own.corpus"))
    (disk / "deep").mkdir(parents=True)
    (films / "friday.mp4").rename(disk / "deep" / "friday.mp4")
    (films / "friday.vtt").rename(disk / "deep" / "friday.vtt")
    (films / "nasa_audio_only.srt").rename(disk / "talk.srt")
    shutil.copy(samples / "frog.webm", disk)
    # A different file with the size of a missing one.
    (disk / "a.mp4").write_bytes(bytes((disk / "deep" / "friday.mp4").stat().st_size))
    shutil.copy(disk / "talk.srt", disk / "zz copy.srt")
    before = Corpus(films.parent / "own.corpus").search("crown jewels", k=1)
    plan = bare("relocate", str(disk), *at, "--dry-run")
    assert plan.code == 0
    assert [(each["from"], each["to"]) for each in plan.json["found"]] == [
        (str(films / "friday.mp4"), str(disk / "deep" / "friday.mp4")),
        (str(films / "nasa_audio_only.srt"), str(disk / "talk.srt")),
    ]
    assert bare("relocate", str(disk), *at, "--dry-run", "--table").out.endswith(
        "2 videos would be relocated, 0 still missing\n"
    )
    done = bare("relocate", str(disk), *at)
    assert (done.code, done.json) == (0, plan.json)
    after = Corpus(films.parent / "own.corpus")
    assert {Path(video.path).name for video in after.videos()} == {"friday.mp4", "talk.srt", "flower.webm"}
    found = after.search("crown jewels", k=1)
    assert (found[0].moment, found[0].path) == (before[0].moment, str(disk / "deep" / "friday.mp4"))
    assert bare("index", str(disk / "deep"), *at, "--dry-run").json["unchanged"] == 1
    assert bare("relocate", str(disk), *at).json == {"found": [], "missing": [], "problems": []}


@pytest.mark.slow
def test_what_is_not_found_is_said_with_what_to_do(bare: Whenabouts, films: Path, samples: Path) -> None:
    at = ("--corpus", str(films.parent / "own.corpus"))
    (films / "friday.mp4").unlink()
    # A copy that the corpus has under another id does not count as the missing file.
    shutil.copy(films / "flower.webm", films / "friday.mp4")
    said = bare("relocate", str(films), str(films.parent / "nowhere"), *at, "--table")
    assert said.code == 1
    assert "left out: " in said.out and "nowhere" in said.out
    assert said.out.endswith("0 videos relocated, 0 still missing\n")
    (films / "friday.mp4").unlink()
    said = bare("relocate", str(films), *at, "--table")
    assert said.code == 1
    assert "still missing: friday" in said.out and "`whenabouts remove VIDEO`" in said.out
    assert said.out.endswith("0 videos relocated, 1 still missing\n")
    # A file that is put back after an index run without it is found at its old path.
    assert bare("index", str(films), *at).code == 0
    shutil.copy(samples / "friday.mp4", films)
    assert [each["to"] for each in bare("relocate", str(films), *at).json["found"]] == [
        str(films / "friday.mp4")
    ]


@pytest.mark.slow
def test_another_indexer_is_named_or_waited_for(bare: Whenabouts, films: Path) -> None:
    corpus = Corpus(films.parent / "own.corpus")
    at = ("--corpus", str(films.parent / "own.corpus"))
    with corpus.writing():
        assert bare("relocate", str(films), *at, "--dry-run").code == 0
        busy = bare("relocate", str(films), *at)
        assert (busy.code, busy.out) == (2, "") and "is being written by process" in busy.err
    assert bare("relocate", str(films), *at, "--wait").code == 0


def test_a_server_serves_a_moved_file_from_its_new_folder(bare: Whenabouts, films: Path) -> None:
    from whenabouts.server.folders import ServedFolders

    disk, place = films.parent / "disk", films.parent / "own.corpus"
    disk.mkdir()
    (films / "friday.mp4").rename(disk / "friday.mp4")
    assert bare("relocate", str(disk / "friday.mp4"), "--corpus", str(place)).code == 0
    corpus = Corpus(place)
    folders = ServedFolders.of(corpus)
    folders.open(corpus.resolve("friday")).close()
    assert folders.hold(str(films / "flower.webm")) and not folders.hold(str(films.parent / "own.corpus"))


def test_a_relocating_that_was_killed_is_finished_when_it_is_said_again(
    films: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, corpus = films.parent / "disk", Corpus(films.parent / "own.corpus")
    disk.mkdir()
    (films / "flower.webm").rename(disk / "flower.webm")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("remember_folders", "found_again"):
        with monkeypatch.context() as patched:
            patched.setattr(indexing, step, killed)
            with pytest.raises(KeyboardInterrupt):
                indexing.find_moved(corpus, [disk])
    with monkeypatch.context() as patched:
        patched.setattr(corpus.store, "put_records", killed)
        with pytest.raises(KeyboardInterrupt):
            indexing.find_moved(corpus, [disk])
    assert [record.path for _, record in indexing.find_moved(corpus, [disk]).pairs] == [
        str(disk / "flower.webm")
    ]
    assert str(disk) in indexed_folders(corpus.store)
