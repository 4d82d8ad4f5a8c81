"""`whenabouts cut`: moments as files of their own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.cli.moments import add_moments, chosen_moments, tell_notes
from whenabouts.cli.options import add_format, add_verb, for_terminal, print_either
from whenabouts.types import UsageError

if TYPE_CHECKING:
    from whenabouts.export.clip import Clip
    from whenabouts.video.cut import Cut

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
        description="Cut moments out of their videos: one file each, or joined into one. Exact to the frame "
        "(H.264 and AAC in MP4); size, frame times, rotation and sound are kept.",
        epilog=_EPILOG,
    )
    add_moments(parser, k=1)
    parser.add_argument(
        "--out", metavar="DIR", default=".", help="folder for the files, or a file for one (default: here)"
    )
    parser.add_argument("--join", action="store_true", help="all moments one after the other in one file")
    parser.add_argument(
        "--copy",
        action="store_true",
        help="take what is stored as it is: quick and without loss, but from the key frame before the start",
    )
    parser.add_argument("--force", action="store_true", help="replace files that are there already")
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Cut and say what was cut; 0 with moments, 1 without."""
    if options.join and options.copy:
        raise UsageError("--copy cannot join: parts must be encoded alike; leave out --copy or --join")
    chosen = chosen_moments(options)
    if not chosen.clips:
        tell_notes(chosen.notes)
        return 1
    with _Display() as display:
        done = (
            _joined(options, chosen.clips, display) if options.join else _each(options, chosen.clips, display)
        )
    print_either(
        options,
        lambda: {"cuts": [cut.to_json() for cut in done]},
        lambda: (line for cut in done for line in _lines(cut)),
    )
    tell_notes(chosen.notes)
    return 0


def _each(options: argparse.Namespace, clips: list[Clip], display: _Display) -> list[Cut]:
    from whenabouts.video.aside import check_free
    from whenabouts.video.cut import cut

    targets = _targets(options, clips)
    for target in targets:
        check_free(target, force=options.force, sources=[clip.path for clip in clips])
    done = []
    for number, (clip, target) in enumerate(zip(clips, targets, strict=True)):
        tell = display.part(number, len(clips), target.name)
        done.append(
            cut(
                Path(clip.path),
                clip.start,
                clip.end,
                target,
                copy=options.copy,
                force=options.force,
                progress=tell,
            )
        )
    return done


def _joined(options: argparse.Namespace, clips: list[Clip], display: _Display) -> list[Cut]:
    from whenabouts.video.cut import join, suffix_for

    out = Path(options.out)
    if not _names_file(out):
        out = _folder(out) / f"joined{suffix_for(Path(clips[0].path))}"
    parts = [(Path(clip.path), clip.start, clip.end) for clip in clips]
    return join(parts, out, force=options.force, progress=display.part(0, 1, out.name))


def _targets(options: argparse.Namespace, clips: list[Clip]) -> list[Path]:
    """A file for each moment."""
    from whenabouts.video.cut import cut_name, suffix_for

    out = Path(options.out)
    if _names_file(out):
        if len(clips) > 1:
            raise UsageError(f"{options.out}: one file for {len(clips)} moments; give a folder, or --join")
        return [out]
    folder = _folder(out)
    taken: dict[str, None] = {}
    for clip in clips:
        suffix = suffix_for(Path(clip.path), copy=options.copy)
        taken[cut_name(clip.name, clip.start, clip.end, suffix, taken)] = None
    return [folder / name for name in taken]


def _names_file(out: Path) -> bool:
    """Whether a place is meant to be a file: it has a suffix that cuts have, and is no folder."""
    from whenabouts.video.encoding import is_written

    return is_written(out) and not out.is_dir()


def _folder(out: Path) -> Path:
    """A folder that is there, made where it was not."""
    from whenabouts.video.aside import write_error

    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(
            f"{out}: a file stands there; --out takes a folder, or a name such as clip.mp4"
        ) from None
    except OSError as error:
        raise write_error(out, error) from None
    return out


def _lines(cut: Cut) -> list[str]:
    from whenabouts.times import format_time
    from whenabouts.video.files import printable

    frames = f", {cut.frames} frames" if cut.frames else ""
    span = f"{format_time(cut.start)} - {format_time(cut.end)}"
    head = f"{printable(cut.path)}: {printable(cut.source)} {span} ({cut.duration:.3f} s{frames})"
    return [head, *(f"  {note}" for note in cut.notes)]


class _Display:
    """A progress bar on standard error; silent where nobody looks."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._job: Any = None

    def __enter__(self) -> _Display:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.percentage:>3.0f} %"),
                BarColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[name]}", style="dim", markup=False),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._job = self._bar.add_task("", total=1.0, name="")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def part(self, number: int, parts: int, name: str) -> Callable[[float], None]:
        """What tells of one part of several."""

        def tell(share: float) -> None:
            if self._bar is not None:
                self._bar.update(self._job, completed=(number + share) / parts, name=for_terminal(name)[-40:])

        return tell
