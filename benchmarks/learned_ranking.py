"""How moments with words are reranked: asked, learned, and measured on recordings and sets left out.

    python -m benchmarks.learned_ranking --corpus /tmp/spoken.corpus            # ask, fit, measure
    python -m benchmarks.learned_ranking --corpus /tmp/spoken.corpus --learn    # and write the weights
    python -m benchmarks.learned_ranking --corpus /tmp/spoken.corpus --report   # and ask the reporting part

`--corpus` holds all recordings of `transcripts` (`spoken_search.py` makes it). The titles of "learning" and
"choosing" (`division.json`) are asked of it; each moment of the answer becomes one row: what it scores on the
curve, its features, and whether it is right. The weights make right moments likely among those of their title
(softmax over the moments, penalty on the squares, no weight below 0). The penalty is chosen inside of what is
fitted on:
"recordings left out" and "sets left out" are measured on what neither weights nor penalty saw. Intervals
are by recording. The shipped weights are fitted on both parts; "reporting" is what they do on the third.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.any_corpus import UNRELATED
from benchmarks.spoken_search import (
    CUTS,
    ROOT,
    Title,
    chosen_on,
    describe_machine,
    exact_sign_test,
    intervals,
    open_corpus,
    read_titles,
)
from numpy.typing import NDArray
from scipy.optimize import minimize

from whenabouts.search.reranking import FEATURES, Reranking, features_of, learned_reranking
from whenabouts.search.searcher import Searcher
from whenabouts.types import Moment

RESULT = ROOT / "benchmarks" / "results" / "learned_ranking.json"
LEARNED = ROOT / "packages" / "whenabouts" / "src" / "whenabouts" / "search" / "reranking.json"
STREAM = "subtitle"
FOLDS = 10
PENALTIES = (100.0, 300.0, 1000.0)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Asked:
    """The moments of one title in the order of their curve: score (M,), features (M, F), right (M,)."""

    title: Title
    score: Floats
    features: Floats
    right: NDArray[np.bool_]

    def rank(self, weights: Floats) -> float:
        """Rank of the first right moment, infinite where there is none."""
        order = np.argsort(-(self.score + self.features @ weights), kind="stable")
        places = np.flatnonzero(self.right[order])
        return float(places[0]) + 1 if len(places) else math.inf


def ask(searcher: Searcher, stems: dict[str, str], text: str) -> tuple[Floats, Floats, list[Moment]]:
    """Scores on the curve, features and moments of one query."""
    answer = next(answer for answer in searcher.find_all(text) if answer.stream == STREAM)
    rarity = searcher.localization.rarity([STREAM])[STREAM]
    features = features_of(text, answer.block, answer.scores, answer.moments, rarity)
    score = answer.moments.score - learned_reranking().added(features).sum(axis=1)
    order = np.argsort(-score, kind="stable")
    moments = [answer.moment(row) for row in order.tolist()]
    named = [Moment(stems[moment.video_id], moment.start, moment.end) for moment in moments]
    return score[order], features[order], named


def asked(searcher: Searcher, stems: dict[str, str], titles: Sequence[Title]) -> list[Asked]:
    """The moments of each title."""
    rows = []
    for title in titles:
        score, features, moments = ask(searcher, stems, title.query)
        rows.append(Asked(title, score, features, np.array([title.is_hit(m) for m in moments], bool)))
    return rows


def fit(rows: Sequence[Asked], penalty: float) -> Floats:
    """(F,) points that each feature adds for each unit."""
    rows = [row for row in rows if row.right.any()]
    features = np.concatenate([row.features for row in rows])
    score, right = np.concatenate([row.score for row in rows]), np.concatenate([row.right for row in rows])
    spread = features.std(0) + 1e-9
    unit = features / spread
    starts = np.cumsum([0, *(len(row.score) for row in rows[:-1])])
    owner = np.repeat(np.arange(len(rows)), [len(row.score) for row in rows])

    def loss(value: Floats) -> tuple[float, Floats]:
        odds = score * value[0] + unit @ value[1:]
        share = np.exp(odds - np.maximum.reduceat(odds, starts)[owner])
        total, good = np.add.reduceat(share, starts), np.add.reduceat(share * right, starts)
        slope = share / total[owner] - share * right / good[owner]
        gradient = np.concatenate([[slope @ score], unit.T @ slope + penalty * value[1:]])
        return float(np.log(total / good).sum() + penalty * (value[1:] ** 2).sum() / 2), gradient

    start = np.array([0.5, *np.zeros(len(spread))])
    bounds = [(0.01, None), *((0.0, None) for _ in spread)]
    value = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    weights: Floats = value[1:] / spread / value[0]
    return weights


def mean_reciprocal(ranks: Floats) -> float:
    return float((1 / ranks).mean())


def penalty_for(rows: Sequence[Asked], folds: Sequence[str | int]) -> float:
    """The penalty that ranks best where whole folds are left out."""
    return max(PENALTIES, key=lambda penalty: mean_reciprocal(left_out(rows, folds, penalty)))


def left_out(rows: Sequence[Asked], folds: Sequence[str | int], penalty: float | None = None) -> Floats:
    """(Q,) ranks of each title by weights fitted without its fold; the penalty too, where none is given."""
    ranks = np.zeros(len(rows))
    for fold in dict.fromkeys(folds):
        kept = [place for place, own in enumerate(folds) if own != fold]
        some, rest = [rows[place] for place in kept], [folds[place] for place in kept]
        weights = fit(some, penalty or penalty_for(some, rest))
        for place, own in enumerate(folds):
            if own == fold:
                ranks[place] = rows[place].rank(weights)
    return ranks


def folds_by_recording(rows: Sequence[Asked]) -> list[int]:
    recordings = sorted({row.title.recording for row in rows})
    random.Random(7).shuffle(recordings)
    fold = {name: number % FOLDS for number, name in enumerate(recordings)}
    return [fold[row.title.recording] for row in rows]


def judged(ranks: Floats, before: Floats, rows: Sequence[Asked]) -> dict[str, Any]:
    """Hits of all titles and by set, with intervals by recording, against the order of the curve alone."""
    value: dict[str, Any] = {}
    sets = np.array([row.title.set_name for row in rows])
    for name in ("all", *sorted(set(sets.tolist()))):
        mask = (sets == name) | (name == "all")
        owners = [row.title.recording for row, kept in zip(rows, mask, strict=True) if kept]
        value[name] = {"titles": int(mask.sum()), "mrr": mean_reciprocal(ranks[mask])}
        for cut in CUTS:
            ours, theirs = ranks[mask] <= cut, before[mask] <= cut
            value[name][f"hit@{cut}"] = {
                "curve alone": float(theirs.mean()),
                "reranked": float(ours.mean()),
                "interval": intervals(ours, owners),
                "gain interval": intervals(ours.astype(float) - theirs, owners),
                "p": exact_sign_test(ours, theirs),
            }
    return value


def measure(rows: Sequence[Asked]) -> dict[str, Any]:
    before = np.array([row.rank(np.zeros(len(FEATURES))) for row in rows])
    ways: dict[str, Sequence[str | int]] = {
        "recordings left out": folds_by_recording(rows),
        "sets left out": [row.title.set_name for row in rows],
    }
    return {way: judged(left_out(rows, folds), before, rows) for way, folds in ways.items()}


def usual(searcher: Searcher, stems: dict[str, str]) -> Floats:
    """(F,) what the first moment of an unrelated sentence has on average."""
    first = []
    for text in UNRELATED:
        _, features, _ = ask(searcher, stems, text)
        first += [features[0]] if len(features) else []
    mean: Floats = np.mean(first, axis=0)
    return mean


def learn(rows: Sequence[Asked], of_unrelated: Floats) -> dict[str, Any]:
    """The form of `reranking.json`, fitted on `rows`."""
    penalty = penalty_for(rows, folds_by_recording(rows))
    weights = fit(rows, penalty)
    value = {
        "weights": dict(zip(FEATURES, weights.round(4).tolist(), strict=True)),
        "usual": dict(zip(FEATURES, of_unrelated.round(4).tolist(), strict=True)),
    }
    Reranking.from_json(value)
    return {"date": time.strftime("%Y-%m-%d"), "penalty": penalty, **value}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--learn", action="store_true", help="write the weights that the package ships")
    parser.add_argument("--report", action="store_true", help="ask the reporting part too, and write all")
    options = parser.parse_args()
    corpus = open_corpus(options.corpus)
    searcher = corpus.searcher()
    stems = {video.id: Path(video.path).stem for video in corpus.videos()}
    titles, chosen = read_titles()[1], chosen_on()
    rows = asked(searcher, stems, [title for title in titles if title.recording in chosen])
    learned = learn(rows, usual(searcher, stems))
    result = {"machine": describe_machine(), "learned": learned, **measure(rows)}
    if options.report:
        others = asked(searcher, stems, [title for title in titles if title.recording not in chosen])
        weights = np.array([learned["weights"][name] for name in FEATURES])
        before, after = (
            np.array([row.rank(own) for row in others]) for own in (np.zeros(len(FEATURES)), weights)
        )
        result["reporting"] = judged(after, before, others)
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.learn:
        LEARNED.write_text(json.dumps(learned, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
