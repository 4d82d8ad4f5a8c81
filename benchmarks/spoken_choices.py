"""What each choice of the spoken search is worth: the recipe of `docs/finding.md`, a part changed at a time.

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.spoken_choices --cache /tmp/spoken

Scores of all passages of all recordings are computed at once in memory, with the programme's own passages,
encoder, full-text index, fusion and peaks; so a row here is the whole corpus searched, without the step
that chooses candidate videos. Settings are to be chosen on the column "chosen on".
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.spoken_search import (
    CUTS,
    DATA,
    ROOT,
    Title,
    chosen_on,
    describe_machine,
    read_lines,
    read_titles,
)
from numpy.typing import NDArray

from whenabouts.confidence.background import SENTENCES
from whenabouts.encoders import encode_passages, open_text_encoder
from whenabouts.index.lookup import JOINED_WEIGHT, query_words
from whenabouts.moments.fusion import COSINE_WEIGHT, measure_scale
from whenabouts.moments.peaks import Config, find_peaks
from whenabouts.streams._passages import Passage, passage_vectors, passages_of
from whenabouts.types import Moment
from whenabouts.video.cues import read_cue_file

RESULT = ROOT / "benchmarks" / "results" / "spoken_choices.json"
WINDOWS = (0, 30, 60, 120, 180)

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Rows:
    """All passages of all recordings, recording after recording."""

    recordings: list[str]
    passages: list[list[Passage]]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each recording begins, and the end, (V + 1,)."""
        return np.cumsum([0] + [len(one) for one in self.passages])

    @property
    def flat(self) -> list[Passage]:
        """All in one list."""
        return [passage for one in self.passages for passage in one]


def read_rows(recordings: Sequence[str]) -> Rows:
    cues = (read_cue_file(DATA / f"{recording}.vtt").cues for recording in recordings)
    return Rows(list(recordings), [passages_of(one) for one in cues])


# Vectors -----------------------------------------------------------------------------------------


def unit(rows: Matrix) -> Matrix:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9), np.float32)


def vectors_of(rows: Rows, cache: Path) -> dict[str, Matrix]:
    """Vectors of the passages alone, of their minutes, and blended as the programme blends them."""
    encoder = open_text_encoder()
    asked: list[Matrix] = []

    def encode(texts: Sequence[str]) -> Matrix:
        asked.append(encode_passages(encoder, texts))
        return asked[-1]

    path = cache.with_suffix(".vectors.npz")
    if not path.exists():
        parts = [(passage_vectors(one, encode), one) for one in rows.passages]
        own = np.concatenate([all_[: len(one)] for all_, (_, one) in zip(asked, parts, strict=True)])
        minutes = [
            all_[len(one) :][[p.minute for p in one]] for all_, (_, one) in zip(asked, parts, strict=True)
        ]
        blended = np.concatenate([vectors for vectors, _ in parts])
        np.savez(path, own=own, minute=np.concatenate(minutes), blended=blended)
    with np.load(path) as kept:
        found: dict[str, Matrix] = {name: kept[name] for name in ("own", "minute", "blended")}
    offsets = rows.offsets
    near = [found["own"][a:b] for a, b in pairwise(offsets)]
    found["with neighbours"] = unit(np.concatenate([_with_neighbours(one) for one in near]))
    return found


def _with_neighbours(own: Matrix) -> Matrix:
    total = own.copy()
    total[1:] += own[:-1]
    total[:-1] += own[1:]
    return total


def cosines(vectors: Matrix, queries: Matrix, bank: Matrix) -> Matrix:
    """(Q, N) cosines in spreads above the level of unrelated sentences, as `calibration` measures them."""
    scale = measure_scale(vectors[::3] @ bank.T)
    return np.asarray((queries @ vectors.T - scale.level) / scale.spread, np.float32)


# Words -------------------------------------------------------------------------------------------


def texts_around(rows: Rows, seconds: float) -> list[str]:
    """Of each passage the plain words of all whose middle lies within half of `seconds` of its own."""
    texts = []
    for one in rows.passages:
        middles = np.array([(p.start + p.end) / 2 for p in one])
        for middle in middles:
            near = np.flatnonzero(np.abs(middles - middle) <= seconds / 2)
            texts.append(" ".join(one[i].text for i in near))
    return texts


class FullText:
    """LanceDB's full-text index over one text per passage, as the store sets it up."""

    def __init__(self, folder: str, name: str, texts: Sequence[str]) -> None:
        import lancedb
        import pyarrow as pa
        from lancedb.index import FTS

        rows = pa.table({"row": pa.array(np.arange(len(texts))), "words": pa.array(list(texts))})
        self._table = lancedb.connect(folder).create_table(name, rows)
        config = FTS(base_tokenizer="icu/split", stem=True, remove_stop_words=False, ascii_folding=True)
        self._table.create_index("words", config=config)
        self._count = len(texts)

    def scores(self, words: Sequence[str]) -> Matrix:
        """(N,) BM25, 0 where nothing matches."""
        from lancedb.query import MatchQuery

        scores = np.zeros(self._count, np.float32)
        if words:
            query = MatchQuery(" ".join(dict.fromkeys(words)), "words")
            hits = (
                self._table.search(query, query_type="fts").limit(3000).select(["row", "_score"]).to_arrow()
            )
            scores[hits["row"].to_numpy()] = hits["_score"].to_numpy()
        return scores


def words_of(rows: Rows, titles: Sequence[Title]) -> dict[str, Matrix]:
    """(Q, N) BM25 over contexts of several lengths, and over the programme's own with joined words."""
    asked = [query_words(title.query) for title in titles]
    found: dict[str, Matrix] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seconds in WINDOWS:
            index = FullText(folder, f"around{seconds}", texts_around(rows, seconds))
            found[f"{seconds} s"] = np.stack([index.scores(words) for words, _ in asked])
        index = FullText(folder, "joined", [passage.context for passage in rows.flat])
        found["words"] = np.stack([index.scores(words) for words, _ in asked])
        found["pairs"] = np.stack([index.scores(joined) for _, joined in asked])
    return found


# Measuring ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """Everything a variant is measured with."""

    rows: Rows
    titles: list[Title]
    start: NDArray[np.float64]
    end: NDArray[np.float64]

    def ranks(self, scores: Matrix, config: Config) -> NDArray[np.float64]:
        """Rank of the first hit of each title, infinite where there is none among the first ten."""
        return np.array(
            [self._rank(title, row, config) for title, row in zip(self.titles, scores, strict=True)]
        )

    def _rank(self, title: Title, scores: Matrix, config: Config) -> float:
        offsets = self.rows.offsets
        found = find_peaks(scores, self.start, self.end, offsets, config)
        for place, (peak, first, last) in enumerate(zip(found.peak, found.first, found.last, strict=True)):
            video = self.rows.recordings[int(np.searchsorted(offsets, peak, side="right")) - 1]
            if title.is_hit(Moment(video, self.start[first], self.end[first : last + 1].max())):
                return place + 1.0
        return math.inf


def reciprocal(scores: Matrix) -> Matrix:
    order = np.argsort(-scores, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(1, scores.shape[1] + 1)[None], 1)
    return np.asarray(1 / (60 + ranks), np.float32)


def per_query(values: Matrix) -> Matrix:
    return np.asarray((values - values.mean(1, keepdims=True)) / values.std(1, keepdims=True), np.float32)


def variants(
    words: dict[str, Matrix], vectors: dict[str, Matrix], queries: Matrix, bank: Matrix, rows: Rows
) -> Iterator[tuple[str, Matrix, Config]]:
    """What a variant is called, what it scores, and how its peaks are taken."""
    usual = Config(count=max(CUTS))
    lexical = words["words"] + np.float32(JOINED_WEIGHT) * words["pairs"]
    semantic = cosines(vectors["blended"], queries, bank)
    raised = np.float32(COSINE_WEIGHT) * semantic
    fused = lexical + raised
    yield "the recipe", fused, usual
    yield "words only", lexical, usual
    yield "vectors only", semantic, usual
    for seconds in WINDOWS:
        yield f"words of {seconds} s, none joined", words[f"{seconds} s"] + raised, usual
    for share in (0.0, 0.25, 0.75, 1.0):
        yield (
            f"joined words weigh {share}",
            words["words"] + np.float32(share) * words["pairs"] + raised,
            usual,
        )
    for name in ("own", "with neighbours", "minute"):
        one = cosines(vectors[name], queries, bank)
        yield f"vector: {name}", lexical + np.float32(COSINE_WEIGHT) * one, usual
        yield f"vector: {name}, no words", one, usual
    for weight in (0.5, 1.0, 1.5, 2.5, 4.0):
        yield f"cosine weighs {weight}", lexical + np.float32(weight) * semantic, usual
    yield "z-score per query", lexical + np.float32(COSINE_WEIGHT) * per_query(semantic), usual
    yield "ranks fused (RRF)", reciprocal(lexical) + reciprocal(semantic), usual
    for apart in (0.0, 45.0, 180.0):
        yield f"peaks {apart:.0f} s apart", fused, Config(count=max(CUTS), apart_seconds=apart)
    for share in (0.5, 0.7, 0.9):
        yield f"moments down to {share} of the peak", fused, Config(count=max(CUTS), share=share)
    for name, evidence in whole_recordings(vectors, queries, rows):
        yield f"and the recording's {name}", fused + evidence, usual


def whole_recordings(vectors: dict[str, Matrix], queries: Matrix, rows: Rows) -> Iterator[tuple[str, Matrix]]:
    """What a recording as a whole would add to each of its passages, by its title and by its mean vector."""
    titles = {
        row["recording"]: row["title"] or row["recording"] for row in read_lines(DATA / "recordings.jsonl")
    }
    owner = np.repeat(np.arange(len(rows.recordings)), np.diff(rows.offsets))
    named = encode_passages(open_text_encoder(), [titles[one] for one in rows.recordings])
    yield "title", per_query(queries @ named.T)[:, owner]
    mean = unit(np.add.reduceat(vectors["own"], rows.offsets[:-1]))
    yield "mean vector", per_query(queries @ mean.T)[:, owner]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, required=True, help="where vectors are kept between runs")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    recordings, titles = read_titles()
    half = chosen_on()
    chosen = np.array([title.recording in half for title in titles])
    rows = read_rows(recordings)
    vectors = vectors_of(rows, given.cache)
    encoder = open_text_encoder()
    queries = encoder.encode_text([title.query for title in titles])
    bank = encoder.encode_text(SENTENCES)
    flat = rows.flat
    bench = Bench(rows, titles, np.array([p.start for p in flat]), np.array([p.end for p in flat]))
    table: dict[str, Any] = {}
    for name, scores, config in variants(words_of(rows, titles), vectors, queries, bank, rows):
        ranks = bench.ranks(scores, config)
        masks = {"chosen on": chosen, "held out": ~chosen, "all": np.ones(len(titles), bool)}
        table[name] = {
            part: {f"hit@{n}": float((ranks[mask] <= n).mean()) for n in CUTS} for part, mask in masks.items()
        }
        cells = [" / ".join(f"{100 * value:.1f}" for value in row.values()) for row in table[name].values()]
        print(f"{name:38} " + "   ".join(cells), flush=True)
    result = {"machine": describe_machine(), "passages": len(flat), "variants": table}
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
