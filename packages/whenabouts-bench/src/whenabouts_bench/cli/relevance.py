"""`whenabouts relevance`: find pairs of relevant captions, make ranked sets, draw figures of grades."""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.cli.options import add_format, add_seed, add_verb
from whenabouts.cli.terminal import print_either, print_json, print_lines, wants_json
from whenabouts.drawing import check_picture
from whenabouts.encoders import DEFAULT_TEXT_ENCODER, open_text_encoder
from whenabouts.intake.files import refuse_overwriting
from whenabouts.types import UsageError
from whenabouts.video.thumbnails import thumbnail
from whenabouts_bench.cli.options import add_sentence_encoder, add_split, make_folder, read_split, split_file
from whenabouts_bench.evaluation import ranked_figures as figures
from whenabouts_bench.formats import open_run, read_annotations
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.jsonl import FILES, files_of
from whenabouts_bench.formats.queries import read_queries, with_words
from whenabouts_bench.relevance.finding import find_pairs
from whenabouts_bench.relevance.pool_frames import files_of_videos
from whenabouts_bench.relevance.ranked import BANDS, rank_moments, write_ranked
from whenabouts_bench.relevance.summary import draw_summary, summarise

_FRAME_PIXELS = 240


def add_parser(verbs: Any) -> None:
    """Declare `relevance` with `pairs`, `ranked` and `figures`."""
    parser = add_verb(
        verbs,
        "relevance",
        description="Infer relevance from captions, without judgements: which queries are relevant to "
        "each other's moments, and which moments are most similar to a query.",
    )
    kinds = parser.add_subparsers(dest="kind", metavar="pairs|ranked|figures", required=True)
    _add_pairs(kinds)
    _add_ranked(kinds)
    _add_figures(kinds)


def _add_pairs(kinds: Any) -> None:
    parser = kinds.add_parser(
        "pairs",
        help="potentially relevant pairs of the queries of a split",
        description="Compare all pairs of captions. Two captions are potentially relevant to each other's "
        "moments if the similarity of their parts reaches --threshold. The similarity of the whole captions "
        "is the confidence of the pair.",
    )
    add_split(parser, "--queries", "train")
    parser.add_argument(
        "--detector",
        default="vp",
        metavar="NAME",
        help="the parts to compare: sent (whole sentences), vp (verb phrases, the default) or np-vp (noun "
        "and verb phrases)",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=0.5,
        metavar="COSINE",
        help="the least similarity of two captions, -1 to 1 (default: 0.5)",
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="the file of pairs to write: `pairs` of an experiment's [data]",
    )
    parser.add_argument(
        "--as",
        dest="kept",
        choices=("list", "vectors"),
        default="list",
        help="keep a list of all pairs (default), or vectors from which training computes the pairs of a "
        "batch, for thresholds so low that a list would not fit",
    )
    parser.add_argument(
        "--phrases",
        metavar="NAME",
        help="what finds the phrases of captions: chunks (default, needs no download), benepar, or "
        "benepar:MODEL",
    )
    parser.add_argument(
        "--picture",
        metavar="FILE.png",
        help="draw the confidence of pairs and the pairs of a caption: a .png, .svg or .pdf file",
    )
    add_sentence_encoder(parser)
    add_format(parser)
    parser.set_defaults(run=run_pairs)


def _add_ranked(kinds: Any) -> None:
    parser = kinds.add_parser(
        "ranked",
        help="for each query the moments with the most similar captions",
        description="Make a ranked training set, or judgements with pseudo grades, from captions. They are "
        "not human judgements; the first line of the file says so, and names the encoder.",
    )
    add_split(parser, "--queries", "train")
    parser.add_argument(
        "--top",
        type=int,
        action="append",
        metavar="N",
        help="moments to write for a query (default: 40); may be given again, with {top} in --out",
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="PATH",
        help="the set to write: FILE.json for TVR-Ranking's training program, FILE.jsonl with a pair a line, "
        "or a folder (DIR/) of whenabouts; {top} stands for N in two digits: train_top{top}.json",
    )
    parser.add_argument(
        "--graded", action="store_true", help="write grades from 0 to 4 beside similarities: a test set"
    )
    parser.add_argument(
        "--bands",
        metavar="COSINES",
        help="with --graded: where grades 1, 2, 3 and 4 begin (default: 0.5,0.65,0.8,0.92, chosen for the "
        "default encoder; another one needs its own)",
    )
    parser.add_argument(
        "--leave-out",
        action="append",
        default=[],
        metavar="FILE",
        help="judgements or queries of validation or test, to keep these out of training; may be given again",
    )
    parser.add_argument(
        "--asked-in",
        action="append",
        metavar="FILE",
        help="rank only queries that these judgements also contain; may be given again",
    )
    add_sentence_encoder(parser)
    add_format(parser)
    parser.set_defaults(run=run_ranked)


def _add_figures(kinds: Any) -> None:
    parser = kinds.add_parser(
        "figures",
        help="grades against similarity, annotators, candidates, and answers beside right moments",
        description="Draw figures 4 to 7 of TVR-Ranking's paper for any graded judgements: relevance against "
        "similarity and rank; lowest and highest grades, and final grades; the most similar moments of some "
        "queries; answers beside the right moments.",
    )
    parser.add_argument(
        "--truth", required=True, metavar="FILE", help="judgements with grades, in any format"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the pictures, PNG and SVG")
    parser.add_argument(
        "--raw", metavar="FILE.csv", help="grades of annotators: columns pair_id, worker, relevance"
    )
    parser.add_argument("--answers", metavar="FILE", help="a run to show beside the truth")
    parser.add_argument(
        "--videos", metavar="DIR", help="with --answers: the recordings, to show a frame of each moment"
    )
    parser.add_argument(
        "--query", action="append", default=[], metavar="TEXT",
        help="a query to show, by text or id; may be given again (default: by chance, and by its answers)",
    )  # fmt: skip
    parser.add_argument(
        "--metric", default="nDCG@10,IoU=0.3", metavar="NAME",
        help="how answers are matched and measured (default: nDCG@10,IoU=0.3)",
    )  # fmt: skip
    add_seed(parser)
    add_format(parser)
    parser.set_defaults(run=run_figures)


def _annotations(options: argparse.Namespace) -> Annotations:
    annotations = read_split(options, options.queries)
    return with_words(annotations, options.queries or annotations.name)


def run_pairs(options: argparse.Namespace) -> int:
    """Find the relevant pairs, write them and print a summary."""
    if options.picture:
        check_picture(Path(options.picture))
    refuse_overwriting(Path(options.out), *files_of(split_file(options, options.queries)))
    annotations = _annotations(options)
    pairs, units = find_pairs(
        annotations.queries,
        options.detector,
        options.threshold,
        encoder=options.encoder,
        phrases=options.phrases,
        as_list=options.kept == "list",
    )
    pairs.save(options.out)
    summary = summarise(pairs, units)
    settings = pairs.settings
    if options.picture:
        title = f"{annotations.name}, {settings.detector}, at least {settings.threshold:g}"
        draw_summary(summary, title, Path(options.picture))
    facts = {
        "file": str(options.out),
        "kept": pairs.kept.KIND,
        "detector": settings.detector,
        "threshold": settings.threshold,
        "encoder": settings.encoder_fingerprint,
        "phrases": settings.phrases,
    }
    head = f"{options.out}: {settings.detector}, threshold {settings.threshold:g}"
    print_either(options, lambda: facts | summary.to_json(), lambda: [head, *summary.lines()])
    return 0


def run_ranked(options: argparse.Namespace) -> int:
    """Rank the moments for each query, write the sets and print a summary of each."""
    if options.graded and options.bands is None and options.encoder not in (None, DEFAULT_TEXT_ENCODER):
        raise UsageError(
            f"--graded --encoder {options.encoder}: grades begin at cosines that were chosen for "
            f"{DEFAULT_TEXT_ENCODER}. Give --bands with four that suit this encoder (make a set without "
            "--graded and read its pairs)"
        )
    bands = _bands(options.bands) or BANDS
    if options.bands and not options.graded:
        raise UsageError("--bands goes with --graded")
    outs = _outputs(options)
    named = [split_file(options, options.queries), *options.leave_out, *(options.asked_in or ())]
    sources = [file for name in named for file in files_of(Path(name))]
    for place in outs.values():
        for path in [place / name for name in FILES] if place.is_dir() else [place]:
            refuse_overwriting(path, *sources)
    annotations = _annotations(options)
    elsewhere, inside = (
        None if files is None else [query.text for file in files for query in read_queries(file).queries]
        for files in (options.leave_out, options.asked_in)
    )
    encoder = open_text_encoder(options.encoder)
    ranked = rank_moments(
        annotations,
        encoder,
        max(outs),
        asked_elsewhere=elsewhere or (),
        asked_in=inside,
        bands=bands,
    )
    sets = {str(out): ranked.first(top) for top, out in outs.items()}
    for out, part in sets.items():
        write_ranked(part, Path(out), graded=options.graded)
    summaries = [{"file": out, **part.summary(graded=options.graded)} for out, part in sets.items()]
    if wants_json(options):
        print_json(summaries[0] if len(summaries) == 1 else {"files": summaries})
        return 0
    for summary in summaries:
        (_, file), *facts = summary.items()
        print_lines([f"{file}:", *(f"  {name}: {value}" for name, value in facts)])
    return 0


def _bands(written: str | None) -> tuple[float, ...] | None:
    """The numbers that `--bands` lists; None if it is not given. Raises UsageError for other text."""
    try:
        return None if written is None else tuple(float(part) for part in written.split(","))
    except ValueError:
        raise UsageError(f"--bands {written!r}: accepted: numbers, such as 0.5,0.65,0.8,0.92") from None


def _outputs(options: argparse.Namespace) -> dict[int, Path]:
    """Map the number of moments per query to the path of that set; folders are made.

    Raises UsageError if a number is below 1, if two sets share a path, or if a folder cannot be made.
    """
    tops = list(dict.fromkeys(options.top or [40]))
    if min(tops) < 1:
        raise UsageError(f"--top {min(tops)}: a ranked set needs at least 1 moment a query")
    named = {top: options.out.replace("{top}", f"{top:02d}") for top in tops}
    if len(set(named.values())) < len(named):
        raise UsageError(
            f"--out {options.out}: {len(named)} sets need names of their own; put {{top}} into it"
        )
    for name in named.values():
        if name.endswith("/"):
            make_folder(Path(name))
    return {top: Path(name) for top, name in named.items()}


def run_figures(options: argparse.Namespace) -> int:
    """Draw the figures that the judgements allow; print their files, and why others were left out."""
    if options.videos and not options.answers:
        raise UsageError("--videos goes with --answers, whose moments it shows")
    annotations, out = read_annotations(options.truth), Path(options.out)
    named = figures.queries_named(annotations, options.query)
    raw = figures.read_raw_grades(Path(options.raw)) if options.raw else None
    files, left_out = figures.draw_agreement(annotations, raw, out / "agreement"), []
    if annotations.similarity is None:
        left_out.append("similarity and candidates: the judgements have no similarities")
    else:
        files += figures.draw_similarity(annotations, out / "similarity", seed=options.seed)
        judged = np.unique(annotations.query)
        chance = np.sort(np.random.default_rng(options.seed).permutation(judged)[:2]).tolist()
        files += figures.draw_candidates(annotations, named or chance, out / "candidates")
    if options.answers:
        run = open_run(options.answers, annotations=annotations)
        shown = figures.cases_of(annotations, run, options.query, metric=options.metric)
        names = [video.id for video in annotations.videos]
        picture = _pictures(files_of_videos(names, Path(options.videos))) if options.videos else None
        files += figures.draw_cases(shown, options.metric, out / "answers", picture=picture)
    print_either(
        options,
        lambda: {"files": [str(file) for file in files], "left_out": left_out},
        lambda: [*(f"written: {file}" for file in files), *(f"left out: {why}" for why in left_out)],
    )
    return 0


def _pictures(files: Mapping[str, Path]) -> figures.Picture:
    """A function from (video id, seconds) to the frame there, or None without a recording."""
    from matplotlib.image import imread

    def picture(video_id: str, at: float) -> NDArray[np.uint8] | None:
        path = files.get(video_id)
        return None if path is None else imread(io.BytesIO(thumbnail(path, at, _FRAME_PIXELS)), format="jpeg")

    return picture
