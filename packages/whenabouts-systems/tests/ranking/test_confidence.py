"""The calibration of a checkpoint: what it says, what is kept, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts.confidence.outcomes import risk_coverage
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.harness.rejection import auroc
from whenabouts_systems.ranking.answerability import Answerability
from whenabouts_systems.ranking.calibration import ENOUGH_FOR_ISOTONIC, TrainedReport, calibrated
from whenabouts_systems.ranking.confidence import FILE, Background, load_confidence


def made_up(count: int = 600, seed: int = 0, missing: int = 0) -> Answerability:
    """Made up: with an answer queries score higher, and the right ones highest."""
    rng = np.random.default_rng(seed)
    right = rng.random(count) < 0.6
    inside = rng.normal(0.0, 1.0, count) + 1.5 + right
    outside = rng.normal(0.0, 1.0, count)
    outside[:missing] = np.nan
    return Answerability(
        tuple(f"q{at}" for at in range(count)),
        right,
        {"in": 10 + 3 * inside, "out": 10 + 3 * outside},
        {"in": inside, "out": outside},
        tuple(f"v{at // 3}" for at in range(count)),
        tuple(f"sentence {at}" for at in range(12)),
        np.full(count, 50),
    )


def report(told: Answerability | None = None, **changes: Any) -> TrainedReport:
    settings: dict[str, Any] = {"split": "validation", "iou": 0.5, **changes}
    return calibrated(told or made_up(), "0123456789abcdef", "toy", **settings)


def test_confidence_is_the_share_of_first_answers_that_are_right() -> None:
    for method, apart in (("temperature", 0.1), ("isotonic", 0.05)):
        found = report(made_up(4000), method=method)
        assert found.error < apart / 2
        for one in found.bins:
            if one.count > 400:
                assert one.confidence == pytest.approx(one.right, abs=apart)


def test_the_numbers_of_a_report_are_those_of_their_definitions() -> None:
    told = made_up(missing=7)
    found = report(told)
    about = found.confidence.about
    assert (about["answerable"], about["unanswerable"], about["pool_size"]) == (600, 593, 50.0)
    assert about["right"] == told.right.mean()
    raw = np.concatenate([told.margin["in"], told.margin["out"][7:]])
    assert found.auroc["margin"] == auroc(
        raw, np.arange(len(raw)) < len(told.margin["in"]), np.ones(len(raw))
    )
    assert found.auroc["top"] == pytest.approx(found.auroc["margin"])  # one is a scaled copy of the other
    curve = risk_coverage(found.outcomes)
    assert curve is not None
    assert about["risk_coverage_area"] == curve.area
    assert curve.risk_at(1.0) == pytest.approx(1 - told.right.sum() / 1193)
    assert curve.risk_at(0.1) < 0.3


def test_an_answer_is_judged_by_what_was_fitted_to_other_videos() -> None:
    told = made_up()
    half = {name: number % 2 for number, name in enumerate(sorted(set(told.group)))}
    other = np.array([half[name] == 1 for name in told.group])
    changed = dict(told.margin)
    changed["in"] = np.where(other, told.margin["in"] + 3.0, told.margin["in"])
    changed["out"] = np.where(other, told.margin["out"] + 3.0, told.margin["out"])
    moved = replace(told, margin=changed)
    before, after = (
        [one.confidence for one, out in zip(x.outcomes, other, strict=False) if not out]
        for x in (report(told), report(moved))
    )
    # Those of the first half have the same numbers, and a curve that was fitted to the moved half.
    assert before != after
    assert np.mean([a or 0 for a in after]) < np.mean([b or 0 for b in before])


def test_the_curve_bends_where_there_are_enough_answers() -> None:
    few, many = report(made_up(ENOUGH_FOR_ISOTONIC // 4)), report(made_up(ENOUGH_FOR_ISOTONIC // 2))
    assert few.confidence.calibrator.to_json()["method"] == "temperature"
    assert many.confidence.calibrator.to_json()["method"] == "isotonic"


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_thresholds_call_a_tenth_of_the_unanswerable_a_match_at_most(method: Any) -> None:
    told = made_up()
    kept = report(told, method=method).confidence
    sure = kept.calibrator(told.margin["out"])
    assert np.mean(sure >= kept.thresholds.match_at) <= 0.1
    assert np.mean(sure >= np.nextafter(kept.thresholds.match_at, 0)) >= (
        0.1 if method == "temperature" else 0
    )
    assert kept.thresholds.no_match_below <= kept.thresholds.match_at
    assert np.mean(kept.calibrator(told.margin["in"]) < kept.thresholds.no_match_below) <= 0.1


def test_a_step_on_which_many_unanswerable_queries_stand_is_no_match() -> None:
    """Numbers of two kinds give the curve two steps: a quarter of the unanswerable stand on the upper one."""
    told = made_up(800)
    rng = np.random.default_rng(1)
    steps = {"in": (rng.random(800) < 0.9).astype(float), "out": (rng.random(800) < 0.25).astype(float)}
    kept = report(replace(told, margin=steps), method="isotonic").confidence
    high = float(kept.calibrator(1.0))
    assert np.mean(kept.calibrator(steps["out"]) >= high) > 0.2
    assert high < kept.thresholds.match_at <= 1
    assert kept.thresholds.no_match_below <= high


@pytest.mark.parametrize("definition", ["top", "margin"])
def test_scores_become_confidences_by_the_definition(definition: Any) -> None:
    kept = report(definition=definition).confidence
    background = Background(10.0, 3.0)
    scores = [4.0, 10.0, 16.0]
    raw = scores if definition == "top" else [-2.0, 0.0, 2.0]
    np.testing.assert_allclose(kept.of_scores(scores, background), kept.calibrator(raw))
    if definition == "margin":
        with pytest.raises(ValueError, match="needs a background"):
            kept.of_scores(scores, None)


def test_it_comes_back_from_the_folder_of_its_checkpoint(tmp_path: Path) -> None:
    kept = report().confidence
    assert load_confidence(tmp_path, kept.fingerprint) is None
    assert kept.save(tmp_path) == tmp_path / FILE
    assert load_confidence(tmp_path, kept.fingerprint) == kept
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_the_calibration_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    report().confidence.save(tmp_path)
    with pytest.raises(
        UsageError, match=r"another checkpoint \(fingerprint 0123456789abcdef.*has fedcba98.*calibrate"
    ):
        load_confidence(tmp_path, "fedcba9876543210")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 2}, "is of format 2"),
        ({"definition": "guess"}, "definition 'guess'"),
        ({"calibrator": {"method": "oracle"}}, "method 'oracle'"),
        ({"calibrator": None}, "is not a calibration"),
        ({"unrelated": [1, 2]}, "unrelated sentences must be text"),
        (
            {"thresholds": {}},
            r"is not a calibration \('match_at' is missing\).*calibrate --checkpoint.*again",
        ),
        ({"thresholds": {"match_at": 0.2, "no_match_below": 0.4}}, "no match below 0.4, a match at 0.2; acc"),
        ({"thresholds": {"match_at": 20, "no_match_below": 0.4}}, "a match at 20; accepted: shares from 0"),
        ({"iou": 0}, "iou 0; accepted: above 0, at most 1"),
        ({"about": {}}, "about names no split on which it was measured"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    kept = report().confidence
    (tmp_path / FILE).write_text(json.dumps({**kept.to_json(), **change}))
    with pytest.raises(FormatError, match=problem):
        load_confidence(tmp_path, kept.fingerprint)
    (tmp_path / FILE).write_text(json.dumps(kept.to_json())[:50])
    with pytest.raises(FormatError, match=FILE):
        load_confidence(tmp_path, kept.fingerprint)


def test_nothing_is_claimed_where_no_answer_is_right_or_one_video_has_all() -> None:
    told = made_up()
    wrong = replace(told, right=np.zeros(600, bool))
    with pytest.raises(UsageError, match="each half needs a right and a wrong first answer; give more"):
        report(wrong)
    one = replace(told, group=("v",) * 600)
    with pytest.raises(
        UsageError, match=r"^1 video with answers to measure: .* each half needs a right and a wrong"
    ):
        report(one)


@pytest.mark.slow
def test_people_and_programs_are_told_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from whenabouts_systems.ranking.confidence_figures import write_report

    found = report()
    lines = "\n".join(found.lines())
    assert f"{found.auroc['margin']:.3f} by margin" in lines
    assert f"expected calibration error {found.error:.3f}" in lines
    written = write_report(found, tmp_path / "figures")
    assert [path.name for path in written] == ["confidence.svg", "confidence.png", "confidence.json"]
    told = json.loads(written[-1].read_text())
    assert told["about"]["auroc"] == found.auroc
    assert sum(one["count"] for one in told["reliability"]) == 1200
    assert f"AUROC of the raw margin {found.auroc['margin']:.3f}" in written[0].read_text()


@pytest.mark.parametrize("key", ["fingerprint", "calibrator", "iou", "thresholds", "about", "unrelated"])
def test_a_key_that_was_taken_out_by_hand_is_named_with_the_remedy(tmp_path: Path, key: str) -> None:
    kept = report().confidence
    told = {name: value for name, value in kept.to_json().items() if name != key}
    (tmp_path / FILE).write_text(json.dumps(told))
    with pytest.raises(
        FormatError,
        match=rf"{key}: is missing in this calibration.*`whenabouts calibrate --checkpoint .*again",
    ):
        load_confidence(tmp_path, kept.fingerprint)


def test_a_calibration_that_came_with_a_system_is_read_like_one_that_lies_beside_it(tmp_path: Path) -> None:
    kept = report().confidence
    content = kept.save(tmp_path).read_bytes()
    assert load_confidence("me/xml", kept.fingerprint, content) == kept
    assert load_confidence("me/xml", kept.fingerprint) is None
    with pytest.raises(
        UsageError, match=r"me/xml/calibration\.json: is the calibration of another checkpoint"
    ):
        load_confidence("me/xml", "fedcba9876543210", content)
    for damaged in (content[:40], b"[" * 100_000):
        with pytest.raises(FormatError, match=r"me/xml/calibration\.json"):
            load_confidence("me/xml", kept.fingerprint, damaged)


def test_the_report_has_headings_over_its_numbers() -> None:
    lines = list(report().lines())
    for words in (["confidence", "its", "mean", "right", "answers"], ["given", "wrong"]):
        (at,) = [number for number, line in enumerate(lines) if line.split() == words]
        assert "%" in lines[at + 1]
        assert len(lines[at + 1]) == len(lines[at]), "numbers end under their heading"
