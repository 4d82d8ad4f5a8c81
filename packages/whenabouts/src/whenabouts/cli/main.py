"""`whenabouts`: the verbs, one file each. A verb's file is imported only when the verb is called."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence

from whenabouts import plugins
from whenabouts.cli.configuration import parse_with_files
from whenabouts.cli.failures import exit_code_of, open_outputs
from whenabouts.cli.terminal import encode_anything
from whenabouts.cli.verbs import BRINGS, OPTIONS, Missing, Verb, extended, refuse_missing
from whenabouts.version import __version__

MY_VIDEOS = "search my videos"

VERBS: dict[str, Verb] = {
    name: Verb(f"whenabouts.cli.{name}", summary, MY_VIDEOS)
    for name, summary in {
        "index": "put videos, sound files and transcripts into a corpus",
        "watch": "follow folders: index what appears, changes or goes there",
        "search": "find moments for a sentence",
        "show": "the facts and words of a video or a moment",
        "export": "write moments as a list: edl, otio, fcpxml, csv, json, vtt, ...",
        "cut": "cut moments out as video files, exact to the frame",
        "collection": "put moments together: add, order, trim, note, list",
        "serve": "open a corpus as a page in the browser, and as REST",
        "guests": "people with a link of their own to a server: add, list, remove",
        "mcp": "let an assistant search, look, collect and cut (MCP)",
        "duplicates": "what is seen again in other videos",
        "stats": "what a corpus holds",
        "people": "who speaks and who is seen: name, merge, forget",
        "relocate": "find moved files, and tell a corpus where they are",
        "remove": "take videos out of a corpus",
        "calibrate": "measure how often the answers are wrong",
        "models": "which models there are, and fetching one",
        "doctor": "what is installed and usable; why a moment was (not) found",
    }.items()
}
"""The verbs of this package. Others come as plugins (`whenabouts.verbs`)."""

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
exit codes: 0 found, 1 no match or files to read again, 2 wrong use or bad input"""


def build_parser(called: Iterable[str] | None = None) -> argparse.ArgumentParser:
    """The parser of all verbs. Only verbs in `called` get their options (None: all do)."""
    parser = argparse.ArgumentParser(
        prog="whenabouts",
        description="Find moments in your own videos: a sentence in, ranked moments (video, start, end) out. "
        "And measure systems that do.",
        epilog=f"{_list_verbs()}\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"whenabouts {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the whole trace of an error")
    parser.add_argument(
        "--no-config", action="store_true", help="take no options from whenabouts.toml (before VERB)"
    )
    verbs = parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, help="one of those below; VERB --help explains it"
    )
    for name, verb in all_verbs().items():
        if called is None or name in called:
            importlib.import_module(verb.module).add_parser(verbs)
            _extend(name, verbs.choices[name])
        else:
            verbs.add_parser(name)
    return parser


def all_verbs() -> dict[str, Verb]:
    """The verbs of this package and of plugins, in the order in which the help page lists them."""
    return {**VERBS, **plugins.loaded("verbs")}


def _extend(name: str, parser: argparse.ArgumentParser) -> None:
    """Add what plugins add to a verb; where that package is missing, its options say so."""
    own = parser.get_default("run")
    modules = [importlib.import_module(more.module) for more in extended(name)]
    for module in modules:
        module.add_options(parser)
    for option in OPTIONS.get(name, ()):
        if option not in parser._option_string_actions:
            parser.add_argument(option, action=Missing, nargs="?", const=True, help=argparse.SUPPRESS)

    def run(options: argparse.Namespace) -> int:
        codes = (module.run(options) for module in modules)
        code = next((code for code in codes if code is not None), None)
        return int(own(options)) if code is None else int(code)

    if modules:
        parser.set_defaults(run=run)


def _list_verbs() -> str:
    verbs = all_verbs()
    width = max(map(len, verbs)) + 2
    groups: dict[str, list[str]] = {}
    for name, verb in verbs.items():
        groups.setdefault(verb.group, []).append(f"  {name:<{width}}{verb.summary}\n")
    missing = [extra for extra, names in BRINGS.items() if not verbs.keys() & set(names.split())]
    more = [f"more verbs: pip install 'whenabouts[{extra}]' ({BRINGS[extra]})" for extra in missing]
    return "\n".join([*(f"{title}:\n" + "".join(lines) for title, lines in groups.items()), *more])


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
        if verb is not None and verb not in all_verbs():
            refuse_missing(verb)
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
