"""`whenabouts guests`: add, list and remove guests of a server. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_format, add_verb, page_address
from whenabouts.cli.terminal import print_either
from whenabouts.types import UsageError
from whenabouts.workplace.guests import SCOPES, Guests, in_order

_EPILOG = """\
examples:
  whenabouts guests friends.json add "Ada Byron" --address https://videos.example.org/
  whenabouts guests friends.json add Bo collect
  whenabouts guests friends.json
  whenabouts guests friends.json remove "Ada Byron"
  whenabouts serve --corpus my.corpus --guests friends.json --token-file my-own-token"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    scopes = "\n".join(f"  {scope:<9}{what}" for scope, what in SCOPES.items())
    parser = add_verb(
        verbs,
        "guests",
        run,
        description="Add, list and remove guests, who may open a server with their own link. A change takes "
        "effect at the server's next request. Only `add` shows a link, because the file stores no token.",
        epilog=f"scopes:\n{scopes}\n{_EPILOG}",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="file of guests; the first `add` creates it")
    parser.add_argument(
        "action",
        nargs="?",
        choices=("add", "remove"),
        metavar="ACTION",
        help="add or remove (default: list all guests)",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the guest's name")
    parser.add_argument("scopes", nargs="*", metavar="SCOPE", help="what the guest may do (default: read)")
    parser.add_argument("--address", metavar="URL", help="with add: the server's address, for the link")
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Add or remove a guest; without an action, print the file's guests and return 1 if it has none."""
    guests = Guests(options.file)
    if options.action and (not options.name or (options.action == "remove" and options.scopes)):
        raise UsageError(f"whenabouts guests FILE {options.action} NAME: give one name; spaces need quotes")
    if options.action != "add" and options.address and "address" not in options.from_files:
        raise UsageError("--address needs `add`, because only `add` shows a link")
    if options.action == "add":
        address = page_address("--address", options.address)
        token = guests.add(options.name, options.scopes)
        added = next(guest for guest in guests.listed() if guest.name == options.name.strip())
        shown = added.to_json() | {"token": token, "link": f"{address}?token={token}"}
        print_either(
            options,
            lambda: shown,
            lambda: (
                f"With this link {added.name} may {', '.join(in_order(added.scopes))}:",
                shown["link"] if address else f"?token={token}  (append it to the server's address)",
                "The link is shown only now. Whoever has it may use the server.",
            ),
        )
        return 0
    if options.action == "remove":
        guests.remove(options.name)
        return 0
    listed = guests.listed()
    print_either(
        options,
        lambda: [guest.to_json() for guest in listed],
        lambda: (
            f"{guest.name}: {', '.join(in_order(guest.scopes))}, "
            f"since {time.strftime('%Y-%m-%d', time.localtime(guest.made))}"
            for guest in listed
        ),
    )
    return 0 if listed else 1
