"""How often "did you mean" writes a mistyped word right, and how often it asks without a reason.

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.misspelt --corpus /tmp/spoken.corpus
    WHENABOUTS_SHARED_DATA=... python -m benchmarks.misspelt --corpus ... --report

Of each title of "learning" and "choosing" (`division.json`; `--report`: of "reporting") the word that fewest
passages have is mistyped by chance: two letters change places, or one is left out, doubled or replaced by its
neighbour on the keyboard. Mistyped words that the corpus has are drawn again. The title is asked as it is,
mistyped, and as the answer to the mistyped one spells it. Titles as they are and unrelated sentences show how
often a query without a mistake gets another spelling. Intervals (95 %) are by recording.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
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
from whenabouts.confidence.background import languages
from whenabouts.index.lookup import words_of
from whenabouts.search.spelling import words_by_video
from whenabouts.types import Moment

RESULT = ROOT / "benchmarks" / "results" / "misspelt.json"
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
WAYS = ("as it is", "mistyped", "as the answer spells it")
LEAST = 5


def mistyped(word: str, rng: np.random.Generator) -> str:
    """A word with one mistake behind its first letter."""
    at = int(rng.integers(1, len(word) - 1))
    kind = str(rng.choice(["swap", "drop", "double", "neighbour"]))
    if kind == "swap":
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == "neighbour":
        row: str = next((row for row in ROWS if word[at] in row), word[at])
        return word[:at] + row[max(0, row.index(word[at]) - 1)] + word[at + 1 :]
    return word[:at] + word[at] * (2 * (kind == "double")) + word[at + 1 :]


def with_mistakes(
    titles: Sequence[Title], counts: Counter[str], rng: np.random.Generator
) -> list[tuple[Title, str]]:
    """Titles that have a word of `LEAST` letters which the corpus has, each with the mistyped title."""
    pairs = []
    for title in titles:
        words = [
            w for w in words_of(title.query) if len(w) >= LEAST and w.isalpha() and w.isascii() and counts[w]
        ]
        if words:
            rarest = min(words, key=lambda word: (counts[word], word))
            wrong = rarest
            while counts[wrong]:
                wrong = mistyped(rarest, rng)
            pairs.append((title, " ".join(wrong if w == rarest else w for w in words_of(title.query))))
    return pairs


def ask(
    corpus: Corpus, pairs: Sequence[tuple[Title, str]]
) -> tuple[dict[str, list[float]], list[str], list[str]]:
    """By way the ranks of the first hits (infinite: none among ten); the spellings of both queries."""
    stems = {video.id: Path(video.path).stem for video in corpus.videos()}
    ranks: dict[str, list[float]] = {way: [] for way in WAYS}
    unasked, spelt = list[str](), list[str]()
    for title, wrong in pairs:
        for way in WAYS:
            text = {"as it is": title.query, "mistyped": wrong}.get(way) or spelt[-1] or wrong
            found = corpus.search(text, max(CUTS), literal="all")
            if way != WAYS[2]:
                (unasked if way == WAYS[0] else spelt).append(found.spelling)
            moments = [Moment(stems[m.moment.video_id], m.moment.start, m.moment.end) for m in found.moments]
            hit = first_hit(title, moments)
            ranks[way].append(float("inf") if hit is None else hit + 1.0)
    return ranks, unasked, spelt


def measured(corpus: Corpus, titles: Sequence[Title]) -> dict[str, Any]:
    """Shares of queries, hits, and the time that reading the words takes."""
    began = time.process_time()
    counts = Counter(word for words in words_by_video(corpus.store, corpus.streams) for word in words)
    value: dict[str, Any] = {"words": counts.total(), "seconds for all words": time.process_time() - began}
    pairs = with_mistakes(titles, counts, np.random.default_rng(0))
    ranks, unasked, spelt = ask(corpus, pairs)
    owners = [title.recording for title, _ in pairs]
    same = [words_of(title.query) == words_of(text) for (title, _), text in zip(pairs, spelt, strict=True)]
    other = [bool(text) and not right for text, right in zip(spelt, same, strict=True)]
    strange = [bool(corpus.search(text, literal="all").spelling) for text in languages()["en"].sentences]
    shares = {"written right": same, "written otherwise": other, "a title as it is": [*map(bool, unasked)]}
    value |= {
        name: [float(np.mean(rows)), *intervals(np.array(rows, float), owners)]
        for name, rows in shares.items()
    }
    value |= {"titles": len(pairs), "unrelated sentences": [float(np.mean(strange)), len(strange)]}
    for way, own in ranks.items():
        value[way] = {f"hit@{cut}": float((np.array(own) <= cut).mean()) for cut in CUTS}
    for cut in CUTS:
        gains = (np.array(ranks[WAYS[2]]) <= cut).astype(float) - (np.array(ranks[WAYS[1]]) <= cut)
        value[f"gain of the spelling, hit@{cut}"] = [float(gains.mean()), *intervals(gains, owners)]
    examples = [
        (wrong, text) for (_, wrong), text, right in zip(pairs, spelt, same, strict=True) if not right
    ]
    return value | {
        "not written right": examples,
        "a title as it is, spelt": [text for text in unasked if text],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True, help="where the corpus lies or is to be made")
    parser.add_argument("--report", action="store_true", help="ask the reporting part, and write the result")
    given = parser.parse_args()
    chosen = chosen_on()
    titles = [title for title in read_titles()[1] if (title.recording in chosen) != given.report]
    result = {"machine": describe_machine(), **measured(open_corpus(given.corpus), titles)}
    if given.report:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
