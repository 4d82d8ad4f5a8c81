"""The plain sentences agree with the counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from whenabouts.types import number_of
from whenabouts_bench.evaluation.matching import truth_of
from whenabouts_bench.evaluation.protocols import PROTOCOLS
from whenabouts_bench.report.diagnosis import GOOD_FIRST, diagnose
from whenabouts_bench.report.groups import by_label
from whenabouts_bench.report.sentences import moved_by, percent, summarize, weak_places

VCMR = PROTOCOLS["vcmr"]
NAN = float("nan")


def _diagnosed(made: Any, *runs: Any, queries: int) -> list[Any]:
    truth = {f"q{number}": [("v", 0.0, 10.0, 1.0)] for number in range(queries)}
    annotations, sources = made(truth, *runs)
    return [diagnose(truth_of(annotations, VCMR), source, VCMR) for source in sources]


HIT, NEAR, AWAY = ("v", 0.0, 10.0), ("v", 9.0, 30.0), ("w", 0.0, 10.0)


def test_a_run_that_finds_the_video_and_not_the_span_fails_at_localization(made: Callable[..., Any]) -> None:
    answers = {"q0": [HIT], "q1": [NEAR], "q2": [NEAR, AWAY], "q3": [NEAR], "q4": [AWAY]}
    (diagnosis,) = _diagnosed(made, answers, queries=5)
    summary = summarize(diagnosis)
    assert summary.headline == "Of 5 queries, 1 (20 %) is answered at rank 1."
    assert summary.verdict == "It fails mostly at localization (right video, wrong span)."
    assert summary.details[1].startswith("75 % of the failures: localization")
    assert summary.details[0] == (
        "Of the first rows that fail, 25 % lie in another video (retrieval) "
        "and 75 % in a right video with a wrong span (localization)."
    )


def test_a_run_that_misses_videos_fails_at_retrieval(made: Callable[..., Any]) -> None:
    answers = {"q0": [HIT], "q1": [AWAY], "q2": [AWAY, NEAR], "q3": [AWAY, HIT]}
    (diagnosis,) = _diagnosed(made, answers, queries=4)
    summary = summarize(diagnosis)
    assert summary.verdict == "It fails mostly at retrieval (finding the video)."
    assert "67 % of the failures: retrieval, the right video is not in the list (1) or below" in summary.text
    assert "33 % of the failures: ranking" in summary.text and "1 at 2–5" in summary.text


def test_the_ends_are_said_plainly(made: Callable[..., Any]) -> None:
    whole = {"q0": [HIT], "q1": [HIT]}
    perfect, silent = _diagnosed(made, whole, {"other": [HIT]}, queries=2)
    assert summarize(perfect).text == "Of 2 queries, 2 (100 %) are answered at rank 1. Nothing fails."
    assert "100 % of the failures: not answered" in summarize(silent).text
    (videos,) = _diagnosed(made, {"q0": [("v", NAN, NAN)], "q1": [("w", NAN, NAN)]}, queries=2)
    assert summarize(videos).headline == "Of 2 queries, 1 (50 %) has a right video first."
    assert "names videos and no moments" in summarize(videos).text


@pytest.mark.parametrize("seed", range(4))
def test_shares_of_failures_add_up(case: Callable[..., Any], seed: int) -> None:
    drawn = case(seed, 120)
    summary = summarize(diagnose(truth_of(drawn.annotations, VCMR), drawn.run, VCMR))
    shares = [int(share) for share in re.findall(r"(\d+) % of the failures", summary.text)]
    assert len(shares) >= 3 and abs(sum(shares) - 100) <= len(shares)
    assert shares == sorted(shares, reverse=True)


def test_what_moves_between_two_runs_is_counted(made: Callable[..., Any]) -> None:
    before, after = _diagnosed(
        made,
        {"q0": [HIT], "q1": [AWAY], "q2": [NEAR]},
        {"q0": [NEAR], "q1": [HIT], "q2": [HIT]},
        queries=3,
    )
    told = moved_by(before, after)
    assert told == "B answers 2 queries at rank 1 that A does not; A answers 1 that B does not."


def test_a_group_is_weak_only_if_clearly_so(made: Callable[..., Any]) -> None:
    answers = {f"q{number}": [HIT if number % 4 else AWAY] for number in range(400)}
    answers |= {f"q{number}": [AWAY] for number in range(60)}
    (diagnosis,) = _diagnosed(made, answers, queries=400)
    kinds = ["bad" if number < 60 else ("one", "other")[number // 4 % 2] for number in range(400)]
    assert (diagnosis.classes == GOOD_FIRST).sum() == 255
    assert weak_places(diagnosis, [by_label("type", kinds)]) == [
        "queries of type bad (60 queries): 0 % found, against 75 % of the others"
    ]
    chance = np.random.default_rng(0).permutation(np.array(kinds)).tolist()
    assert weak_places(diagnosis, [by_label("type", chance)]) == []
    assert weak_places(diagnosis, [by_label("type", ["all"] * 400)]) == []


def test_shares_are_never_rounded_to_all_or_nothing() -> None:
    assert percent(1, 10_000) == "under 1 %" and percent(9_999, 10_000) == "over 99 %"
    assert percent(0, 5) == "0 %" and percent(5, 5) == "100 %"
    assert number_of(1, "row") == "1 row" and number_of(0, "row") == "0 rows"
