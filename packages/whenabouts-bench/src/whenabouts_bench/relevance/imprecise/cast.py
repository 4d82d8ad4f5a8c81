"""Cast lists: who the persons of a set are, so that the rules need not guess names and genders.

A cast list is a table of two columns with a tab between, a name and a gender, one person a line:

    Robin Scherbatsky	woman
    Ted Mosby	man
    Teddy	man
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from whenabouts.intake.files import FormatError
from whenabouts_bench.formats.json_records import read_text

_NAME = re.compile(r"(?:Mc|Mac|De|La|Le|Van|Di)?[A-Z][a-zà-ÿ]+(?:-[A-Z][a-zà-ÿ]+)*")
GENDERS = {
    **dict.fromkeys(("man", "male", "m"), "man"),
    **dict.fromkeys(("woman", "female", "f", "w"), "woman"),
    "person": "person",
}
"""The second column, in any case -> the general word."""

_LEAST_LETTERS = 5
"""Shorter words are not corrected: with one letter changed, a short name is often another name."""


@dataclass(frozen=True)
class Cast:
    """The words of the persons' names. `nouns`: word -> general word; "person" if bearers differ."""

    nouns: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(repr(sorted(self.nouns.items())).encode()).hexdigest()
        return f"cast={digest[:16]}"

    def misspelled(self, word: str) -> str | None:
        """The one name word that a word is one slip away from ("Pheobe" from "Phoebe"), or None."""
        if len(word) < _LEAST_LETTERS:
            return None
        near = [name for name in self.nouns if len(name) >= _LEAST_LETTERS and _one_slip(word, name)]
        return near[0] if len(near) == 1 else None


def is_capital(word: str) -> bool:
    """Whether a word of two letters or more is written as a name."""
    return len(word) > 1 and _NAME.fullmatch(word) is not None


def read_cast(path: Path) -> Cast:
    """The cast of a list. Raises FormatError, with the line, for a row without a name or a gender."""
    nouns: dict[str, str] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        name, _, gender = (cell.strip() for cell in line.partition("\t"))
        if not name or name.startswith("#"):
            continue
        noun = GENDERS.get(gender.lower())
        if noun is None:
            accepted = "a name, a tab, and man, woman or person"
            raise FormatError(path, "is not a gender:", line=number, value=gender, accepted=accepted)
        words = [word for word in name.split() if is_capital(word)]
        if not words:
            accepted = "a word of a capital A to Z and small letters"
            raise FormatError(path, "is no name:", line=number, field="name", value=name, accepted=accepted)
        for word in words:
            nouns[word] = noun if nouns.get(word, noun) == noun else "person"
    if not nouns:
        raise FormatError(path, "names nobody", accepted="a line for each person: a name, a tab, a gender")
    return Cast(nouns)


def _one_slip(word: str, name: str) -> bool:
    """Whether one letter is added, left out, replaced or swapped with its neighbour."""
    if word == name or abs(len(word) - len(name)) > 1:
        return False
    same = next((n for n, pair in enumerate(zip(word, name, strict=False)) if pair[0] != pair[1]), None)
    if same is None:  # one is the beginning of the other
        return True
    swapped = word[same : same + 2] == name[same : same + 2][::-1] and word[same + 2 :] == name[same + 2 :]
    behind = ((same + 1, same + 1), (same, same + 1), (same + 1, same))
    return swapped or any(word[mine:] == name[other:] for mine, other in behind)
