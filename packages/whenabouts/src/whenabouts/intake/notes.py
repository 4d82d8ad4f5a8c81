"""Notes of this user about files: small files in `$XDG_STATE_HOME/whenabouts`, where no stranger writes."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from whenabouts.intake.files import FormatError, write_atomically


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of one kind, a folder; only the `most` newest are kept."""

    kind: str
    most: int

    def has(self, fact: str) -> bool:
        """Whether a fact is noted; its note then counts as the newest."""
        try:
            os.utime(self.place(fact))
        except (OSError, RuntimeError):
            return False
        return True

    def text(self, fact: str) -> str:
        """The text that was noted with a fact; "" if there is none. The note then counts as the newest."""
        with contextlib.suppress(OSError, RuntimeError, UnicodeDecodeError):
            return self.place(fact).read_text(encoding="utf-8") if self.has(fact) else ""
        return ""

    def add(self, fact: str, text: str = "") -> None:
        """Note a fact. A folder that cannot be written keeps none."""
        with contextlib.suppress(FormatError, OSError, RuntimeError):
            place = self.place(fact)
            place.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(place) as stream:
                stream.write(text.encode())
            notes = list(place.parent.iterdir())
            if len(notes) > self.most:
                for old in sorted(notes, key=lambda each: each.stat().st_mtime_ns)[: -self.most]:
                    old.unlink(missing_ok=True)

    def can_add(self) -> bool:
        """Whether the folder of the notes can be written."""
        with contextlib.suppress(OSError, RuntimeError):
            folder = self.place("").parent
            folder.mkdir(parents=True, exist_ok=True)
            return os.access(folder, os.W_OK)
        return False

    def remove(self, fact: str) -> None:
        """Forget a fact."""
        with contextlib.suppress(OSError, RuntimeError):
            self.place(fact).unlink(missing_ok=True)

    def place(self, fact: str) -> Path:
        """The file that notes a fact. Raises RuntimeError where the user has no home."""
        named = os.environ.get("XDG_STATE_HOME", "")
        base = Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "state"
        name = blake2b(fact.encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()
        return base / "whenabouts" / self.kind / name
