"""End to end on real files: from a folder to ranked moments, in Python and on the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from whenabouts import Corpus, Moment
from whenabouts.cli.main import main
from whenabouts.indexing import plan_index


@pytest.mark.parametrize(
    ("query", "video", "instant"),
    [
        ("space telescope", "nasa_13013.mp4", 6.0),
        ("a huge room that is very clean", "nasa_13013.mp4", 6.0),
        ("crown jewels were stolen", "friday.mp4", 5.0),
        ("greeting someone by name", "friday.mp4", 0.5),
        ("Goddard Space Flight Center", "nasa_13013.mp4", 9.5),
    ],
)
def test_what_is_said_is_found(samples_corpus: Path, query: str, video: str, instant: float) -> None:
    result = Corpus(samples_corpus, create=False).search(query, k=3, within=video)
    best = result.moments[0]
    assert result.name(best) == video
    assert best.moment.start <= instant <= best.moment.end
    assert best.evidence["subtitle"].text


def test_the_command_line_and_python_give_equal_answers(
    samples_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = Corpus(samples_corpus, create=False).search("the telescope in the cleanroom", k=4)
    code = main(
        ["search", "the telescope in the cleanroom", "--corpus", str(samples_corpus), "-k", "4", "--json"]
    )
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(expected.to_json()))
    assert code == (1 if expected.answer == "no_match" else 0)


def test_a_second_run_has_nothing_to_do(samples_corpus: Path, samples: Path) -> None:
    corpus = Corpus(samples_corpus)
    plan = plan_index(corpus, [samples])
    assert not plan.work
    assert plan.unchanged == 8


@pytest.fixture(scope="module")
def seen_corpus(
    tmp_path_factory: pytest.TempPathFactory, samples_corpus: Path, samples: Path, planted: Any
) -> Corpus:
    """The sample videos, indexed first by their words and then also by their pictures."""
    place = tmp_path_factory.mktemp("seen") / "samples.corpus"
    corpus = Corpus(shutil.copytree(samples_corpus, place))
    summary = corpus.add(samples, vision=planted, clip_seconds=0.5, processes=1)
    assert summary.updated == 7
    assert summary.added == 0
    return corpus


@pytest.mark.slow
def test_what_is_seen_is_found_once_there_is_an_encoder(
    seen_corpus: Corpus, sample_queries: Sequence[dict[str, Any]]
) -> None:
    overlaps = []
    for query in sample_queries:
        result = seen_corpus.search(query["query"], k=1, streams="vision")
        best = result.moments[0].moment
        truth = Moment(best.video_id, query["start"], query["end"])
        right = result.name(result.moments[0]) == query["video"]
        overlaps.append(best.iou(truth) if right else 0.0)
    assert sum(overlap >= 0.5 for overlap in overlaps) >= 0.9 * len(overlaps), overlaps


@pytest.mark.slow
def test_one_box_asks_words_and_pictures_and_says_which_matched(seen_corpus: Corpus) -> None:
    said = seen_corpus.search("crown jewels were stolen", k=1).moments[0]
    seen = seen_corpus.search("a red flower bud opens", k=1).moments[0]
    assert "subtitle" in said.evidence
    assert "vision" in seen.evidence


@pytest.mark.slow
def test_adding_pictures_left_the_words_alone(seen_corpus: Corpus) -> None:
    record = seen_corpus.resolve("friday.mp4")
    assert record.words == "sidecar:friday.vtt"
    assert set(record.streams) == {"subtitle", "vision"}


@pytest.mark.slow
def test_searching_words_from_the_command_line_imports_no_torch(samples_corpus: Path) -> None:
    code = (
        "import sys; from whenabouts.cli.main import main; "
        f"main(['search', 'telescope', '--corpus', {str(samples_corpus)!r}, '--json']); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["moments"]


@pytest.mark.slow
def test_borders_of_seen_moments_snap_to_shots(seen_corpus: Corpus) -> None:
    record = seen_corpus.resolve("nasa_13013.mp4")
    assert record.shots
    query = "the dark hall again, closer, with the telescope mirror and a worker in a red lift"
    best = seen_corpus.search(query, k=1, streams="vision").moments[0].moment
    cut = min(record.shots, key=lambda border: abs(border - 8.2))
    assert abs(cut - 8.2) < 0.5
    assert best.start == pytest.approx(cut)
