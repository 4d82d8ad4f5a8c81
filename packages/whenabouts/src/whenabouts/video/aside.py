"""Write a file under a temporary name and rename it when it is complete."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.files import printable

_LONGEST_STEM = 40


class WriteError(WhenaboutsError):
    """A file could not be written; the message names it, the cause and the remedy."""


@contextlib.contextmanager
def written_aside(path: Path, *, force: bool = False) -> Iterator[Path]:
    """A new empty file beside `path` to write to; it takes that name when the block is done.

    Missing parent folders are made. If the block fails, neither file is left or changed. Raises UsageError if
    `path` exists and `force` is not given, WriteError if it cannot be written.
    """
    check_free(path, force=force)
    aside = path.with_name(f".{path.stem[:_LONGEST_STEM]}-{secrets.token_hex(6)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield aside
        check_free(path, force=force)
        aside.replace(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def check_free(path: Path, *, force: bool, sources: Iterable[str | Path] = ()) -> None:
    """Raise UsageError if `path` may not be written: a folder or pipe, or an existing file without `force`.

    One of the `sources` (the files being read) is never replaced. Raises WriteError for an impossible path.
    """
    for source in sources:
        with contextlib.suppress(OSError):
            if path.samefile(source):
                raise UsageError(f"{printable(path)}: is a source of this; give another name")
    try:
        if path.is_dir():
            raise UsageError(f"{printable(path)}: a folder stands there; give the name of a file")
        if path.exists() and not path.is_file():
            raise UsageError(f"{printable(path)}: a pipe or a device; give the name of a file")
        if not force and (path.exists() or path.is_symlink()):
            remedy = "give another name, or --force to replace it"
            raise UsageError(f"{printable(path)}: is there already; {remedy}")
    except OSError as error:  # such as a name that is too long
        raise write_error(path, error) from error


def write_error(path: Path, error: OSError) -> WriteError:
    """The WriteError for a failed write."""
    name, folder = printable(path), printable(path.parent)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WriteError(
            f"{name}: no room left in {folder}; nothing was kept. Make room or choose another folder"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return WriteError(f"{name}: {folder} may not be written to; choose another folder")
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
        return WriteError(f"{name}: there is no folder {folder}, and none can be made; choose another")
    if error.errno == errno.ENAMETOOLONG:
        return WriteError(f"{name}: the name is too long; give a shorter one")
    return WriteError(f"{name}: could not be written ({error.strerror or error})")
