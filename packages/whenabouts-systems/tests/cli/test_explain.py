"""`whenabouts explain` as a person meets it: text, JSON, picture, one-line errors."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.small_split import save_run, write_split
from tests.small_systems import Letters, small_xml, write_talk
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_systems.cli import explain

Called = Callable[..., int]


def called(*more: str) -> int:
    parser = argparse.ArgumentParser()
    explain.add_parser(parser.add_subparsers())
    options = parser.parse_args(["explain", *more])
    return int(options.run(options))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the split's features and two checkpoints."""
    folder = tmp_path_factory.mktemp("explain")
    write_split(folder / "features")
    for seed in (0, 1):
        save_run(folder / "features", folder / f"run{seed}", seed)
    return folder


@pytest.fixture
def of_split(place: Path) -> Called:
    """Calls the command on the first checkpoint."""

    def call(*more: str) -> int:
        return called(
            "--checkpoint",
            str(place / "run0"),
            "--features",
            str(place / "features"),
            "--device",
            "cpu",
            *more,
        )

    return call


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three transcripts, indexed, whose encoder every command finds."""
    (tmp_path / "talks").mkdir()
    for number in range(3):
        write_talk(tmp_path / "talks", number)
    with uncalibrated():
        Corpus(tmp_path / "c", encoders=[Letters()], create=True).add(
            tmp_path / "talks", text=Letters(), processes=1
        )
    small_xml().save_pretrained(tmp_path / "run")
    small_xml(1).save_pretrained(tmp_path / "other")
    monkeypatch.setattr(
        "whenabouts_systems.cli.work.explain.open_corpus",
        lambda options: Corpus(options.corpus, create=False, encoders=[Letters()]),
    )
    return tmp_path


def test_a_query_of_a_data_set_is_told_as_text(of_split: Called, capsys: Any) -> None:
    assert of_split("--query-id", "q1", "--table", "-k", "2") == 0
    out = capsys.readouterr().out
    assert out.startswith("query q1: “the red door.”\ntruth: v1@0:02.000-0:05.000\n")
    assert "run0 (xml)" in out
    assert "  vision: " in out
    assert "  the truth starts at 0:02.000: " in out
    assert "\n  2. " in out
    assert "\n  3. " not in out


def test_json_and_the_picture_come_together(of_split: Called, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "pictures" / "why.png"
    assert of_split("the red door", "--out", str(out), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["query_id"], told["video_id"]) == ("q1", "v1")
    assert len(told["systems"][0]["moments"]) == 5
    assert out.read_bytes().startswith(b"\x89PNG")


def test_two_checkpoints_are_told_side_by_side(of_split: Called, place: Path, capsys: Any) -> None:
    assert of_split("--query-id", "q0", "--other", str(place / "run1"), "--json") == 0
    first, second = json.loads(capsys.readouterr().out)["systems"]
    assert (first["name"], second["name"]) == ("run0", "run1")
    assert first["heard"] != second["heard"]


def test_a_checkpoint_is_compared_with_and_without_a_retriever(
    of_split: Called, place: Path, capsys: Any
) -> None:
    pair = ("--retriever", str(place / "run1"), "--other", str(place / "run0"))
    assert of_split("--query-id", "q0", *pair, "--json") == 0
    first, second = json.loads(capsys.readouterr().out)["systems"]
    assert (first["system"], second["system"]) == ("xml + xml", "xml")


def test_a_checkpoint_without_an_experiment_is_compared_on_other_features(
    place: Path, tmp_path: Path, capsys: Any
) -> None:
    bare, features = str(tmp_path / "bare"), str(place / "features")
    shutil.copytree(place / "run0", bare, ignore=shutil.ignore_patterns("experiment.toml"))
    twice = ("--checkpoint", bare, "--features", features, "--other", bare, "--other-features", features)
    experiment = ("--experiment", str(place / "run0" / "experiment.toml"))
    assert called(*twice, *experiment, "--query-id", "q0", "--device", "cpu", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["systems"]) == 2


@pytest.mark.slow
def test_a_query_to_a_corpus_is_told(corpus: Path, capsys: Any) -> None:
    arguments = ["the penguin moves", "--corpus", str(corpus / "c"), "--model", str(corpus / "run")]
    assert called(*arguments, "--json", "--other", str(corpus / "other")) == 0
    told = json.loads(capsys.readouterr().out)
    first, second = told["systems"]
    assert (first["name"], second["name"]) == ("run", "other")
    assert told["truth"] == []
    assert told["query_id"] is None
    # The letters' encoder tells no pieces, and it reads a token more than there are words.
    assert first["heard"]["words"] == ["token 1", "token 2", "token 3", "token 4"]
    assert first["moments"][0]["iou"] is None
    assert told["video_id"] == first["moments"][0]["video_id"]
    assert called(*arguments, "--table", "--moment", "talk_001.vtt@10-15") == 0
    assert "the truth starts at 0:10.000" in capsys.readouterr().out


@pytest.mark.slow
def test_frames_and_words_of_a_video_are_drawn_and_told(corpus: Path, samples: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    video = corpus / "nasa_13013.mp4"
    for name in (video.name, "nasa_13013.srt"):
        shutil.copy(samples / name, corpus / name)
    with uncalibrated():
        Corpus(corpus / "c", encoders=[Letters()]).add(video, text=Letters(), processes=1)
    arguments = ["the largest cleanrooms", "--corpus", str(corpus / "c"), "--model", str(corpus / "run")]
    arguments += ["--video", video.name, "--json"]
    drawn = ["--out", str(corpus / "why.png")]

    def told(*more: str) -> Any:
        assert called(*arguments, *more) == 0
        return json.loads(capsys.readouterr().out)

    whole = told(*drawn)
    assert len(whole["frames"]) == 8
    assert any("largest cleanrooms" in one["text"] for one in whole["words"])
    assert whole["notes"] == []
    assert told()["frames"] == []  # nothing is drawn
    video.unlink()
    less = told(*drawn, "--force")
    assert less["frames"] == []
    assert less["words"] == whole["words"]
    assert "is gone" in less["notes"][0]


def test_a_query_of_a_data_set_has_neither_frames_nor_words(of_split: Called, capsys: Any) -> None:
    assert of_split("--query-id", "q1", "--json") == 0
    assert not {"frames", "words", "notes"} & set(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give one system"),
        (["--checkpoint", "a", "--model", "b"], "give one system"),
        (["--checkpoint", "a"], "--checkpoint needs --features"),
        (["--checkpoint", "a", "--features", "b", "--moment", "v@1-2"], "--moment is for --model"),
        (["x", "--model", "a", "--query-id", "q"], "--query-id is for --checkpoint"),
        (["x", "--model", "a", "--other-features", "q"], "--other-features is for --checkpoint"),
        (
            ["--checkpoint", "a", "--features", "b", "--other-features", "c"],
            "--other-features is for --other",
        ),
        (["--model", "a", "--corpus", "c"], "--model needs a query"),
        (["--checkpoint", "/none", "--features", "b"], "no such folder"),
        (["--checkpoint", "a", "--features", "b", "--out", "why.gif"], ".png, .svg, .pdf"),
    ],
)
def test_what_cannot_be_told_is_refused_with_the_remedy(arguments: list[str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        called(*arguments)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_checkpoint_without_an_experiment_names_the_option(place: Path, tmp_path: Path) -> None:
    small_xml().save_pretrained(tmp_path / "bare")
    with pytest.raises(WhenaboutsError, match="--experiment"):
        called(
            "--checkpoint", str(tmp_path / "bare"), "--features", str(place / "features"), "--query-id", "q0"
        )


def test_a_picture_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the name of a figure"):
        called("--checkpoint", str(tmp_path / "none"), "--features", "x", "--out", str(tmp_path / "a.txt"))
    pytest.importorskip("matplotlib")
    kept = tmp_path / "a.png"
    kept.write_bytes(b"drawn before")
    given = ("--checkpoint", str(tmp_path / "none"), "--features", "x", "--out", str(kept))
    with pytest.raises(UsageError, match=r"a\.png: is there already; give another name, or --force"):
        called(*given)
    with pytest.raises(UsageError, match="no such folder"):
        called(*given, "--force")
    assert kept.read_bytes() == b"drawn before"
