"""`why`: the stage at which a moment was lost, for each stage, on real corpora."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts import Corpus, Moment
from whenabouts.types import UsageError
from whenabouts.why import Why, why

FISH = "The fisherman sells his catch at the harbour."
RIVER = "Salmon swim upstream in the cold river."
Cue = tuple[int, int, str]


class Topics:
    """An encoder whose vector of a text is the direction of the topic word in it."""

    name, fingerprint, dimension = "topics", "topics:1", 8
    _words = ("fish", "river", "moon", "wheat", "glass", "drum", "rope", "none")

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [next((n for n, word in enumerate(self._words) if word in text.lower()), 7) for text in texts]
        vectors: NDArray[np.float32] = np.eye(self.dimension, dtype=np.float32)[rows]
        return vectors


Make = Callable[[dict[str, list[Cue]]], Corpus]


@pytest.fixture()
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make an uncalibrated corpus of transcripts, whose scores are unchanged."""
    monkeypatch.setattr("whenabouts.calibration.measuring.is_due", lambda store, known: False)

    def build(transcripts: dict[str, list[Cue]]) -> Corpus:
        for name, cues in transcripts.items():
            lines = [
                f"00:{s // 60:02d}:{s % 60:02d}.000 --> 00:{e // 60:02d}:{e % 60:02d}.000" for s, e, _ in cues
            ]
            blocks = [f"{line}\n{text}\n" for line, (_, _, text) in zip(lines, cues, strict=True)]
            (tmp_path / f"{name}.vtt").write_text("WEBVTT\n\n" + "\n".join(blocks), encoding="utf-8")
        corpus = Corpus(tmp_path / "why.corpus", encoders=[Topics()], create=True)
        corpus.add(tmp_path, text=Topics(), processes=1)
        return corpus

    return build


def _text(answer: Why) -> str:
    return "\n".join(answer.lines())


def test_found_at_the_first_rank(make: Make) -> None:
    corpus = make({"port": [(0, 5, FISH), (20, 25, "The moon rises over the hills.")]})
    answer = why(corpus, "a fisherman at the harbour", "port.vtt@0:00-0:05")
    assert (answer.is_listed, answer.rank, answer.lost_to) == (True, 1, ())
    assert answer.localized is not None and answer.localized.iou(answer.moment) >= 0.5
    (stream,) = answer.streams
    assert (stream.stream, stream.clips, stream.retrieved_at, stream.video_at) == ("subtitle", 1, 1, 1)
    assert stream.best_score is not None and stream.best_score > 0
    assert "found: rank 1" in _text(answer)
    assert "video retrieved at rank 1; the moment was retrieved at rank 1" in _text(answer)
    localized = json.loads(json.dumps(answer.to_json()))["localized"]
    assert localized == [answer.localized.start, answer.localized.end]


def test_found_but_behind_the_first_k_names_what_is_ahead(make: Make) -> None:
    corpus = make({name: [(0, 5, f"{FISH} {name}")] for name in "abcdef"})
    names = [found.moment.video_id for found in corpus.search("the fisherman", k=6).moments]
    answer = why(corpus, "the fisherman", Moment(names[4], 0.0, 5.0), k=2)
    assert (answer.is_listed, answer.rank) == (False, 5)
    assert [found.moment.video_id for found in answer.lost_to] == names[:2]
    assert "found, but after the first 2: rank 5" in _text(answer)
    assert "ahead of it:" in _text(answer)
    assert why(corpus, "the fisherman", Moment(names[4], 0.0, 5.0), k=5).is_listed


def test_the_rank_is_that_of_search(make: Make) -> None:
    corpus = make({name: [(0, 5, FISH), (10, 15, f"{RIVER} {name}")] for name in "abc"})
    for rank, found in enumerate(corpus.search("salmon in a river", k=100).moments, 1):
        answer = why(corpus, "salmon in a river", found.moment, k=100)
        assert answer.rank == rank
        assert answer.localized == found.moment


def test_localized_elsewhere_says_where(make: Make) -> None:
    # The answer covers a minute of equal sentences, and the given moment is one second of it.
    corpus = make({"long": [(5 * n, 5 * n + 5, FISH) for n in range(12)]})
    best = corpus.search("the fisherman", k=1).moments[0].moment
    meant = Moment(best.video_id, best.start + 1.0, best.start + 2.0)
    answer = why(corpus, "the fisherman", meant)
    assert (answer.is_listed, answer.rank, answer.localized) == (False, None, None)
    (stream,) = answer.streams
    assert stream.clips >= 1
    assert stream.nearest == best
    assert "localized as" in _text(answer)


@pytest.mark.slow
def test_a_video_that_was_not_retrieved_is_said_to_be_so(make: Make) -> None:
    better = {f"v{n:02d}": [(0, 5, f"{FISH} number{n}")] for n in range(42)}
    corpus = make({**better, "other": [(0, 5, "Wheat grows in the field.")]})
    answer = why(corpus, "the fisherman and his fish", "other.vtt@0-5")
    assert (answer.is_listed, answer.rank) == (False, None)
    (stream,) = answer.streams
    assert stream.clips == 1
    assert (stream.video_at, stream.best_score, stream.nearest) == (None, None, None)
    assert "the video was not retrieved" in _text(answer)
    assert len(answer.lost_to) == 5


def test_where_nothing_is_said_it_says_so(make: Make) -> None:
    corpus = make({"port": [(0, 5, FISH), (100, 105, "The moon rises.")]})
    answer = why(corpus, "the fisherman", "port.vtt@0:50-1:00")
    assert not answer.is_listed
    (stream,) = answer.streams
    assert (stream.clips, stream.retrieved_at, stream.nearest) == (0, None, None)
    assert "has nothing in this moment" in _text(answer)


def test_a_silent_video_has_nothing_in_this_stream(make: Make, samples: Path) -> None:
    corpus = make({"port": [(0, 5, FISH)]})
    corpus.add(samples / "frog.webm", processes=1)
    answer = why(corpus, "the fisherman", "frog.webm@1-2")
    assert not answer.is_listed
    assert "no words are said there" in _text(answer)


@pytest.mark.parametrize(
    ("query", "moment", "k", "told"),
    [
        ("", "port.vtt@0-5", 10, "empty"),
        ("fish", "port.vtt@0-5", 0, "1 to 1000"),
        ("fish", "nowhere.vtt@0-5", 10, "no video"),
        ("fish", "port.vtt@5-0", 10, "start < end"),
        ("fish", "port.vtt", 10, "VIDEO@START-END"),
    ],
)
def test_what_search_refuses_why_refuses_too(make: Make, query: str, moment: str, k: int, told: str) -> None:
    corpus = make({"port": [(0, 5, FISH)]})
    with pytest.raises(UsageError, match=told):
        why(corpus, query, moment, k=k)


def test_a_long_question_is_followed_as_it_is_asked(make: Make) -> None:
    corpus = make({"port": [(0, 5, FISH)], "hill": [(0, 5, "The moon rises.")]})
    query = "the fisherman " * 128 + "moon " * 9_000
    best: Any = corpus.search(query, k=1).moments[0]
    assert why(corpus, query, best.moment).rank == 1


def test_what_the_second_look_added_is_told_and_is_what_the_score_gained(make: Make) -> None:
    talk = [(10 * n, 10 * n + 9, FISH if n == 3 else "Nothing of it here.") for n in range(40)]
    corpus = make({"talk": talk})
    answer = why(corpus, "the harbour fisherman", "talk@0:30-0:39")
    (stream,) = answer.streams
    scored = corpus.searcher().find_all("the harbour fisherman")[0]
    row = next(row for row in range(len(scored.moments)) if scored.moment(row) == stream.nearest)
    peak = scored.scores[scored.moments.first_clip[row] : scored.moments.last_clip[row] + 1].max()
    assert sum(stream.second_look.values()) == pytest.approx(scored.moments.score[row] - peak)
    assert stream.second_look["near"] > 0 == stream.second_look["phrase"]
    assert "the second look adds +" in _text(answer)
    assert answer.to_json()["streams"][0]["second_look"].keys() == stream.second_look.keys()
