"""How probable it is that moments that are like an example show the same video."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from whenabouts import Evidence, Moment, ScoredMoment
from whenabouts.confidence.alike import Alike
from whenabouts.index.records import ClipBlock, ClipHits
from whenabouts.moments.zero_shot import Moments
from whenabouts.search.moments import StreamAnswer
from whenabouts.search.rank import alike_probabilities, judged_alike

CURVE = Alike(-18.0, 30.0)


def found(start: float, *streams: str) -> ScoredMoment:
    """Two seconds of the film, found by some streams."""
    evidence = {stream: Evidence(stream, 1.0, start, start + 2, "") for stream in streams}
    return ScoredMoment(Moment("film", start, start + 2), 1.0, evidence=evidence)


def answer(*cosines: float, video: str = "film") -> StreamAnswer:
    """What likeness answers, with a clip a second from the start of a film that has such a cosine."""
    at, none = np.arange(len(cosines), dtype=np.float64), np.zeros(0)
    ids = np.zeros(0, np.int64)
    scores = np.array(cosines, np.float32)
    hits = ClipHits([video] * len(cosines), at.astype(np.int32), at, at + 1, scores)
    block = ClipBlock(
        [], np.zeros(1, np.int64), ids.astype(np.int32), none, none, [], np.zeros((0, 0), np.float32)
    )
    return StreamAnswer("likeness", hits, None, block, none, Moments(ids, none, none, none, ids, ids))


def test_a_moment_is_as_sure_as_its_frame_that_is_most_alike() -> None:
    moments = alike_probabilities(
        [found(0.0, "likeness"), found(2.0, "likeness")], [answer(0.5, 0.7, 0.6, 0.1)], {"likeness": CURVE}
    )
    assert [scored.confidence for scored in moments] == pytest.approx([CURVE.of(0.7), CURVE.of(0.6)])


def test_no_moment_is_surer_than_the_one_before() -> None:
    ranked = [found(2.0, "likeness"), found(0.0, "likeness")]
    first, second = alike_probabilities(ranked, [answer(0.5, 0.7, 0.6, 0.1)], {"likeness": CURVE})
    assert first.confidence == second.confidence == pytest.approx(CURVE.of(0.6))


def test_a_moment_without_a_near_frame_is_no_surer_than_the_last_of_these() -> None:
    (far,) = alike_probabilities(
        [found(0.0, "likeness")], [answer(0.9, 0.6, video="talk")], {"likeness": CURVE}
    )
    (nothing,) = alike_probabilities([found(0.0, "likeness")], [answer()], {"likeness": CURVE})
    assert far.confidence == pytest.approx(CURVE.of(0.6))
    assert nothing.confidence == CURVE.of(-1.0)


def test_what_has_no_curve_has_no_probability_and_is_unsure() -> None:
    own = replace(answer(0.9), stream="vision")
    moments = alike_probabilities([found(0.0, "vision")], [own], {"likeness": CURVE})
    assert moments[0].confidence is None
    given, doubt = judged_alike(moments)
    assert given == "unsure" and "not been measured" in doubt


@pytest.mark.parametrize(
    ("cosine", "given", "doubt"),
    [(0.9, "match", ""), (0.6, "unsure", "50 of 100"), (0.3, "no_match", "")],
)
def test_an_example_is_answered_by_how_sure_the_first_moment_is(
    cosine: float, given: str, doubt: str
) -> None:
    moments = alike_probabilities([found(0.0, "likeness")], [answer(cosine)], {"likeness": CURVE})
    said, why = judged_alike(moments)
    assert said == given and doubt in why and bool(why) == bool(doubt)


def test_no_moment_is_no_match() -> None:
    assert judged_alike(alike_probabilities([], [answer()], {"likeness": CURVE}))[0] == "no_match"
