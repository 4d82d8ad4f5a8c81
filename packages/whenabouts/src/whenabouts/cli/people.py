"""`whenabouts people`: who speaks and is seen; rename, merge and forget people. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
from typing import Any

from whenabouts.cli.options import add_corpus, add_format, add_verb, add_wait, keep_outer, open_corpus
from whenabouts.cli.terminal import print_either
from whenabouts.times import format_time
from whenabouts.types import number_of

_EPILOG = """\
examples:
  whenabouts people --corpus my.corpus
  whenabouts people name "voice 1 (talk-00ff00ff)" "Ada Lovelace" --corpus my.corpus
  whenabouts people merge "Ada Lovelace" "A. Lovelace" --corpus my.corpus
  whenabouts people undo --corpus my.corpus
  whenabouts people forget "Ada Lovelace" --corpus my.corpus
  whenabouts search "the analytical engine" --where "speaker=Ada Lovelace" --corpus my.corpus"""

_NOBODY = (
    "no people are indexed: no speakers and no faces were found. `whenabouts index … --speakers` finds "
    "names in subtitles, with --speakers MODEL also voices; --faces MODEL finds faces"
)
_ARGUMENTS = {
    "PERSON": "the person's name in the list",
    "OTHER": "the other person's name in the list",
    "NAME": "the new name",
}


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "people",
        run,
        description="Who speaks and is seen, and in which videos. People can be renamed and merged (`undo` "
        "reverts that), and forgotten: this erases their clips and vectors from disk for good.",
        epilog=_EPILOG,
    )
    _add_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", help="without one: list everybody")
    for name, arguments, summary in (
        ("name", ("PERSON", "NAME"), "rename a person"),
        ("merge", ("PERSON", "OTHER"), "merge OTHER into PERSON"),
        ("undo", (), "undo the last change of names"),
        ("forget", ("PERSON",), "forget a person for good, with all clips and vectors"),
    ):
        action = actions.add_parser(name, help=summary, description=summary)
        for argument in arguments:
            action.add_argument(argument.lower(), metavar=argument, help=_ARGUMENTS[argument])
        _add_options(action, inner=True)


def _add_options(parser: argparse.ArgumentParser, *, inner: bool = False) -> None:
    """Add options that may stand before or after the action."""
    add_corpus(parser)
    add_wait(parser)
    add_format(parser)
    if inner:
        keep_outer(parser)


def run(options: argparse.Namespace) -> int:
    """List people, or do the action and print it. Returns 1 if the list is empty."""
    corpus = open_corpus(options)
    people, action = corpus.people, options.action
    if action is None:
        listed = people.listed()
        print_either(
            options,
            lambda: [person.to_json() for person in listed],
            lambda: map(_line, listed) if listed else [_NOBODY],
        )
        return 0 if listed else 1
    with corpus.writing(wait=options.wait):
        if action == "name":
            streams = people.name(options.person, options.name)
            done, facts = f"{options.person} is {options.name}", {"streams": streams}
        elif action == "merge":
            streams = people.merge(options.person, options.other)
            done, facts = f"{options.other} is {options.person}", {"streams": streams}
        elif action == "undo":
            done, facts = f"undone: {people.undo()}", {}
        else:
            clips = people.forget(options.person)
            done, facts = f"forgot {options.person}: {number_of(clips, 'clip')} erased", {"clips": clips}
    print_either(options, lambda: {"done": done, **facts}, lambda: [done])
    return 0


def _line(person: Any) -> str:
    videos = number_of(len(person.videos), "video")
    return f"{format_time(person.seconds):>12}  {person.stream:<8}  {videos:>10}  {person.name}"
