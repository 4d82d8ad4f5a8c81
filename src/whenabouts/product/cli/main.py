"""`whenabouts`: the verbs, one file each. A verb's file is imported only when the verb is called."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import whenabouts
from whenabouts.product.cli.configuration import parse_with_files
from whenabouts.product.cli.failures import exit_code_of, open_outputs
from whenabouts.product.cli.options import encode_anything


class Verb(NamedTuple):
    """The module that has `add_parser(verbs)`, and what the verb does, for the help page."""

    module: str
    summary: str


VERBS: dict[str, dict[str, Verb]] = {
    "search my videos": {
        "index": Verb(
            "whenabouts.product.cli.index", "put videos, sound files and transcripts into a corpus"
        ),
        "search": Verb("whenabouts.product.cli.search", "find moments for a sentence"),
        "show": Verb("whenabouts.product.cli.show", "the facts and words of a video or a moment"),
        "explain": Verb("whenabouts.research.cli.explain", "why a trained system answers a query as it does"),
        "export": Verb(
            "whenabouts.product.cli.export", "write moments as a list: edl, otio, fcpxml, csv, json, vtt, ..."
        ),
        "cut": Verb("whenabouts.product.cli.cut", "cut moments out as video files, exact to the frame"),
        "serve": Verb("whenabouts.product.cli.serve", "open a corpus as a page in the browser, and as REST"),
        "deploy": Verb("whenabouts.product.cli.deploy", "serve a corpus by many replicas on a Ray cluster"),
        "duplicates": Verb("whenabouts.product.cli.duplicates", "what is seen again in other videos"),
        "stats": Verb("whenabouts.product.cli.stats", "what a corpus holds"),
        "people": Verb("whenabouts.product.cli.people", "who speaks and who is seen: name, merge, forget"),
        "remove": Verb("whenabouts.product.cli.remove", "take videos out of a corpus"),
        "calibrate": Verb("whenabouts.research.cli.calibrate", "measure how often the answers are wrong"),
        "models": Verb("whenabouts.product.cli.models", "which models there are, and fetching one"),
        "doctor": Verb(
            "whenabouts.product.cli.doctor", "what is installed and usable; why a moment was (not) found"
        ),
    },
    "research": {
        "train": Verb("whenabouts.research.cli.train", "train a system on annotated moments and features"),
        "run": Verb("whenabouts.research.cli.run", "let a trained system answer the queries of a split"),
        "evaluate": Verb("whenabouts.research.cli.evaluate", "measure a run against judgements"),
        "compare": Verb("whenabouts.research.cli.compare", "test whether runs really differ"),
        "report": Verb("whenabouts.research.cli.report", "write a page that shows where a run fails"),
        "convert": Verb("whenabouts.research.cli.convert", "write judgements or a run in another format"),
        "datasets": Verb(
            "whenabouts.research.cli.datasets", "known data sets: list them, show one, check a folder"
        ),
        "features": Verb("whenabouts.research.cli.features", "show, compare, convert and make feature files"),
        "relevance": Verb(
            "whenabouts.research.cli.relevance", "find relevant pairs of captions, make ranked training sets"
        ),
        "build": Verb(
            "whenabouts.research.cli.build",
            "make benchmarks: imprecise queries, moments to judge, MVMR pools",
        ),
        "judge": Verb("whenabouts.research.cli.judge", "let people judge moments in the browser"),
        "judgements": Verb(
            "whenabouts.research.cli.judgements",
            "what annotators' grades came to: consensus, agreement, qrels",
        ),
        "import-checkpoint": Verb(
            "whenabouts.research.cli.import_checkpoint",
            "turn a checkpoint of the authors' program into a trained system",
        ),
    },
}

_EPILOG = """\
first steps:
  whenabouts index ~/Videos --corpus my.corpus
  whenabouts search "a person pours batter into a pan" --corpus my.corpus
for research:
  whenabouts train tvr/xml --features FEATURES --data ANNOTATIONS --out RUN
  whenabouts run --checkpoint RUN --features FEATURES --split test --out run.jsonl
  whenabouts evaluate tvr --truth tvr_val_release.jsonl --run submission.json

output: a table on a terminal, JSON in a pipe or a file; --table and --json choose
options: the command line, else WHENABOUTS_CORPUS (for --corpus), else whenabouts.toml in this folder, else
  ~/.config/whenabouts/whenabouts.toml (corpus = "my.corpus"; a table for each verb: [search] k = 5)
exit codes: 0 found, 1 no match, 2 wrong use or bad input"""


def build_parser(called: Iterable[str] | None = None) -> argparse.ArgumentParser:
    """The parser of all verbs. Only verbs in `called` get their options (None: all do)."""
    parser = argparse.ArgumentParser(
        prog="whenabouts",
        description="Find moments in your own videos: a sentence in, ranked moments (video, start, end) out. "
        "And measure systems that do.",
        epilog=f"{_list_verbs()}\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"whenabouts {whenabouts.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the whole trace of an error")
    parser.add_argument(
        "--no-config", action="store_true", help="take no options from whenabouts.toml (before VERB)"
    )
    verbs = parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, help="one of those below; VERB --help explains it"
    )
    for group in VERBS.values():
        for name, verb in group.items():
            if called is None or name in called:
                importlib.import_module(verb.module).add_parser(verbs)
            else:
                verbs.add_parser(name)
    return parser


def _list_verbs() -> str:
    width = max(len(name) for group in VERBS.values() for name in group) + 2
    return "\n".join(
        f"{title}:\n" + "".join(f"  {name:<{width}}{verb.summary}\n" for name, verb in group.items())
        for title, group in VERBS.items()
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code says whether something was found."""
    open_outputs()
    encode_anything()
    given = sys.argv[1:] if arguments is None else arguments
    # The options before a verb take no values: the first word without a dash is the verb.
    verb = next((word for word in given if not word.startswith("-")), None)
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    try:
        options = parse_with_files(build_parser([verb] if verb else []), given, verb)
        code = options.run(options)
        sys.stdout.flush()
    except SystemExit:
        raise  # help, version, and what argparse refuses
    except BaseException as error:  # panics of Rust libraries are no Exception
        return exit_code_of(error, given)
    return int(code)


def _complete() -> None:
    """Answer a shell that asks how a line may go on; ends the program."""
    import argcomplete

    words = os.environ.get("COMP_LINE", "").split()[1:]
    verb = next((word for word in words if not word.startswith("-")), None)
    argcomplete.autocomplete(build_parser([verb] if verb else []))


if __name__ == "__main__":
    sys.exit(main())
