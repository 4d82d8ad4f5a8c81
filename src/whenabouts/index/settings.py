"""What a person says when videos are put into a corpus: models, clips, metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whenabouts.types import UsageError

DEFAULT_CLIP_SECONDS = 1.0
_METADATA_FILE_LIMIT = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """How videos are read.

    `clip_seconds` is the length of a picture clip; one picture is taken in each. `shots`: find shots also
    where no picture is searched. `transcribe` names a speech model for what has no subtitles.
    `metadata` is said of all, `metadata_of` of single files by stem, name, end of the path, or path.
    """

    clip_seconds: float | None = None
    shots: bool = False
    transcribe: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    metadata_of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clip_seconds is not None and not 0.04 <= self.clip_seconds <= 600:
            raise UsageError(
                f"clip seconds {self.clip_seconds!r}: give a length between 0.04 and 600 seconds"
            )

    def metadata_for(self, path: Path) -> dict[str, Any]:
        """What was said of one file: of all, of its stem, its name, its path; the most exact wins.

        >>> Settings(metadata_of={"a/b.mp4": {"year": 2020}}).metadata_for(Path("/videos/a/b.mp4"))
        {'year': 2020}
        """
        said: dict[str, Any] = dict(self.metadata)
        if not self.metadata_of:
            return said
        parts = path.parts
        ends = [str(Path(*parts[start:])) for start in range(len(parts) - 1, -1, -1)]
        for key in (path.stem, *ends):
            said.update(self.metadata_of.get(key, {}))
        return said


def parse_metadata(pairs: Sequence[str]) -> dict[str, Any]:
    """`key=value` pairs as a mapping.

    >>> parse_metadata(["speaker=Ada L.", "year=2024"])
    {'speaker': 'Ada L.', 'year': '2024'}
    """
    said: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key.strip() and equals):
            raise UsageError(f"{pair!r} says nothing of a video; write KEY=VALUE")
        said[key.strip()] = value.strip()
    return said


def read_metadata_file(path: Path) -> dict[str, dict[str, Any]]:
    """Metadata by file: JSON lines, each with a `path` (or `video_id`: the file's stem) and any other key."""
    try:
        if path.stat().st_size > _METADATA_FILE_LIMIT:
            raise UsageError(f"{path}: larger than {_METADATA_FILE_LIMIT >> 20} MB; split the metadata file")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: the metadata file cannot be read ({error}); it must be JSON lines in UTF-8"
        ) from None
    said: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            name, facts = _read_line(line, f"{path}, line {number}")
            said.setdefault(name, {}).update(facts)
    return said


def _read_line(line: str, where: str) -> tuple[str, dict[str, Any]]:
    try:
        facts = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: no JSON ({error})") from None
    name = (facts.pop("path", None) or facts.pop("video_id", None)) if isinstance(facts, dict) else None
    if not isinstance(name, str):
        raise UsageError(
            f'{where}: each line needs "path" (or "video_id") with a file name, and what is said of it'
        )
    return name, facts
