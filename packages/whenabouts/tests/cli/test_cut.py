"""`whenabouts cut`: moments as video files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whenabouts.search.searcher import Searcher
from whenabouts.video.probe import probe

Whenabouts = Callable[..., Any]
SAID = "somebody has stolen the crown jewels"


@pytest.fixture(autouse=True)
def no_corpus_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHENABOUTS_CORPUS", raising=False)


def test_a_search_becomes_a_file(whenabouts: Whenabouts, tmp_path: Path) -> None:
    done = whenabouts("cut", SAID, "--within", "friday", "--out", tmp_path / "clips")
    (cut,) = done.json["cuts"]
    (made,) = (tmp_path / "clips").iterdir()
    assert cut["path"] == str(made) and made.name.startswith("friday_")
    assert probe(made).duration == pytest.approx(cut["duration"], abs=0.01)
    assert cut["frames"] == round(cut["duration"] * 30)


def test_a_question_of_nonsense_cuts_nothing(whenabouts: Whenabouts, tmp_path: Path) -> None:
    done = whenabouts("cut", "asdfgh", "--out", tmp_path)
    assert (done.code, done.out, list(tmp_path.iterdir())) == (1, "", [])
    assert "so nothing was written" in done.err


@pytest.mark.slow
def test_what_the_search_is_not_sure_of_is_cut_on_demand_only(
    whenabouts: Whenabouts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Searcher.search
    monkeypatch.setattr(
        Searcher, "search", lambda *a, **k: replace(search(*a, **k), answer="unsure", doubt="too few videos")
    )
    done = whenabouts("cut", SAID, "--within", "friday", "--out", tmp_path)
    assert done.code == 1 and list(tmp_path.iterdir()) == []
    assert "not sure: too few videos" in done.err and "--unsure" in done.err
    assert whenabouts("cut", SAID, "--within", "friday", "--out", tmp_path, "--unsure").code == 0
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_moments_are_cut_each_or_joined(whenabouts: Whenabouts, tmp_path: Path) -> None:
    moments = ("--moment", "friday@1-2", "--moment", "friday@1-2", "--moment", "flower@1-2")
    done = whenabouts("cut", *moments, "--out", tmp_path, "--table")
    assert done.code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "flower_1.000-2.000.mp4",
        "friday_1.000-2.000-2.mp4",
        "friday_1.000-2.000.mp4",
    ]
    assert "friday.mp4 0:01.000 - 0:02.000 (1.000 s, 30 frames)" in done.out
    joined = whenabouts("cut", *moments, "--join", "--out", tmp_path / "all.mp4").json["cuts"]
    assert {cut["path"] for cut in joined} == {str(tmp_path / "all.mp4")}
    assert any("scaled to 960x540" in note for note in joined[0]["notes"])
    assert probe(tmp_path / "all.mp4").duration == pytest.approx(3.0, abs=0.05)


def test_a_copy_says_where_it_really_begins(whenabouts: Whenabouts, tmp_path: Path) -> None:
    done = whenabouts("cut", "--moment", "friday@1-2", "--copy", "--out", tmp_path, "--table")
    assert "begins at a key frame: at 0.000 s, 1.000 s before 1.000 s" in done.out
    webm = whenabouts("cut", "--moment", "flower@1-2", "--copy", "--out", tmp_path).json["cuts"][0]
    assert webm["path"].endswith(".webm") and webm["start"] == pytest.approx(0.003)


def test_a_moment_of_a_file_needs_no_corpus(bare: Whenabouts, samples: Path, tmp_path: Path) -> None:
    sound = f"{samples / 'nasa_audio_only.mp3'}@3-4"
    (cut,) = bare("cut", "--moment", sound, "--out", tmp_path).json["cuts"]
    assert cut["path"].endswith(".m4a") and (cut["frames"], cut["duration"]) == (0, 1.0)
    results = {"moments": [{"path": str(samples / "friday.mp4"), "start": 1, "end": 1.5}]}
    (tmp_path / "results.json").write_text(json.dumps(results))
    (cut,) = bare("cut", "--from", tmp_path / "results.json", "--out", tmp_path / "one.mp4").json["cuts"]
    assert (cut["path"], cut["frames"]) == (str(tmp_path / "one.mp4"), 15)


@pytest.mark.slow
def test_what_is_there_already_is_left_and_told_before_any_work(
    whenabouts: Whenabouts, tmp_path: Path
) -> None:
    moments = ("--moment", "flower@1-1.5", "--moment", "friday@1-2")
    (tmp_path / "friday_1.000-2.000.mp4").write_bytes(b"mine")
    done = whenabouts("cut", *moments, "--out", tmp_path)
    assert done.code == 2 and "is there already" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["friday_1.000-2.000.mp4"]
    assert whenabouts("cut", *moments, "--out", tmp_path, "--force").code == 0


def test_a_cut_longer_than_the_video_says_so(whenabouts: Whenabouts, tmp_path: Path) -> None:
    done = whenabouts("cut", "--moment", "friday@5-1000", "--out", tmp_path, "--table")
    assert done.code == 0 and "behind the end of the file; cut up to 6.166 s" in done.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "which moments?"),
        (("--moment", "friday@1-2", "--join", "--copy"), "--copy cannot join"),
        (("--moment", "friday@1-2", "--moment", "flower@1-2", "--out", "x.mp4"), "one file, for 2 moments"),
        (("--moment", "friday@100-200"), "after the end of friday"),
        (("--moment", "with space.vtt@1-2"), "a transcript"),
        (("--moment", "friday@1-2", "--copy", "--out", "x.wav"), "cannot be copied into wav"),
    ],
)
def test_what_cannot_be_done_is_told(
    whenabouts: Whenabouts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = whenabouts("cut", *arguments)
    assert done.code == 2 and told in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(whenabouts: Whenabouts, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for out, told in (
        (tmp_path / "file", "is a file; --out takes a folder"),
        (tmp_path / "file" / "in", "there is no folder"),
    ):
        done = whenabouts("cut", "--moment", "friday@1-2", "--out", out)
        assert done.code == 2 and told in done.err


def test_ctrl_c_ends_with_nothing_half_written(
    whenabouts: Whenabouts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("whenabouts.video.encoding.MovieWriter.put_sound", stop)
    done = whenabouts("cut", "--moment", "friday@1-2", "--out", tmp_path)
    assert done.code == 130 and list(tmp_path.iterdir()) == []
