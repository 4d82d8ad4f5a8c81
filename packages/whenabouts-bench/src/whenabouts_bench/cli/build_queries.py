"""`whenabouts build queries`: rewrite descriptions of moments into imprecise queries."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_format, add_seed
from whenabouts.cli.terminal import print_either
from whenabouts.encoders import open_text_encoder
from whenabouts.intake.chat import Bounds, Chat, Endpoint, is_address
from whenabouts.intake.files import refuse_overwriting, write_atomically
from whenabouts.types import UsageError, number_of
from whenabouts_bench.cli.options import add_dataset, add_sentence_encoder
from whenabouts_bench.datasets import open_dataset
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.jsonl import FILES, files_of
from whenabouts_bench.formats.queries import with_words
from whenabouts_bench.judging.candidates import names_of_runs
from whenabouts_bench.relevance.imprecise.by_chat import ChatRewriter
from whenabouts_bench.relevance.imprecise.by_rule import RuleRewriter
from whenabouts_bench.relevance.imprecise.cast import read_cast
from whenabouts_bench.relevance.imprecise.making import LEAST_OF, Caption, Maker, Settings, make_captions
from whenabouts_bench.relevance.imprecise.names import SetNames
from whenabouts_bench.relevance.imprecise.sets import (
    REVIEW,
    QuerySets,
    of_types,
    one_pool,
    query_sets,
    read_review,
    write_review,
)
from whenabouts_bench.relevance.imprecise.statistics import line_of, replacements, table
from whenabouts_bench.relevance.imprecise.token_model import TokenModelNames

_BY_RULE = "rule"
_BY_RULE_AT_ONCE = 500


def add_queries(kinds: Any) -> None:
    """Declare `build queries`."""
    parser = kinds.add_parser(
        "queries",
        help="imprecise queries: names of persons become general words",
        description="Rewrite descriptions of moments into queries in which nobody has a name, by rule or by "
        "a chat model, check each one, and draw validation and test queries from them. Run the same command "
        "again to go on after an interruption. docs/relevance.md has the rules.",
    )
    _add_source(parser)
    parser.add_argument(
        "--out", metavar="DIR", required=True, help="folder for the sets and what they are made of"
    )
    parser.add_argument(
        "--rewriter", metavar="rule|ADDRESS#MODEL", default=_BY_RULE,
        help="rule (default: nothing leaves this machine), or the address of an OpenAI-compatible chat "
        "endpoint, to which the descriptions are sent",
    )  # fmt: skip
    parser.add_argument(
        "--cast", metavar="FILE.tsv",
        help="who the persons are, a line each: name, tab, man, woman or person (default: the rules guess)",
    )  # fmt: skip
    parser.add_argument(
        "--names", metavar="MODEL",
        help="what looks for names that are left: a token classification model (NER), a hub name or a folder "
        "(default: the rules' own name finder)",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=int, metavar="N", help="descriptions a chat model is sent at once (default: 20)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long to wait for an answer (default: 120)",
    )
    parser.add_argument(
        "--reviewed", metavar="FILE",
        help="a copy of DIR/review.jsonl in which a person filled in captions",
    )  # fmt: skip
    parser.add_argument("--validation", type=int, default=0, metavar="N", help="queries to draw (paper: 500)")
    parser.add_argument("--test", type=int, default=0, metavar="N", help="queries to draw (paper: 2781)")
    add_seed(parser)
    add_sentence_encoder(parser)
    add_format(parser)
    parser.set_defaults(run=run_queries)


def _add_source(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser).add_argument(
        "--annotations", metavar="FILE", action="append",
        help="or: judgements with texts, in any known format; several share one pool of videos",
    )  # fmt: skip
    parser.add_argument(
        "--split", metavar="NAME", action="append",
        help="split of the data set (default: train); several share one pool of videos",
    )  # fmt: skip
    parser.add_argument(
        "--type", metavar="TYPE", action="append", default=[],
        help="take queries of that type alone (TVR: v, t or vt; the paper: v); may be given again",
    )  # fmt: skip


def run_queries(options: argparse.Namespace) -> int:
    """Rewrite and check the descriptions, draw the query sets, write them and print their counts."""
    out = Path(options.out)
    if options.reviewed:
        refuse_overwriting(out / REVIEW, options.reviewed)
    annotations = _annotations(options)
    texts = list(dict.fromkeys(query.text.strip() for query in annotations.queries if query.text.strip()))
    if not texts:
        raise UsageError(f"{annotations.name}: has no descriptions to rewrite; give judgements with texts")
    maker = _maker(options, texts)
    captions = make_captions(texts, maker, out, _tell)
    by_person = read_review(Path(options.reviewed), captions) if options.reviewed else {}
    usable = {text: caption.caption for text, caption in captions.items() if not caption.fault} | by_person
    open_ = [caption for caption in captions.values() if caption.description not in usable]
    write_review(open_, out / REVIEW)
    sets = query_sets(annotations, usable, options.validation, options.test, options.seed)
    files = [str(path) for path in [*sets.write(out), out / REVIEW]]
    report = _report(annotations, sets, usable, list(captions.values()), open_, by_person)
    with write_atomically(out / "statistics.json") as stream:
        stream.write(json.dumps(report, ensure_ascii=False, indent=1).encode() + b"\n")
    print_either(
        options,
        lambda: {"files": [*files, str(out / "statistics.json")], **report},
        lambda: [*(f"written: {file}" for file in files), *_lines(report, str(out))],
    )
    return 0


def _annotations(options: argparse.Namespace) -> Annotations:
    """The named judgements or splits as one pool, with only the queries of the named types."""
    names: Sequence[str]
    if options.annotations:
        names = list(dict.fromkeys(options.annotations))
        for name in names:
            for part in ("all", "val", "test"):
                for file in FILES:
                    refuse_overwriting(Path(options.out) / part / file, *files_of(Path(name)))
        parts = [with_words(read_annotations(name), name) for name in names]
        names = names_of_runs(names)
    else:
        names = list(dict.fromkeys(options.split or ["train"]))
        opened = open_dataset(options.dataset, options.data)
        parts = [with_words(opened.annotations(name), name) for name in names]
    return of_types(one_pool(parts, names), options.type)


def _maker(options: argparse.Namespace, texts: Sequence[str]) -> Maker:
    """The rewriter and the checks that the options name. Raises UsageError, RewriterUnavailable."""
    by_rule = options.rewriter == _BY_RULE
    if not by_rule and not is_address(options.rewriter):
        raise UsageError(
            f"--rewriter {options.rewriter}: give {_BY_RULE}, or an address: http://HOST/v1#MODEL"
        )
    if not options.timeout > 0:
        raise UsageError(f"--timeout {options.timeout:g}: give seconds, more than 0")
    batch = (_BY_RULE_AT_ONCE if by_rule else 20) if options.batch is None else options.batch
    encoder = open_text_encoder(options.encoder)
    settings = Settings(least=LEAST_OF.get(encoder.name, Settings.least), batch=batch)
    if options.cast and options.names and not by_rule:
        raise UsageError("--cast has no effect on a chat model with --names; leave out one of the two")
    cast = read_cast(Path(options.cast)) if options.cast else None
    names = SetNames(texts, cast) if by_rule or not options.names else None
    finder = TokenModelNames(options.names) if options.names else names
    if by_rule:
        assert names is not None
        rewriter: RuleRewriter | ChatRewriter = RuleRewriter(names)
    else:
        bounds = Bounds(seconds=options.timeout)
        rewriter = ChatRewriter(Chat(Endpoint.parse(options.rewriter), bounds))
    assert finder is not None
    return Maker(rewriter, finder, encoder, settings)


def _report(
    annotations: Annotations,
    sets: QuerySets,
    usable: dict[str, str],
    captions: Sequence[Caption],
    open_: Sequence[Caption],
    by_person: dict[str, str],
) -> dict[str, Any]:
    described = [query.text.strip() for query in annotations.queries if query.text.strip() in usable]
    parts = {
        "descriptions": annotations,
        "captions": sets.all,
        "validation": sets.validation,
        "test": sets.test,
    }
    return {
        "different descriptions": len(captions),
        "different captions": sets.groups,
        "asked more than once": sum(caption.tries > 1 for caption in captions),
        "rewritten by a person": len(by_person),
        "for a person": len(open_),
        "replacements": replacements(usable, described),
        "sets": {name: table(part) for name, part in parts.items() if part.queries},
    }


def _lines(report: dict[str, Any], out: str) -> list[str]:
    """The report as lines of text."""
    replaced = report["replacements"]
    lines = [
        f"{number_of(report['different descriptions'], 'different description')}, "
        f"{number_of(report['different captions'], 'different caption')}; "
        f"{replaced['changed']:,} of {replaced['descriptions']:,} changed",
        "new words: "
        + (", ".join(f"{word} {n:,}" for word, n in replaced["most frequent"].items()) or "none"),
    ]
    lines += [line_of(name, numbers) for name, numbers in report["sets"].items()]
    if report["for a person"]:
        lines.append(
            f"{report['for a person']:,} are left out: fill in a copy of {out}/review.jsonl and "
            "run again with --reviewed FILE"
        )
    return [*lines, f"written: {out}/statistics.json"]


def _tell(share: float) -> None:
    """Show on a terminal which share (0 to 1) is rewritten."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\rrewritten {share:4.0%}" + ("\n" if share >= 1 else ""))
        sys.stderr.flush()
