"""Reranking: the order of moments, the values that stay, and faults of a model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from whenabouts import Corpus, rerank, shown
from whenabouts.checkers import CheckerError, CheckerUnavailable
from whenabouts.checkers.reranker import Document
from whenabouts.types import Moment, UsageError

QUERY = "the largest clean room in the world"


class Scripted:
    """A reranker with given scores, which records what it read."""

    name, fingerprint, reads_words, sees = "scripted", "scripted 1", True, False

    def __init__(self, scores: Callable[[str], float], fails_after: int | None = None) -> None:
        self.scores, self.fails_after = scores, fails_after
        self.frames: list[bytes | None] = []
        self.read: list[str] = []
        self.queries: list[str] = []

    def score(self, query: str, documents: Sequence[Document]) -> list[float]:
        if self.fails_after is not None and len(self.read) >= self.fails_after:
            raise CheckerError("scripted cannot score")
        self.queries.append(query)
        self.read += [document.words for document in documents]
        self.frames += [document.picture for document in documents]
        return [self.scores(document.words) for document in documents]


@pytest.fixture
def corpus(samples_corpus: Path) -> Corpus:
    return Corpus(samples_corpus)


def _moments(corpus: Corpus, **options: Any) -> list[Moment]:
    return [scored.moment for scored in corpus.search(QUERY, **options)]


def test_without_a_reranker_answers_are_the_same_bytes(corpus: Corpus) -> None:
    before = json.dumps(corpus.search(QUERY).to_json())
    assert '"rerank' not in before
    corpus.search(QUERY, rerank=Scripted(len))
    assert json.dumps(corpus.search(QUERY).to_json()) == before


def test_moments_stand_in_the_order_of_the_model_and_keep_their_probabilities(corpus: Corpus) -> None:
    plain = corpus.search(QUERY, k=rerank.MOST_RERANKED)
    known = {scored.moment: scored.confidence for scored in plain}
    result = corpus.search(QUERY, rerank=Scripted(lambda words: -len(words)))
    scores = [scored.reranked.score for scored in result if scored.reranked]
    assert len(scores) == len(result) == 10
    assert scores == sorted(scores, reverse=True)
    assert {scored.moment: scored.confidence for scored in result}.items() <= known.items()
    assert all(scored.moment == plain[scored.reranked.rank_before - 1].moment for scored in result)  # type: ignore[union-attr]
    order = [scored.score for scored in result]
    assert order == sorted(order, reverse=True), "whoever sorts by score gets the same order"
    told = result.to_json()
    assert told["rerank"]["model"] == "scripted" and told["rerank"]["moments"] == len(plain)
    assert told["moments"][0]["reranked"]["rank_before"] > 1


def test_a_match_that_another_moment_replaces_is_unsure(corpus: Corpus) -> None:
    plain = corpus.search(QUERY)
    assert plain.answer == "match" and plain.interval is not None
    result = corpus.search(QUERY, rerank=Scripted(lambda words: -float("cleanrooms" in words)))
    assert (result.answer, result.interval) == ("unsure", None)
    assert "scripted puts a moment first" in result.doubt
    same = corpus.search(QUERY, rerank=Scripted(lambda words: float("cleanrooms" in words)))
    assert (same.answer, same.interval, same.doubt) == ("match", plain.interval, "")
    nothing = corpus.search("submarine volcano", rerank=Scripted(lambda words: -len(words)))
    assert nothing.answer == corpus.search("submarine volcano").answer


def test_a_moment_beyond_k_can_come_first(corpus: Corpus) -> None:
    plain = corpus.search(QUERY, k=rerank.MOST_RERANKED)
    last = corpus.words(corpus.resolve(plain[-1].video_id), plain[-1].moment)[0].text
    (only,) = corpus.search(QUERY, k=1, rerank=Scripted(lambda words: float(last in words)))
    assert only.reranked is not None and only.reranked.rank_before > 1
    assert last in " ".join(line.text for line in corpus.words(corpus.resolve(only.video_id), only.moment))


def test_what_has_no_words_keeps_its_rank(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _moments(corpus, k=rerank.MOST_RERANKED)
    silent = plain[0].video_id
    real = shown.lines_of

    def without(store: object, record: object, *rest: object, **more: object) -> object:
        return {} if record.video_id == silent else real(store, record, *rest, **more)  # type: ignore[attr-defined, arg-type]

    monkeypatch.setattr(rerank, "lines_of", without)
    result = corpus.search(QUERY, k=40, rerank=Scripted(lambda words: -len(words)))
    places = [place for place, moment in enumerate(plain) if moment.video_id == silent]
    assert places and len(places) < len(plain)
    assert [result[place].moment for place in places] == [plain[place] for place in places]
    assert all(result[place].reranked is None for place in places)
    assert [s.moment for s in result] != plain


def test_equal_scores_keep_the_order(corpus: Corpus) -> None:
    assert _moments(corpus, rerank=Scripted(lambda words: 1.0)) == _moments(corpus)


def test_time_and_faults_leave_the_other_moments_where_they_are(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerank, "_TOGETHER", 4)
    plain = _moments(corpus, k=40)
    late = Scripted(lambda words: -len(words))
    result = corpus.search(QUERY, k=40, rerank=late, rerank_seconds=1e-9)
    assert len(late.read) == 4
    assert [s.moment for s in result[4:]] == plain[4:] and {s.moment for s in result[:4]} == set(plain[:4])
    assert any("scripted read 4 of 12 moments within 1e-09 s" in note for note in result.notes)
    result = corpus.search(QUERY, k=40, rerank=Scripted(lambda words: -len(words), fails_after=4))
    assert [s.moment for s in result[4:]] == plain[4:]
    assert "moments from rank 5 on keep their order: scripted cannot score" in result.notes
    result = corpus.search(QUERY, k=40, rerank=Scripted(len, fails_after=0))
    assert [s.moment for s in result] == plain and result.rerank is not None
    assert "the moments keep their order: scripted cannot score" in result.notes
    assert result.rerank.moments == 0


def test_moments_in_order_of_time_stay_so(corpus: Corpus) -> None:
    asked = Scripted(lambda words: -len(words))
    question = "every time they say optical"
    plain = corpus.search(question)
    if not plain.is_in_order:
        question = "the first time they say optical"
        plain = corpus.search(question)
    assert plain.is_in_order and len(plain)
    result = corpus.search(question, rerank=asked)
    assert [s.moment for s in result] == [s.moment for s in plain]
    assert asked.read == [] and any("in order of time" in note for note in result.notes)


def test_a_model_reads_the_words_that_rules_leave(corpus: Corpus) -> None:
    asked = Scripted(lambda words: 0.0)
    result = corpus.search("the largest clean room in nasa_13013", rerank=asked)
    assert result.understood and set(asked.queries) == {result.words}


def test_a_reranker_is_opened_once_by_its_name(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    from whenabouts import checkers

    opened: list[str] = []

    def open_reranker(name: str) -> Scripted:
        opened.append(name)
        return Scripted(len)

    monkeypatch.setattr(checkers, "open_reranker", open_reranker)
    for handle in (corpus, corpus.beside()):
        handle.search(QUERY, rerank="some/model")
    assert opened == ["some/model"]


@pytest.mark.parametrize(
    "options", [{"all": True}, {"rerank_seconds": 0}, {"rerank_seconds": math.inf}, {"rerank_seconds": -1}]
)
def test_options_that_cannot_be_honoured_are_refused(corpus: Corpus, options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="rerank"):
        _moments(corpus, **{"rerank": Scripted(len), **options})


def test_an_example_without_words_is_not_reranked(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match="describe in words"):
        corpus.search("", like="nasa_13013.mp4@3", rerank=Scripted(len))
    with pytest.raises(CheckerUnavailable, match="no such reranker"):
        corpus.search(QUERY, rerank="no such thing")


@pytest.mark.slow
def test_a_checker_looks_at_the_order_of_the_reranker(corpus: Corpus) -> None:
    class Says:
        name, fingerprint, runs_here = "says", "says 1", False

        def answer(self, *asked: object) -> str:
            return '{"match": true, "start": null, "end": null, "reason": "yes"}'

    result = corpus.search(QUERY, rerank=Scripted(lambda words: -len(words)), check=Says(), check_best=1)
    assert result[0].verdict is not None and result[0].reranked is not None
    assert result.check is not None and not result.check.counts and result.rerank is not None


@pytest.mark.slow
def test_a_model_that_sees_gets_the_frame_of_each_moment(corpus: Corpus) -> None:
    asked = Scripted(lambda words: 0.0)
    asked.sees = True
    result = corpus.search(QUERY, k=40, rerank=asked)
    seen = [scored for scored in result if result.videos[scored.video_id].has_picture]
    assert seen and len(asked.frames) == len(result)
    assert sum(frame is not None for frame in asked.frames) == len(seen)
    assert all(frame.startswith(b"\xff\xd8") for frame in asked.frames if frame is not None)
    blind = Scripted(lambda words: 0.0)
    blind.sees, blind.reads_words = True, False
    result = corpus.search(QUERY, k=40, rerank=blind)
    assert set(blind.read) == {""} and len(blind.read) == len(seen)
    assert [scored.reranked is not None for scored in result] == [
        result.videos[scored.video_id].has_picture for scored in result
    ]


def test_a_file_that_is_gone_has_words_and_no_frames(corpus: Corpus) -> None:
    def gone(record: object, at: float) -> bytes:
        raise FileNotFoundError

    asked = Scripted(lambda words: 0.0)
    asked.sees = True
    plain = corpus.search(QUERY, k=40)
    rerank.reranked(corpus, plain, asked, count=3, seconds=10.0, picture=gone)
    assert len(asked.read) == len(plain) and set(asked.frames) == {None} and "" not in asked.read
