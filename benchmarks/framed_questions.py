"""Titles asked as people ask: the sentence around a title costs hits, and how sure answers then are.

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.framed_questions --corpus /tmp/spoken.corpus

Each title, of "learning" and "choosing" and of "reporting" (`division.json`), is asked three times: as it is,
in a sentence, and in the same sentence with all rules off (`--literal`). The sentences take turns; no model
wrote them. The rule `about` (`search/questions.py`) knows the first six and not the last two. Real questions,
whose topic is in other words than the title, are harder.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.spoken_search import (
    CUTS,
    ROOT,
    Title,
    chosen_on,
    describe_machine,
    first_hit,
    intervals,
    open_corpus,
    read_titles,
)

from whenabouts import Corpus
from whenabouts.types import Moment
from whenabouts_bench.harness.rejection import calibration_error

RESULT = ROOT / "benchmarks" / "results" / "framed_questions.json"
SENTENCES = (
    "can you find the part where they talk about {}",
    "what did they say about {}?",
    "I remember somebody explaining {}, where was that?",
    "where in the recordings is {} discussed",
    "please show me the section on {}",
    "where does the speaker explain {}?",
    "I would like to know more about {}, what should I watch",
    "is there anything in here on the subject of {}",
)
WAYS = ("as it is", "in a sentence", "in a sentence, literal")


def ask(corpus: Corpus, titles: Sequence[Title]) -> dict[str, list[tuple[float, float]]]:
    """By way: the rank of the first hit (infinite: none among ten) and the confidence of the first moment."""
    stems = {video.id: Path(video.path).stem for video in corpus.videos()}
    told: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number, title in enumerate(titles):
        sentence = SENTENCES[number % len(SENTENCES)].format(title.query.rstrip("?"))
        for way, text in zip(WAYS, (title.query, sentence, sentence), strict=True):
            found = corpus.search(text, max(CUTS), literal="all" if way.endswith("literal") else ())
            moments = [Moment(stems[m.moment.video_id], m.moment.start, m.moment.end) for m in found.moments]
            hit = first_hit(title, moments)
            sure = found.moments[0].confidence if found.moments else None
            told[way].append((float("inf") if hit is None else hit + 1.0, sure or 0.0))
    return told


def measured(titles: Sequence[Title], told: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Hits and calibration of each way, and what the rule gains; intervals by recording."""
    owners = [title.recording for title in titles]
    ranks = {way: np.array([rank for rank, _ in own]) for way, own in told.items()}
    value: dict[str, Any] = {"titles": len(titles)}
    for way, own in told.items():
        sure, right = np.array([confidence for _, confidence in own]), ranks[way] <= 1
        row: dict[str, Any] = {f"hit@{cut}": float((ranks[way] <= cut).mean()) for cut in CUTS}
        error = calibration_error(sure, right, np.ones(len(sure)))
        value[way] = row | {"stated": float(sure.mean()), "expected calibration error": float(error)}
    for cut in CUTS:
        gains = (ranks[WAYS[1]] <= cut).astype(float) - (ranks[WAYS[2]] <= cut)
        value[f"gain of the rule, hit@{cut}"] = [float(gains.mean()), *intervals(gains, owners)]
    return value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True, help="where the corpus lies or is to be made")
    given = parser.parse_args()
    chosen, corpus, titles = chosen_on(), open_corpus(given.corpus), read_titles()[1]
    result = {"machine": describe_machine()}
    for part in ("learning and choosing", "reporting"):
        own = [title for title in titles if (title.recording in chosen) == (part != "reporting")]
        result[part] = measured(own, ask(corpus, own))
    text = json.dumps(result, indent=1)
    RESULT.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
