"""Pictures from the command line: real model classes with random weights, from folder to ranked moments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whenabouts import Corpus
from whenabouts.cli.main import main
from whenabouts.indexing import plan_index


@pytest.mark.slow
@pytest.mark.parametrize("family", ["clip_folder", "siglip_folder"])
def test_a_real_model_class_searches_pictures_from_the_command_line(
    family: str,
    request: pytest.FixtureRequest,
    samples: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = str(request.getfixturevalue(family))
    place = str(tmp_path / "seen.corpus")
    video = str(samples / "friday.mp4")
    assert main(["index", video, "--corpus", place, "--vision", model, "--processes", "1", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert not summary["failed"]
    assert not any("pictures are not searched" in note for note in summary["notes"])

    main(["search", "a woman in a top hat", "--corpus", place, "--stream", "vision", "--json"])
    found = json.loads(capsys.readouterr().out)["moments"]
    assert found
    assert all(set(moment["evidence"]) == {"vision"} for moment in found)

    # Random weights mean nothing, but the corpus remembers which they were and refuses others.
    other = str(request.getfixturevalue("siglip_folder" if family == "clip_folder" else "clip_folder"))
    assert main(["index", video, "--corpus", place, "--vision", other]) == 2
    told = capsys.readouterr().err
    assert "vision" in told and "was made with" in told
    assert plan_index(Corpus(place), [video]).unchanged == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "option", "stream"),
    [("clap_folder", "--sound", "sound"), ("qwen_folder", "--vision", "vision")],
)
def test_real_classes_that_hear_and_watch_are_searched_from_the_command_line(
    family: str,
    option: str,
    stream: str,
    request: pytest.FixtureRequest,
    samples: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, place = str(request.getfixturevalue(family)), str(tmp_path / "known.corpus")
    command = ["index", str(samples / "friday.mp4"), "--corpus", place, option, model, "--processes", "1"]
    assert main([*command, "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["failed"]
    main(["search", "glass breaks", "--corpus", place, "--stream", stream, "--json"])
    found = json.loads(capsys.readouterr().out)["moments"]
    assert found and all(set(moment["evidence"]) == {stream} for moment in found)
    # The same folder with other weights is another model: what is there is not mixed with it.
    other = str(request.getfixturevalue("fused_clap_folder" if stream == "sound" else "clip_folder"))
    assert main([*command[:-3], other, "--processes", "1"]) == 2
    assert "was made with" in capsys.readouterr().err
