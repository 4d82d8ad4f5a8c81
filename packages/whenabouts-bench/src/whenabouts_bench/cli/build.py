"""`whenabouts build`: make benchmarks from annotated data sets or own videos, and tasks for people."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_corpus, add_format, add_seed, add_verb
from whenabouts.cli.terminal import print_either, print_json, print_lines, wants_json
from whenabouts.encoders import open_text_encoder
from whenabouts.intake.files import refuse_overwriting, write_atomically
from whenabouts.types import UsageError, number_of
from whenabouts_bench.cli.build_judging import add_judging, recordings_of
from whenabouts_bench.cli.build_queries import add_queries
from whenabouts_bench.cli.options import add_sentence_encoder, add_split, make_folder, read_split, split_file
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.jsonl import FILES, files_of
from whenabouts_bench.judging.label_studio import interface_beside
from whenabouts_bench.judging.pool_check import answers_of, write_check
from whenabouts_bench.released.mvmr_pools import AsReleased
from whenabouts_bench.relevance.emscore import Frames
from whenabouts_bench.relevance.people import LABELLING, VIDEO_URL, judge_answers, read_answers, write_tasks
from whenabouts_bench.relevance.pool_examples import examples
from whenabouts_bench.relevance.pool_files import write_judgements, write_released
from whenabouts_bench.relevance.pool_frames import (
    corpus_scorer,
    feature_scorer,
    files_of_videos,
    video_scorer,
)
from whenabouts_bench.relevance.pool_report import (
    about_lines,
    count_pools,
    table_lines,
    target_query,
    write_report,
)
from whenabouts_bench.relevance.pools import Pools, PoolSettings, Progress, build_pools
from whenabouts_bench.relevance.similarity import VectorSimilarity
from whenabouts_bench.relevance.threshold_study import draw_study, read_rated_pairs, study_thresholds

_EPILOG = """\
examples:
  whenabouts build mvmr --dataset charades_sta --data DIR --split test --features clip.hdf5 \\
      --clip openai/clip-vit-base-patch32 --out charades_pools.json --report report
  whenabouts build mvmr --dataset charades_sta --data DIR --split test --no-visual --judgements pools
  whenabouts build queries --annotations tvr_train.jsonl --annotations tvr_val.jsonl --type v \\
      --rewriter http://127.0.0.1:8000/v1#MODEL --validation 500 --test 2781 --out queries
  whenabouts build judging --queries queries.jsonl --run a.jsonl --run b.jsonl --videos DIR --out judging
  whenabouts build thresholds --pairs sts16.tsv
  whenabouts build tasks --pools charades_pools.json --out tasks.json
  whenabouts build answers --pools charades_pools.json --answers export.json"""


def add_parser(verbs: Any) -> None:
    """Declare the verb and its kinds."""
    parser = add_verb(
        verbs,
        "build",
        description="Build a benchmark. From any videos, also your own: imprecise queries, and moments for\n"
        "annotators to judge. From an annotated data set: pools, in which each query has several right and\n"
        "many wrong videos, which annotators check.",
        epilog=_EPILOG,
    )
    kinds = parser.add_subparsers(
        dest="kind", metavar="mvmr|queries|judging|thresholds|tasks|answers", required=True
    )
    _add_mvmr(kinds)
    add_queries(kinds)
    add_judging(kinds)
    _add_thresholds(kinds)
    _add_tasks(kinds)
    _add_answers(kinds)


def _add_mvmr(kinds: Any) -> None:
    parser = kinds.add_parser(
        "mvmr",
        help="a pool of positives and negatives for each query",
        description="For each query, draw videos that answer it and videos that do not, by the similarity of "
        "sentences (query check) and of words and frames (visual check, EMScore). docs/building-pools.md has "
        "the rules.",
    )
    add_split(parser, "--annotations", "test")
    _add_rules(parser)
    _add_visual(parser)
    parser.add_argument(
        "--out", metavar="FILE.json", help="write the pools, in the format of the MVMR release"
    )
    parser.add_argument(
        "--judgements",
        metavar="DIR",
        help="write the pools as a folder with qrels.jsonl, pools.jsonl, videos.jsonl and queries.jsonl",
    )
    parser.add_argument("--report", metavar="DIR", help="write the table, pictures and examples")
    parser.add_argument(
        "--target",
        metavar="TEXT",
        help="the query that the report's pictures are about (default: a common one)",
    )
    add_format(parser)
    parser.set_defaults(run=run_mvmr)


def _add_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pool-size", type=int, default=50, metavar="N", help="videos in a pool (default: 50)"
    )
    parser.add_argument(
        "--positives", type=int, default=5, metavar="K",
        help="the largest number of right videos in a pool, with the query's own (default: 5)",
    )  # fmt: skip
    parser.add_argument(
        "--positive", type=float, default=0.9, metavar="COSINE",
        help="similarity from which a video may be a positive (default: 0.9)",
    )  # fmt: skip
    parser.add_argument(
        "--negative", type=float, default=0.5, metavar="COSINE",
        help="similarity up to which a video may be a negative (default: 0.5)",
    )  # fmt: skip
    add_seed(parser)
    parser.add_argument(
        "--as-released",
        action="store_true",
        help="follow the released program where it departs from the paper",
    )
    add_sentence_encoder(parser)


def _add_visual(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--features", metavar="PATH", help="CLIP features of the frames, in any known layout; needs --clip"
    )
    parser.add_argument(
        "--videos",
        metavar="DIR",
        help="the recordings, with the names of the videos; --clip encodes their frames, --report shows them",
    )
    parser.add_argument(
        "--clip",
        metavar="MODEL",
        help="the image-text model, a hub name or a folder: the one of --features, or any for --videos",
    )
    add_corpus(parser)
    parser.add_argument(
        "--frames", type=int, default=128, metavar="N",
        help="the most frames of a video; more are averaged (default: 128; released: 32 for Charades-STA, "
        "128 for ActivityNet Captions, 256 for TACoS)",
    )  # fmt: skip
    parser.add_argument(
        "--no-visual",
        action="store_true",
        help="leave out the visual check: only sentences decide, and the file says so",
    )


def _add_thresholds(kinds: Any) -> None:
    parser = kinds.add_parser(
        "thresholds",
        help="find the thresholds of an encoder's similarity from rated sentences",
        description="Compare a sentence encoder with pairs of sentences that people rated from 0 to 5 (STS), "
        "to choose --positive and --negative for it.",
    )
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        required=True,
        help="lines of rating, sentence, sentence: tab-separated, or JSON with score, sentence1, sentence2; "
        "or a folder of SemEval's STS files (STS2016.input.*.txt and STS2016.gs.*.txt)",
    )
    parser.add_argument("--report", metavar="DIR", help="draw the distribution of cosines for each rating")
    add_sentence_encoder(parser)
    add_format(parser)
    parser.set_defaults(run=run_thresholds)


def _add_tasks(kinds: Any) -> None:
    parser = kinds.add_parser(
        "tasks",
        help="the pools as tasks for Label Studio",
        description="Write a task for each video that was added to the pools of some queries. Tasks are in "
        "random order and do not show which videos are positives. The labelling interface is written beside "
        "them.",
    )
    _add_pools(parser)
    parser.add_argument(
        "--out",
        metavar="FILE.json",
        required=True,
        help="the tasks to write; the labelling interface goes into FILE.xml",
    )
    parser.add_argument(
        "--judge",
        action="store_true",
        help="write a task set for `whenabouts judge` instead, in the folder --out; --videos or --corpus has "
        "the recordings",
    )
    parser.add_argument("--videos", metavar="DIR", help="the recordings, with the names of the videos")
    add_corpus(parser)
    parser.add_argument(
        "--queries",
        type=int,
        default=100,
        metavar="N",
        help="the number of queries whose pools are checked (default: 100)",
    )
    parser.add_argument(
        "--video-url",
        metavar="URL",
        help="where Label Studio finds a video, with {video_id} (default: its local storage, folder videos)",
    )
    add_seed(parser)
    add_format(parser)
    parser.set_defaults(run=run_tasks)


def _add_answers(kinds: Any) -> None:
    parser = kinds.add_parser(
        "answers",
        help="how many videos of pools are falsely categorised",
        description="Compare annotators' answers with the pools that the tasks were made from: how many "
        "videos are falsely categorised as right or wrong.",
    )
    _add_pools(parser)
    parser.add_argument(
        "--answers",
        metavar="PATH",
        required=True,
        help="Label Studio's export, or the folder that was judged",
    )
    add_format(parser)
    parser.set_defaults(run=run_answers)


def _add_pools(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pools",
        metavar="PATH",
        required=True,
        help="the pools: what `build mvmr` wrote as --out or --judgements",
    )


def run_mvmr(options: argparse.Namespace) -> int:
    """Build the pools, write them and print their counts."""
    _check_outputs(options)
    rules = AsReleased if options.as_released else PoolSettings
    settings = rules(options.pool_size, options.positives, options.positive, options.negative, options.seed)
    annotations = read_split(options, options.annotations)
    names = [video.id for video in annotations.videos]
    recordings = files_of_videos(names, Path(options.videos)) if options.report and options.videos else None
    scorer, frames = _scorer(options, annotations, settings.frames)
    similarity = VectorSimilarity.of(annotations.queries, open_text_encoder(options.encoder))
    with _progress() as progress:
        pools = build_pools(annotations, similarity, settings, scorer, frames=frames, progress=progress)
    if options.report:
        target_query(pools, options.target)  # a wrong --target is refused before files are written
    files = []
    if options.out:
        write_released(pools, Path(options.out))
        files.append(options.out)
    if options.judgements:
        write_judgements(pools, Path(options.judgements))
        files.append(options.judgements)
    if options.report:
        report = Path(options.report)
        files += map(str, write_report(pools, similarity, report, target=options.target, files=recordings))
    _show_pools(options, pools, similarity, files)
    return 0


def _check_outputs(options: argparse.Namespace) -> None:
    if not (options.out or options.judgements):
        raise UsageError("there is no output: give --out FILE.json, --judgements DIR, or both")
    source = split_file(options, options.annotations)
    targets = [Path(options.judgements) / name for name in FILES] if options.judgements else []
    for target in [*targets, *([Path(options.out)] if options.out else [])]:
        refuse_overwriting(target, *files_of(source))
    of_out = Path(options.out).parent if options.out else None
    for folder in filter(None, (options.judgements, options.report, of_out)):
        make_folder(Path(folder))  # before hours of work


def _scorer(options: argparse.Namespace, annotations: Annotations, kind: type[Frames]) -> tuple[Any, str]:
    """The EMScore scorer and the name of its frames' source; (None, "") without the visual check."""
    if options.no_visual:
        if options.features or options.clip:
            raise UsageError(
                "--no-visual leaves the visual check out; leave out --features and --clip with it"
            )
        return None, ""
    if options.features:
        if not options.clip:
            raise UsageError("--features: which model made them? Give --clip MODEL, or --no-visual")
        return feature_scorer(annotations, Path(options.features), options.clip, options.frames, kind)
    if options.videos and options.clip:
        return video_scorer(annotations, Path(options.videos), options.clip, options.frames, kind)
    if not options.corpus:
        raise UsageError(
            "the visual check needs frames: give --videos DIR or --features PATH with --clip MODEL, or "
            "--corpus DIR, or leave it out with --no-visual"
        )
    return corpus_scorer(annotations, options.corpus, options.frames, kind)


def _show_pools(
    options: argparse.Namespace, pools: Pools, similarity: VectorSimilarity, files: list[str]
) -> None:
    counts = count_pools(pools.annotations)
    if wants_json(options):
        print_json({"files": files, **pools.about(), "counts": asdict(counts)})
        return
    lines = [f"written: {file}" for file in files]
    lines += table_lines([count_pools(pools.source), counts])
    lines += about_lines(pools.about())
    for example in examples(pools, similarity, 2):
        lines += ["", *example.lines()]
    print_lines(lines)


def run_thresholds(options: argparse.Namespace) -> int:
    """Compare an encoder's cosines with people's ratings of sentence pairs."""
    pairs = read_rated_pairs(Path(options.pairs))
    if options.report:
        make_folder(Path(options.report))
    study, cosines = study_thresholds(pairs, open_text_encoder(options.encoder))
    files = []
    if options.report:
        stem = Path(options.report) / "thresholds"
        files = [str(file) for file in draw_study(pairs, cosines, (0.9, 0.5), stem)]
    print_either(
        options,
        lambda: {"files": files, **asdict(study)},
        lambda: [*study.lines(), *(f"written: {file}" for file in files)],
    )
    return 0


def run_tasks(options: argparse.Namespace) -> int:
    """Write tasks and the labelling interface."""
    out = Path(options.out)
    if options.judge:
        return _run_judge(options, out)
    if options.videos:
        raise UsageError("--videos goes with --judge; Label Studio finds videos by --video-url")
    interface = interface_beside(out)
    for target in (out, interface):
        refuse_overwriting(target, *files_of(Path(options.pools)))
    annotations = read_annotations(options.pools)
    url = options.video_url or VIDEO_URL
    count = write_tasks(annotations, out, queries=options.queries, url=url, seed=options.seed)
    with write_atomically(interface) as stream:
        stream.write(LABELLING.encode())
    print_either(
        options,
        lambda: {"files": [str(out), str(interface)], "tasks": count},
        lambda: [f"{out}: {number_of(count, 'task')}", f"{interface}: the labelling interface"],
    )
    return 0


def _run_judge(options: argparse.Namespace, out: Path) -> int:
    """Write a task set of `whenabouts judge`."""
    if options.video_url:
        raise UsageError("--video-url is for Label Studio; with --judge give --videos or --corpus")
    annotations = read_annotations(options.pools)
    pooled = {video for pool in annotations.pools.values() for video in pool}
    videos = {video.id: video for video in annotations.videos if video.id in pooled}
    videos = recordings_of(options, videos)
    made = write_check(annotations, out, videos, queries=options.queries, seed=options.seed)
    count = len(made.tasks)
    print_either(
        options,
        lambda: {"files": [str(out)], "tasks": count},
        lambda: [f"{out}: {number_of(count, 'task')}; then: whenabouts judge {out}"],
    )
    return 0


def run_answers(options: argparse.Namespace) -> int:
    """Print how many videos the annotators found falsely categorised."""
    given = Path(options.answers)
    answers = answers_of(given) if given.is_dir() else read_answers(given)
    verdict = judge_answers(read_annotations(options.pools), answers)
    print_either(options, verdict.to_json, verdict.lines)
    return 0


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show steps, and the share of each that is done, on a terminal, and nothing elsewhere."""

    def tell(step: str, share: float) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{step} {share:4.0%}")
            sys.stderr.flush()

    try:
        yield tell
    finally:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
