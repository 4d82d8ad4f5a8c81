"""Patterns of excluded files: the caller's, and those of `.whenaboutsignore` files."""

from __future__ import annotations

import os
import re
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whenabouts.intake.opening import read_regular
from whenabouts.types import UsageError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".whenaboutsignore"
_MOST_BYTES = 1 << 20
# Each * in a name multiplies the worst-case matching time by the length of the name.
_MOST_STARS = 3

_STARS = re.compile(r"(?<!\\)\*{2,}")


class UnusableRules(UsageError):
    """A folder's ignore file cannot be read or has an invalid pattern, so it might exclude any file."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Patterns that apply in a folder: (the folder they are relative to, patterns), by precedence.

    The first `callers` of them are the caller's.
    """

    rules: tuple[tuple[Path | None, GitIgnoreSpec], ...] = ()
    callers: int = 0

    @classmethod
    def of(cls, patterns: Sequence[str]) -> Patterns:
        """The caller's patterns, for any folder. Raises UsageError for an invalid pattern."""
        return cls(((None, _spec(patterns, "--exclude")),), 1) if patterns else cls()

    def beneath(self, folder: Path) -> Patterns:
        """The caller's patterns, relative to a searched folder."""
        rules = tuple((folder if place is None else place, spec) for place, spec in self.rules)
        return Patterns(rules, self.callers)

    def with_file_of(self, folder: Path, where: str) -> Patterns:
        """These and the patterns of a folder's ignore file, which override those above it but not the
        caller's.

        Raises UnusableRules, which names the file as `where`, if it cannot be read or has an invalid pattern.
        """
        try:
            lines = read_regular(folder / IGNORE_FILE, _MOST_BYTES).decode("utf-8-sig").splitlines()
            rule = (folder, _spec(lines, where))
        except FileNotFoundError:
            return self
        except UsageError as error:
            raise UnusableRules(f"{error}; mend or delete it") from None
        except (OSError, UnicodeDecodeError) as error:
            raise UnusableRules(f"{where}: cannot be read ({_cause(error)}); mend or delete it") from None
        return Patterns((*self.rules[: self.callers], rule, *self.rules[self.callers :]), self.callers)

    def fits(self, path: Path, *, is_folder: bool = False) -> bool:
        """Whether a file or folder is excluded: the first rules that match it decide."""
        for place, spec in self.rules:
            name = _composed(os.path.relpath(path, place)) + ("/" if is_folder else "")
            says = spec.check_file(name).include
            if says is not None:
                return says
        return False


def _cause(error: OSError | UnicodeDecodeError) -> str:
    return f"no UTF-8 text: {error.reason}" if isinstance(error, UnicodeDecodeError) else error.strerror or ""


def _composed(text: str) -> str:
    """Text in one Unicode form, because the same name is stored in several."""
    return unicodedata.normalize("NFC", text)


def _spec(lines: Sequence[str], where: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    # Within a name several * mean one, and each costs a factor of time.
    lines = [
        "/".join(name if name == "**" else _STARS.sub("*", name) for name in line.split("/"))
        for line in lines
    ]
    for number, line in enumerate(lines, 1):
        if any(name != "**" and name.count("*") > _MOST_STARS for name in line.split("/")):
            raise UsageError(f"{where}, pattern {number}: more than {_MOST_STARS} * in one name: {line!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of regular expressions that patterns become
            return GitIgnoreSpec.from_lines(map(_composed, lines))
    except (ValueError, re.error) as error:
        raise UsageError(f"{where}: {error}; write patterns as gitignore takes them") from None
