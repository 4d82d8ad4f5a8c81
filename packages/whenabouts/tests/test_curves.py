"""Match curves: the score of every clip of one video in each stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from whenabouts.corpus import Corpus
from whenabouts.curves import curves_of
from whenabouts.types import UsageError


@pytest.fixture(scope="module")
def corpus(samples_corpus: Path) -> Corpus:
    """The sample videos."""
    return Corpus(samples_corpus, create=False)


def test_a_curve_has_a_score_for_each_passage_and_peaks_at_the_answer(corpus: Corpus) -> None:
    video = corpus.resolve("friday.mp4").video_id
    found = curves_of(corpus, "crown jewels", video)
    curve = found.curves["subtitle"]
    words = corpus.show(video).words
    assert curve.start.tolist() == [line.start for line in words]
    assert curve.end.tolist() == [line.end for line in words]
    assert len(curve.score) == len(words)
    assert "crown jewels" in words[int(np.argmax(curve.score))].text
    assert curve.chance_percentile is not None
    assert ((curve.chance_percentile >= 0) & (curve.chance_percentile <= 1)).all()
    assert (np.argsort(curve.chance_percentile) == np.argsort(curve.score)).all()


def test_the_moments_are_those_of_a_search_in_that_video(corpus: Corpus) -> None:
    video = corpus.resolve("friday.mp4").video_id
    found = curves_of(corpus, "crown jewels", video)
    searched = corpus.search("crown jewels", k=1000, within=video)
    assert [one.moment for one in found.moments["subtitle"]] == [one.moment for one in searched.moments]
    best = found.to_json()["moments"][0]
    assert (best["stream"], best["start"], best["end"]) == ("subtitle", 4.3, 6.0)


def test_a_video_without_words_has_an_empty_curve(corpus: Corpus) -> None:
    found = curves_of(corpus, "crown jewels", corpus.resolve("frog.webm").video_id).to_json()
    assert found["curves"]["subtitle"]["start"] == []
    assert found["moments"] == []


def test_what_no_search_would_take_is_refused(corpus: Corpus) -> None:
    video = corpus.resolve("friday.mp4").video_id
    with pytest.raises(UsageError, match="empty"):
        curves_of(corpus, "  ", video)
    with pytest.raises(UsageError, match="smell"):
        curves_of(corpus, "jewels", video, ["smell"])
