"""`whenabouts features`: show, compare, convert and make feature files."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_corpus, add_format, add_verb, open_corpus
from whenabouts.cli.terminal import for_terminal, print_either
from whenabouts.encoders import open_text_encoder
from whenabouts.streams import all_streams
from whenabouts.types import UsageError, number_of
from whenabouts_bench.cli.options import add_sentence_encoder
from whenabouts_bench.datasets import declarations, open_dataset
from whenabouts_bench.formats.queries import read_queries, with_words
from whenabouts_systems.features import open_features
from whenabouts_systems.features.compare import compare
from whenabouts_systems.features.fingerprint import setting
from whenabouts_systems.features.layouts.store import convert_to_store
from whenabouts_systems.features.summary import summarise
from whenabouts_systems.own_features import queries_of, write_token_features
from whenabouts_systems.training.masked_words import fine_tune


def add_parser(verbs: Any) -> None:
    """Declare the verb and its actions."""
    parser = add_verb(
        verbs,
        "features",
        description="Feature files of released layouts (HDF5, LMDB, npz, npy) and our own store.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_show(actions)
    _add_compare(actions)
    _add_convert(actions)
    _add_fine_tune(actions)
    _add_tokens(actions)
    _add_export(actions)
    _add_sentences(actions)


def _add_show(actions: Any) -> None:
    parser = actions.add_parser(
        "show",
        help="layout, items, width, norms, fingerprint of a file or folder",
        description="Show the content of a feature file: layout, items, width, lengths, norms, values that "
        "are not finite, and how it was made.",
    )
    parser.add_argument("path", metavar="PATH", type=Path, help="a feature file or folder")
    _add_opening(parser)
    parser.add_argument("--quick", action="store_true", help="read no rows: no norms, nothing counted")
    add_format(parser)
    parser.set_defaults(run=run_show)


def _add_compare(actions: Any) -> None:
    parser = actions.add_parser(
        "compare",
        help="show by how much two feature files differ",
        description="Tell whether two feature files are equal, equal up to rounding or normalisation, or "
        "different, and show the items that differ most.",
    )
    parser.add_argument("a", metavar="A", type=Path, help="a feature file or folder")
    parser.add_argument("b", metavar="B", type=Path, help="another")
    parser.add_argument("--layout-a", metavar="NAME", help="layout of A (default: its content decides)")
    parser.add_argument("--layout-b", metavar="NAME", help="layout of B (default: its content decides)")
    parser.add_argument("--key-a", metavar="NAME", help="which array of an item of A, if it has several")
    parser.add_argument("--key-b", metavar="NAME", help="which array of an item of B, if it has several")
    add_format(parser)
    parser.set_defaults(run=run_compare)


def _add_convert(actions: Any) -> None:
    parser = actions.add_parser(
        "convert",
        help="write features as our own store, with their fingerprint",
        description="Write features as a store that is memory-mapped and tells how they were made.",
    )
    parser.add_argument("source", metavar="SRC", type=Path, help="a feature file or folder")
    parser.add_argument("dest", metavar="DEST", type=Path, help="the folder to write; nothing is overwritten")
    _add_opening(parser)
    parser.add_argument("--encoder", metavar="NAME", help="the network that made the features")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="a further fact: weights_sha256, frame_rate, normalisation, version, or a key of your own",
    )
    parser.add_argument(
        "--dtype", choices=("float16", "float32", "float64"), help="type of the numbers (default: unchanged)"
    )
    add_format(parser)
    parser.set_defaults(run=run_convert)


def _add_fine_tune(actions: Any) -> None:
    parser = actions.add_parser(
        "fine-tune",
        help="fit a text encoder to the sentences of a training split, for `tokens`",
        description="Fine-tune a text encoder by masked language modeling on the sentences of a training "
        "split, and write it as a folder for `features tokens --encoder`. Never give sentences of the test "
        "split. One sentence in 20 is held out; its loss is shown and chooses the epoch that is kept.",
    )
    encoder = "masked language model: a folder or a hub name, such as FacebookAI/roberta-base"
    parser.add_argument("encoder", metavar="ENCODER", help=encoder)
    lines = "the training split: judgements in any known format, or lines with query_id and text"
    parser.add_argument("sentences", metavar="FILE", type=Path, help=lines)
    parser.add_argument("dest", metavar="DEST", type=Path, help="the folder to write; nothing is overwritten")
    parser.set_defaults(run=run_fine_tune)


def _add_tokens(actions: Any) -> None:
    parser = actions.add_parser(
        "tokens",
        help="token features of queries, for a training on them",
        description="Encode the word pieces of queries and write them as our own store, under query ids.",
    )
    parser.add_argument(
        "--queries",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="judgements in any known format, or lines with query_id and text (repeat for more)",
    )
    parser.add_argument("--dataset", metavar="NAME", help="all queries of a data set, with --folder")
    parser.add_argument("--folder", metavar="DIR", help="the folder that holds the data set's files")
    parser.add_argument("--split", metavar="NAME", action="append", default=[], help="only of this split")
    add_sentence_encoder(parser)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="the store to write")
    add_format(parser)
    parser.set_defaults(run=run_tokens)


def _add_export(actions: Any) -> None:
    parser = actions.add_parser(
        "export",
        help="clip features of a corpus, for a training on it",
        description="Write a stream of a corpus on an even grid as our own store, under video ids: a clip is "
        "the mean of the vectors that share time with it, or zeros if there are none.",
    )
    add_corpus(parser)
    parser.add_argument("--stream", metavar="NAME", required=True, help=f"one of {', '.join(all_streams())}")
    parser.add_argument("--clip-seconds", metavar="S", type=float, required=True, help="seconds of a clip")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="the store to write")
    add_format(parser)
    parser.set_defaults(run=run_export)


def _add_sentences(actions: Any) -> None:
    parser = actions.add_parser(
        "sentences",
        help="the speech of a corpus, for training a system that reads words",
        description="Write the spoken passages of a corpus with their times, a line for each video, to train "
        "HERO on it.",
    )
    add_corpus(parser)
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="the .jsonl file to write")
    parser.set_defaults(run=run_sentences)


def _add_opening(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layout", metavar="NAME", help="the layout (default: the content decides)")
    parser.add_argument("--key", metavar="NAME", help="which array of an item, if it has several")
    parser.add_argument("--clip-seconds", metavar="S", type=float, help="seconds a row covers")
    parser.add_argument("--strict", action="store_true", help="a row that is not finite is an error")


def _opening(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("layout", "key", "clip_seconds", "strict")}


def run_show(options: argparse.Namespace) -> int:
    """Show the content of a file or folder."""
    with open_features(options.path, **_opening(options)) as source:
        _print(options, summarise(source, quick=options.quick))
    return 0


def run_compare(options: argparse.Namespace) -> int:
    """Show by how much two files or folders differ."""
    with (
        open_features(options.a, layout=options.layout_a, key=options.key_a) as a,
        open_features(options.b, layout=options.layout_b, key=options.key_b) as b,
    ):
        _print(options, compare(a, b))
    return 0


def run_convert(options: argparse.Namespace) -> int:
    """Write our own store."""
    facts: dict[str, Any] = dict(setting(text) for text in options.settings)
    if options.encoder is not None:
        facts["encoder"] = options.encoder
    with open_features(options.source, **_opening(options)) as source:
        _print(options, convert_to_store(source, options.dest, facts=facts, dtype=options.dtype))
    return 0


def run_fine_tune(options: argparse.Namespace) -> int:
    """Fine-tune an encoder; refuse files that data sets release for validation or test."""
    path = options.sentences
    plain = Path(str(path).removesuffix(".gz"))
    splits = [split for dataset in declarations() for split in dataset.splits]
    names = [split.name for split in splits for file in split.files if plain.match(file.name)]
    if names and not any(name.startswith("train") for name in names):
        raise UsageError(f"{path}: by its name the split {names[0]} of a data set; give the training split")
    texts = [query.text for query in read_queries(path).queries]
    fine_tune(options.encoder, texts, options.dest, report=lambda line: print(for_terminal(line), flush=True))
    return 0


def run_tokens(options: argparse.Namespace) -> int:
    """Write token features of queries."""
    if bool(options.queries) == bool(options.dataset):
        raise UsageError("whose tokens? Give --queries FILE, or --dataset NAME with --folder DIR")
    if options.dataset and not options.folder:
        raise UsageError(f"--dataset {options.dataset}: give --folder DIR, where its files are")
    if options.queries and (options.folder or options.split):
        raise UsageError("--folder and --split are for --dataset; --queries FILE reads the whole file")
    if options.dataset:
        dataset = open_dataset(options.dataset, options.folder)
        queries = [dataset.annotations(split).queries for split in options.split or dataset.splits]
    else:
        queries = [with_words(read_queries(path), path).queries for path in options.queries]
    _print(
        options, write_token_features(queries_of(queries), open_text_encoder(options.encoder), options.out)
    )
    return 0


def run_export(options: argparse.Namespace) -> int:
    """Write clip features of a corpus."""
    corpus = open_corpus(options)
    _print(options, corpus.export_features(options.stream, options.clip_seconds, options.out))
    return 0


def run_sentences(options: argparse.Namespace) -> int:
    """Write the sentences of a corpus."""
    corpus = open_corpus(options)
    videos = number_of(corpus.export_sentences(options.out), "video")
    print(for_terminal(f"{options.out}: what is said in {videos}"))
    return 0


def _print(options: argparse.Namespace, result: Any) -> None:
    print_either(
        options, lambda: _finite(result.to_json()), lambda: (for_terminal(line) for line in result.lines())
    )


def _finite(value: Any) -> Any:
    """`value` for JSON, which has no NaN: null replaces it."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
