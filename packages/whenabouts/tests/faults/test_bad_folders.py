"""Folders as they are found in the world: a bad file never stops the rest, and is named with its cause."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from whenabouts.index.records import NewerCorpus, StreamInfo
from whenabouts.index.store import Store

BAD_BYTES = os.fsdecode(b"caf\xe9 'n\" two\nlines.vtt")
VTT = "WEBVTT\n\n00:00:01.000 --> 00:00:03.000\nWhat is said in {}.\n"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    """One of each: broken, disguised, strangely named, looping."""
    folder = tmp_path_factory.mktemp("hostile")
    shutil.copy(samples / "friday.mp4", folder / "good video.mp4")
    shutil.copy(samples / "friday.vtt", folder / "good video.vtt")
    (folder / "zero.mp4").write_bytes(b"")
    whole = (samples / "car-detection.mp4").read_bytes()
    (folder / "truncated.mp4").write_bytes(whole[: len(whole) // 2])
    flower = (samples / "flower.webm").read_bytes()
    (folder / "truncated.webm").write_bytes(flower[: len(flower) // 2])
    middle = len(whole) // 2
    (folder / "corrupt.mp4").write_bytes(whole[:middle] + b"\xa5" * 50_000 + whole[middle + 50_000 :])
    (folder / "text.mp4").write_text("These are words and not a film.\n" * 20)
    (folder / "noise.mkv").write_bytes(bytes(range(256)) * 50)
    (folder / "empty.vtt").write_bytes(b"")
    (folder / "no subtitles.srt").write_text("nothing that has a time in it\n")
    (folder / "loop").symlink_to(folder)
    (folder / "self.mp4").symlink_to(folder / "self.mp4")
    (folder / "gone.mp4").symlink_to(folder / "nowhere.mp4")
    (folder / "a b 'c' \"d\" [e] $f.vtt").write_text(VTT.format("quotes"))
    (folder / ("n" * 240 + ".vtt")).write_text(VTT.format("a long name"))
    (folder / BAD_BYTES).write_text(VTT.format("bytes"))
    return folder


@pytest.mark.slow
def test_a_hostile_folder_is_indexed_as_far_as_it_can_be(
    hostile: Path, tmp_path: Path, here: Any, unmeasured: None
) -> None:
    place = tmp_path / "corpus"
    far_too_long = hostile / ("x" * 4000 + ".mp4")
    done = here("index", hostile, far_too_long, "--corpus", place, "--shots", "--json", "--processes", "1")
    assert done.code == 0, done.err
    summary = done.json
    failed = {Path(one["path"]).name: one["error"] for one in summary["failed"]}
    assert {"zero.mp4", "text.mp4", "noise.mkv", "no subtitles.srt"} <= failed.keys()
    assert "empty" in failed["zero.mp4"]
    assert "text" in failed["text.mp4"]
    damaged = {Path(one["path"]).name for one in summary["damaged"]}
    assert "truncated.webm" in damaged
    assert "corrupt.mp4" in damaged | failed.keys()
    assert "truncated.mp4" in damaged | failed.keys()
    left_out = {Path(one["path"]).name[:9]: one["why"] for one in summary["left_out"]}
    assert "too long" in left_out["x" * 9]
    assert "link" in left_out["gone.mp4"]
    good = {Path(record.path).name for record in Store.open(place).videos() if record.state == "done"}
    assert {"good video.mp4", "a b 'c' \"d\" [e] $f.vtt", "n" * 240 + ".vtt", BAD_BYTES} <= good
    found = here("search", "what is said in bytes", "--corpus", place, "--json")
    assert "caf" in found.json["moments"][0]["path"]
    # The table for people names them too, and --retry takes only these.
    again = here("index", "--retry", "--corpus", place, "--table")
    assert f"{len(failed)} failed" in again.out
    assert all(name in again.out for name in failed)
    assert "0 unchanged" in again.out


@pytest.mark.slow
def test_a_file_without_permission_is_named_and_the_rest_is_done(tmp_path: Path, program: Any) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "a.vtt").write_text(VTT.format("public"))
    (folder / "b.vtt").write_text(VTT.format("secret"))
    (folder / "b.vtt").chmod(0)
    command = [
        sys.executable,
        "-m",
        "whenabouts",
        "index",
        str(folder),
        "--corpus",
        str(tmp_path / "c"),
        "--json",
    ]
    if os.getuid() == 0:
        # Root reads everything, unless it gives that right up (CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH).
        if shutil.which("setpriv") is None:
            pytest.skip("root can read every file, and setpriv is not here to give up that right")
        caps = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--bounding-set={caps}", f"--inh-caps={caps}", "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["added"] == 1
    told = [*summary["left_out"], *summary["failed"]]
    assert [Path(one["path"]).name for one in told] == ["b.vtt"]
    assert "permission" in str(told)


def test_nothing_to_index_is_said_and_is_an_error(tmp_path: Path, here: Any) -> None:
    folder = tmp_path / "nothing here"
    folder.mkdir()
    (folder / "notes.txt").write_text("no film")
    done = here("index", folder, tmp_path / "missing", "--corpus", tmp_path / "corpus", "--json")
    assert done.code == 2
    assert "nothing to index in" in done.err
    assert "missing" in done.err
    assert not done.out
    assert not (tmp_path / "corpus").exists()


@pytest.mark.slow
def test_a_corpus_among_its_videos_is_no_video(tmp_path: Path, here: Any) -> None:
    (tmp_path / "a.vtt").write_text(VTT.format("a"))
    place = tmp_path / "my.corpus"
    Store.open(place, create=True)
    done = here("index", tmp_path, place, "--corpus", place, "--json")
    assert done.code == 0
    assert (done.json["added"], done.json["failed"], done.json["left_out"]) == (1, [], [])
    inside = here("index", place, "--corpus", place, "--json")
    assert inside.code == 2
    assert "nothing to index" in inside.err


def test_a_place_that_cannot_hold_a_corpus_is_named(tmp_path: Path, here: Any) -> None:
    (tmp_path / "a.vtt").write_text(VTT.format("a"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    for place, why in (
        (tmp_path / "a.vtt", "is a file"),
        (tmp_path / "a.vtt" / "corpus", "Not a directory"),
        (tmp_path / "full", "thesis.txt"),
        (Path("/proc/corpus"), "No such file"),
    ):
        done = here("index", tmp_path / "a.vtt", "--corpus", place)
        assert done.code == 2, place
        assert str(place) in done.err
        assert why in done.err
        assert stat.S_ISREG((tmp_path / "a.vtt").stat().st_mode)


@pytest.mark.parametrize("given", [(), ("--text", "minilm")])
def test_a_corpus_of_another_encoder_is_left_alone(tmp_path: Path, here: Any, given: tuple[str, ...]) -> None:
    place = tmp_path / "corpus"
    store = Store.open(place, create=True)
    store.add_stream(StreamInfo("subtitle", "acme-encoder", "acme@1", 8))
    (tmp_path / "a.vtt").write_text(VTT.format("a"))
    done = here("index", tmp_path / "a.vtt", "--corpus", place, *given)
    assert done.code == 2
    assert "acme-encoder" in done.err
    assert str(place) in done.err
    assert ("new corpus" if given else "cannot be used here") in done.err
    assert not Store.open(place).videos()


def test_a_corpus_of_a_newer_version_asks_for_an_upgrade(tmp_path: Path, here: Any) -> None:
    place = tmp_path / "corpus"
    store = Store.open(place, create=True)
    with contextlib.suppress(NewerCorpus):
        store._describe({"format": {"version": 99, "whenabouts": "9.9"}})
    (tmp_path / "a.vtt").write_text(VTT.format("a"))
    for arguments in (("index", tmp_path / "a.vtt"), ("search", "a")):
        done = here(*arguments, "--corpus", place)
        assert done.code == 2
        assert "upgrade whenabouts" in done.err
        assert "9.9" in done.err


def test_speech_that_cannot_be_recognised_is_said_before_anything_is_read(
    tmp_path: Path, here: Any, samples: Path
) -> None:
    model = tmp_path / "no model"
    model.mkdir()
    done = here("index", samples, "--corpus", tmp_path / "corpus", "--transcribe", model, "--json")
    assert done.code == 2
    assert str(model) in done.err or "whenabouts[speech]" in done.err
    assert not (tmp_path / "corpus").exists()
