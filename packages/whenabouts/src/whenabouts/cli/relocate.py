"""`whenabouts relocate`: tell a corpus where moved files are now. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from whenabouts.cli.options import add_corpus, add_dry_run, add_format, add_verb, add_wait, open_corpus
from whenabouts.cli.terminal import print_either
from whenabouts.index.records import unambiguous
from whenabouts.types import number_of
from whenabouts.video.files import printable
from whenabouts.video.objects import source_path

if TYPE_CHECKING:
    from whenabouts.indexing import Relocation

_SHOWN_MISSING = 20
_EPILOG = """\
examples:
  whenabouts relocate /mnt/new-disk --corpus my.corpus --dry-run
  whenabouts relocate /mnt/new-disk ~/Videos/renamed.mp4 --corpus my.corpus"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "relocate",
        run,
        description="Find moved and renamed files by their content, and update their paths in the corpus. "
        "Nothing is indexed: new files stay out (`index` adds them, and also follows moved ones). Exit code "
        "1: some files are still missing.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="where to look: files, or folders with all their subfolders",
    )
    add_corpus(parser)
    add_dry_run(parser)
    add_wait(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Search, write what was found unless --dry-run, and print it. Returns 1 if a file is still missing."""
    from whenabouts.indexing import find_moved

    moved = find_moved(open_corpus(options), options.paths, dry_run=options.dry_run, wait=options.wait)
    print_either(options, lambda: _document(moved), lambda: _lines(moved, is_plan=options.dry_run))
    return 1 if moved.missing or moved.problems else 0


def _document(moved: Relocation) -> dict[str, Any]:
    return {
        "found": [
            {"video_id": record.video_id, "from": unambiguous(before), "to": unambiguous(record.path)}
            for before, record in moved.pairs
        ],
        "missing": [
            {"video_id": record.video_id, "path": unambiguous(record.path)} for record in moved.missing
        ],
        "problems": [{"path": unambiguous(path), "why": why} for path, why in moved.problems],
    }


def _lines(moved: Relocation, *, is_plan: bool) -> Iterator[str]:
    for before, record in moved.pairs:
        yield f"{record.video_id}: {printable(source_path(before))} -> {printable(source_path(record.path))}"
    for _, why in moved.problems:
        yield f"left out: {why}"
    for record in moved.missing[:_SHOWN_MISSING]:
        yield f"still missing: {record.video_id} ({printable(source_path(record.path))})"
    if len(moved.missing) > _SHOWN_MISSING:
        yield f"… and {len(moved.missing) - _SHOWN_MISSING} more"
    if moved.missing:
        yield "look in other folders, or remove them with `whenabouts remove VIDEO`"
    verb = "would be relocated" if is_plan else "relocated"
    yield f"{number_of(len(moved.pairs), 'video')} {verb}, {len(moved.missing)} still missing"
