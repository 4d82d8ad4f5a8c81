"""Watched folders: files that appear, change, move or vanish are indexed within seconds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("watchfiles", reason="the extra watch is not installed")

from whenabouts import indexing, watching
from whenabouts.cli import watch as watch_verb
from whenabouts.cli.main import main
from whenabouts.corpus import Corpus
from whenabouts.index.progress import Summary
from whenabouts.indexing import usual_speech_model
from whenabouts.types import UsageError
from whenabouts.video import speech, speech_models
from whenabouts.video.cue import Cue
from whenabouts.video.cues import CueTrack
from whenabouts.video.speech_models import PACKAGED
from whenabouts.watching import watch

WORDS = "WEBVTT\n\n00:00.000 --> 00:04.000\n{}\n"
Files = Callable[[set[str]], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "films"
    folder.mkdir()
    (folder / "first.vtt").write_text(WORDS.format("the first film"))
    return folder


@pytest.fixture
def known(folder: Path, tmp_path: Path) -> Iterator[Files]:
    """Waits until the watched corpus has exactly these files."""
    corpus = Corpus(tmp_path / "c.corpus", create=True)
    stop = threading.Event()
    faults: list[BaseException] = []

    def follow() -> None:
        try:
            for _ in watch(Corpus(tmp_path / "c.corpus"), [folder], stop=stop, settled=0.3, processes=1):
                pass
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=follow)
    thread.start()

    def wait(names: set[str]) -> None:
        until = time.monotonic() + 60
        while {Path(record.path).name for record in corpus.records()} != names:
            corpus.refresh()
            assert not faults, faults
            assert time.monotonic() < until, [record.path for record in corpus.records()]
            time.sleep(0.1)

    yield wait
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    assert not faults


@pytest.mark.slow
def test_files_that_appear_change_move_and_go_are_followed(
    folder: Path, known: Files, tmp_path: Path
) -> None:
    known({"first.vtt"})
    (folder / "second.vtt").write_text(WORDS.format("the second film"))
    known({"first.vtt", "second.vtt"})
    (folder / "first.vtt").write_text(WORDS.format("a lighthouse at dawn"))
    corpus = Corpus(tmp_path / "c.corpus")
    until = time.monotonic() + 60
    while "lighthouse" not in corpus.words(corpus.resolve("first.vtt"))[0].text:
        corpus.refresh()
        assert time.monotonic() < until
        time.sleep(0.1)
    (folder / "below").mkdir()
    (folder / "second.vtt").rename(folder / "below" / "third.vtt")
    known({"first.vtt", "third.vtt"})
    (folder / "first.vtt").unlink()
    known({"third.vtt"})


@pytest.mark.slow
def test_a_folder_that_is_gone_takes_nothing_out(folder: Path, known: Files, tmp_path: Path) -> None:
    known({"first.vtt"})
    (folder / "first.vtt").rename(tmp_path / "elsewhere.vtt")
    time.sleep(3)
    known({"first.vtt"})


@pytest.mark.slow
def test_a_half_copied_film_is_waited_for(folder: Path, known: Files, samples: Path, tmp_path: Path) -> None:
    known({"first.vtt"})
    whole = (samples / "friday.mp4").read_bytes()
    with (folder / "friday.mp4").open("wb") as copy:
        for start in range(0, len(whole), len(whole) // 8):
            copy.write(whole[start : start + len(whole) // 8])
            copy.flush()
            time.sleep(0.15)
    known({"first.vtt", "friday.mp4"})
    record = Corpus(tmp_path / "c.corpus").resolve("friday.mp4")
    assert (record.state, record.damage) == ("done", "") or record.duration == pytest.approx(6.166, abs=0.01)


@pytest.mark.slow
def test_another_film_does_not_have_a_half_copied_one_read(
    folder: Path, samples: Path, tmp_path: Path
) -> None:
    """A run reads whole folders, so a run for a finished file would also read the unfinished one."""
    corpus, stop = Corpus(tmp_path / "c.corpus", create=True), threading.Event()
    runs = watch(corpus, [folder], stop=stop, settled=1.0, processes=1)
    assert next(runs).added == 1
    whole = (samples / "flower.webm").read_bytes()

    def copy() -> None:
        (folder / "second.vtt").write_text(WORDS.format("the second film"))
        with (folder / "flower.webm").open("wb", buffering=0) as growing:
            for at in range(40):
                growing.write(whole[at : at + 1])
                time.sleep(0.1)
            growing.write(whole[40:])

    copying = threading.Thread(target=copy)
    copying.start()
    try:
        summary = next(runs)
    finally:
        copying.join()
        stop.set()
    assert (summary.added, summary.failed) == (2, [])


@pytest.mark.slow
def test_a_folder_that_may_not_be_read_for_a_moment_or_is_away_loses_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, real = Corpus(tmp_path / "c.corpus", create=True), os.scandir
    assert corpus.add(folder, prune=True, processes=1).added == 1

    def refused(path: Any = ".") -> Any:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refused)
        assert corpus.add(folder, prune=True, processes=1).pruned == []
    folder.rename(tmp_path / "away")
    assert corpus.add(folder, prune=True, processes=1).pruned == []
    assert len(corpus.videos()) == 1


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "c.corpus", create=True)
    with pytest.raises(UsageError, match="no such folder"):
        next(watch(corpus, [tmp_path / "nowhere"]))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_the_verb_says_what_came_and_ends_with_ctrl_c_and_sigterm(
    folder: Path, samples_corpus: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    shutil.copytree(samples_corpus, tmp_path / "c.corpus")
    command = [
        sys.executable,
        "-m",
        "whenabouts",
        "watch",
        str(folder),
        "--corpus",
        str(tmp_path / "c.corpus"),
    ]
    with subprocess.Popen(
        [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as ran:
        try:
            assert ran.stdout is not None and ran.stderr is not None
            assert json.loads(ran.stdout.readline())["added"] == 1
            (folder / "second.vtt").write_text(WORDS.format("the second film"))
            assert json.loads(ran.stdout.readline())["added"] == 1
            ran.send_signal(number)
            assert ran.wait(30) == code
            assert ran.stderr.read().endswith("stopped; run the same command to go on watching\n")
        finally:
            ran.kill()


def test_ctrl_c_in_an_index_run_ends_the_watching(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, stopped = Corpus(folder / "c.corpus", create=True), Summary(interrupted=True)
    monkeypatch.setattr(corpus, "add", lambda *paths, **options: stopped)
    assert list(watch(corpus, [folder])) == [stopped]


def test_a_link_to_itself_does_not_end_the_watching(folder: Path) -> None:
    (folder / "loop.mp4").symlink_to("loop.mp4")
    assert watching._may_matter(folder / "loop.mp4", folder / "c.corpus")
    assert not watching._may_matter(folder / "c.corpus" / "loop.mp4", folder / "c.corpus")


@pytest.mark.slow
def test_a_corpus_inside_its_folder_does_not_start_the_next_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, stop, add = list[Any](), threading.Event(), Corpus.add

    def counted(corpus: Corpus, *paths: Path, **options: Any) -> Any:
        runs.append(add(corpus, *paths, **options))
        threading.Timer(2.0, stop.set).start()
        return runs[-1]

    monkeypatch.setattr(Corpus, "add", counted)
    corpus = Corpus(folder / "c.corpus", create=True)
    assert [summary.added for summary in watch(corpus, [folder], stop=stop, settled=0.2, processes=1)] == [1]
    assert len(runs) == 1


@pytest.fixture
def recogniser(monkeypatch: pytest.MonkeyPatch) -> None:
    """A speech model under each name, which recognises one sentence in every file."""

    def transcribe(path: Path, model: str, **_: Any) -> CueTrack:
        return CueTrack((Cue(0.0, 1.0, f"This is {path.stem}.", (), 0.8),), f"speech:{model}", "en")

    monkeypatch.setattr(speech, "transcribe", transcribe)
    monkeypatch.setattr(speech_models, "load_recogniser", lambda model: None)
    for module in (speech_models, indexing):
        monkeypatch.setattr(module, "why_unavailable", lambda model=None: None)


@pytest.fixture
def interviews(tmp_path: Path, samples: Path) -> Path:
    """Two recordings without subtitles."""
    folder = tmp_path / "interviews"
    folder.mkdir()
    for name in ("flower.webm", "frog.webm"):
        shutil.copy(samples / name, folder / name)
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("recogniser", "unmeasured")
def test_a_replaced_interview_is_recognised_again_unless_that_is_refused(
    interviews: Path, tmp_path: Path
) -> None:
    corpus, film = Corpus(tmp_path / "c.corpus", create=True), interviews / "flower.webm"
    corpus.add(interviews, transcribe=True, processes=1)
    stop = threading.Event()
    runs = watch(corpus, [interviews], stop=stop, settled=0.2, processes=1)
    assert next(runs).unchanged == 2
    film.write_bytes(film.read_bytes() + b"a better version")
    assert (next(runs).updated, corpus.resolve("flower").words) == (1, f"speech:{PACKAGED}")
    stop.set()
    film.write_bytes(film.read_bytes() + b"a worse version")
    summary = next(watch(corpus, [interviews], settled=0.2, processes=1, transcribe=""))
    assert (summary.updated, corpus.resolve("flower").words) == (1, "")
    assert any("--transcribe" in note for note in summary.notes)


@pytest.mark.slow
@pytest.mark.usefixtures("recogniser", "unmeasured")
def test_speech_is_recognised_as_in_most_recordings_of_the_folders(interviews: Path, tmp_path: Path) -> None:
    corpus, flower = Corpus(tmp_path / "c.corpus", create=True), interviews / "flower.webm"
    assert usual_speech_model(corpus, [interviews]) == ""
    corpus.add(interviews, processes=1)
    corpus.add(flower, transcribe=True, processes=1)
    assert usual_speech_model(corpus, [interviews]) == ""
    assert usual_speech_model(corpus, [flower]) == PACKAGED
    corpus.add(interviews, transcribe=True, processes=1)
    assert usual_speech_model(corpus, [interviews]) == PACKAGED
    assert usual_speech_model(corpus, [tmp_path / "elsewhere"]) == ""
    assert usual_speech_model(corpus, [interviews], "de") == "", "the model knows English only"
    # A corpus may come from someone else, and name any folder as its model.
    corpus.add(interviews, transcribe=str(tmp_path), processes=1)
    assert corpus.resolve("frog").words == f"speech:{tmp_path}"
    assert usual_speech_model(corpus, [interviews]) == ""


@pytest.mark.parametrize("name", ["", "nowhere", "Systran/faster-whisper-small", "small"])
def test_a_model_that_is_unknown_or_not_here_is_not_used_unasked(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(speech_models, "why_unavailable", lambda model=None: None)
    assert not speech_models.is_known_here(name)
    assert speech_models.is_known_here(PACKAGED)


def test_the_verb_takes_the_options_of_index_that_say_how_words_are_read(
    folder: Path, samples_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def follow(corpus: Corpus, paths: list[Path], **options: Any) -> Iterator[Summary]:
        given.append(options)
        return iter(())

    monkeypatch.setattr(watch_verb, "watch", follow)
    command = ["watch", str(folder), "--corpus", str(samples_corpus)]
    options = [
        "--language",
        "de",
        "--sound-track",
        "2",
        "--meta-file",
        "facts.jsonl",
        "--transcribe",
        "small",
    ]
    assert main([*command, *options]) == main(command) == 0
    names = ("language", "sound_track", "metadata_file", "transcribe")
    assert given == [dict(zip(names, options[1::2], strict=True)), dict.fromkeys(names)]


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_a_film_that_comes_back_gets_its_metadata_from_the_file_again(folder: Path, tmp_path: Path) -> None:
    facts, corpus = tmp_path / "facts.jsonl", Corpus(tmp_path / "c.corpus", create=True)
    facts.write_text('{"path": "first.vtt", "title": "The first of all"}')
    (folder / "second.vtt").write_text(WORDS.format("the second film"))
    stop = threading.Event()
    runs = watch(corpus, [folder], stop=stop, settled=0.2, processes=1, metadata_file=facts)
    assert next(runs).added == 2
    (folder / "first.vtt").rename(tmp_path / "first.vtt")
    assert len(next(runs).pruned) == 1
    (tmp_path / "first.vtt").rename(folder / "first.vtt")
    assert (next(runs).added, corpus.resolve("first").title) == (1, "The first of all")
    stop.set()
