"""Rewriting: queries in other words, the fusion of their answers, and the values that stay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whenabouts import Corpus
from whenabouts.checkers import CheckerError
from whenabouts.rewrite import with_rewrites
from whenabouts.types import UsageError

QUERY = "the largest clean room in the world"


class Scripted:
    """A rewriter with given queries."""

    name = "scripted"

    def __init__(self, *queries: str, error: CheckerError | None = None) -> None:
        self.queries, self.error = list(queries), error
        self.seen: list[str] = []

    def rewritten(self, query: str, seconds: float) -> list[str]:
        self.seen.append(query)
        if self.error is not None:
            raise self.error
        return self.queries


@pytest.fixture
def corpus(samples_corpus: Path) -> Corpus:
    return Corpus(samples_corpus)


def test_without_a_rewriter_answers_are_the_same_bytes(corpus: Corpus) -> None:
    before = json.dumps(corpus.search(QUERY).to_json())
    assert '"rewrite"' not in before
    corpus.search(QUERY, rewrite=Scripted("the glacier melts"))
    assert json.dumps(corpus.search(QUERY).to_json()) == before


def test_the_same_words_change_no_order(corpus: Corpus) -> None:
    plain = corpus.search(QUERY)
    result = corpus.search(QUERY, rewrite=Scripted(QUERY))
    assert [scored.moment for scored in result] == [scored.moment for scored in plain]
    assert [scored.confidence for scored in result] == [scored.confidence for scored in plain]
    assert (result.answer, result.interval) == (plain.answer, plain.interval)


def test_answers_are_fused_by_rank_with_the_query_counting_half(corpus: Corpus) -> None:
    others = ("the glacier melts", "optical telescope element")
    lists = [corpus.search(text, k=40, literal="all") for text in (QUERY, *others)]
    expected: dict[Any, float] = {}
    for weight, answer in zip((1.0, 0.5, 0.5), lists, strict=True):
        for rank, scored in enumerate(answer, 1):
            same = next(
                (m for m in expected if m.video_id == scored.video_id and m.iou(scored.moment) >= 0.5),
                scored.moment,
            )
            expected[same] = expected.get(same, 0.0) + weight / (60 + rank)
    order = sorted(expected, key=lambda moment: (-expected[moment], moment))
    result = corpus.search(QUERY, rewrite=Scripted(*others))
    assert [scored.moment for scored in result] == order[:10]
    scores = [scored.score for scored in result]
    assert scores == sorted(scores, reverse=True)
    told = result.to_json()
    assert told["rewrite"] == {"model": "scripted", "queries": list(others)}
    assert {moment["video_id"] for moment in told["moments"]} <= set(result.videos)


def test_what_other_words_alone_find_has_no_probability(corpus: Corpus) -> None:
    own = {scored.moment for scored in corpus.search(QUERY, k=40)}
    result = corpus.search(QUERY, k=40, rewrite=Scripted("the glacier melts"))
    new = [scored for scored in result if scored.moment not in own]
    assert new and all(s.confidence is None and not s.says_query for s in new)
    assert all(s.confidence is not None for s in result if s.moment in own)
    surer = corpus.search(QUERY, k=40, min_confidence=0.01, rewrite=Scripted("the glacier melts"))
    assert len(surer) and all((s.confidence or 0) >= 0.01 for s in surer)


def test_words_that_find_what_yours_do_not_are_unsure(corpus: Corpus) -> None:
    query = "submarine volcano"
    assert corpus.search(query).answer == "no_match"
    assert corpus.search(query, rewrite=Scripted("a submarine volcano there")).answer == "no_match"
    result = corpus.search(query, rewrite=Scripted(QUERY))
    assert (result.answer, result.doubt) == ("unsure", "only other words find an answer")


def test_an_answer_of_other_words_alone_may_keep_the_first_moment(corpus: Corpus) -> None:
    plain = replace(corpus.search(QUERY), answer="no_match")
    found = replace(plain, answer="match")
    result = with_rewrites(plain, Scripted("words"), lambda _: found, count=10, seconds=1)
    assert result[0].moment == plain[0].moment
    assert (result.answer, result.doubt) == ("unsure", "only other words find an answer")


def test_other_words_are_searched_as_they_stand(corpus: Corpus) -> None:
    result = corpus.search(QUERY, k=40, rewrite=Scripted("the glacier in nasa_13013"))
    assert result.understood == ()
    videos = {scored.video_id for scored in corpus.search("the glacier in nasa_13013", k=40, literal="all")}
    assert videos <= {scored.video_id for scored in result}


@pytest.mark.parametrize(
    ("query", "reason"), [("the first time they say optical", "rules"), ('"clean rooms"', "exact words")]
)
def test_questions_and_quoted_words_are_not_sent(corpus: Corpus, query: str, reason: str) -> None:
    rewriter = Scripted("the glacier melts")
    plain, result = corpus.search(query), corpus.search(query, rewrite=rewriter)
    assert rewriter.seen == [] and [s.moment for s in result] == [s.moment for s in plain]
    assert any("was not rewritten by scripted" in note and reason in note for note in result.notes)
    assert result.rewrite is None


def test_a_fault_of_the_model_leaves_the_answer(corpus: Corpus) -> None:
    plain = corpus.search(QUERY)
    result = corpus.search(QUERY, rewrite=Scripted(error=CheckerError("nothing answers")))
    assert [s.moment for s in result] == [s.moment for s in plain]
    assert "searched with your words alone: nothing answers" in result.notes


def test_a_reranker_orders_what_all_words_find(corpus: Corpus) -> None:
    class Jewels:
        name, fingerprint, reads_words, sees = "jewels", "1", True, False

        def score(self, query: str, documents: Any) -> list[float]:
            assert query == QUERY
            return [float("crown jewels" in document.words) for document in documents]

    result = corpus.search(QUERY, rewrite=Scripted("somebody stole the crown jewels"), rerank=Jewels())
    assert "crown jewels" in result[0].text and result[0].reranked is not None
    assert (result.answer, result.rewrite is not None, result.rerank is not None) == ("unsure", True, True)


@pytest.mark.parametrize("options", [{"all": True}, {"rewrite_seconds": 0}, {"k": 0}, {"k": 10_000}])
def test_options_that_cannot_be_honoured_are_refused(corpus: Corpus, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"rewrite|k is"):
        corpus.search(QUERY, **{"rewrite": Scripted("a"), **options})


def test_a_name_of_another_machine_needs_an_object_that_was_opened_with_a_yes(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match="--send-query"):
        corpus.search(QUERY, rewrite="https://gpu.example/v1#m")
