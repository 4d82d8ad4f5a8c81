"""How often the one-word answer is right: questions that a corpus answers, and questions that it does not.

    python -m benchmarks.answers --corpus /tmp/spoken.corpus

`--corpus` is the one that `spoken_search.py` leaves behind; it is calibrated anew here. Told are: how long a
calibration takes, at the end of a run and by `whenabouts calibrate`; the rates that it states; the answers to
639 titles and to 40 unrelated questions, counted by this script and not by the calibration; the same with
the titles given as known questions; and the videos of `real_video`, with questions that are answered there
and questions that are not. The unrelated questions were written for this script; none of them is in the bank
that confidence is measured with, and no setting was chosen on them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.spoken_search import describe_machine

from whenabouts import Corpus
from whenabouts.confidence.outcomes import rates_of
from whenabouts.confidence.rates import rate_of
from whenabouts.product.calibration.measuring import MADE_AT_END_OF_RUN, calibrate
from whenabouts.product.search import SearchResult

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("WHENABOUTS_SHARED_DATA", ROOT.parent / "shared" / "data"))
DATA = SHARED / "transcripts"
RESULT = ROOT / "benchmarks" / "results" / "answers.json"
TOLERANCE = 45.0

UNRELATED = (
    "how to groom a poodle for a show",
    "the best season for planting tulips",
    "a recipe for plum dumplings",
    "which vaccines a kitten needs",
    "the height of mountains in Nepal",
    "folk dances from Bulgaria",
    "restoring a rusty cast iron pan",
    "a sailor's knots for beginners",
    "prices of second hand pianos",
    "why flamingos are pink",
    "the second wife of Henry the Eighth",
    "how to make a paper lantern",
    "a walk through the gardens of Kyoto",
    "exercises for tennis elbow",
    "the taste of goat cheese",
    "building a tree house for children",
    "the rules of water polo",
    "sewing a zip into a skirt",
    "the monks who brewed beer",
    "how to bathe a newborn baby",
    "a guided tour of the Louvre",
    "the fastest horse in the derby",
    "pruning roses in winter",
    "songs for a children's choir",
    "the best camping sites in Norway",
    "removing wallpaper with steam",
    "a short history of perfume",
    "which fish live in coral reefs",
    "how to dance the Viennese waltz",
    "the plot of a romantic comedy",
    "lifting heavy weights safely",
    "carving a pumpkin for Halloween",
    "the language of whales",
    "a barbecue with friends by the river",
    "cures for seasickness",
    "how the postal service began",
    "making soap at home",
    "the weather in Lisbon in May",
    "painting eggs for Easter",
    "the wool of alpacas",
)


# What is said in `real_video` (two short films have words), in other words where that is possible.
SAID = (
    ("the space telescope is being built", "nasa_13013.mp4"),
    ("a large clean room", "nasa_13013.mp4"),
    ("Goddard Space Flight Center", "nasa_13013.mp4"),
    ("James Webb", "nasa_13013.mp4"),
    ("stolen crown jewels", "friday.mp4"),
    ("greeting Hildy", "friday.mp4"),
    ("how are you", "friday.mp4"),
)


def is_right(result: SearchResult, title: dict[str, Any]) -> bool:
    """Whether the first moment lies in the titled part, as `spoken_search.py` counts it."""
    if not result.moments:
        return False
    moment = result.moments[0].moment
    start, end = float(title["start"]) - TOLERANCE, float(title["end"]) + TOLERANCE
    recording = Path(result.videos[moment.video_id].path).stem
    return recording == title["recording"] and start <= moment.middle <= end


def count(corpus: Corpus, titles: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Answers to titles and unrelated questions."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("right", "other", "unrelated")}
    for title in titles:
        result = corpus.search(title["query"], k=1)
        counts["right" if is_right(result, title) else "other"][result.answer] += 1
    counts["unrelated"].update(corpus.search(question, k=1).answer for question in UNRELATED)
    alarms = rate_of([True] * counts["unrelated"]["match"] + [False] * (40 - counts["unrelated"]["match"]))
    return {
        "titles whose first moment is right": dict(counts["right"]),
        "titles whose first moment is another": dict(counts["other"]),
        "unrelated questions": dict(counts["unrelated"]),
        "false alarms among these": str(alarms),
    }


def calibrated(corpus: Corpus, queries: Path | None, made: int) -> dict[str, Any]:
    """What a calibration takes and states."""
    began = time.perf_counter()
    report = calibrate(corpus, queries, made=made)
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "stated": rates_of(report.outcomes).lines(),
        "said": report.to_json() | {"risk_coverage": None},
    }


def spoken(corpus: Corpus, folder: Path) -> dict[str, Any]:
    """The recordings: made questions first, then titles as known questions."""
    titles = [json.loads(line) for line in (DATA / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    given = folder / "titles.jsonl"
    lines = [json.dumps({**title, "video": title["recording"]}) + "\n" for title in titles]
    given.write_text("".join(lines), encoding="utf-8")
    found: dict[str, Any] = {
        "unrelated only": calibrated(corpus, None, 0),
        "end of a run": calibrated(corpus, None, MADE_AT_END_OF_RUN),
        "titles given": calibrated(corpus, given, 0),
    }
    found["titles given"] |= count(corpus, titles)
    found["calibrate"] = calibrated(corpus, None, 400) | count(corpus, titles)
    return found


def real_video(folder: Path) -> dict[str, Any]:
    """The few videos that tests use: what is said there, and what is not."""
    corpus = Corpus(folder / "real.corpus", create=True)
    corpus.add(SHARED / "real_video", processes=1)
    answers: Counter[str] = Counter()
    for query, video in SAID:
        result = corpus.search(query, k=1)
        right = Path(video).stem[:4] == result.name(result.moments[0])[:4]
        answers[f"{result.answer}, {'right' if right else 'wrong'} video"] += 1
    unrelated = Counter(corpus.search(question, k=1).answer for question in UNRELATED)
    return {
        "clips": corpus.stats().to_json()["streams"]["subtitle"]["clips"],
        "said there": dict(answers),
        "unrelated questions": dict(unrelated),
        "calibrate": calibrated(corpus, None, 400)["stated"],
    }


def main() -> None:
    """Ask, count, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", required=True)
    corpus = Corpus(parser.parse_args().corpus, create=False)
    corpus.search("warm up")
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": describe_machine(),
            "real_video": real_video(Path(folder)),
            "spoken": spoken(corpus, Path(folder)),
        }
    text = json.dumps(found, indent=1)
    print(text)
    RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
