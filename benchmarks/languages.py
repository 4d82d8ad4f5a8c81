"""How well spoken moments are found in French, across languages, and by which sentence encoder.

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.languages --cache /tmp/languages

The 18 lectures of `transcripts` and `transcripts_languages` that have captions and titles both in English and
in French, with titles in twelve languages. A hit is as in `spoken_search.py`. Each row is a corpus of the
captions in one language, an encoder, and the titles of one language; intervals (95 %) draw whole recordings.
"held out" are the recordings on which no setting was chosen. Vectors are kept in `--cache`;
corpora that lie there are used as they are.

How sure answers are is judged by curves that were fitted without any question about these lectures, in any
language ("confidence"; `any_corpus.py` has the other questions). "taken out": with the recording left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import any_corpus
from benchmarks.spoken_search import (
    CUTS,
    DATA,
    ROOT,
    Title,
    chosen_on,
    describe_machine,
    intervals,
    read_lines,
)
from numpy.typing import NDArray

from whenabouts import Corpus
from whenabouts.confidence.probability import (
    PROBABLE,
    Adjustment,
    Probability,
    adjusted,
    from_json,
    general,
    log_odds,
)
from whenabouts.encoders import TextEncoder, encode_passages, open_text_encoder
from whenabouts.search.phrases import parsed_query
from whenabouts.types import Moment

RESULT = ROOT / "benchmarks" / "results" / "languages.json"
LANGUAGES = DATA.parent / "transcripts_languages"
ENCODERS = ("minilm", "multilingual-e5")
CAPTIONS = ("en", "fr")


class Kept:
    """An encoder whose vectors of passages are kept on disk, for another run."""

    def __init__(self, encoder: TextEncoder, folder: Path) -> None:
        self.name, self.dimension, self.fingerprint = encoder.name, encoder.dimension, encoder.fingerprint
        self._encoder = encoder
        self._file = folder / f"{hashlib.sha256(self.fingerprint.encode()).hexdigest()[:16]}.npz"
        self._rows: dict[str, NDArray[np.float32]] = {}
        if self._file.exists():
            with np.load(self._file) as kept:
                self._rows = dict(zip(kept["names"].tolist(), kept["vectors"], strict=True))

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Queries, as they are."""
        return self._encoder.encode_text(texts)

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Passages, each encoded once."""
        names = [hashlib.blake2b(text.encode(), digest_size=12).hexdigest() for text in texts]
        fresh = {name: text for name, text in zip(names, texts, strict=True) if name not in self._rows}
        vectors = encode_passages(self._encoder, list(fresh.values()))
        self._rows |= dict(zip(fresh, vectors, strict=True))
        if fresh:
            np.savez(self._file, names=list(self._rows), vectors=np.stack(list(self._rows.values())))
        return np.stack([self._rows[name] for name in names])


def captions_of(language: str) -> dict[str, Path]:
    """The file of each recording that has captions in a language."""
    files = DATA.glob("nyu_*.vtt") if language == "en" else (LANGUAGES / language).glob("*.vtt")
    return {file.name.split(".")[0]: file for file in sorted(files)}


def titles_in(language: str) -> list[Title]:
    rows = read_lines(LANGUAGES / "queries.jsonl")
    if language == "en":
        rows = [{**row, "language": "en"} for row in read_lines(DATA / "queries.jsonl")]
    return [
        Title(row["query"], row["recording"], row["start"], row["end"], "nyu")
        for row in rows
        if row["language"] == language and row["recording"].startswith("nyu_")
    ]


@dataclass(frozen=True)
class Asked:
    """The titles of one language, asked of the captions of one language: the rank of each first hit."""

    captions: str
    encoder: str
    titles: str
    asked: list[Title]
    ranks: NDArray[np.float64]

    def of(self, recordings: set[str]) -> dict[str, Any]:
        """Hits, with intervals, of the titles of some recordings."""
        kept = [place for place, title in enumerate(self.asked) if title.recording in recordings]
        owners = [self.asked[place].recording for place in kept]
        value: dict[str, Any] = {"titles": len(kept)}
        for cut in CUTS:
            hits = self.ranks[kept] <= cut
            value[f"hit@{cut}"] = float(hits.mean())
            value[f"hit@{cut} interval"] = intervals(hits, owners)
        return value


def corpus_of(captions: str, encoder: Kept, folder: Path) -> Corpus:
    """The captions of the same lectures in one language."""
    place = folder / f"{captions}.{encoder.name}.corpus"
    if place.exists():
        return Corpus(place, encoders=[encoder])
    corpus = Corpus(place, create=True, encoders=[encoder])
    began = time.perf_counter()
    files = captions_of(captions)
    summary = corpus.add(*(files[name] for name in sorted(same_lectures())), text=encoder)
    print("\n".join(summary.lines()), f"{time.perf_counter() - began:.0f} s", flush=True)
    return corpus


def ask(corpus: Corpus, captions: str, encoder: str, language: str) -> Asked:
    names = {video.id: Path(video.path).name.split(".")[0] for video in corpus.videos()}
    asked = [title for title in titles_in(language) if title.recording in names.values()]
    ranks = []
    for title in asked:
        moments = [
            Moment(names[found.moment.video_id], found.moment.start, found.moment.end)
            for found in corpus.search(title.query, max(CUTS)).moments
        ]
        hits = [place for place, moment in enumerate(moments, 1) if title.is_hit(moment)]
        ranks.append(hits[0] if hits else math.inf)
    return Asked(captions, encoder, language, asked, np.array(ranks, np.float64))


def without_lectures() -> Probability:
    """The curves fitted to the questions of `any_corpus.py` that are about no lecture."""
    rows = [row for row in any_corpus.read_rows() if any_corpus.SETS.get(row.recording) != "nyu"]
    return from_json(any_corpus.fit([row for row in rows if row.corpus_kind != "French and Portuguese"]))


def sure_of(corpus: Corpus, captions: str, languages: Sequence[str]) -> list[tuple[str, any_corpus.Row]]:
    """What the answers to titles of some languages are judged by, with the recording in and taken out."""
    recording_of = {record.video_id: Path(record.path).name.split(".")[0] for record in corpus.records()}
    asking = any_corpus.Asking(captions, corpus.searcher())
    return [
        (language, row)
        for language in languages
        for number, title in enumerate(titles_in(language))
        if title.recording in recording_of.values()
        for row in asking.title(
            number,
            any_corpus.Title(
                parsed_query(title.query).plain, title.recording, title.start, title.end, language
            ),
            recording_of,
        )
    ]


def log_odds_by(curves: Probability, rows: Sequence[any_corpus.Row]) -> NDArray[np.float64]:
    """(N,) of the first answers; that of the least probable where nothing was found."""
    least = log_odds(0.0)
    return np.array([curves.words.log_odds_of(row.features) if row.features else least for row in rows])


def across_of(rows: Sequence[any_corpus.Row], curves: Probability) -> Adjustment:
    """What moves the curves for titles in another language than the words, learned of answers to such."""
    asked = [row for row in rows if row.kind == "title"]
    right = [row.right for row in asked]
    return adjusted(log_odds_by(curves, asked).tolist(), right, np.ones(len(asked)).tolist(), curves)


def judged_sureness(
    rows: Sequence[tuple[str, any_corpus.Row]], curves: Probability
) -> dict[str, dict[str, Any]]:
    """Of titles in the language of the captions, and of those in others: how often what is stated holds.

    Those in others also with the curves moved as was learned of other recordings.
    """
    first = [(language == row.corpus, row) for language, row in rows if row.rank == 1]
    own, others = ([row for is_own, row in first if is_own is wanted] for wanted in (True, False))
    fold_of = any_corpus.folds_of(others)
    folds = np.array([fold_of[row.group] for row in others])
    odds, moved = log_odds_by(curves, others), np.zeros(len(others))
    for number in sorted(set(folds.tolist())):
        left = across_of([row for row, part in zip(others, folds, strict=True) if part != number], curves)
        moved[folds == number] = left.shift + left.slope * odds[folds == number]
    french = [row for row in own if row.corpus == "fr"]
    return {
        "same language": _judged(own, log_odds_by(curves, own)),
        **({"French within French": _judged(french, log_odds_by(curves, french))} if french else {}),
        "across languages, as within one": _judged(others, odds),
        "across languages": _judged(others, moved),
    }


def _judged(rows: Sequence[any_corpus.Row], odds: NDArray[np.float64]) -> dict[str, Any]:
    given = 1 / (1 + np.exp(-odds))
    answer = np.where([row.is_name for row in rows], 2, (given >= PROBABLE.match_at).astype(np.int64))
    return any_corpus.measured(any_corpus.Judged(rows, given, answer))


def learn_across(rows: Sequence[tuple[str, any_corpus.Row]], encoder: str) -> None:
    """Write what was learned of a sentence model across languages beside the shipped curves."""
    value = json.loads(any_corpus.LEARNED.read_text(encoding="utf-8"))
    others = [row for language, row in rows if language != row.corpus and row.rank == 1]
    known = across_of(others, general())
    own = {"shift": round(known.shift, 4), "slope": round(known.slope, 4), "questions": known.questions}
    value["across"] = {**value.get("across", {}), encoder: own}
    any_corpus.LEARNED.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def all_asked(
    folder: Path, encoders: Sequence[str], sure: dict[str, list[tuple[str, any_corpus.Row]]]
) -> Iterator[Asked]:
    """The answers of each corpus to the titles of each language; `sure` gets what they are judged by."""
    others = sorted({row["language"] for row in read_lines(LANGUAGES / "queries.jsonl")})
    for name in encoders:
        encoder = Kept(open_text_encoder(name), folder)
        for captions in CAPTIONS:
            corpus = corpus_of(captions, encoder, folder)
            languages = ("en", *others) if captions == "en" else ("en", "fr")
            for language in languages:
                yield ask(corpus, captions, name, language)
            sure.setdefault(name, []).extend(sure_of(corpus, captions, languages))


def same_lectures() -> set[str]:
    """Recordings with captions and titles in English and in French."""
    parts = [set(captions_of(language)) for language in CAPTIONS]
    parts += [{title.recording for title in titles_in(language)} for language in CAPTIONS]
    return set.intersection(*parts)


def behind(english: Asked, french: Asked, recordings: set[str]) -> dict[str, Any]:
    """How far French within French is behind English within English, in shares; intervals by recording."""
    names = sorted(recordings)
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(names), (2000, len(names)))
    value: dict[str, Any] = {}
    for cut in CUTS:
        means = []
        for asked in (english, french):
            hits = np.array(
                [
                    (title.recording, rank <= cut)
                    for title, rank in zip(asked.asked, asked.ranks, strict=True)
                ],
                object,
            )
            sums = np.array([sum(hit for own, hit in hits if own == name) for name in names])
            counts = np.array([sum(own == name for own, _ in hits) for name in names])
            means.append((sums.sum() / counts.sum(), sums[draws].sum(1) / counts[draws].sum(1)))
        (first, drawn), (second, other) = means
        value[f"hit@{cut}"] = float(first - second)
        value[f"hit@{cut} interval"] = np.quantile(drawn - other, (0.025, 0.975)).tolist()
    return value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, required=True, help="where vectors and corpora are kept")
    parser.add_argument("--encoders", nargs="+", default=ENCODERS)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--learn", metavar="ENCODER", help="write how sure it is across languages")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    lectures = same_lectures()
    parts = {"all": lectures, "held out": lectures - chosen_on()}
    rows, kept = [], {}
    sure: dict[str, list[tuple[str, any_corpus.Row]]] = {}
    for asked in all_asked(given.cache, given.encoders, sure):
        kept[asked.captions, asked.encoder, asked.titles] = asked
        row: dict[str, Any] = {"captions": asked.captions, "encoder": asked.encoder, "titles": asked.titles}
        row["parts"] = {part: asked.of(recordings) for part, recordings in parts.items()}
        row["ranks"] = [
            [title.recording, int(rank) if math.isfinite(rank) else None]
            for title, rank in zip(asked.asked, asked.ranks, strict=True)
        ]
        rows.append(row)
        for part, value in row["parts"].items():
            hits = " / ".join(f"{100 * value[f'hit@{cut}']:.1f}" for cut in CUTS)
            print(
                f"{asked.encoder:16} {asked.titles} on {asked.captions} {part:14} {value['titles']:4} {hits}",
                flush=True,
            )
    result: dict[str, Any] = {
        "machine": describe_machine(),
        "rows": rows,
        "French behind English": {
            encoder: {
                part: behind(kept["en", encoder, "en"], kept["fr", encoder, "fr"], recordings)
                for part, recordings in parts.items()
            }
            for encoder in given.encoders
        },
    }
    curves = without_lectures()
    result["confidence"] = {name: judged_sureness(own, curves) for name, own in sure.items()}
    if given.learn:
        learn_across(sure[given.learn], given.learn)
    given.out.write_text(json.dumps(result) + "\n")
    print(json.dumps({key: result[key] for key in ("French behind English", "confidence")}, indent=1))


if __name__ == "__main__":
    main()
