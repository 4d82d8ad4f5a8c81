"""What a reranker adds to spoken search: titles of 15 recordings on which settings were chosen.

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.reranking --corpus /tmp/reranking.corpus --rerank MODEL

Titles, recordings and hits are those of `spoken_search.py`; the 15 are drawn from the half of the recordings
that settings may be chosen on, without the radio transcripts, and are alone in the corpus.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import numpy as np
from benchmarks.spoken_search import CUTS, DATA, REPORTING, Title, division, read_titles

from whenabouts import Corpus
from whenabouts.checkers import open_reranker
from whenabouts.search.search_result import SearchResult
from whenabouts.types import Moment

SEED, RECORDINGS, SECONDS = 32, 15, 3600.0
SEED_OF_HALVES = 20260101


def rank_of(title: Title, result: SearchResult, recording_of: dict[str, str]) -> float:
    """The rank of the first hit; infinite without one."""
    for rank, scored in enumerate(result, 1):
        if title.is_hit(Moment(recording_of[scored.video_id], scored.start, scored.end)):
            return rank
    return float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--corpus", type=Path, required=True, help="where the corpus lies or is to be made")
    parser.add_argument("--rerank", default="tokens:minilm", help="the reranker")
    given = parser.parse_args()
    names, titles = read_titles()
    order = np.random.default_rng(SEED_OF_HALVES).permutation(len(names))
    some = {names[place] for place in order[: len(names) // 2]} - division()[REPORTING]
    half = sorted(name for name in some if not name.startswith("apollo"))
    random.Random(SEED).shuffle(half)
    corpus = Corpus(given.corpus, create=True)
    if not corpus.streams:
        corpus.add(*(DATA / f"{name}.vtt" for name in half[:RECORDINGS]))
    recording_of = {record.video_id: Path(record.path).stem for record in corpus.records()}
    asked = [title for title in titles if title.recording in set(half[:RECORDINGS])]
    reranker, ranks, seconds = open_reranker(given.rerank), list[tuple[float, float]](), 0.0
    for title in asked:
        plain = corpus.search(title.query, literal="all")
        began = time.process_time()
        ranked = corpus.search(title.query, literal="all", rerank=reranker, rerank_seconds=SECONDS)
        seconds += time.process_time() - began
        ranks.append((rank_of(title, plain, recording_of), rank_of(title, ranked, recording_of)))
    print(f"{len(ranks)} titles, {seconds / len(ranks):.2f} processor seconds a query")
    for cut in CUTS:
        before, after = ([pair[side] <= cut for pair in ranks] for side in (0, 1))
        gained = sum(new and not old for old, new in zip(before, after, strict=True))
        lost = sum(old and not new for old, new in zip(before, after, strict=True))
        shares = f"{100 * sum(before) / len(ranks):.1f} -> {100 * sum(after) / len(ranks):.1f}"
        print(f"hit@{cut}: {shares}; {gained} gained, {lost} lost")


if __name__ == "__main__":
    main()
