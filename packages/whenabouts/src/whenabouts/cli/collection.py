"""`whenabouts collection`: add, order, trim and annotate moments in a collection. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any

from whenabouts.cli.options import add_corpus, add_format, add_verb, open_corpus
from whenabouts.cli.terminal import print_either
from whenabouts.times import format_time, parse_seconds, whole_number
from whenabouts.types import UsageError, number_of

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus
    from whenabouts.workplace.collections import Collection, Collections

_EPILOG = """\
examples:
  whenabouts collection --corpus my.corpus
  whenabouts collection add "opening film" friday@0:01-0:03.5 talk@12:00-12:20 --corpus my.corpus
  whenabouts collection show "opening film" --corpus my.corpus
  whenabouts collection change "opening film" 2 --start 12:01 --note "the applause" --corpus my.corpus
  whenabouts collection move "opening film" 2 1 --corpus my.corpus
  whenabouts export --collection "opening film" --out film.edl --corpus my.corpus
  whenabouts cut --collection "opening film" --join --out film.mp4 --corpus my.corpus"""


_ACTIONS = {
    "show": "NAME: list its moments",
    "add": "NAME VIDEO@START-END…: append moments; creates the collection if it does not exist",
    "remove": "NAME PLACE…: remove moments, by their numbers in the list",
    "move": "NAME FROM TO: move a moment to another number",
    "change": "NAME PLACE: trim the moment of that number (--start, --end), or set its note or tags",
    "rename": "NAME NEW: rename it",
    "delete": "NAME: delete it; the videos stay",
}
_VALUES = {"add": (1, inf), "remove": (1, inf), "move": (2, 2), "change": (1, 1), "rename": (1, 1)}
"""Action -> least and most number of values after the name; others take none."""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    actions = "\n".join(f"  {action:<8}{what}" for action, what in _ACTIONS.items())
    parser = add_verb(
        verbs,
        "collection",
        run,
        description="Collections of moments. They are stored with the corpus, for `export` and `cut` "
        "(--collection NAME) and for the page. Several users may change them at once.",
        epilog=f"actions:\n{actions}\n{_EPILOG}",
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=tuple(_ACTIONS),
        metavar="ACTION",
        help="see below (default: list all collections)",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the collection")
    parser.add_argument("values", nargs="*", metavar="VALUE", help="what the action needs, see below")
    parser.add_argument(
        "--start", metavar="TIME", help="with change: where the moment begins, such as 12.5 or 0:12.5"
    )
    parser.add_argument("--end", metavar="TIME", help="with change: where it ends")
    parser.add_argument("--note", metavar="TEXT", help="with change: a note; an empty one removes it")
    parser.add_argument(
        "--tag",
        action="append",
        metavar="TEXT",
        help="with change: a tag without a comma (repeat for more); replaces the earlier tags",
    )
    add_corpus(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """List all collections, or do an action and print its collection, unless it is deleted.

    Returns 1 if the list, or the collection to show, is empty.
    """
    is_given = any(getattr(options, name) is not None for name in ("start", "end", "note", "tag"))
    if is_given != (options.action == "change"):
        raise UsageError(
            "`whenabouts collection change` needs one of --start, --end, --note and --tag; no other action "
            "takes them"
        )
    corpus = open_corpus(options)
    collections = corpus.collections
    if options.action is None:
        listed = collections.listed()
        print_either(
            options,
            lambda: [each.to_json() for each in listed],
            lambda: (
                each.problem or f"{each.name}: {number_of(each.count, 'moment')}, {format_time(each.seconds)}"
                for each in listed
            ),
        )
        return 0 if listed else 1
    least, most = _VALUES.get(options.action, (0, 0))
    if options.name is None or not least <= len(options.values) <= most:
        amount = "many" if len(options.values) > most else "few"
        raise UsageError(
            f"too {amount} words; quote a name with spaces. whenabouts collection {options.action} "
            f"{_ACTIONS[options.action]}"
        )
    if options.action == "delete":
        collections.delete(options.name)
        return 0
    if options.action == "add":
        moments = [corpus.moment(moment) for moment in options.values]
        collection = collections.add(options.name, moments, create=True)
    elif options.action == "rename":
        collection = collections.describe(options.name, new_name=options.values[0])
    else:
        collection = _shown(collections, options)
    print_either(options, lambda: _document(corpus, collection), lambda: _lines(corpus, collection))
    return 1 if options.action == "show" and not collection.items else 0


def _shown(collections: Collections, options: argparse.Namespace) -> Collection:
    """The collection to `show`, or as it is after `remove`, `move` or `change`."""
    collection = collections.get(options.name)
    ids = [item.id for item in collection.items]

    def id_at(place: str) -> str:
        number = whole_number(place)
        if number is None or not 1 <= number <= len(ids):
            count = number_of(len(ids), "moment")
            raise UsageError(f"{collection.name!r} has {count}, but no number {place}")
        return ids[number - 1]

    chosen = [id_at(place) for place in options.values]
    if options.action == "remove":
        return collections.remove(collection.id, chosen)
    if options.action == "move":
        # The moment that comes after it then; None: it comes last.
        after = [*(item for item in ids if item != chosen[0]), None][ids.index(chosen[1])]
        return collections.move(collection.id, chosen[0], after)
    if options.action == "change":
        start, end = (None if at is None else parse_seconds(at) for at in (options.start, options.end))
        return collections.change(
            collection.id, chosen[0], start=start, end=end, note=options.note, tags=options.tag
        )
    return collection


def _document(corpus: Corpus, collection: Collection) -> dict[str, Any]:
    """The collection as JSON, with the path of each moment's video (None for a removed video)."""
    from whenabouts.export.source import shown_path

    document = collection.to_json()
    for item in document["items"]:
        record = corpus.record(item["video_id"])
        item["path"] = None if record is None else shown_path(record.path)
    return document


def _lines(corpus: Corpus, collection: Collection) -> Iterator[str]:
    count = number_of(len(collection.items), "moment")
    yield f"{collection.name}: {count}, {format_time(collection.seconds)}"
    for place, item in enumerate(collection.items, 1):
        record = corpus.record(item.video_id)
        lines = corpus.words(record, item.moment) if record else ()
        inside = " ".join(line.text for line in lines if line.is_mostly_in(item.moment))
        words = inside if record else "(removed from the corpus)"
        span = f"{format_time(item.start)} - {format_time(item.end)}"
        tags = "".join(f" #{tag}" for tag in item.tags)
        tags += " (its file has changed since)" if corpus.is_replaced(item) else ""
        yield f"{place:>3}. {item.video_id} {span}{tags}  {item.note or words}"[:200]
