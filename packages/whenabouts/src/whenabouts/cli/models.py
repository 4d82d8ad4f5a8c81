"""`whenabouts models`: list models and download one; no other command downloads. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from whenabouts.cli.options import add_format, add_repeated, add_verb
from whenabouts.cli.terminal import console, for_terminal, print_either, print_notes
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
The hub is huggingface.co or $HF_ENDPOINT; models are stored under $HF_HOME. Set HF_TOKEN for models whose
authors require that you accept their terms."""


def add_parser(verbs: Any) -> None:
    """Declare the verb and its inner verbs `list` and `get`."""
    parser = add_verb(
        verbs,
        "models",
        description="List the models that whenabouts can use by name, and download one. No other command "
        "downloads anything: a missing model is an error that names `whenabouts models get`.",
        epilog=_EPILOG,
    )
    inner = parser.add_subparsers(dest="models_verb", metavar="WHAT", required=True, help="list or get")
    add_format(
        add_verb(
            inner,
            "list",
            run_list,
            description="List models with their purpose, and size and licence of those on this machine.",
        )
    )
    get = add_verb(
        inner,
        "get",
        run_get,
        description="Show a model's size, licence, revision and hash, ask, and download it. An interrupted "
        "download continues; each file is checked against the hub's hash; the revision is stored, so "
        "that the name always means the same files.",
    )
    get.add_argument(
        "name", metavar="NAME", help="owner/name or owner/name@revision, or a name of `models list`"
    )
    get.add_argument("--yes", action="store_true", help="download without asking")
    get.add_argument(
        "--offline", action="store_true", help="do not use the network: say whether it is on this machine"
    )
    add_repeated(get, "--file", "FILE", "download only this file")
    add_format(get)


def run_list(options: argparse.Namespace) -> int:
    """Print the known models."""
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
        "sizes are those of files here, licences those stated by a package or the hub; for a model "
        "that is not here, `whenabouts models get NAME` shows both, the revision and the hash before "
        "it downloads",
    ]


def run_get(options: argparse.Namespace) -> int:
    """Show the hub's facts about a model, ask the user, and download it."""
    card = resolved(options.name)
    name = card.name if card else options.name
    if card is not None and card.packages:
        return _packaged(options, card)
    if not hub.is_name(name):
        raise UsageError(
            f"{options.name!r} is not a model's name; give owner/name, or a name of `whenabouts models list`"
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
        folder = hub.fetch(pin, on_bytes, model_name=name)
    if pin.repository != name.partition("@")[0]:
        print_notes([f"the hub calls {name} {pin.repository} now; use that name from now on"])
    print_either(
        options,
        lambda: {**_described(pin), "folder": str(folder)},
        lambda: [f"{pin.repository} is here: {folder}"],
    )
    return 0


@contextmanager
def _progress() -> Iterator[Callable[[HubFile, int], object]]:
    """A callback that shows a bar per file on standard error; does nothing unless that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda file, count: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=console(sys.stderr), transient=True) as bars:
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
    """What the user should know before the download."""
    lines = [
        pin.repository,
        f"  size      {pin.size / 1e6:,.1f} MB in {len(pin.files)} files",
        f"  licence   {pin.licence or 'NOT STATED: its author has not said what you may do with it'}",
        f"  revision  {pin.revision}",
    ]
    for file in pin.weights:
        digest = (
            f"sha256 {file.sha256}" if file.sha256 else f"git {file.blob}" if file.blob else "no hash stated"
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
    """Ask the user whether to download. Raises UsageError unless the answer is yes."""
    if options.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("nothing was downloaded; give --yes to download it")
    sys.stderr.write("download it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was downloaded")
