"""Titled transcripts: the data set's files, and whether training on some recordings helps to search others.

    python -m benchmarks.titled_transcripts write DIR OUT      # DIR has transcripts and titles of their parts
    python -m benchmarks.titled_transcripts train OUT RUNS [--systems xml,prem] [--seeds 1,2,3]
    python -m benchmarks.titled_transcripts gather OUT RUNS [--to FILE] [--answers FILE]
    python -m benchmarks.titled_transcripts table [FILE]

`write` makes the judgements and the words (`whenabouts_bench.datasets.titled_transcripts`), a transcript for
each video, whenabouts' own index of them all, and features of it: clips of a minute, and tokens of the
titles, by MiniLM. `train` trains systems on each fold with several seeds, one after the other, and lets them
answer the fold's test split. `gather` asks whenabouts the same titles, and keeps what each system found for
each title, and the first moments; `table` needs nothing else.

A title is asked in all videos, those trained on included, and in the given one. "hit@K": among the first K
moments is one of the right video whose middle lies inside the part, 45 s either way, as in
`benchmarks/spoken_search.py`. Borders are measured by IoU. A seed's three folds together are one training.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from benchmarks import trainings
from benchmarks.spoken_search import CUTS, TOLERANCE
from benchmarks.study_outcomes import Outcomes, mean_rows, opened, write_answers, written
from benchmarks.two_annotators import MOMENTS, OwnRun, srt
from numpy.typing import NDArray

from whenabouts import Corpus
from whenabouts.clips import clip_counts
from whenabouts.encoders import open_text_encoder
from whenabouts_bench.datasets import open_dataset
from whenabouts_bench.datasets.titled_transcripts import (
    ALL,
    FOLDS,
    VIDEOS_FILE,
    WORDS_FILE,
    split_names,
    write_titled_transcripts,
)
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.evaluation.several_trainings import over_trainings, pooled_variance
from whenabouts_bench.evaluation.significance import corrected
from whenabouts_bench.formats import open_run
from whenabouts_bench.formats.annotations import Annotations, judgement_rows
from whenabouts_bench.formats.runs import (
    MemoryRun,
    RunBlock,
    RunBlockBuilder,
    RunSource,
    Task,
    moments_of,
)
from whenabouts_bench.formats.sentences import read_sentences
from whenabouts_systems.features import open_features
from whenabouts_systems.features.fingerprint import Fingerprint
from whenabouts_systems.features.layouts.store import write_store
from whenabouts_systems.own_features import queries_of, write_token_features
from whenabouts_systems.trained_search.even_grid import videos_on_grid

RESULT = Path(__file__).parent / "results" / "titled_transcripts.csv.xz"
ANSWERS = RESULT.with_name("titled_transcripts_answers.csv.xz")
SYSTEMS = ("xml", "reloclnet", "prem")
MEASURED = ("VR R@1", "R@1,IoU=0.3", "R@1,IoU=0.5", "SVMR R@1,IoU=0.3", "SVMR R@1,IoU=0.5")
METRICS = (*(f"{where}hit@{k}" for where in ("", "given ") for k in CUTS), *MEASURED)
CLIP_SECONDS = 60.0
ENCODER = "minilm"
STREAM = "subtitle"


def write(source: Path, out: Path) -> None:
    """The data set, transcripts, the index and features."""
    made = write_titled_transcripts(source, out)
    folder = out / "transcripts"
    folder.mkdir(exist_ok=True)
    for name, sentences in read_sentences(out / WORDS_FILE).items():
        (folder / f"{name}.srt").write_text(srt(sentences), encoding="utf-8")
    corpus = Corpus(out / "own.corpus", create=True)
    print("\n".join(corpus.add(folder).lines()), flush=True)
    encoder = open_text_encoder(ENCODER)
    write_token_features(
        queries_of([split.queries for split in made.values()]), encoder, out / "titled_transcripts_queries"
    )
    made_by = Fingerprint(encoder=encoder.name, clip_seconds=CLIP_SECONDS)
    write_store(out / "titled_transcripts_words", clips_of(corpus, out), made_by, np.dtype(np.float16))


def clips_of(corpus: Corpus, out: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Video -> (T, D) for its whole length; zeros where nobody speaks."""
    lengths = json.loads((out / VIDEOS_FILE).read_text(encoding="utf-8"))
    for video in videos_on_grid(corpus.store, [STREAM], CLIP_SECONDS, corpus.store.videos()):
        name, own = Path(video.record.path).stem, video.streams[STREAM]
        rows = np.zeros((int(clip_counts(lengths[name], CLIP_SECONDS)), own.shape[1]), np.float32)
        rows[: len(own)] = own[: len(rows)]
        yield name, rows


# --- trained systems


def train(out: Path, runs: Path, systems: Sequence[str], seeds: Sequence[str]) -> None:
    """Each system on each fold with each seed, and its answers; what is finished is not done again."""
    runs.mkdir(parents=True, exist_ok=True)
    for seed, fold, system in product(seeds, FOLDS, systems):
        run = run_of(runs, system, seed, fold)
        stages = ("prem_retriever.", "prem_localizer.") if system == "prem" else ("",)
        settings = [f"training.seed={seed}"]
        settings += [
            f"data.{part}={split}"
            for part, split in zip(("train", "validation", "test"), split_names(fold), strict=True)
        ]
        experiment = trainings.EXPERIMENTS / "titled_transcripts" / f"{system}.toml"
        trainings.train(
            ["train", str(experiment), "--features", str(out), "--out", str(run)]
            + [part for stage in stages for one in settings for part in ("--set", f"{stage}{one}")],
            run,
        )
        command = ["run", "--checkpoint", str(run), "--features", str(out), "--split", "test"]
        answers = run / "answers.json"
        if not answers.exists():
            trainings.whenabouts([*command, "--out", str(answers)], run.with_name(f"{run.name}.log"))


def run_of(runs: Path, system: str, seed: str, fold: int) -> Path:
    """The folder of one training."""
    return runs / f"{system}-{seed}-{fold}"


# --- outcomes


def gather(out: Path, runs: Path, seeds: Sequence[str], to: Path, answers: Path) -> None:
    """Write what whenabouts, the clips alone and each seed of a trained system gave to each title."""
    dataset = open_dataset("titled-transcripts", out)
    tests = {fold: dataset.annotations(split_names(fold)[2]) for fold in FOLDS}
    whole = dataset.annotations(ALL)
    asked: dict[tuple[str, str], list[tuple[Annotations, RunSource]]] = {
        ("whenabouts", "1"): [(whole, kept(OwnRun("whenabouts", whole, Corpus(out / "own.corpus"))))],
        ("clips", "1"): [(whole, kept(ClipRun("clips", whole, out)))],
    }
    for system, seed in product(SYSTEMS, seeds):
        files = {fold: run_of(runs, system, seed, fold) / "answers.json" for fold in FOLDS}
        if all(file.exists() for file in files.values()):
            asked[system, seed] = [(tests[fold], open_run(file)) for fold, file in files.items()]
        else:
            print(f"{system}-{seed}: has no answers to all folds")
    found = {
        training: {query: row for truth, run in parts for query, row in outcomes_of(truth, run).items()}
        for training, parts in asked.items()
    }
    queries = tuple(sorted(found["whenabouts", "1"]))
    values = {
        training: np.array([own[query] for query in queries]).round(4) for training, own in found.items()
    }
    videos = tuple(query.partition("#")[0] for query in queries)
    written(Outcomes(METRICS, queries, videos, values), to)
    write_answers(
        ((system, seed, run) for (system, seed), parts in asked.items() for _, run in parts), answers
    )


def kept(run: OwnRun | ClipRun) -> MemoryRun:
    """A run that is asked once."""
    return MemoryRun(run.name, {task: tuple(run.blocks(task)) for task in run.tasks}, run.answered)


def outcomes_of(truth: Annotations, run: RunSource) -> dict[str, list[float]]:
    """Title -> the values of METRICS, 0 or 1."""
    measured = evaluate(truth, run, MEASURED)
    rows = {query: own.tolist() for query, own in zip(measured.query_ids, measured.values, strict=True)}
    parts = {
        truth.queries[query].id: (truth.videos[video].id, start, end)
        for query, video, start, end, _ in judgement_rows(truth)
    }
    hits: dict[str, list[float]] = {query: [] for query in rows}
    for task in ("VCMR", "SVMR"):
        first = dict.fromkeys(rows, np.inf)
        for query, moments in moments_of(run, task):
            video, start, end = parts[query]
            first[query] = next(
                (
                    rank
                    for rank, one in enumerate(moments, 1)
                    if one.moment.video_id == video
                    and start - TOLERANCE <= one.moment.middle <= end + TOLERANCE
                ),
                np.inf,
            )
        for query, rank in first.items():
            hits[query] += [float(rank <= k) for k in CUTS]
    return {query: [*hits[query], *own] for query, own in rows.items()}


@dataclass(frozen=True)
class ClipRun:
    """The features alone: clips by their cosine with the title; what trained systems start from."""

    name: str
    truth: Annotations
    out: Path

    tasks: tuple[Task, ...] = ("VCMR", "SVMR")

    @property
    def answered(self) -> Mapping[Task, Task]:
        return {"VCMR": "VCMR", "VR": "VCMR", "SVMR": "SVMR"}

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        source = open_features(self.out / "titled_transcripts_words")
        own = dict(zip(self.truth.query.tolist(), self.truth.video.tolist(), strict=True))
        names = [video.id for video in self.truth.videos]
        clips = [np.asarray(source.get(name), np.float32) for name in names]
        owner = np.repeat(np.arange(len(names)), [len(rows) for rows in clips])
        begin = np.concatenate([CLIP_SECONDS * np.arange(len(rows)) for rows in clips])
        scores = open_text_encoder(ENCODER).encode_text([one.text for one in self.truth.queries])
        scores = scores @ unit(np.concatenate(clips)).T
        builder = RunBlockBuilder()
        for number, query in enumerate(self.truth.queries):
            places = np.flatnonzero(owner == own[number]) if task == "SVMR" else np.arange(len(owner))
            best = places[np.argsort(-scores[number, places], kind="stable")[:MOMENTS]]
            builder.add(
                query.id,
                [
                    (names[owner[at]], begin[at], begin[at] + CLIP_SECONDS, float(scores[number, at]))
                    for at in best
                ],
            )
        yield builder.block()


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """(T, D) of length 1; zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), np.float32)


# --- the table


def table(outcomes: Outcomes) -> Iterator[str]:
    """Means in percent, and trained systems against whenabouts, as Markdown.

    Intervals (95 %) are over recordings, and trainings where there are several; p is corrected over the
    systems of a metric by Holm's method.
    """
    yield from mean_rows(outcomes)
    trained = outcomes.trained_again
    if not trained:
        return
    clusters = np.unique(outcomes.videos, return_inverse=True)[1]
    pooled = pooled_variance([outcomes.of(system) for system in trained])
    yield ""
    yield f"| difference | {' | '.join(outcomes.metrics)} |"
    yield "|" + "---|" * (len(outcomes.metrics) + 1)
    differences = [outcomes.of(system) - outcomes.of("whenabouts") for system in trained]
    told = [over_trainings(values, clusters, pooled) for values in differences]
    p = corrected(np.stack([one.p for one in told]))
    for system, values, one, own in zip(trained, differences, told, p, strict=True):
        cells = (
            f"{100 * mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}; p = {value:.2g})"
            for mean, (low, high), value in zip(values.mean(axis=(0, 1)), one.ends, own, strict=True)
        )
        yield f"| {system} - whenabouts | {' | '.join(cells)} |"


def main() -> None:
    """Write the data set, train, gather or print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    writes = verbs.add_parser("write")
    writes.add_argument("source", type=Path)
    writes.add_argument("out", type=Path)
    trains, gathers = verbs.add_parser("train"), verbs.add_parser("gather")
    for verb in (trains, gathers):
        verb.add_argument("out", type=Path)
        verb.add_argument("runs", type=Path)
        verb.add_argument("--seeds", default="1,2,3")
    trains.add_argument("--systems", default=",".join(SYSTEMS))
    gathers.add_argument("--to", type=Path, default=RESULT)
    gathers.add_argument("--answers", type=Path, default=ANSWERS)
    shown = verbs.add_parser("table")
    shown.add_argument("file", type=Path, nargs="?", default=RESULT)
    options = parser.parse_args()
    if options.verb == "write":
        write(options.source, options.out)
    elif options.verb == "train":
        train(options.out, options.runs, options.systems.split(","), options.seeds.split(","))
    elif options.verb == "gather":
        gather(options.out, options.runs, options.seeds.split(","), options.to, options.answers)
    else:
        print("\n".join(table(opened(options.file))))


if __name__ == "__main__":
    main()
