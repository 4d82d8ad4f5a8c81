"""How often the one-word answer is right: titles that the corpus answers, and questions that it does not.

    python benchmarks/answers.py --corpus /tmp/spoken.corpus

`--corpus` is the one that `spoken_search.py` leaves behind. The unrelated questions were written for this
script; none of them is in the bank that confidence is measured with, and no setting was chosen on them.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from cuepoint import Corpus
from cuepoint.search import SearchResult

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("CUEPOINT_SHARED_DATA", ROOT.parent / "shared" / "data")) / "transcripts"
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


def is_right(result: SearchResult, title: dict[str, str | float]) -> bool:
    """Whether the first moment lies in the titled part, as `spoken_search.py` counts it."""
    if not result.moments:
        return False
    moment = result.moments[0].moment
    start, end = float(title["start"]) - TOLERANCE, float(title["end"]) + TOLERANCE
    recording = Path(result.videos[moment.video_id].path).stem
    return recording == title["recording"] and start <= moment.middle <= end


def main() -> None:
    """Ask, count, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", required=True)
    corpus = Corpus(parser.parse_args().corpus, create=False)
    lines = (DATA / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    titles = [json.loads(line) for line in lines]
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("right", "other", "unrelated")}
    for title in titles:
        result = corpus.search(title["query"], k=1)
        counts["right" if is_right(result, title) else "other"][result.answer] += 1
    for question in UNRELATED:
        counts["unrelated"][corpus.search(question, k=1).answer] += 1
    found = {
        "date": "2026-11-21",
        "python_packages": {name: version(name) for name in ("lancedb", "onnxruntime", "numpy")},
        "titles whose first moment is right": dict(counts["right"]),
        "titles whose first moment is another": dict(counts["other"]),
        "unrelated questions": dict(counts["unrelated"]),
    }
    text = json.dumps(found, indent=1)
    print(text)
    RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
