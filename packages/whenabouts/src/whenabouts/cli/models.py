"""`whenabouts models`: which models there are, and fetching one; nothing else downloads anything."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from whenabouts.cli.options import add_format, add_verb
from whenabouts.cli.terminal import for_terminal, print_either
from whenabouts.intake import hub
from whenabouts.known_models import ListedModel, listed_models, resolved
from whenabouts.types import UsageError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from whenabouts.intake.hub import HubFile, ModelCard, Pin

_EPILOG = """\
examples:
  whenabouts models list
  whenabouts models get small
  whenabouts models get openai/clip-vit-base-patch32 --yes
  whenabouts models get owner/name@revision --offline
The hub is huggingface.co, or what HF_ENDPOINT names; models lie under HF_HOME. HF_TOKEN is for those whose
authors want their terms accepted."""


def add_parser(verbs: Any) -> None:
    """Declare the verb and its two own."""
    parser = add_verb(
        verbs,
        "models",
        description="Which models whenabouts can use by name, and fetching one. No other command downloads "
        "anything: a model that is not on this machine is an error that names `whenabouts models get`.",
        epilog=_EPILOG,
    )
    own = parser.add_subparsers(dest="models_verb", metavar="WHAT", required=True, help="list or get")
    add_format(
        add_verb(
            own,
            "list",
            run_list,
            description="What is known by name, its purpose; size and licence of what is here.",
        )
    )
    get = add_verb(
        own,
        "get",
        run_get,
        description="Show a model's size, licence, revision and hash, ask, and fetch it. A download that "
        "broke "
        "off goes on; each file is checked by the hash that the hub states; the revision is kept, so that "
        "the "
        "name means the same files ever after.",
    )
    get.add_argument(
        "name", metavar="NAME", help="owner/name or owner/name@revision, or a name of `models list`"
    )
    get.add_argument("--yes", action="store_true", help="fetch without asking")
    get.add_argument("--offline", action="store_true", help="ask no network: say whether it is here")
    get.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="FILE",
        help="fetch only this file of it (repeat for more)",
    )
    add_format(get)


def run_list(options: argparse.Namespace) -> int:
    """Show what there is."""
    models = listed_models()
    print_either(options, lambda: [model.to_json() for model in models], lambda: _lines(models))
    return 0


def _lines(models: list[ListedModel]) -> list[str]:
    rows = [
        (
            ("here" if entry.is_here else "-"),
            entry.model.name + (f" ({entry.model.alias})" if entry.model.alias else ""),
            "" if entry.size is None else f"{entry.size / 1e6:,.0f} MB",
            entry.licence or ("licence not stated" if entry.is_here else ""),
            entry.model.purpose + (", in a package" if entry.model.packages else ""),
        )
        for entry in models
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(5)]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [
        *table,
        "sizes are those of files here, licences what a package or the hub states; of what is not here "
        "`whenabouts models get NAME` shows both, the revision and the hash, before it fetches",
    ]


def run_get(options: argparse.Namespace) -> int:
    """Show what the hub says of a model, ask, fetch."""
    card = resolved(options.name)
    name = card.name if card else options.name
    if card is not None and card.packages:
        return _packaged(options, card)
    if not hub.is_name(name):
        raise UsageError(
            f"{options.name!r} is no model's name; give owner/name, or one of `whenabouts models list`"
        )
    if options.offline:
        folder = hub.folder_of(name, lambda folder: True)
        print_either(
            options, lambda: {"name": name, "folder": str(folder)}, lambda: [f"{name} is here: {folder}"]
        )
        return 0
    pin = hub.look_up(name, options.file)
    if not hub.is_fetched(pin) or hub.pin_of(pin.repository) != pin:
        for line in _facts(pin):
            print(for_terminal(line), file=sys.stderr)
        _ask(options)
    with _progress() as on_bytes:
        folder = hub.fetch(pin, on_bytes)
    print_either(
        options,
        lambda: {**_described(pin), "folder": str(folder)},
        lambda: [f"{pin.repository} is here: {folder}"],
    )
    return 0


@contextmanager
def _progress() -> Iterator[Callable[[HubFile, int], object]]:
    """What shows a bar for each file on standard error, where somebody looks."""
    if not sys.stderr.isatty():
        yield lambda file, count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=Console(stderr=True), transient=True) as bars:
        jobs: dict[str, TaskID] = {}

        def show(file: HubFile, count: int) -> None:
            if file.path not in jobs:
                jobs[file.path] = bars.add_task(file.path, total=file.size)
            bars.update(jobs[file.path], completed=count)

        yield show


def _packaged(options: argparse.Namespace, card: ModelCard) -> int:
    from importlib.util import find_spec

    if not any(map(find_spec, card.packages)):
        raise UsageError(f"{card.name} comes in a package, not from the hub; `whenabouts doctor` says which")
    print_either(
        options, lambda: {"name": card.name, "folder": None}, lambda: [f"{card.name} is here, in a package"]
    )
    return 0


def _facts(pin: Pin) -> list[str]:
    """What a person should know before the download."""
    lines = [
        pin.repository,
        f"  size      {pin.size / 1e6:,.1f} MB in {len(pin.files)} files",
        f"  licence   {pin.licence or 'NOT STATED: its author has not said what you may do with it'}",
        f"  revision  {pin.revision}",
    ]
    for file in pin.weights:
        digest = (
            f"sha256 {file.sha256}" if file.sha256 else f"git {file.blob}" if file.blob else "no hash told"
        )
        lines.append(f"  weights   {file.path}, {file.size / 1e6:,.1f} MB, {digest}")
    return lines


def _described(pin: Pin) -> dict[str, Any]:
    return {
        "name": pin.repository,
        "bytes": pin.size,
        "licence": pin.licence or None,
        "revision": pin.revision,
        "files": [{"path": f.path, "bytes": f.size, "sha256": f.sha256 or None} for f in pin.files],
    }


def _ask(options: argparse.Namespace) -> None:
    """Go on only with a yes."""
    if options.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("nothing was downloaded; say --yes to fetch it")
    sys.stderr.write("fetch it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was downloaded")
