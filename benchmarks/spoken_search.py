"""How well spoken moments are found: 639 titles in 87 recordings, whenabouts beside three baselines.

    WHENABOUTS_SHARED_DATA=... python benchmarks/spoken_search.py --corpus /tmp/spoken.corpus
    WHENABOUTS_SHARED_DATA=... python benchmarks/spoken_search.py --corpus ... --report "what changed"

A query is a title that somebody gave to a part of a recording. An answer is a hit when it names the right
recording and its middle lies inside the part, 45 s either way. whenabouts runs as its users run it
(`Corpus.add` on the folder, `Corpus.search`); the baselines are BM25 over 30-second chunks, the same
sentence encoder over the same chunks, and their reciprocal rank fusion. A corpus that exists is used as
it is; vectors of the chunks are kept beside it.

`division.json` divides the recordings that have titles, once: weights are fitted on "learning", features and
settings are chosen on "choosing", and "reporting" is asked once per change: `--report` asks it, writes
`results/spoken_search.json`, and adds a line to `results/reported.json`. "reporting" is the half that was
held out from the start (drawn by chance, seed 20260101); the other half was divided in turn by a hash of the
names, set by set. Recordings without titles are searched, and nothing is learned from them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts import Corpus
from whenabouts.encoders import encode_passages, open_text_encoder
from whenabouts.types import Moment
from whenabouts.video.cue import Cue
from whenabouts.video.cues import read_cue_file

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("WHENABOUTS_SHARED_DATA", ROOT.parent / "shared" / "data")) / "transcripts"
RESULT = ROOT / "benchmarks" / "results" / "spoken_search.json"

DIVISION = ROOT / "benchmarks" / "division.json"
REPORTED = ROOT / "benchmarks" / "results" / "reported.json"
LEARNING, CHOOSING, REPORTING = "learning", "choosing", "reporting"

TOLERANCE = 45.0
CHUNK_SECONDS = 30.0
CUTS = (1, 5, 10)
SAMPLES = 2000

Floats = NDArray[np.float64]
Search = Callable[[str, int, str | None], list[Moment]]


@dataclass(frozen=True)
class Title:
    """A query and the part of a recording that it was given to."""

    query: str
    recording: str
    start: float
    end: float
    set_name: str

    def is_hit(self, moment: Moment) -> bool:
        """Right recording, and the middle inside the part with some tolerance."""
        inside = self.start - TOLERANCE <= moment.middle <= self.end + TOLERANCE
        return moment.video_id == self.recording and inside


@dataclass(frozen=True)
class Outcome:
    """Of one system: rank of the first hit per title (infinite: none), how far off its start was, its length.

    Seconds; NaN where nothing hit.
    """

    ranks: Floats
    ranks_within: Floats
    start_distance: Floats
    lengths: Floats


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_titles() -> tuple[list[str], list[Title]]:
    recordings = {row["recording"]: row["set"] for row in read_lines(DATA / "recordings.jsonl")}
    titles = [
        Title(row["query"], row["recording"], row["start"], row["end"], recordings[row["recording"]])
        for row in read_lines(DATA / "queries.jsonl")
    ]
    return list(recordings), titles


def division() -> dict[str, set[str]]:
    """The recordings with titles, by what they are for."""
    value = json.loads(DIVISION.read_text(encoding="utf-8"))
    return {part: set(value[part]) for part in (LEARNING, CHOOSING, REPORTING)}


def chosen_on() -> set[str]:
    """The recordings on which weights and settings may be chosen."""
    divided = division()
    return divided[LEARNING] | divided[CHOOSING]


# The baselines -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chunks:
    """All recordings in stretches of 30 seconds: each holds the cues that start in it."""

    moments: list[Moment]
    texts: list[str]
    owner: NDArray[np.str_]


def cut(recordings: Sequence[str]) -> Chunks:
    moments, texts = [], []
    for recording in recordings:
        stretches: dict[int, list[Cue]] = defaultdict(list)
        for cue in read_cue_file(DATA / f"{recording}.vtt").cues:
            stretches[int(cue.start // CHUNK_SECONDS)].append(cue)
        for number, cues in sorted(stretches.items()):
            start = number * CHUNK_SECONDS
            moments.append(Moment(recording, start, start + CHUNK_SECONDS))
            texts.append(" ".join(" ".join(cue.text.split()) for cue in cues))
    return Chunks(moments, texts, np.array([moment.video_id for moment in moments]))


class Bm25:
    """Okapi BM25 (k1 1.2, b 0.75) over lower-cased words."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._count = len(texts)
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        lengths = np.zeros(len(texts))
        for row, text in enumerate(texts):
            words = Counter(re.findall(r"\w+", text.lower()))
            lengths[row] = sum(words.values())
            for word, times in words.items():
                postings[word].append((row, times))
        self._postings = postings
        self._norm = 1.2 * (0.25 + 0.75 * lengths / lengths.mean())

    def scores(self, query: str) -> Floats:
        """(N,) scores of all texts."""
        total = np.zeros(self._count)
        for word in dict.fromkeys(re.findall(r"\w+", query.lower())):
            if word in self._postings:
                rows, times = np.array(self._postings[word]).T
                rarity = math.log(1 + (self._count - len(rows) + 0.5) / (len(rows) + 0.5))
                total[rows] += rarity * times * 2.2 / (times + self._norm[rows])
        return total


def reciprocal_ranks(scores: Floats) -> Floats:
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return 1 / (60 + ranks)


def baselines(
    chunks: Chunks, vectors: NDArray[np.float32], encode: Callable[[str], Any]
) -> dict[str, Search]:
    bm25 = Bm25(chunks.texts)

    def search_by(score: Callable[[str], Floats]) -> Search:
        def search(query: str, k: int, within: str | None) -> list[Moment]:
            scores = score(query)
            rows = np.arange(len(scores)) if within is None else np.flatnonzero(chunks.owner == within)
            return [chunks.moments[i] for i in rows[np.argsort(-scores[rows], kind="stable")[:k]]]

        return search

    def semantic(query: str) -> Floats:
        return np.asarray(vectors @ encode(query), np.float64)

    return {
        "BM25": search_by(bm25.scores),
        "MiniLM": search_by(semantic),
        "RRF": search_by(
            lambda query: reciprocal_ranks(bm25.scores(query)) + reciprocal_ranks(semantic(query))
        ),
    }


def chunk_vectors(path: Path, chunks: Chunks) -> NDArray[np.float32]:
    if not path.exists():
        np.save(path, encode_passages(open_text_encoder(), chunks.texts))
    vectors: NDArray[np.float32] = np.load(path)
    return vectors


# whenabouts ----------------------------------------------------------------------------------------


def open_corpus(place: Path) -> Corpus:
    """The corpus of all transcripts, made first where there is none."""
    corpus = Corpus(place, create=True)
    if len(corpus.videos()) < len(list(DATA.glob("*.vtt"))):
        summary = corpus.add(DATA)
        print("\n".join(summary.lines()), flush=True)
    return corpus


def searching(corpus: Corpus) -> Search:
    """`Corpus.search` with recordings named by their files' stems."""
    stems = {video.id: Path(video.path).stem for video in corpus.videos()}

    def search(query: str, k: int, within: str | None) -> list[Moment]:
        found = corpus.search(query, k, within=() if within is None else f"{within}.vtt")
        return [Moment(stems[one.moment.video_id], one.moment.start, one.moment.end) for one in found.moments]

    return search


# Measuring ---------------------------------------------------------------------------------------


def measure(search: Search, titles: Sequence[Title]) -> Outcome:
    ranks, within, distance, lengths = [], [], [], []
    for title in titles:
        answers = search(title.query, max(CUTS), None)
        hit = first_hit(title, answers)
        ranks.append(hit + 1.0 if hit is not None else math.inf)
        distance.append(abs(answers[hit].start - title.start) if hit is not None else math.nan)
        lengths.append(answers[hit].duration if hit is not None else math.nan)
        hit = first_hit(title, search(title.query, max(CUTS), title.recording))
        within.append(hit + 1.0 if hit is not None else math.inf)
    return Outcome(np.array(ranks), np.array(within), np.array(distance), np.array(lengths))


def first_hit(title: Title, answers: Sequence[Moment]) -> int | None:
    return next((place for place, moment in enumerate(answers) if title.is_hit(moment)), None)


def intervals(hits: NDArray[np.bool_] | Floats, owners: Sequence[str]) -> list[float]:
    """95 % interval of a mean, by drawing whole recordings: their titles are not independent."""
    names = sorted(set(owners))
    place = {name: i for i, name in enumerate(names)}
    index = np.array([place[owner] for owner in owners])
    sums, counts = np.bincount(index, hits), np.bincount(index)
    draws = np.random.default_rng(0).integers(0, len(names), (SAMPLES, len(names)))
    means = sums[draws].sum(1) / counts[draws].sum(1)
    return [float(value) for value in np.quantile(means, (0.025, 0.975))]


def exact_sign_test(ours: NDArray[np.bool_], theirs: NDArray[np.bool_]) -> float:
    """Two-sided p that as many titles are gained and lost by chance (McNemar's exact test)."""
    gained, lost = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    total = gained + lost
    tail = float(sum(math.comb(total, i) for i in range(min(gained, lost) + 1)) / 2**total)
    return min(1.0, 2 * tail)


def table_of(outcome: Outcome, mask: NDArray[np.bool_], titles: Sequence[Title]) -> dict[str, Any]:
    owners = [title.recording for title, kept in zip(titles, mask, strict=True) if kept]
    row: dict[str, Any] = {}
    for cut_off in CUTS:
        hits = outcome.ranks[mask] <= cut_off
        row[f"hit@{cut_off}"] = float(hits.mean())
        row[f"hit@{cut_off} interval"] = intervals(hits, owners)
        row[f"within hit@{cut_off}"] = float((outcome.ranks_within[mask] <= cut_off).mean())
    row["median start distance"] = float(np.nanmedian(outcome.start_distance[mask]))
    row["median length"] = float(np.nanmedian(outcome.lengths[mask]))
    return row


def parts(titles: Sequence[Title]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Parts of the division, sets, and sets of the reporting part; each with a title at least."""
    sets = np.array([title.set_name for title in titles])
    yield "all", np.ones(len(titles), bool)
    masks = {part: np.array([title.recording in own for title in titles]) for part, own in division().items()}
    yield from ((part, mask) for part, mask in masks.items() if mask.any())
    for name in sorted(set(sets)):
        yield name, sets == name
    for name in sorted(set(sets[masks[REPORTING]])):
        yield f"{REPORTING}, {name}", masks[REPORTING] & (sets == name)


def comparisons(
    outcomes: dict[str, Outcome], mask: NDArray[np.bool_], titles: Sequence[Title]
) -> dict[str, Any]:
    """whenabouts against the best baseline of a part, title by title."""
    owners = [title.recording for title, kept in zip(titles, mask, strict=True) if kept]
    compared = {}
    ours = outcomes["whenabouts"]
    for cut_off in CUTS:
        others = {name: one.ranks[mask] <= cut_off for name, one in outcomes.items() if name != "whenabouts"}
        best = max(others, key=lambda name: float(others[name].mean()))
        hits = ours.ranks[mask] <= cut_off
        compared[f"hit@{cut_off}"] = {
            "best baseline": best,
            "difference": float(hits.mean() - others[best].mean()),
            "difference interval": intervals(hits.astype(float) - others[best], owners),
            "p": exact_sign_test(hits, others[best]),
        }
    return compared


def describe_machine() -> dict[str, Any]:
    """Processor and library versions; no names."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("lancedb", "numpy", "onnxruntime")},
    }


def show(result: dict[str, Any]) -> None:
    for part, systems in result["parts"].items():
        print(f"\n{part} ({result['titles'][part]} titles)")
        for name, row in systems.items():
            whole = "  ".join(
                f"{100 * row[f'hit@{n}']:.1f} ({shown(row[f'hit@{n} interval'])})" for n in CUTS
            )
            inside = " / ".join(f"{100 * row[f'within hit@{n}']:.1f}" for n in CUTS)
            print(f"  {name:9} {whole}   inside {inside}   start {row['median start distance']:.0f} s off")
        for name, row in result["against the best baseline"][part].items():
            gain = f"{100 * row['difference']:+.1f} ({shown(row['difference interval'])})"
            print(f"  {name}: {gain} against {row['best baseline']}, p = {row['p']:.2g}")


def shown(interval: Sequence[float]) -> str:
    return " to ".join(f"{100 * end:.1f}" for end in interval)


def add_report(change: str, systems: dict[str, dict[str, Any]]) -> None:
    """Add one line on the reporting part to `REPORTED`: its date, what changed, and the hits."""
    reports = json.loads(REPORTED.read_text(encoding="utf-8")) if REPORTED.exists() else []
    hits = {f"hit@{cut_off}" for cut_off in CUTS} | {f"hit@{cut_off} interval" for cut_off in CUTS}
    own = {key: value for key, value in systems["whenabouts"].items() if key in hits}
    reports.append({"date": time.strftime("%Y-%m-%d"), "change": change, **own})
    REPORTED.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True, help="where the corpus lies or is to be made")
    parser.add_argument("--report", metavar="CHANGE", help="ask the reporting part too, once per change")
    parser.add_argument("--out", type=Path, help="where to write the result (with --report: results/)")
    given = parser.parse_args()
    recordings, titles = read_titles()
    if given.report is None:
        chosen = chosen_on()
        titles = [title for title in titles if title.recording in chosen]
    corpus = open_corpus(given.corpus)
    chunks = cut(recordings)
    encoder = open_text_encoder()
    vectors = chunk_vectors(given.corpus.with_suffix(".chunks.npy"), chunks)
    systems = baselines(chunks, vectors, lambda query: encoder.encode_text([query])[0])
    systems["whenabouts"] = searching(corpus)
    outcomes, seconds = {}, {}
    for name, search in systems.items():
        began = time.perf_counter()
        outcomes[name] = measure(search, titles)
        seconds[name] = (time.perf_counter() - began) / (2 * len(titles))
    masks = dict(parts(titles))
    result = {
        "machine": describe_machine(),
        "recordings": len(recordings),
        "passages": corpus.stats().to_json()["streams"]["subtitle"]["clips"],
        "seconds a search": {name: round(value, 4) for name, value in seconds.items()},
        "titles": {part: int(mask.sum()) for part, mask in masks.items()},
        "parts": {
            part: {name: table_of(outcome, mask, titles) for name, outcome in outcomes.items()}
            for part, mask in masks.items()
        },
        "against the best baseline": {
            part: comparisons(outcomes, mask, titles) for part, mask in masks.items()
        },
    }
    if given.report is not None:
        add_report(given.report, result["parts"][REPORTING])
    if out := given.out or (RESULT if given.report is not None else None):
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    show(result)


if __name__ == "__main__":
    main()
