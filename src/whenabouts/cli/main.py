"""`whenabouts`: the verbs, one file each. Nothing heavy is imported before a verb is known."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import whenabouts
from whenabouts.cli.options import encode_anything, for_terminal
from whenabouts.types import WhenaboutsError

FOUND, NOT_FOUND, WRONG = 0, 1, 2
INTERRUPTED = 130

VERBS = (
    "index",
    "search",
    "show",
    "stats",
    "remove",
    "doctor",
    "serve",
    "export",
    "cut",
    "calibrate",
    "train",
    "run",
    "explain",
    "evaluate",
    "compare",
    "report",
    "convert",
    "datasets",
    "features",
    "relevance",
    "build",
    "import-checkpoint",
)
"""In the order of the help; `import-checkpoint` stands in `import_checkpoint.py`."""

_EPILOG = """\
first steps:
  whenabouts index ~/Videos --corpus my.corpus
  whenabouts search "a person pours batter into a pan" --corpus my.corpus
for research:
  whenabouts train experiments/tvr/xml.toml --features FEATURES --data ANNOTATIONS --out RUN
  whenabouts run --checkpoint RUN --features FEATURES --split test --out run.jsonl
  whenabouts evaluate tvr --truth tvr_val_release.jsonl --run submission.json

exit codes: 0 found, 1 no match, 2 wrong use or bad input
WHENABOUTS_CORPUS names the corpus where --corpus is not given."""


def build_parser(verbs: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """The parser of some verbs; each verb's file says what it takes."""
    parser = argparse.ArgumentParser(
        prog="whenabouts",
        description="Find moments in your own videos: a sentence in, ranked moments (video, start, end) out. "
        "And measure systems that do.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"whenabouts {whenabouts.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the whole trace of an error")
    kinds = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in verbs:
        importlib.import_module(f"whenabouts.cli.{verb.replace('-', '_')}").add_parser(kinds)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code says whether something was found."""
    encode_anything()
    arguments = sys.argv[1:] if arguments is None else arguments
    # The options before a verb take no values, so the first other word is the verb; with a wrong one, or
    # none, all verbs are loaded to say what there is.
    named = next((word for word in arguments if not word.startswith("-")), "")
    options = build_parser((named,) if named in VERBS else VERBS).parse_args(arguments)
    try:
        code = options.run(options)
        sys.stdout.flush()
    except WhenaboutsError as error:
        if options.debug:
            raise
        print("whenabouts: " + "\n".join(map(for_terminal, str(error).splitlines())), file=sys.stderr)
        return WRONG
    except BrokenPipeError:
        # The reader of a pipe has seen enough; nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FOUND
    except KeyboardInterrupt:
        print("whenabouts: stopped", file=sys.stderr)
        return INTERRUPTED
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
