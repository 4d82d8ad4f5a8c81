"""`whenabouts calibrate --checkpoint`: what is kept and told, and every kind of bad input."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_run import QUERIES, saved, write_features, write_pools

from whenabouts.cli.configuration import parse_with_files
from whenabouts.cli.main import build_parser
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_systems.cli.calibrate import run
from whenabouts_systems.models.staged import fingerprint_of
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.answerability import with_drawn_pools
from whenabouts_systems.ranking.confidence import Background, load_confidence


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every query is true of all of its video, so that some random answers are right."""
    folder = write_features(tmp_path_factory.mktemp("calibrate") / "features")
    lines = [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]
    whole = [{**line, "ts": [0, line["duration"]]} for line in lines]
    (folder / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in whole))
    return folder


@pytest.fixture
def checkpoint(features: Path, tmp_path: Path) -> Path:
    return saved(features, tmp_path / "trained")


@pytest.fixture
def pools(tmp_path: Path) -> Path:
    return write_pools(tmp_path / "pools.json")


def calibrated(*arguments: object) -> str:
    """What the command prints."""
    options = build_parser(["calibrate"]).parse_args(["calibrate", "--device", "cpu", *map(str, arguments)])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert options.run(options) == 0
    return out.getvalue()


def test_a_file_may_set_options_of_both_kinds_of_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "whenabouts.toml").write_text('[calibrate]\niou = 0.3\nqueries = "known.jsonl"\n')

    def parsed(*words: str) -> Any:
        arguments = ("calibrate", *words)
        return parse_with_files(build_parser(["calibrate"]), arguments, "calibrate")

    assert run(parsed("--corpus", "a.corpus")) is None
    with pytest.raises(UsageError, match="--raw is for the calibration of a --checkpoint"):
        run(parsed("--corpus", "a.corpus", "--raw", "top"))
    trained = ("--checkpoint", str(tmp_path), "--features", str(tmp_path))
    with pytest.raises(WhenaboutsError, match=r"(?s)^(?!.*--queries and --check are for a corpus)"):
        run(parsed(*trained))
    with pytest.raises(UsageError, match="--queries and --check are for a corpus"):
        run(parsed(*trained, "--queries", "other.jsonl"))


@pytest.mark.slow
def test_a_calibration_is_kept_beside_the_weights_and_told(
    features: Path, checkpoint: Path, pools: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    asked = ("--checkpoint", checkpoint, "--features", features, "--pools", pools, "--iou", 0.01)
    told: dict[str, Any] = json.loads(calibrated(*asked, "--out", tmp_path / "figures", "--json"))
    kept = load_confidence(checkpoint, Trained.from_pretrained(checkpoint).fingerprint)
    assert kept is not None
    assert (kept.definition, kept.iou, len(kept.unrelated)) == ("margin", 0.01, QUERIES)
    assert told["about"] == dict(kept.about)
    assert told["about"]["split"] == "validation, pools of pools.json"
    assert told["about"]["answerable"] + told["about"]["unanswerable"] == 2 * QUERIES
    assert [Path(name).name for name in told["files"]] == [
        "calibration.json",
        "confidence.svg",
        "confidence.png",
        "confidence.json",
    ]
    assert all(Path(name).is_file() for name in told["files"])
    table = calibrated(*asked, "--raw", "top", "--method", "isotonic", "--table")
    for words in ("isotonic on top", "AUROC of answerable against unanswerable", "risk and coverage"):
        assert words in table


@pytest.mark.slow
def test_a_system_that_answers_windows_is_calibrated_with_what_chooses_its_videos(
    features: Path, checkpoint: Path, pools: Path, tmp_path: Path
) -> None:
    saved(features, tmp_path / "windows", system="qd_detr")
    stages = {"format": 1, "retriever": checkpoint.name, "localizer": "windows"}
    (tmp_path / "system.json").write_text(json.dumps(stages))
    calibrated("--checkpoint", tmp_path, "--features", features, "--pools", pools, "--iou", 0.01, "--json")
    retriever, localizer = (Trained.from_pretrained(place) for place in (checkpoint, tmp_path / "windows"))
    kept = load_confidence(tmp_path, fingerprint_of(localizer.fingerprint, retriever.fingerprint))
    assert kept is not None
    sure = kept.of_scores([0.0, 100.0], Background(0.0, 1.0))
    assert 0 <= sure[0] <= sure[1] <= 1


def test_without_pools_some_are_drawn_and_the_same_ones_for_a_seed(features: Path, checkpoint: Path) -> None:
    asked = ("--checkpoint", checkpoint, "--features", features, "--iou", 0.01, "--pool-size", 2, "--json")
    first = calibrated(*asked)
    assert json.loads(first)["about"]["pool_size"] == 2
    assert calibrated(*asked) == first


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--features", "FEATURES"), "--features is for the calibration of a --checkpoint"),
        (("--pool-size", "5"), "--pool-size is for the calibration of a --checkpoint"),
        (("--split", "test"), "--split is for the calibration of a --checkpoint"),
        (("--iou", "0.3"), "--iou is for the calibration of a --checkpoint"),
        (("--raw", "top"), "--raw is for the calibration of a --checkpoint"),
        (("--checkpoint", "RUN"), "--checkpoint needs --features DIR"),
        (("--checkpoint", "gone", "--features", "FEATURES"), "--checkpoint gone: no such folder"),
        (("--checkpoint", "RUN", "--features", "FEATURES", "--iou", "1.5"), r"--iou 1\.5: accepted"),
        (
            ("--checkpoint", "RUN", "--features", "FEATURES", "--queries", "q"),
            "--queries and --check are for",
        ),
        (("--checkpoint", "RUN", "--features", "FEATURES", "--check", "m"), "--queries and --check are for"),
        (("--checkpoint", "RUN", "--features", "FEATURES", "--split", "val"), "--split 'val': accepted"),
        (("--checkpoint", "RUN", "--features", "FEATURES", "--pool-size", "1"), "a pool needs 2 or more"),
        (("--checkpoint", "RUN", "--features", "FEATURES", "--pool-size", "0"), "a pool needs 2 or more"),
        (
            ("--checkpoint", "RUN", "--features", "FEATURES", "--pools", "POOLS", "--pool-size", "3"),
            "--pool-size is for pools that are drawn",
        ),
    ],
)
def test_what_cannot_be_calibrated_is_said_in_a_line(
    features: Path, checkpoint: Path, arguments: tuple[str, ...], problem: str
) -> None:
    places = {"FEATURES": features, "RUN": checkpoint}
    with pytest.raises(UsageError, match=problem) as caught:
        calibrated(*(places.get(one, one) for one in arguments))
    assert "\n" not in str(caught.value)
    assert not (checkpoint / "calibration.json").exists()


def test_pools_with_unknown_videos_leave_the_calibration_that_was_there(
    features: Path, checkpoint: Path, pools: Path, tmp_path: Path
) -> None:
    asked = ("--checkpoint", checkpoint, "--features", features, "--iou", 0.01)
    calibrated(*asked, "--pools", pools, "--json")
    before = (checkpoint / "calibration.json").read_bytes()
    strange = write_pools(tmp_path / "strange.json", retrieval_pool=["v0", "v9"])
    with pytest.raises(UsageError, match=r"strange\.json: the pool of query 'v0#0' names video 'v9'"):
        calibrated(*asked, "--pools", strange)
    assert (checkpoint / "calibration.json").read_bytes() == before


def test_a_calibration_is_kept_even_if_its_diagrams_cannot_be_written(
    features: Path, checkpoint: Path, pools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "figures").touch()
    asked = ("--checkpoint", "~/trained", "--features", features, "--pools", pools, "--iou", 0.01)
    with pytest.raises(WhenaboutsError, match="figures"):
        calibrated(*asked, "--out", tmp_path / "figures")
    assert load_confidence("~/trained", Trained.from_pretrained(checkpoint).fingerprint) is not None
    assert (checkpoint / "calibration.json").is_file()


@pytest.mark.parametrize(("size", "told"), [(None, "50"), ("99999", "99,999"), ("5", "")])
def test_pools_larger_than_the_split_are_told(
    features: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, size: str | None, told: str
) -> None:
    """What the pools do to a calibration is not asked here: this random system is right too seldom in all."""

    def drawn(annotations: Annotations, wanted: int, seed: int) -> Annotations:
        assert wanted == int(size or 50)
        return with_drawn_pools(annotations, 2, seed)

    monkeypatch.setattr("whenabouts_systems.cli.work.calibrate.with_drawn_pools", drawn)
    asked = ("--checkpoint", checkpoint, "--features", features, "--iou", 0.01, "--json")
    notes = json.loads(calibrated(*asked, *(("--pool-size", size) if size else ())))["notes"]
    expected = f"pools of {told} videos are impossible: validation has 5, and each pool held all"
    assert notes == ([expected] if told else [])


def test_odd_judgements_of_the_pools_are_told(features: Path, checkpoint: Path, pools: Path) -> None:
    told = json.loads(pools.read_text())
    entry = next(iter(told.values()))
    entry["retrieval_pool"][0].append(entry["retrieval_pool"][0][0])
    pools.write_text(json.dumps(told))
    asked = ("--checkpoint", checkpoint, "--features", features, "--pools", pools, "--iou", 0.01)
    assert f"{pools}: videos come twice in a pool: 1" in calibrated(*asked, "--table")
