"""The files of the ranked study (paper 004's setting), made of simulated features of `simulated_features`.

    python -m benchmarks.ranked_setting make FEATURES --prefix small --videos N --texts FILE...
    python -m benchmarks.ranked_setting under FEATURES OUT [--seeds 1,2,3]

As published one pool of moments is trained on and asked for, by different queries: of the captions of N
training videos some, drawn by chance, are the queries of validation and test; the others are trained on, with
the 1, 20 and 40 moments whose captions are most alike by MiniLM. Nobody grades what is here: the truth is a
third text model's (`PlainVectors`), made of FILES, annotations of several data sets; MiniLM makes the words
of the queries and the sets to train on, multilingual-e5 the clips. Grades begin where as many pairs of
captions lie above as above MiniLM's. FEATURES gets `ranked_train_top{01,20,40}.jsonl`, `ranked_val.jsonl`,
`ranked_test.jsonl`, `ranked_test_{minilm,multilingual-e5}.jsonl` (the same queries, other truths),
`ranked_settings.json`; and the folder `new`, whose `ranked_test.jsonl` asks for moments of the videos of the
split `test`.

`under` prints what the answers of `benchmarks.studies ranked FEATURES OUT` are worth under each truth.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import trainings
from benchmarks.simulated_features import GENERATOR, WORDS, fewer_videos
from benchmarks.simulated_moments import draws
from benchmarks.studies import load_studies
from numpy.typing import NDArray

from whenabouts.encoders import TextEncoder, open_text_encoder
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.relevance.ranked import BANDS, RankedSet, rank_moments, write_ranked
from whenabouts_bench.relevance.units import encoded

TOPS = (1, 20, 40)
METRIC = "nDCG@20,IoU=0.5"
TRUTHS = {
    "plain vectors": "ranked_test.jsonl",
    WORDS: f"ranked_test_{WORDS}.jsonl",
    GENERATOR: f"ranked_test_{GENERATOR}.jsonl",
}
"""Text model -> the file below FEATURES that has the truth by it."""

Floats = NDArray[np.float32]


class PlainVectors:
    """Sentences as weighted means of words' vectors, which come of which words stand near which.

    Words: positive pointwise mutual information in windows of 4 words to either side, with contexts to the
    power of 0.75, and its 200 first singular vectors, times the roots of the singular values (Levy, Goldberg
    and Dagan, TACL 2015), brought to unit length. Sentences: a word of frequency p weighs 0.001 /
    (0.001 + p), and the first principal component is taken away (Arora, Liang and Ma, ICLR 2017). One of no
    known word has zeros.
    """

    window, least, weight = 4, 5, 1e-3

    def __init__(self, texts: Sequence[str], width: int = 200) -> None:
        sentences = [_words(text) for text in texts]
        counts = Counter(word for sentence in sentences for word in sentence)
        known = sorted(word for word, count in counts.items() if count >= self.least)
        self._row = {word: row for row, word in enumerate(known)}
        self.name = "plain vectors"
        self.dimension = width
        self.fingerprint = f"plain vectors of {_digest(texts)} width={width}"
        total = sum(counts.values())
        frequency = np.array([counts[word] / total for word in known])
        self._weights = (self.weight / (self.weight + frequency)).astype(np.float32)
        self._vectors = _vectors(self._met(sentences), width)
        self._common = np.zeros(width, np.float32)
        means = self._means(sorted(set(texts)))
        self._common = np.linalg.svd(means[np.abs(means).sum(1) > 0], full_matrices=False)[2][0]

    def encode_text(self, texts: Sequence[str]) -> Floats:
        """(N, width) unit vectors, or zeros."""
        means = self._means(texts)
        means -= np.outer(means @ self._common, self._common)
        return _unit(means)

    def _means(self, texts: Sequence[str]) -> Floats:
        means = np.zeros((len(texts), self.dimension), np.float32)
        for number, text in enumerate(texts):
            rows = [self._row[word] for word in _words(text) if word in self._row]
            if rows:
                means[number] = (self._weights[rows, None] * self._vectors[rows]).mean(0)
        return means

    def _met(self, sentences: Sequence[Sequence[str]]) -> Any:
        """(W, W) how often words stand near each other, sparse."""
        from scipy.sparse import coo_array

        met: Counter[tuple[int, int]] = Counter()
        for sentence in sentences:
            rows = [self._row[word] for word in sentence if word in self._row]
            for place, row in enumerate(rows):
                met.update((row, other) for other in rows[place + 1 : place + 1 + self.window])
        pairs = np.array(list(met), np.int64)
        values = np.fromiter(met.values(), np.float64, len(met))
        half = coo_array((values, (pairs[:, 0], pairs[:, 1])), shape=(len(self._row),) * 2).tocsr()
        return (half + half.T).tocoo()


def _vectors(met: Any, width: int) -> Floats:
    """(W, width) of how often words met."""
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import svds

    words = met.sum(axis=1)
    contexts = words**0.75
    information = np.log(met.data * contexts.sum() / (words[met.row] * contexts[met.col]))
    positive = coo_array((np.maximum(information, 0), (met.row, met.col)), shape=met.shape).tocsr()
    left, values, _ = svds(positive, k=width, v0=np.ones(met.shape[0]))
    return _unit((left * np.sqrt(values)).astype(np.float32))


def _unit(vectors: Floats) -> Floats:
    """Brought to unit length; zeros stay."""
    unit: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-6))
    return unit


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def bands_like(vectors: Floats, reference: Floats) -> tuple[float, ...]:
    """Where grades begin, so that as many pairs of captions lie above as above BANDS by the reference."""
    pairs = np.triu_indices(len(vectors), 1)
    known, own = (reference @ reference.T)[pairs], (vectors @ vectors.T)[pairs]
    shares = [float((known >= band).mean()) for band in BANDS]
    return tuple(round(float(value), 4) for value in np.quantile(own, 1 - np.array(shares)))


def once(ranked: RankedSet) -> RankedSet:
    """Without the queries whose words another query before has."""
    first: dict[str, int] = {}
    for number in np.unique(ranked.query).tolist():
        first.setdefault(_same(ranked.annotations.queries[number].text), number)
    kept = np.isin(ranked.query, list(first.values()))
    columns = {name: getattr(ranked, name)[kept] for name in ("query", "moment", "similarity")}
    return replace(ranked, **columns)


def _same(text: str) -> str:
    """What two equal captions have in common, as `rank_moments` compares them."""
    return " ".join(text.lower().split()).rstrip(" .")


def drawn(annotations: Annotations, *counts: int) -> list[list[str]]:
    """Distinct captions drawn by chance, so many and so many."""
    texts = np.array(sorted({_same(query.text) for query in annotations.queries}), object)
    order = draws("ranked setting", len(texts)).permutation(len(texts))
    if sum(counts) >= len(texts):
        raise SystemExit(f"{annotations.name}: has {len(texts)} captions, and {sum(counts)} are to be asked")
    ends = np.cumsum((0, *counts)).tolist()
    return [texts[order[begin:end]].tolist() for begin, end in pairwise(ends)]


class _Maker:
    """Writes the sets of a pool and tells what they are."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.out: Path = options.features
        texts = [query.text for file in options.texts for query in read_annotations(file).queries]
        plain: Any = PlainVectors(texts)
        self.models: dict[str, TextEncoder] = {
            "": plain, **{name: open_text_encoder(name) for name in (WORDS, GENERATOR)},
        }  # fmt: skip
        self.facts: dict[str, Any] = {"texts of the plain vectors": len(texts)}
        self.bands: dict[str, tuple[float, ...]] = {}

    def compare(self, pool: Annotations) -> None:
        """Fix the bands of grades by the captions of a pool, and tell how far the models agree."""
        from scipy.stats import spearmanr

        captions = sorted({_same(query.text) for query in pool.queries})
        vectors = {name: encoded(captions, model) for name, model in self.models.items()}
        self.bands = {name: bands_like(own, vectors[WORDS]) for name, own in vectors.items()}
        pairs = np.triu_indices(len(captions), 1)
        cosines = {name or "plain": (own @ own.T)[pairs] for name, own in vectors.items()}
        self.facts["grades begin at"] = {name or "plain": bands for name, bands in self.bands.items()}
        self.facts["rank correlations of captions' cosines"] = {
            f"{one}, {other}": round(float(spearmanr(cosines[one], cosines[other]).statistic), 3)
            for one, other in combinations(cosines, 2)
        }

    def training(self, pool: Annotations, asked: Sequence[str]) -> None:
        """Sets to train on, by the model of the words, without the queries that are asked."""
        ranked = rank_moments(pool, self.models[WORDS], max(TOPS), asked_elsewhere=asked)
        for top in TOPS:
            self._write(ranked.first(top), f"train_top{top:02d}", graded=False)

    def truth(self, pool: Annotations, asked: Sequence[str], name: str, *models: str) -> None:
        """Graded sets of the queries asked, once each, by each of the models."""
        for model in models:
            ranked = rank_moments(pool, self.models[model], max(TOPS), asked_in=asked)
            own = replace(once(ranked), bands=self.bands[model])
            self._write(own, f"{name}_{model}" if model else name, graded=True)

    def _write(self, ranked: RankedSet, name: str, *, graded: bool) -> None:
        folder, _, last = name.rpartition("/")
        path = self.out / folder / f"ranked_{last}.jsonl"
        write_ranked(ranked, path, graded=graded)
        self.facts[name] = ranked.summary(graded=graded)


def make(options: argparse.Namespace) -> None:
    """Read, rank, write."""
    out, prefix = options.features, options.prefix
    pool = fewer_videos(read_annotations(out / f"{prefix}_train.jsonl"), options.videos)
    new = fewer_videos(read_annotations(out / f"{prefix}_test.jsonl"), options.test_videos)
    maker = _Maker(options)
    maker.compare(pool)
    validation, test = drawn(pool, options.validation, options.test)
    maker.training(pool, [*validation, *test])
    maker.truth(pool, validation, "val", "")
    maker.truth(pool, test, "test", *maker.models)
    (out / "new").mkdir(exist_ok=True)
    maker.truth(new, drawn(new, options.test)[0], "new/test", *maker.models)
    for name in ("video", "words"):
        link = out / "new" / f"{prefix}_{name}"
        if not link.exists():
            link.symlink_to(Path("..") / link.name)
    told = json.dumps(maker.facts, indent=1)
    (out / "ranked_settings.json").write_text(told + "\n", encoding="utf-8")
    print(told)


def under(options: argparse.Namespace) -> Iterator[str]:
    """Means of what was answered, under each truth, as Markdown."""
    study = load_studies()["ranked"]
    seeds = options.seeds.split(",")
    yield f"| {METRIC} by | {' | '.join(TRUTHS)} |"
    yield "|" + "---|" * (len(TRUTHS) + 1)
    for system in study.systems:
        runs = [options.out / f"{system.name}-{seed}" / "answers.jsonl" for seed in seeds]
        runs = [run for run in runs if run.exists()]
        if runs:
            cells = [
                [
                    evaluate(options.features / file, run, [METRIC], protocol="rvmr").means()[METRIC]
                    for run in runs
                ]
                for file in TRUTHS.values()
            ]
            told = " | ".join(trainings.seeds([100 * value for value in own]) for own in cells)
            yield f"| {system.name} | {told} |"


def main() -> None:
    """Make the files, or measure under other truths."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    making = actions.add_parser("make")
    making.add_argument("features", type=Path)
    making.add_argument("--prefix", required=True, help="what the names of the features begin with")
    making.add_argument(
        "--videos", type=int, help="how many of the training videos are the pool; default: all"
    )
    making.add_argument(
        "--test-videos", type=int, help="how many of the test videos are the new pool; default: all"
    )
    making.add_argument("--texts", type=Path, nargs="+", required=True, help="what plain vectors are made of")
    making.add_argument("--validation", type=int, default=60, help="queries of validation")
    making.add_argument("--test", type=int, default=300, help="queries of test, in each pool")
    measuring = actions.add_parser("under")
    measuring.add_argument("features", type=Path)
    measuring.add_argument("out", type=Path)
    measuring.add_argument("--seeds", default="1,2,3")
    options = parser.parse_args()
    if options.action == "make":
        make(options)
    else:
        print("\n".join(under(options)))


if __name__ == "__main__":
    main()
