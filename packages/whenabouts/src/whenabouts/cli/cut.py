"""`whenabouts cut`: write moments as video files. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whenabouts.cli.moments import add_moments, chosen_moments
from whenabouts.cli.options import add_force, add_format, add_verb
from whenabouts.cli.terminal import print_either, print_notes, share_bar
from whenabouts.export.moments import FileMoment
from whenabouts.times import format_time
from whenabouts.types import UsageError, number_of
from whenabouts.video.aside import check_free, write_error
from whenabouts.video.cut import Cut, cut, cut_name, join, placed_name, suffix_for
from whenabouts.video.encoding import is_written
from whenabouts.video.files import printable
from whenabouts.video.objects import source_path

Show = Callable[[float], None]

_EPILOG = """\
examples:
  whenabouts cut "a red flower opens" --corpus my.corpus -k 1 --out clips
  whenabouts cut --from results.json --join --out best.mp4
  whenabouts cut --moment ~/Videos/friday.mp4@0:01-0:03.5 --out clips
  whenabouts cut "sunset" --corpus my.corpus -k 3 --copy --out clips"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "cut",
        run,
        description="Cut moments out of their videos: one file each, or joined into one. Cuts are exact to "
        "the frame (H.264 and AAC in MP4) and keep size, frame times, rotation and sound.",
        epilog=_EPILOG,
    )
    add_moments(parser, k=1)
    parser.add_argument(
        "--out", metavar="DIR", default=".", help="folder for the files, or a file for one (default: here)"
    )
    parser.add_argument("--join", action="store_true", help="join all moments in one file")
    parser.add_argument(
        "--copy",
        action="store_true",
        help="copy without re-encoding: fast and lossless, but begins at the key frame before the start",
    )
    add_force(parser)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Cut and print the files. Returns 1 if there were no moments."""
    if options.join and options.copy:
        raise UsageError(
            "--copy cannot join, because the parts may be encoded differently; leave out --copy or --join"
        )
    chosen = chosen_moments(options)
    if not chosen.moments:
        print_notes(chosen.notes)
        return 1
    with share_bar("cutting") as show:
        cuts = (_joined if options.join else _each)(options, chosen.moments, show)
    print_either(
        options,
        lambda: {"cuts": [cut.to_json() for cut in cuts]},
        lambda: (line for cut in cuts for line in _lines(cut)),
    )
    print_notes(chosen.notes)
    return 0


def _each(options: argparse.Namespace, moments: list[FileMoment], show: Show) -> list[Cut]:
    targets = _targets(options, moments)
    for target in targets:
        check_free(target, force=options.force, sources=[moment.path for moment in moments])

    def progress_of(number: int) -> Callable[[float], None]:
        return lambda share: show((number + share) / len(moments))

    return [
        cut(
            source_path(moment.path),
            moment.start,
            moment.end,
            target,
            copy=options.copy,
            force=options.force,
            progress=progress_of(number),
        )
        for number, (moment, target) in enumerate(zip(moments, targets, strict=True))
    ]


def _joined(options: argparse.Namespace, moments: list[FileMoment], show: Show) -> list[Cut]:
    out = Path(options.out)
    parts = [(source_path(moment.path), moment.start, moment.end) for moment in moments]
    if not _names_file(out):
        out = _folder(out) / f"joined{suffix_for(*(path for path, _, _ in parts))}"
    return join(parts, out, force=options.force, progress=show)


def _targets(options: argparse.Namespace, moments: list[FileMoment]) -> list[Path]:
    """The output file of each moment; those of a collection begin with their places in it."""
    out = Path(options.out)
    if _names_file(out):
        if len(moments) > 1:
            raise UsageError(
                f"{options.out}: this is one file, for {len(moments)} moments; give a folder, or --join"
            )
        return [out]
    folder = _folder(out)
    names: dict[str, None] = {}
    for moment in moments:
        suffix = suffix_for(source_path(moment.path), copy=options.copy)
        name = placed_name(moment.name, moment.rank, len(moments)) if options.collection else moment.name
        names[cut_name(name, moment.start, moment.end, suffix, names)] = None
    return [folder / name for name in names]


def _names_file(out: Path) -> bool:
    """Whether a path means a file: it has a suffix that cuts can have, and is not a folder."""
    return is_written(out) and not out.is_dir()


def _folder(out: Path) -> Path:
    """The folder, created if it is missing."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{out} is a file; --out takes a folder, or a name such as clip.mp4") from None
    except OSError as error:
        raise write_error(out, error) from None
    return out


def _lines(cut: Cut) -> list[str]:
    frames = f", {number_of(cut.frames, 'frame')}" if cut.frames else ""
    span = f"{format_time(cut.start)} - {format_time(cut.end)}"
    head = f"{printable(cut.path)}: {printable(cut.source)} {span} ({cut.duration:.3f} s{frames})"
    return [head, *(f"  {note}" for note in cut.notes)]
