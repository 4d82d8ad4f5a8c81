"""`whenabouts index` and `remove`: plans, output and exit codes."""

from __future__ import annotations

import argparse
import io
import operator
import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from whenabouts import indexing
from whenabouts.cli import index
from whenabouts.cli.main import main

Whenabouts = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("unmeasured")


@pytest.mark.parametrize("form", ["--table", "--json"])
def test_a_dry_run_says_the_plan_and_writes_nothing(
    bare: Whenabouts, samples: Path, tmp_path: Path, form: str
) -> None:
    place = tmp_path / "none.corpus"
    done = bare("index", str(samples), "--corpus", str(place), "--dry-run", form)
    assert done.code == 0
    assert not place.exists()
    assert list(tmp_path.iterdir()) == []
    assert "pictures are not searched" in done.out
    if form == "--json":
        plan = done.json
        assert plan["files"] == 8
        assert plan["hours"] == pytest.approx(0.0389, abs=0.002)
        assert plan["estimated_seconds"] > 0
        assert plan["estimated_bytes"] > 0
        assert plan["unchanged"] == 0


def test_files_are_chosen_by_pattern_by_links_and_by_their_pixels(
    bare: Whenabouts, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHENABOUTS_MAX_PIXELS", "35389440")  # --max-pixels changes it
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "linked").symlink_to(samples)
    plan = ("index", str(tmp_path / "in"), "--corpus", str(tmp_path / "none.corpus"), "--dry-run")
    whole = bare(*plan).json
    assert bare(*plan, "--exclude", "fri*").json["files"] == whole["files"] - 1
    assert "nothing to index" in bare(*plan, "--no-follow").err
    assert bare(*plan, "--follow").json["files"] == whole["files"]
    assert bare(*plan, "--max-pixels", "5").json["hours"] < whole["hours"] / 5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--sound-seconds", "5"), "give --sound MODEL as well"),
        (("--likeness-seconds", "5"), "give --likeness as well"),
        (("--clip-seconds", "5"), "give --vision MODEL as well"),
        (("--faces", "nowhere"), "holds 0 ONNX files"),
        (("--ray", "nowhere:1"), "--ray nowhere:1"),
    ],
)
def test_a_stream_that_cannot_be_made_is_refused(
    bare: Whenabouts, samples: Path, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    done = bare("index", str(samples / "friday.vtt"), "--corpus", str(tmp_path / "a.corpus"), *options)
    assert done.code == 2 and told in done.err


def test_speakers_of_subtitles_are_people(bare: Whenabouts, tmp_path: Path) -> None:
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:04.000\n<v Ada>good morning to all\n")
    place = str(tmp_path / "a.corpus")
    assert bare("index", str(tmp_path / "talk.vtt"), "--corpus", place, "--speakers").code == 0
    assert [person["name"] for person in bare("people", "--corpus", place).json] == ["Ada"]


def test_a_thread_may_index_though_only_the_main_one_may_handle_signals(tmp_path: Path) -> None:
    (tmp_path / "a.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nThe harbour\n")
    codes: list[int] = []
    command = ["index", str(tmp_path), "--corpus", str(tmp_path / "a.corpus"), "--dry-run"]
    thread = threading.Thread(target=lambda: codes.append(main(command)))
    thread.start()
    thread.join()
    assert codes == [0]


def test_a_run_its_repetition_a_failure_and_a_removal(
    bare: Whenabouts, samples: Path, tmp_path: Path
) -> None:
    folder, place = tmp_path / "in", str(tmp_path / "a.corpus")
    folder.mkdir()
    for name in ("friday.mp4", "friday.vtt"):
        shutil.copy(samples / name, folder)
    (folder / "broken.mp4").write_text("no video at all")
    first = bare("index", str(folder), "--corpus", place, "--processes", "1", "--meta", "speaker=Ada L.")
    assert first.code == 0  # one bad file never stops the rest
    assert first.json["added"] == 1
    (failed,) = first.json["failed"]
    assert failed["path"] == str(folder / "broken.mp4")
    assert failed["error"]
    assert bare("show", "friday", "--corpus", place).json["metadata"]["speaker"] == "Ada L."

    again = bare("index", str(folder), "--corpus", place, "--processes", "1", "--table")
    assert again.code == 0
    assert "0 added" in again.out and "unchanged" in again.out

    (folder / "broken.mp4").write_bytes((samples / "frog.webm").read_bytes())
    retried = bare("index", "--retry", "--corpus", place, "--processes", "1")
    assert (retried.code, retried.json["added"], retried.json["failed"]) == (0, 1, [])

    (tmp_path / "empty").mkdir()
    gone = bare("remove", "friday", "broken", "--corpus", place, "--cache", str(tmp_path / "empty"))
    assert (gone.code, gone.err) == (0, f"note: {tmp_path}/empty holds no files of `serve --cache`\n")
    assert [name.split("-")[0] for name in gone.json["removed"]] == ["friday", "broken"]
    assert (folder / "friday.mp4").is_file()
    assert bare("show", "--corpus", place).code == 1
    assert bare("remove", "friday", "--corpus", place).code == 2

    assert "until a file changes" in " ".join(bare("remove", "--help").out.split())
    shutil.copy(samples / "flower.webm", folder / "broken.mp4")
    changed = bare("index", str(folder), "--corpus", place, "--processes", "1")
    assert (changed.json["added"], changed.json["removed_before"]) == (1, 1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "what should be indexed"),
        (["--transcribe", "{samples}"], "videos was read as the MODEL of --transcribe: put it before"),
        (["--shots", "{samples}"], "videos was read as the FINDER of --shots: put it before"),
        (["{samples}", "--processes", "0"], "1 or more"),
        (["{samples}", "--meta", "speaker"], "KEY=VALUE"),
        (["{samples}", "--meta-file", "nowhere.jsonl"], "JSON lines"),
        (["{samples}", "--clip-seconds", "0"], "0.04"),
        (["{samples}", "--clip-seconds", "nan"], "0.04"),
        (["{samples}", "--text", "no/such model"], "no/such model"),
        (["{samples}", "--transcribe", "nowhere/model"], "nowhere/model"),
        (["nowhere.mp4"], "no such file"),
        (["{empty}"], "nothing to index"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    bare: Whenabouts,
    samples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    told: str,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    filled = [option.format(samples=samples, empty=tmp_path / "empty") for option in options]
    done = bare("index", *filled, "--corpus", str(tmp_path / "a.corpus"))
    assert done.code == 2
    assert told in done.err
    assert not done.out
    assert not (tmp_path / "a.corpus").exists()


def test_a_folder_that_was_there_stays_where_there_was_nothing_to_index(
    bare: Whenabouts, tmp_path: Path
) -> None:
    (place := tmp_path / "a.corpus").mkdir()
    for _ in range(2):
        assert bare("index", "nowhere.mp4", "--corpus", str(place)).code == 2
        assert place.is_dir()


def test_a_new_corpus_in_the_home_folder_goes_where_there_was_nothing_to_index(
    bare: Whenabouts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert bare("index", "nowhere.mp4", "--corpus", "~/a.corpus").code == 2
    assert not (tmp_path / "a.corpus").exists()


def test_an_empty_place_in_a_store_is_named_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    plan: Any = SimpleNamespace(files=0, gone=(), problems=())
    assert index._nothing(plan, argparse.Namespace(paths=["s3://films/new"], retry=False)) == 2
    assert "nothing to index in s3://films/new: there is no video" in capsys.readouterr().err


def test_files_that_failed_are_told_each_time(bare: Whenabouts, tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    command = ("index", str(tmp_path / "empty.mp4"), "--corpus", str(tmp_path / "a.corpus"), "--json")
    first, again = bare(*command), bare(*command)
    assert (first.code, len(first.json["failed"]), first.json["failed_before"]) == (2, 1, 0)
    assert (again.code, len(again.json["failed"]), again.json["failed_before"]) == (2, 0, 1)


def test_a_second_ctrl_c_leaves_no_part_of_a_new_corpus(
    bare: Whenabouts, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(folder: Path, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        delete(folder, **options)

    delete = shutil.rmtree
    monkeypatch.setattr(index, "_run", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(shutil, "rmtree", interrupted)
    assert bare("index", str(samples), "--corpus", str(tmp_path / "new.corpus")).code == 130
    assert not (tmp_path / "new.corpus").exists()


@pytest.mark.parametrize("step", ["build", "_remember", "Heartbeat.__exit__", "choices_of"])
def test_ctrl_c_at_any_step_of_a_run_still_tells_what_was_done(
    bare: Whenabouts, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupted(*args: Any, **options: Any) -> Any:
        done = carry_out(*args, **options)
        os.kill(os.getpid(), signal.SIGINT)
        return done

    carry_out = operator.attrgetter(step)(indexing)
    monkeypatch.setattr(f"whenabouts.indexing.{step}", interrupted)
    given = ("index", str(samples / "friday.vtt"), "--corpus", str(tmp_path / "a.corpus"), "--table")
    done = bare(*given)
    assert done.code == 130
    assert "run the same command to go on" in done.out
    monkeypatch.undo()
    assert bare(*given).code == 0


def test_retry_and_remove_need_a_corpus_that_is_there(bare: Whenabouts, tmp_path: Path) -> None:
    place = tmp_path / "none.corpus"
    for command in (["index", "--retry"], ["remove", "x"], ["stats"], ["show"]):
        done = bare(*command, "--corpus", str(place))
        assert done.code == 2
        assert str(place) in done.err
    assert not place.exists()


def test_another_encoder_for_the_same_words_is_refused(
    bare: Whenabouts, samples: Path, tmp_path: Path
) -> None:
    from whenabouts import Corpus

    class Other:
        name, fingerprint, dimension = "other", "other:1", 8

        def encode_text(self, texts: Sequence[str]) -> Any:
            import numpy as np

            return np.eye(8, dtype=np.float32)[[len(text) % 8 for text in texts]]

    place = tmp_path / "a.corpus"
    Corpus(place, create=True).add(samples / "friday.mp4", text=Other(), processes=1)
    done = bare("index", str(samples / "friday.mp4"), "--corpus", str(place), "--text", "minilm")
    assert done.code == 2
    assert "other" in done.err and "minilm" in done.err
    done = bare("search", "crown jewels", "--corpus", str(place))
    assert done.code == 2
    assert "other" in done.err


def test_the_terminal_shows_what_is_done_after_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    from whenabouts.cli.index import _Display
    from whenabouts.index.progress import Progress

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with _Display() as display:
        display.show(Progress(2, 3, 0.9, 1e6, 4.0, "friday.mp4"))
        display.show(Progress.after_files("measuring the scores of unrelated questions", 0.25, 3))
    last = terminal.getvalue().rpartition("measuring the scores of unrelated questions")[2]
    assert "25.0 %" in last
    assert "files" not in last and "friday.mp4" not in last and "left" not in last


def test_a_name_with_braces_is_shown_beside_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    from whenabouts.cli.terminal import counting_bar

    monkeypatch.setattr("sys.stderr", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with counting_bar("encoding videos with runs/{best}") as show:
        show(1, 2)
    assert "runs/{best}" in terminal.getvalue()


def test_in_a_pipe_there_is_no_bar(bare: Whenabouts, samples: Path, tmp_path: Path) -> None:
    command = ("index", str(samples / "friday.mp4"), "--corpus", str(tmp_path / "a"), "--processes", "1")
    told = bare(*command, "--table")
    assert told.code == 0
    first, second, *notes = told.err.splitlines()
    assert first.startswith("found 1 video") and "of processor time (at best" in second
    assert all(line.startswith("note: ") for line in notes)
    assert "\r" not in told.err and "\x1b" not in told.err
    assert bare(*command, "--json").err == ""


def test_a_mistyped_vision_model_ends_the_command_before_anything_is_indexed(
    bare: Whenabouts, samples: Path, tmp_path: Path
) -> None:
    place, model = str(tmp_path / "a.corpus"), str(tmp_path / "mistyped")
    video = str(samples / "friday.mp4")
    refused = bare("index", video, "--corpus", place, "--vision", model)
    assert refused.code == 2
    assert model in refused.err
    assert not Path(place).exists()
    done = bare(
        "index", video, "--corpus", place, "--vision", model, "--or-without", "--processes", "1", "--json"
    )
    assert done.code == 0
    assert done.json["added"] == 1
    assert any(model in note for note in done.json["notes"])
