"""Write the data set of ActivityNet's two annotators, and measure systems on it.

    python -m benchmarks.two_annotators write DIR OUT     # DIR has val_1 and val_2 of ActivityNet Captions
    whenabouts train activitynet_two_annotators/xml --features OUT --out RUN --set training.seed=1
    whenabouts run --checkpoint RUN --features OUT --split test --out RUN.json
    python -m benchmarks.two_annotators measure OUT [--own 300] [--pools POOLS] [--run xml@1=RUN.json ...]
    python -m benchmarks.two_annotators validated OUT FILE XML@1=RUN ...
    python -m benchmarks.two_annotators table [FILE]
    python -m benchmarks.two_annotators answers FILE XML@1=RUN.json ...

`write` makes the judgements and the words (`whenabouts_bench.datasets.activitynet_two_annotators`), a
transcript for each test video, and features by MiniLM: the tokens of all queries, and for each clip of 4 s
the mean of the sentences in it, weighted by seconds, or zeros if the first person wrote nothing there.

`measure` asks every query of the test split in all its videos. TF-IDF, BM25 and MiniLM rank the first
person's sentences: a moment is a sentence, a video scores its best one. `--own N` asks whenabouts itself, as
its users do, the queries of the N test videos with the lowest hashes, over transcripts of all test videos; it
lists 60 moments of 100 that are asked for, so R@100 counts fewer.
`--run NAME@SEED=FILE` is a run of a training. What each query found is kept in a file, beside that of
trainings asked before. `table` needs nothing else: it prints means with 95 % intervals over videos (and
trainings), and trained systems against XML, training by training, with p corrected by Holm's method over the
systems of a metric. `validated` writes such a file for the validation split: of the sentence rankers, and of
each training's best epoch so far, which its folder has. It also writes what each epoch reached (`CURVES`).

`answers` keeps the first moment of each list, for other metrics and other eyes.

With `--pools` (of `whenabouts build mvmr`) each query is asked in its pool, where moments of other videos are
right, too; what was found is kept in another file (`POOLED`).
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine
from benchmarks.study_outcomes import (
    Outcomes,
    differences,
    mean_rows,
    opened,
    updated,
    write_answers,
    written,
)
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from whenabouts import Corpus
from whenabouts.clips import clip_counts
from whenabouts.encoders import encode_passages, open_text_encoder
from whenabouts_bench.datasets import open_dataset
from whenabouts_bench.datasets.activitynet_two_annotators import SHARES, WORDS_FILE, write_two_annotators
from whenabouts_bench.evaluation.comparison import clusters_of
from whenabouts_bench.evaluation.evaluate import Evaluation, evaluate
from whenabouts_bench.evaluation.significance import bootstrap_intervals
from whenabouts_bench.formats import open_run, read_annotations
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations, judgement_rows
from whenabouts_bench.formats.runs import RunBlock, RunBlockBuilder, Task, own_lists
from whenabouts_bench.formats.sentences import Sentence, Transcripts, read_sentences
from whenabouts_systems.features.fingerprint import Fingerprint
from whenabouts_systems.features.layouts.store import write_store
from whenabouts_systems.own_features import write_token_features

RESULT = Path(__file__).parent / "results" / "two_annotators.json"
OUTCOMES = RESULT.with_suffix(".csv.xz")
CURVES = RESULT.with_name("two_annotators_curves.csv")
POOLED = RESULT.with_name("two_annotators_pools.csv.xz")
CLIP_SECONDS = 4.0
ENCODER = "minilm"
MOMENTS = 100
BASELINE = "XML"
CONQUER = "CONQUER, videos of PREM's retriever"
PAIRS = (
    ("ReLoCLNet", BASELINE),
    ("PREM", BASELINE),
    ("PREM", CONQUER),
    ("PREM", "PREM, videos of XML"),
    ("PREM, videos of XML", "CONQUER, videos of XML"),
    (CONQUER, "CONQUER, videos of XML"),
    *((f"XML +SL, {reading}", other) for reading in ("logits", "shift") for other in ("XML +SL", BASELINE)),
    ("HERO's head", BASELINE),
    ("MMN", BASELINE),
    ("QD-DETR, videos of PREM's retriever", BASELINE),
    ("MMN, videos of PREM's retriever", "QD-DETR, videos of PREM's retriever"),
    ("QD-DETR, videos of MS-SL", "QD-DETR, videos of PREM's retriever"),
    ("CroCs, first stage", "MMN"),
    ("CroCs, first stage, videos of PREM's retriever", "MMN, videos of PREM's retriever"),
    *((f"XML +SL+PR, {reading}", f"XML +SL, {reading}") for reading in ("logits", "shift")),
    ("SQuiDNet, videos of PREM's retriever", CONQUER),
    ("CroCs", "CroCs, first stage"),
    ("CroCs", "MMN"),
    ("CroCs, videos of PREM's retriever", "CroCs, first stage, videos of PREM's retriever"),
    *((f"{system}, five videos of PREM's retriever", system) for system in ("MMN", "CroCs")),
    ("XML, 100 epochs", BASELINE),
    ("XML +PR, 100 epochs", "XML, 100 epochs"),
)
"""Differences beside those from XML; pairs with one training in common get intervals over videos only."""
METRICS = (
    *(f"VR R@{k}" for k in (1, 5, 10, 100)),
    *(f"SVMR R@{k},IoU={iou}" for iou in (0.5, 0.7) for k in (1, 5)),
    *(f"R@{k},IoU={iou}" for iou in (0.5, 0.7) for k in (1, 10, 100)),
)
IN_POOLS = tuple(f"R@{k},IoU={iou}" for iou in (0.5, 0.7) for k in (1, 5, 20))

Floats = NDArray[np.float64]


def main() -> None:
    """Write the data set, or measure on it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    writes = verbs.add_parser("write")
    writes.add_argument("annotations", type=Path)
    writes.add_argument("out", type=Path)
    measures = verbs.add_parser("measure")
    measures.add_argument("out", type=Path)
    measures.add_argument("--own", type=int, default=0, metavar="VIDEOS")
    measures.add_argument("--pools", type=Path)
    measures.add_argument("--run", action="append", default=[], metavar="NAME@SEED=FILE")
    validates = verbs.add_parser("validated")
    validates.add_argument("out", type=Path)
    validates.add_argument("file", type=Path)
    validates.add_argument("run", nargs="+", metavar="NAME@SEED=FOLDER")
    shown = verbs.add_parser("table")
    shown.add_argument("file", type=Path, nargs="?", default=OUTCOMES)
    firsts = verbs.add_parser("answers")
    firsts.add_argument("file", type=Path)
    firsts.add_argument("run", nargs="+", metavar="NAME@SEED=FILE")
    options = parser.parse_args()
    if options.verb == "write":
        write(options.annotations, options.out)
    elif options.verb == "measure" and options.pools:
        measure_in_pools(options.out, options.pools, options.run)
    elif options.verb == "measure":
        measure(options.out, options.own, options.run)
    elif options.verb == "validated":
        found = validated(options.run, untrained(options.out, "val"))
        written(beside(options.file, found), options.file)
        keep_curves(options.run)
    elif options.verb == "answers":
        named = trainings_of(options.run)
        write_answers(((name, seed, open_run(file)) for (name, seed), file in named), options.file)
    else:
        print("\n".join(table(opened(options.file))))


# --- the files


def write(annotations: Path, out: Path) -> None:
    """The data set, transcripts and features."""
    both = open_dataset("activitynet-captions", annotations)
    made = write_two_annotators(both.annotations("val_2"), both.annotations("val_1"), out)
    said = read_sentences(out / WORDS_FILE)
    folder = out / "transcripts"
    folder.mkdir(exist_ok=True)
    for video in made["test"].videos:
        (folder / f"{video.id}.srt").write_text(srt(said[video.id]), encoding="utf-8")
    encoder = open_text_encoder(ENCODER)
    queries = [query for split in made.values() for query in split.queries]
    write_token_features(queries, encoder, out / "two_annotators_queries")
    durations = {video.id: float(video.duration or 0) for split in made.values() for video in split.videos}
    made_by = Fingerprint(encoder=encoder.name, clip_seconds=CLIP_SECONDS)
    vectors = sentence_vectors(said)
    rows = ((name, clips_of(said[name], vectors[name], seconds)) for name, seconds in durations.items())
    write_store(out / "two_annotators_words", rows, made_by, np.dtype(np.float16))
    print({name: (len(split.videos), len(split.queries)) for name, split in made.items()})


def sentence_vectors(said: Transcripts) -> dict[str, Floats]:
    """Video id -> (N, D) vectors of its sentences."""
    texts = [sentence.text for sentences in said.values() for sentence in sentences]
    vectors = encode_passages(open_text_encoder(ENCODER), texts)
    ends = np.cumsum([len(sentences) for sentences in said.values()])[:-1]
    return dict(zip(said, np.split(vectors, ends), strict=True))


def clips_of(sentences: Sequence[Sentence], vectors: Floats, seconds: float) -> NDArray[np.float32]:
    """(T, D): the mean vector of each clip's sentences, weighted by their seconds in it, of unit length."""
    begins = CLIP_SECONDS * np.arange(int(clip_counts(seconds, CLIP_SECONDS)))
    times = np.array([(sentence.start, sentence.end) for sentence in sentences])
    shared = np.minimum(times[:, 1], begins[:, None] + CLIP_SECONDS) - np.maximum(
        times[:, 0], begins[:, None]
    )
    rows = np.maximum(shared, 0) @ vectors
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), np.float32)


def srt(sentences: Sequence[Sentence]) -> str:
    """A transcript in SubRip."""

    def clock(seconds: float) -> str:
        milliseconds = round(1000 * seconds)
        minutes, rest = divmod(milliseconds, 60_000)
        return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02},{rest % 1000:03}"

    cues = (f"{n}\n{clock(s.start)} --> {clock(s.end)}\n{s.text}\n" for n, s in enumerate(sentences, 1))
    return "\n".join(cues)


# --- baselines


@dataclass(frozen=True)
class SentenceRun:
    """A run whose moments are sentences; `score` gives (Q, S) for some queries' texts and all sentences."""

    name: str
    truth: Annotations
    said: Transcripts
    score: Callable[[Sequence[str]], Floats]

    tasks: tuple[Task, ...] = ("VCMR", "SVMR", "VR")

    @property
    def answered(self) -> Mapping[Task, Task]:
        return own_lists(self.tasks)

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        names = [video.id for video in self.truth.videos]
        sentences = [(name, one) for name in names for one in self.said[name]]
        counts = np.array([len(self.said[name]) for name in names])
        begins = np.cumsum(counts) - counts
        pools = self.truth.search_pools
        number = {name: at for at, name in enumerate(names)}
        all_places = np.split(np.arange(len(sentences)), begins[1:])
        own = dict(zip(self.truth.query.tolist(), self.truth.video.tolist(), strict=True))
        for first in range(0, len(self.truth.queries), 256):
            queries = range(first, min(first + 256, len(self.truth.queries)))
            scores = self.score([self.truth.queries[query].text for query in queries])
            best = np.maximum.reduceat(scores, begins, axis=1)
            builder = RunBlockBuilder()
            for row, query in enumerate(queries):
                if task == "VR":
                    order = np.argsort(-best[row], kind="stable")[:MOMENTS]
                    rows = [(names[at], np.nan, np.nan, float(best[row, at])) for at in order]
                else:
                    searched = pools.get(self.truth.queries[query].id, names)
                    if task == "SVMR":
                        searched = [names[own[query]]]
                    places = np.concatenate([all_places[number[name]] for name in searched])
                    order = places[np.argsort(-scores[row, places], kind="stable")][:MOMENTS]
                    rows = [
                        (
                            sentences[at][0],
                            sentences[at][1].start,
                            sentences[at][1].end,
                            float(scores[row, at]),
                        )
                        for at in order
                    ]
                builder.add(self.truth.queries[query].id, rows)
            yield builder.block()


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()


class Words:
    """Sparse counts (N, W) of the words of N sentences, and in how many each word is."""

    def __init__(self, sentences: Sequence[str]) -> None:
        known = dict.fromkeys(word for text in sentences for word in words_of(text))
        self.place = {word: number for number, word in enumerate(known)}
        self.counts = self.of(sentences)
        self.frequency = np.bincount(self.counts.indices, minlength=len(self.place))

    def of(self, texts: Sequence[str]) -> csr_array:
        """(Q, W) counts of known words."""
        counts = [Counter(word for word in words_of(text) if word in self.place) for text in texts]
        places = [self.place[word] for one in counts for word in one]
        ends = np.cumsum([0, *map(len, counts)])
        values = [float(times) for one in counts for times in one.values()]
        return csr_array((values, places, ends), (len(texts), len(self.place)))


def tf_idf(words: Words) -> Callable[[Sequence[str]], Floats]:
    """Cosines of counts times log((1 + N) / (1 + n)) + 1."""
    idf = np.log((1 + words.counts.shape[0]) / (1 + words.frequency)) + 1

    def unit(counts: csr_array) -> csr_array:
        weighted = counts * idf
        lengths = np.sqrt((weighted * weighted).sum(1))
        return diags_array(1 / np.where(lengths > 0, lengths, 1)) @ weighted.tocsr()

    documents = unit(words.counts).T
    return lambda texts: (unit(words.of(texts)) @ documents).toarray()


def bm25(words: Words, k1: float = 1.2, b: float = 0.75) -> Callable[[Sequence[str]], Floats]:
    """Robertson's BM25 with the usual constants."""
    weights, lengths = words.counts.copy(), words.counts.sum(1)
    idf = np.log(1 + (len(lengths) - words.frequency + 0.5) / (words.frequency + 0.5))
    norms = np.repeat(k1 * (1 - b + b * lengths / lengths.mean()), np.diff(weights.indptr))
    weights.data = idf[weights.indices] * weights.data * (k1 + 1) / (weights.data + norms)
    documents = weights.T
    return lambda texts: (words.of(texts) @ documents).toarray()


def minilm(vectors: Mapping[str, Floats], names: Sequence[str]) -> Callable[[Sequence[str]], Floats]:
    """Cosines of sentence vectors; nothing is trained on this data set."""
    documents, encoder = np.concatenate([vectors[name] for name in names]), open_text_encoder(ENCODER)
    return lambda texts: encoder.encode_text(texts) @ documents.T


# --- whenabouts itself


@dataclass(frozen=True)
class OwnRun:
    """`Corpus.search` over transcripts: moments of the corpus, and of the given video."""

    name: str
    truth: Annotations
    corpus: Corpus

    tasks: tuple[Task, ...] = ("VCMR", "SVMR")

    @property
    def answered(self) -> Mapping[Task, Task]:
        return {"VCMR": "VCMR", "VR": "VCMR", "SVMR": "SVMR"}

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        stems = {video.id: Path(video.path).stem for video in self.corpus.videos()}
        own = dict(zip(self.truth.query.tolist(), self.truth.video.tolist(), strict=True))
        for first in range(0, len(self.truth.queries), 64):
            builder = RunBlockBuilder()
            for query in range(first, min(first + 64, len(self.truth.queries))):
                within = (f"{self.truth.videos[own[query]].id}.srt",) if task == "SVMR" else ()
                found = self.corpus.search(self.truth.queries[query].text, MOMENTS, within=within).moments
                rows = [
                    (stems[one.moment.video_id], one.moment.start, one.moment.end, one.score) for one in found
                ]
                builder.add(self.truth.queries[query].id, rows)
            yield builder.block()


def own_corpus(out: Path) -> Corpus:
    """The transcripts of the test videos, indexed beside them."""
    place = out / "own.corpus"
    corpus = Corpus(place, create=True)
    if len(corpus.videos()) < len(list((out / "transcripts").glob("*.srt"))):
        corpus.add(out / "transcripts")
    return corpus


def queries_of(truth: Annotations, videos: int) -> Annotations:
    """The queries of the videos with the lowest hashes; all videos stay to be searched."""

    def place(name: str) -> str:
        return hashlib.sha256(f"own {name}".encode()).hexdigest()

    chosen = set(sorted((video.id for video in truth.videos), key=place)[:videos])
    kept = np.array([truth.videos[video].id in chosen for video in truth.video])
    return some_queries(truth, kept)


def some_queries(truth: Annotations, kept: NDArray[np.bool_]) -> Annotations:
    """The annotations of the judgements that are kept, without queries that have none."""
    left = truth.where(kept)
    numbers, query = np.unique(left.query, return_inverse=True)
    return replace(left, queries=tuple(truth.queries[number] for number in numbers), query=query)


# --- numbers


def measure(out: Path, own: int, runs: Sequence[str]) -> None:
    """Measure systems on the test split; the files keep results of systems that are not measured again."""
    dataset = open_dataset("activitynet-two-annotators", out)
    test, said = dataset.annotations("test"), read_sentences(out / WORDS_FILE)
    found = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    asked: dict[tuple[str, str], Evaluation] = {}
    if not runs and not own:
        keep(untrained(out, "test"))
        whole = together([dataset.annotations(split) for split in SHARES])
        run = SentenceRun("TF-IDF", whole, said, tf_idf(Words(texts_of(whole, said))))
        metrics = [metric for metric in METRICS if not metric.startswith("R@")]
        found["all videos"] = {"TF-IDF": numbers_of(evaluate(whole, run, metrics), whole)}
    if own:
        some = queries_of(test, own)
        asked["whenabouts", "1"] = evaluate(some, OwnRun("whenabouts", some, own_corpus(out)), METRICS)
    asked |= {training: evaluate(test, file, METRICS) for training, file in trainings_of(runs)}
    if asked:
        keep(outcomes_of(test, asked))
    found |= {"machine": describe_machine("numpy", "onnxruntime"), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(opened(OUTCOMES))))


def measure_in_pools(out: Path, pools: Path, runs: Sequence[str]) -> None:
    """Measure the sentence rankers, and runs that answered in pools."""
    truth, said = read_annotations(pools), read_sentences(out / WORDS_FILE)
    asked = {training: evaluate(truth, file, IN_POOLS) for training, file in trainings_of(runs)}
    for name, run in baselines(truth, {video.id: said[video.id] for video in truth.videos}).items():
        asked[name, "1"] = evaluate(truth, replace(run, tasks=("VCMR",)), IN_POOLS)
    written(beside(POOLED, outcomes_of(truth, asked)), POOLED)
    print("\n".join(table(opened(POOLED))))


def untrained(out: Path, split: str) -> Outcomes:
    """The outcomes of the sentence rankers on a split."""
    truth = open_dataset("activitynet-two-annotators", out).annotations(split)
    said = read_sentences(out / WORDS_FILE)
    runs = baselines(truth, {video.id: said[video.id] for video in truth.videos})
    return outcomes_of(truth, {(name, "1"): evaluate(truth, run, METRICS) for name, run in runs.items()})


def trainings_of(runs: Sequence[str]) -> Iterator[tuple[tuple[str, str], Path]]:
    """((name, seed), place) of each NAME@SEED=PLACE."""
    for named in runs:
        training, _, place = named.rpartition("=")
        name, _, seed = training.rpartition("@")
        if not name or not seed.isdecimal():
            raise SystemExit(f"{named}: is not NAME@SEED=PLACE")
        yield (name, seed), Path(place)


def validated(runs: Sequence[str], untrained: Outcomes) -> Outcomes:
    """Outcomes of the validation split, with what its queries found in the folders of trainings."""
    values = dict(untrained.values)
    for training, folder in trainings_of(runs):
        text = (folder / "validation.queries.jsonl").read_text(encoding="utf-8")
        found = {row["query_id"]: row["metrics"] for row in map(json.loads, text.splitlines())}
        if found.keys() != set(untrained.queries):
            raise SystemExit(f"{folder}: validated on other queries than those of the validation split")
        values[training] = np.array(
            [[found[query][metric] for metric in METRICS] for query in untrained.queries]
        )
    return replace(untrained, values=values)


def keep_curves(runs: Sequence[str]) -> None:
    """Write what each epoch of these trainings reached on validation, in percent; others stay as they are."""
    shown = ("VR R@1", "VR R@10", "SVMR R@1,IoU=0.5", *(f"R@{k},IoU=0.5" for k in (1, 10, 100)))
    header = ["system", "seed", "epoch", "step", "own_cosine", "total", *shown]
    kept: dict[tuple[str, str], list[list[str]]] = {}
    if CURVES.is_file():
        with CURVES.open(encoding="utf-8", newline="") as stream:
            for row in list(csv.reader(stream))[1:]:
                kept.setdefault((row[0], row[1]), []).append(row)
    for (name, seed), folder in trainings_of(runs):
        lines = map(json.loads, (folder / "curves.jsonl").read_text(encoding="utf-8").splitlines())
        kept[name, seed] = [
            [name, seed, str(line["epoch"]), str(line["step"])]
            + [f"{line['losses'][loss]:.4f}" for loss in ("own_cosine", "total")]
            + [f"{100 * line['metrics'][metric]:.2f}" for metric in shown]
            for line in lines
        ]
    with CURVES.open("w", encoding="utf-8", newline="") as stream:
        order = list(dict.fromkeys(name for name, _ in kept))
        rows = [kept[training] for training in sorted(kept, key=lambda own: (order.index(own[0]), own[1]))]
        csv.writer(stream, lineterminator="\n").writerows([header, *(line for each in rows for line in each)])


def outcomes_of(truth: Annotations, asked: Mapping[tuple[str, str], Evaluation]) -> Outcomes:
    """What each query of the split found; NaN where a system was not asked."""
    filed = clusters_of(truth)
    row = {query: number for number, query in enumerate(sorted(filed))}
    values, metrics = {}, tuple(next(iter(asked.values())).metrics)
    for training, one in asked.items():
        values[training] = np.full((len(row), len(metrics)), np.nan)
        values[training][[row[query] for query in one.query_ids]] = one.values
    return Outcomes(metrics, tuple(row), tuple(truth.videos[filed[query]].id for query in row), values)


def keep(outcomes: Outcomes) -> None:
    """Update the file of outcomes; trainings that are not in `outcomes` keep theirs."""
    written(beside(OUTCOMES, outcomes), OUTCOMES)


def beside(file: Path, outcomes: Outcomes) -> Outcomes:
    """The outcomes with those of a file for trainings that are not among them."""
    before = opened(file) if file.is_file() else replace(outcomes, values={})
    return updated(before, outcomes, list(dict.fromkeys(before.systems + outcomes.systems)))


def baselines(truth: Annotations, said: Transcripts) -> dict[str, SentenceRun]:
    """The sentence rankers over the videos of a split."""
    words = Words(texts_of(truth, said))
    scores = {
        "TF-IDF": tf_idf(words),
        "BM25": bm25(words),
        "MiniLM": minilm(sentence_vectors(said), [video.id for video in truth.videos]),
    }
    return {name: SentenceRun(name, truth, said, score) for name, score in scores.items()}


def texts_of(truth: Annotations, said: Transcripts) -> list[str]:
    """The sentences of a split's videos, in order."""
    return [sentence.text for video in truth.videos for sentence in said[video.id]]


def together(splits: Sequence[Annotations]) -> Annotations:
    """All splits as one."""
    builder = AnnotationBuilder("all videos")
    for split in splits:
        for video in split.videos:
            builder.add_video(video.id, video.duration)
        for number, video_number, start, end, _ in judgement_rows(split):
            query = split.queries[number]
            builder.add_query(query.id, query.text)
            builder.judge(query.id, split.videos[video_number].id, start, end)
    return builder.annotations()


def numbers_of(one: Evaluation, truth: Annotations) -> dict[str, Any]:
    """Metric -> percent with its interval over videos."""
    filed = clusters_of(truth)
    ends = bootstrap_intervals(one.values, np.array([filed[name] for name in one.query_ids]))
    metrics = {
        metric: [round(100 * float(value), 2) for value in (mean, *interval)]
        for metric, mean, interval in zip(one.metrics, one.values.mean(axis=0), ends, strict=True)
    }
    return {"queries": len(one.query_ids), "videos": len(set(filed.values())), "metrics": metrics}


def table(outcomes: Outcomes) -> Iterator[str]:
    """Means, and differences of trained systems from XML, in percent, as Markdown.

    A second table has the systems that got only some queries, with all systems measured on these queries.
    """
    asked = np.stack([np.isfinite(own).all(axis=1) for own in outcomes.values.values()])
    parts: list[NDArray[np.bool_]] = [np.full(len(outcomes.queries), fill_value=True)]
    if not asked.all():
        parts.append(np.asarray(asked.all(axis=0)))
    for kept in parts:
        videos = tuple(np.array(outcomes.videos)[kept].tolist())
        values = {
            training: own[kept] for training, own in outcomes.values.items() if np.isfinite(own[kept]).all()
        }
        queries = tuple(np.array(outcomes.queries)[kept].tolist())
        part = replace(outcomes, queries=queries, videos=videos, values=values)
        yield f"{len(videos):,} queries of {len(set(videos)):,} videos:"
        yield ""
        yield from mean_rows(part)
        trained = part.trained_again
        if BASELINE in trained and len(trained) > 1:
            yield ""
            pairs = [(system, BASELINE) for system in trained if system != BASELINE]
            pairs += [pair for pair in PAIRS if BASELINE not in pair and {*pair} <= {*trained}]
            yield from differences(pairs, part, trained)
        if once := [pair for pair in PAIRS if len(set.intersection(*map(set, map(part.seeds, pair)))) == 1]:
            yield ""
            yield from of_one_training(once, part)
        yield ""


def of_one_training(pairs: Sequence[tuple[str, str]], outcomes: Outcomes) -> Iterator[str]:
    """Differences of single trainings with the same seed; how much trainings vary is not in the intervals."""
    clusters = np.unique(outcomes.videos, return_inverse=True)[1]
    yield f"| difference of one training each | {' | '.join(outcomes.metrics)} |"
    yield "|" + "---|" * (len(outcomes.metrics) + 1)
    for system, other in pairs:
        [seed] = {*outcomes.seeds(system)} & {*outcomes.seeds(other)}
        values = outcomes.values[system, seed] - outcomes.values[other, seed]
        ends = bootstrap_intervals(values, clusters)
        cells = (
            f"{100 * mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
            for mean, (low, high) in zip(values.mean(axis=0), ends, strict=True)
        )
        yield f"| {system} - {other} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
