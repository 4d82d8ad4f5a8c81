"""The progress of watched folders: counts of files by folder, from real index runs and over HTTP."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.server.conftest import Client, Open, wait_until

from whenabouts.corpus import Corpus
from whenabouts.server.app import Application
from whenabouts.server.watched_progress import WatchedProgress
from whenabouts.workplace.jobs import Jobs

WORDS = "WEBVTT\n\n00:00.000 --> 00:04.000\n{}\n"


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Three folders: with two transcripts, with one, and without a new file."""
    for name in ("a/one.vtt", "a/two.vtt", "b/three.vtt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(WORDS.format(name))
    (tmp_path / "c").mkdir()
    return [tmp_path / "a", tmp_path / "b", tmp_path / "c"]


@pytest.mark.slow
def test_files_wait_are_read_and_are_done_each_in_its_folder(tmp_path: Path, folders: list[Path]) -> None:
    told: list[Mapping[str, Any]] = []
    progress = WatchedProgress([str(folder) for folder in folders], told.append)
    assert told == [{}]
    corpus = Corpus(tmp_path / "c.corpus", create=True)
    corpus.add(*folders, processes=1, planned=progress.planned, progress=progress.progress)
    a, b = map(str, folders[:2])
    assert all(set(each) == {a, b} for each in told[1:])
    first, last = told[1], told[-1]
    assert [(first[at]["waiting"], first[at]["done"], first[at]["total"]) for at in (a, b)] == [
        (2, 0, 2),
        (1, 0, 1),
    ]
    assert [(last[at]["waiting"], last[at]["done"], last[at]["reading"]) for at in (a, b)] == [
        (0, 2, []),
        (0, 1, []),
    ]
    for each in told[1:]:
        for at in (a, b):
            facts = each[at]
            assert facts["waiting"] + facts["reading_in_all"] + facts["done"] == facts["total"]
    progress.idle()
    assert told[-1] == {}


def test_half_copied_files_are_named_until_the_run_begins(folders: list[Path]) -> None:
    told: list[Mapping[str, Any]] = []
    outer = folders[0].parent
    progress = WatchedProgress([str(outer), str(folders[0])], told.append)
    progress.copying(
        [folders[0] / "one.vtt", folders[1] / "three.vtt", outer / "gone.vtt", Path("/else.vtt")]
    )
    shown = {at: facts["copying"] for at, facts in told[-1].items()}
    assert shown == {str(folders[0]): ["one.vtt"], str(outer): ["three.vtt"]}


@pytest.mark.slow
def test_the_queue_shows_progress_and_failures_by_folder(
    opened: Open, tmp_path: Path, folders: list[Path]
) -> None:
    (folders[0] / "broken.mp4").write_bytes(b"no film" * 100)
    corpus = Corpus(tmp_path / "c.corpus", create=True)
    corpus.add(*folders, processes=1)
    client: Client = opened(Path(corpus.location), allow=folders)
    assert isinstance(client.application, Application)
    runner = client.application.service.runner
    assert runner is not None
    jobs: Jobs = runner.jobs
    for folder in folders[:2]:
        jobs.watch(str(folder))
    jobs.note_watched([str(folders[0])], {"added": 2, "at": 5.0})
    secret = {"reading": [f"{folders[0]}/one.vtt"], "done": 1}
    jobs.note_reading({str(folders[0]): secret, str(folders[1]): None})
    a, b = client.json("/api/jobs")["watched"]
    assert (a["place"], a["last"], a["progress"]["done"]) == ("a", {"added": 2, "at": 5.0}, 1)
    assert [each["name"] for each in a["failed"]] == ["broken.mp4"] and a["failed_in_all"] == 1
    assert a["failed"][0]["again"] and a["failed"][0]["why"]
    assert (b["place"], b["progress"], b["failed"]) == ("b", {}, [])
    jobs.note_reading({str(folders[0]): None})
    assert client.json("/api/jobs")["watched"][0]["progress"] == {}
    # A disk that is removed while its files are read.
    jobs.note_reading({str(folders[0]): secret})
    shutil.rmtree(folders[0])
    gone = client.json("/api/jobs")["watched"][0]
    assert (gone["there"], gone["progress"]) == (False, {})


@pytest.mark.slow
def test_a_killed_servers_progress_is_forgotten_by_the_next(
    opened: Open, tmp_path: Path, folders: list[Path]
) -> None:
    pytest.importorskip("watchfiles", reason="the extra watch is not installed")
    corpus = Corpus(tmp_path / "c.corpus", create=True)
    client = opened(Path(corpus.location), allow=folders)
    runner = client.application.service.runner
    assert runner is not None
    runner.jobs.watch(str(folders[0]))
    runner.jobs.note_reading({str(folders[0]): {"total": 9, "done": 1}})
    runner.start()
    assert wait_until(lambda: client.json("/api/jobs")["watched"][0]["last"].get("added") == 2, 120)
    assert wait_until(lambda: client.json("/api/jobs")["watched"][0]["progress"] == {}, 30)
