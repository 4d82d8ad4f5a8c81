"""What the project made when it was called cuepoint is still opened: corpora, runs, features, pairs.

`made_by_cuepoint/` was written by cuepoint 0.1.0.dev0, the last commit of that name.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from whenabouts.cli.main import main
from whenabouts.corpus import Corpus
from whenabouts_bench.relevance.pairs import RelevantPairs
from whenabouts_systems.features import open_features
from whenabouts_systems.features.layouts.store import content_hash
from whenabouts_systems.models.trained import Trained

MADE = Path(__file__).parents[1] / "packages" / "whenabouts" / "tests" / "made_by_cuepoint"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MADE / "talks_corpus", tmp_path / "talks.corpus"))


@pytest.mark.slow
def test_a_corpus_is_searched_and_takes_more(corpus: Path, tmp_path: Path) -> None:
    opened = Corpus(corpus)
    best = opened.search("the penguin moves to the north", k=1).moments[0].moment
    assert best.video_id.startswith("talk_001") and best.start <= 12 < best.end
    more = tmp_path / "more.vtt"
    more.write_text("WEBVTT\n\n00:01.000 --> 00:05.000\nThe volcano erupted on Sunday.\n")
    assert opened.add(more).added == 1
    assert Corpus(corpus).search("an eruption on Sunday", k=1).moments[0].moment.video_id.startswith("more")


@pytest.mark.parametrize("name", ["query_features", "vision_features"])
@pytest.mark.parametrize("layout", ["cuepoint", "whenabouts", None])
def test_a_feature_store_has_the_fingerprint_it_had(name: str, layout: str | None) -> None:
    with open_features(MADE / name, layout=layout) as features:
        assert features.layout == "whenabouts"
        content = content_hash((item, np.asarray(features.get(item))) for item in features.ids())
    assert json.loads((MADE / name / "fingerprint.json").read_text())["content"] == content


def test_a_training_is_opened_and_answers(tmp_path: Path) -> None:
    assert Trained.from_pretrained(MADE / "run").system == "xml"
    run = shutil.copytree(MADE / "run", tmp_path / "run")
    data = tmp_path / "data"
    shutil.copytree(MADE, data)
    experiment = (data / "tiny.toml").read_text().replace("query.h5", "query_features")
    (data / "tiny.toml").write_text(experiment.replace("vision.h5", "vision_features"))
    out = tmp_path / "run.jsonl"
    inputs = ["--features", str(data), "--split", "test", "--experiment", str(data / "tiny.toml")]
    assert main(["run", "--checkpoint", str(run), *inputs, "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 8


def test_relevant_pairs_are_read() -> None:
    assert len(RelevantPairs.open(MADE / "pairs.safetensors").query_ids) == 8
