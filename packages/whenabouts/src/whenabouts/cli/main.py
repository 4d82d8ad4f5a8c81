"""The command `whenabouts`: parses a command line and runs its verb, whose file is imported only then."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence

from whenabouts import plugins
from whenabouts.cli.configuration import parse_with_files
from whenabouts.cli.failures import TERMINATED, exit_code_of
from whenabouts.cli.terminal import encode_anything, open_outputs
from whenabouts.cli.verbs import BRINGS, OPTIONS, Missing, Verb, refuse_missing
from whenabouts.version import __version__

MY_VIDEOS = "search my videos"

VERBS: dict[str, Verb] = {
    name: Verb(f"whenabouts.cli.{name}", summary, MY_VIDEOS)
    for name, summary in {
        "index": "put videos, sound files and transcripts into a corpus",
        "watch": "keep a corpus up to date with folders",
        "search": "find moments for a sentence",
        "show": "the facts and words of a video or a moment",
        "export": "write moments as a list: edl, otio, fcpxml, csv, json, vtt, ...",
        "cut": "cut moments out as video files, exact to the frame",
        "collection": "collect moments: add, order, trim, note, list",
        "serve": "serve a corpus as a web page and REST API",
        "guests": "links to a server for other users: add, remove",
        "mcp": "let an assistant search, look, collect and cut (MCP)",
        "duplicates": "find parts that appear again in other videos",
        "stats": "what a corpus contains",
        "people": "who speaks and is seen: name, merge, forget",
        "relocate": "find moved files and update their paths",
        "remove": "remove videos from a corpus",
        "calibrate": "measure how often answers are wrong",
        "models": "list models and download one",
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

output: a table on a terminal, JSON in a pipe or a file; --table and --json choose (export: the list)
options: the command line, else WHENABOUTS_CORPUS (for --corpus), else whenabouts.toml in this folder, else
  ~/.config/whenabouts/whenabouts.toml (corpus = "my.corpus"; a table for each verb: [search] k = 5)
exit codes: 0 done or found (index lists broken files), 1 no match, or the next index tries a file again,
  2 wrong use or bad input"""


def build_parser(called: Iterable[str] | None = None) -> argparse.ArgumentParser:
    """The parser of all verbs. Only the verbs in `called` get their options (None: all)."""
    parser = argparse.ArgumentParser(
        prog="whenabouts",
        description="Find moments in your own videos: give a sentence, get ranked moments (video, start, "
        "end). And measure systems that do this.",
        epilog=f"{_list_verbs()}\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"whenabouts {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument(
        "--no-config", action="store_true", help="ignore whenabouts.toml (give it before VERB)"
    )
    parser.set_defaults(from_files=())  # the names of options that the command line leaves to the files
    verbs = parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, help="one of the verbs below; VERB --help explains it"
    )
    for name, verb in all_verbs().items():
        if called is None or name in called:
            added = None if name in VERBS else plugins.load("verbs", name, imports=True)
            (added or importlib.import_module(verb.module)).add_parser(verbs)
            _extend(name, verbs.choices[name])
        else:
            verbs.add_parser(name)
    return parser


def all_verbs() -> dict[str, Verb]:
    """The verbs of this package and of plugins with other names, in the order of the help page."""
    added = plugins.loaded("verbs")
    for name in VERBS.keys() & added.keys():
        entry = plugins.entries("verbs")[name]
        package = entry.dist.name if entry.dist else entry.value
        plugins.warn_once(f"left out: {package}: its plugin {name} is named as a built-in verb; rename it")
    return {**VERBS, **added, **VERBS}


def _extend(name: str, parser: argparse.ArgumentParser) -> None:
    """Add a verb's options from plugins. If their package is missing, using such an option says so."""
    run_verb = parser.get_default("run")
    added = [each for each, more in plugins.loaded("verb_options").items() if more.verb == name]
    modules = plugins.loaded("verb_options", added, imports=True).values()
    for module in modules:
        module.add_options(parser)
    for option in OPTIONS.get(name, ()):
        if option not in parser._option_string_actions:
            parser.add_argument(option, action=Missing, nargs="?", const=True, help=argparse.SUPPRESS)

    def run(options: argparse.Namespace) -> int:
        codes = (module.run(options) for module in modules)
        code = next((code for code in codes if code is not None), None)
        return int(run_verb(options)) if code is None else int(code)

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
    """Run one command; returns its exit code."""
    open_outputs()
    encode_anything()
    given = sys.argv[1:] if arguments is None else arguments
    # Options before the verb take no values, so the first word without a dash is the verb.
    verb = next((word for word in given if not word.startswith("-")), None)
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    terminated: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        terminated.append(number)
        signal.raise_signal(signal.SIGINT)  # `uninterrupted` may delay it

    try:
        if verb is not None and verb not in all_verbs():
            refuse_missing(verb)
        is_main = threading.current_thread() is threading.main_thread()  # others may set no handler
        takes_signals = is_main and callable(signal.getsignal(signal.SIGINT))
        if takes_signals and verb in ("index", "watch"):
            signal.signal(signal.SIGTERM, interrupt)
        options = parse_with_files(build_parser([verb] if verb else []), given, verb)
        with contextlib.ExitStack() as ending:
            if takes_signals and arguments is None:
                # While Python ends, a handled signal would leave a traceback or abort the process.
                ending.callback(signal.signal, signal.SIGINT, signal.SIG_DFL)
                ending.callback(signal.signal, signal.SIGTERM, signal.SIG_DFL)
            code = options.run(options)
            sys.stdout.flush()
    except SystemExit:
        raise  # help, version, and errors that argparse reports itself
    except BaseException as error:  # panics of Rust libraries do not derive from Exception
        code = exit_code_of(error, given)
    return TERMINATED if terminated else int(code)


def _complete() -> None:
    """Complete a command line for the shell; ends the program."""
    import argcomplete

    words = os.environ.get("COMP_LINE", "").split()[1:]
    verb = next((word for word in words if not word.startswith("-")), None)
    argcomplete.autocomplete(build_parser([verb] if verb else []))


if __name__ == "__main__":
    sys.exit(main())
