"""Corpora in two languages: whether a question in one language finds what is said in the other.

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.mixed_languages --cache /tmp/mixed

16 lectures have captions in English and in French, and titles of parts in both. A corpus holds half of them
in English and the others in French, a second corpus the other halves. multilingual-e5 reads them. Each title
is asked as it stands, in the whole corpus; a hit is as in `spoken_search.py`. "before": the level of cosines
is that of unrelated sentences in the language of the clips, "now": of the query, where it is clear ("clear"
titles). Intervals (95 %) are over lectures.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.languages import LANGUAGES
from benchmarks.spoken_search import (
    CUTS,
    DATA,
    ROOT,
    Title,
    describe_machine,
    first_hit,
    intervals,
    read_lines,
)

from whenabouts import Corpus
from whenabouts.search.searcher import Searcher
from whenabouts.types import Moment
from whenabouts.video.language import language_among

RESULT = ROOT / "benchmarks" / "results" / "mixed_languages.json"
SPOKEN = ("en", "fr")
LECTURES = 16


@dataclass(frozen=True)
class Asked:
    """A title in a language, and the language in which its lecture is in the corpus."""

    title: Title
    language: str
    captions: str


def lectures() -> list[str]:
    """The lectures with captions in both languages."""
    french = sorted(path.name.removesuffix(".fr.vtt") for path in (LANGUAGES / "fr").glob("*.vtt"))
    return [name for name in french if (DATA / f"{name}.vtt").exists()][:LECTURES]


def corpus_of(turn: int, cache: Path) -> Corpus:
    """The corpus in which lecture i is in English if i + turn is even; made as far as it is not there."""
    place, files = cache / f"{turn}.corpus", cache / f"{turn}"
    corpus = Corpus(place, create=True)
    if len(corpus.videos()) < len(lectures()):
        files.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(lectures()):
            if (number + turn) % 2 == 0:
                shutil.copy(DATA / f"{name}.vtt", files / f"{name}.en.vtt")
            else:
                shutil.copy(LANGUAGES / "fr" / f"{name}.fr.vtt", files / f"{name}.fr.vtt")
        corpus.add(files, text="multilingual-e5", processes=1)
    return corpus


def asked_of(corpus: Corpus) -> list[Asked]:
    """All titles of the corpus's lectures in both languages."""
    captions = dict(Path(video.path).name.split(".")[:2] for video in corpus.videos())
    rows = [(row, "en") for row in read_lines(DATA / "queries.jsonl")]
    rows += [(row, "fr") for row in read_lines(LANGUAGES / "queries.jsonl") if row["language"] == "fr"]
    return [
        Asked(Title(row["query"], name, row["start"], row["end"], "nyu"), language, captions[name])
        for row, language in rows
        if (name := row["recording"]) in captions
    ]


def ranks_of(corpus: Corpus, asked: Sequence[Asked], *, across: bool) -> list[float]:
    """The rank of each title's first hit, infinite for none among ten."""
    searcher = corpus.searcher()
    if not across:
        streams = {
            name: replace(
                stream, groups={key: replace(group, across={}) for key, group in stream.groups.items()}
            )
            for name, stream in searcher.calibration.streams.items()
        }
        encoders, _ = corpus.encoders.usable()
        searcher = Searcher(corpus.store, encoders, replace(searcher.calibration, streams=streams))
    stems = {video.id: Path(video.path).name.split(".")[0] for video in corpus.videos()}
    ranks = []
    for each in asked:
        found = searcher.search(each.title.query, k=max(CUTS))
        moments = [Moment(stems[m.moment.video_id], m.moment.start, m.moment.end) for m in found.moments]
        hit = first_hit(each.title, moments)
        ranks.append(float("inf") if hit is None else hit + 1.0)
    return ranks


def measured(asked: Sequence[Asked], before: Sequence[float], now: Sequence[float]) -> dict[str, Any]:
    """Hits before and now by language of title and captions, and the gain."""
    value: dict[str, Any] = {}
    for language in SPOKEN:
        for captions in SPOKEN:
            chosen = [(each.language, each.captions) == (language, captions) for each in asked]
            titles = [each.title for each, mine in zip(asked, chosen, strict=True) if mine]
            owners = [title.recording for title in titles]
            clear = sum(language_among(title.query, SPOKEN) == language for title in titles)
            row: dict[str, Any] = {"titles": len(titles), "clear": clear, "lectures": len(set(owners))}
            for cut in CUTS:
                was, are = ((np.array(ranks) <= cut)[chosen] for ranks in (before, now))
                gain = are.astype(float) - was
                row[f"hit@{cut}"] = {
                    "before": round(100 * float(was.mean()), 1),
                    "now": round(100 * float(are.mean()), 1),
                    "gain": [round(100 * number, 1) for number in (gain.mean(), *intervals(gain, owners))],
                }
            value[f"titles {language}, captions {captions}"] = row
    return value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, required=True, help="where the corpora lie or are to be made")
    given = parser.parse_args()
    asked, before, now = list[Asked](), list[float](), list[float]()
    for turn in (0, 1):
        corpus = corpus_of(turn, given.cache)
        mine = asked_of(corpus)
        asked += mine
        before += ranks_of(corpus, mine, across=False)
        now += ranks_of(corpus, mine, across=True)
    result = {"machine": describe_machine(), **measured(asked, before, now)}
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
