"""What an index run will do: files on disk held against the ledger, before anything is read in full."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from whenabouts.index.estimate import estimate_bytes, estimate_hours, estimate_seconds
from whenabouts.index.naming import unambiguous
from whenabouts.index.reading import PictureSettings, ReadTask
from whenabouts.index.records import VideoRecord
from whenabouts.index.settings import Settings
from whenabouts.video.files import Findings, SourceFile, content_hash, printable

Reason = Literal["new", "changed", "words changed", "pictures added", "shots added", "words added", "retry"]

# For these the whole file is read; what an earlier run found in it does not count.
_WHOLE = frozenset({"new", "changed", "retry"})
# What a transcript that stands alone is taken for in the estimate.
_TRANSCRIPT_HOURS = 0.75
_SHOWN_DUPLICATES, _SHOWN_PROBLEMS = 5, 20
NO_SOUND = "no sound"
"""Where the words of a video would come from that was to be transcribed and has no sound."""


@dataclass(frozen=True, slots=True)
class Work:
    """One file that will be read: the task, why, and what the ledger knows of it.

    `words_signature` is what the subtitle files beside it look like; `supersedes` are ids of those that
    stood alone before their recording turned up.
    """

    task: ReadTask
    reasons: tuple[Reason, ...]
    found: SourceFile
    metadata: dict[str, Any]
    known: VideoRecord | None = None
    words_signature: str = ""
    supersedes: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing of an earlier run is kept but the video's id."""
        return not _WHOLE.isdisjoint(self.reasons)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The streams a run is to leave behind.

    `words` and `vision` are fingerprints of the encoders that will be used. `pictures`: how clips are cut
    and how large a picture the encoder takes, None without one. `transcribe` names a speech model, or is "".
    """

    words: str
    pictures: PictureSettings | None = None
    vision: str = ""
    shots: bool = False
    transcribe: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done, in the order in which it will be done.

    `records` are ledger rows to be written at once: of files that were renamed or touched, or of which
    something else is said. `obsolete` are ids of rows that a crash left beside a newer one of the same file.
    `taken` are all ids of the ledger. `problems` are (path, what is wrong with it): left out.
    """

    work: tuple[Work, ...]
    records: tuple[VideoRecord, ...] = ()
    renamed: tuple[tuple[Path, Path], ...] = ()
    described: int = 0
    obsolete: tuple[str, ...] = ()
    duplicates: tuple[tuple[Path, Path], ...] = ()
    problems: tuple[tuple[Path, str], ...] = ()
    unchanged: int = 0
    failed_before: int = 0
    hours: float = 0.0
    media_files: int = 0
    transcripts: int = 0
    bytes: int = 0
    wanted: Wanted = field(default_factory=lambda: Wanted(""))
    taken: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        """How many files were found."""
        return self.media_files + self.transcripts

    @property
    def seconds(self) -> float:
        """Estimated time the run takes."""
        decoded = any(work.task.pictures or work.task.shots for work in self.work)
        return estimate_seconds(self.hours, self.bytes, decoded=decoded, clip_seconds=self._clip_seconds)

    @property
    def disk_bytes(self) -> float:
        """Estimated growth of the corpus on disk."""
        return estimate_bytes(self.hours, clip_seconds=self._clip_seconds)

    @property
    def _clip_seconds(self) -> float | None:
        pictures = self.wanted.pictures
        taken = pictures and any(work.task.pictures for work in self.work)
        return pictures.clip_seconds if pictures and taken else None

    def to_json(self) -> dict[str, Any]:
        """The plan for programs."""
        return {
            "files": self.files,
            "hours": round(self.hours, 4),
            "estimated_seconds": round(self.seconds, 1),
            "estimated_bytes": round(self.disk_bytes),
            "unchanged": self.unchanged,
            "failed_before": self.failed_before,
            "work": [
                {"path": unambiguous(w.task.path), "reason": w.reasons[0], "reasons": list(w.reasons)}
                for w in self.work
            ],
            "renamed": [{"from": unambiguous(a), "to": unambiguous(b)} for a, b in self.renamed],
            "duplicates": [{"path": unambiguous(a), "same_as": unambiguous(b)} for a, b in self.duplicates],
            "problems": [{"path": unambiguous(p), "why": why} for p, why in self.problems],
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """The plan for people."""
        what = f"{_count(self.media_files, 'video or sound file')}, {_count(self.transcripts, 'transcript')}"
        lines = [f"found {what}; to do: {self._to_do()}"]
        if self.work:
            lines.append(
                f"about {self.hours:.2f} hours of recordings, "
                f"{_duration(self.seconds)} to read them, {_size(self.disk_bytes)} of disk"
            )
        same = [f"same content: {printable(a)} is {printable(b)}; taken once" for a, b in self.duplicates]
        out = [f"left out: {why}" for _, why in self.problems]
        lines += _first(same, _SHOWN_DUPLICATES) + _first(out, _SHOWN_PROBLEMS)
        return lines + [f"note: {note}" for note in self.notes]

    def _to_do(self) -> str:
        reasons = Counter(reason for work in self.work for reason in work.reasons)
        parts = [f"{number} {reason}" for reason, number in reasons.items()]
        for number, name in (
            (len(self.renamed), "renamed"),
            (self.described, "described anew"),
            (self.unchanged, "unchanged"),
            (self.failed_before, "left out because they failed before (--retry takes them)"),
        ):
            if number:
                parts.append(f"{number} {name}")
        return ", ".join(parts) or "nothing"


def make_plan(
    findings: Findings,
    ledger: Iterable[VideoRecord],
    settings: Settings,
    wanted: Wanted,
    *,
    retry: bool = False,
    notes: Sequence[str] = (),
) -> Plan:
    """Hold the files that were found against the ledger.

    A file is unchanged if its size and time are; else if its content is. A new path with the content of a
    ledger row whose own file is gone is that video under a new name. `retry` takes only rows that failed.
    """
    known = list(ledger)
    planner = _Planner(known, settings, wanted)
    for found in findings.files:
        planner.place(found, retry=retry)
    work = [replace(w, task=replace(w.task, number=n)) for n, w in enumerate(planner.work)]
    media = [(w.task.path, w.found.size) for w in work if w.found.kind == "media"]
    return Plan(
        work=tuple(work),
        records=tuple(planner.records.values()),
        renamed=tuple(planner.renamed),
        described=planner.described,
        obsolete=tuple(planner.obsolete),
        duplicates=tuple(planner.duplicates),
        problems=findings.problems,
        unchanged=planner.unchanged,
        failed_before=planner.failed_before,
        hours=estimate_hours(media) + _TRANSCRIPT_HOURS * (len(work) - len(media)),
        media_files=sum(f.kind == "media" for f in findings.files),
        transcripts=sum(f.kind == "transcript" for f in findings.files),
        bytes=sum(w.found.size for w in work),
        wanted=wanted,
        taken=frozenset(record.video_id for record in known),
        notes=(*notes, *(why for _, why in findings.notes)),
    )


class _Planner:
    """Sorts found files into what is to be done with them."""

    def __init__(self, ledger: list[VideoRecord], settings: Settings, wanted: Wanted) -> None:
        self._settings = settings
        self._wanted = wanted
        self._by_path: dict[str, VideoRecord] = {}
        self.obsolete: list[str] = []
        for record in sorted(ledger, key=lambda record: record.state == "done"):
            earlier = self._by_path.get(record.path)
            if earlier is not None and earlier.state == "failed":
                self.obsolete.append(earlier.video_id)
            self._by_path[record.path] = record
        self._by_size: dict[int, list[VideoRecord]] = defaultdict(list)
        for record in ledger:
            self._by_size[record.size].append(record)
        self._new_by_size: dict[int, list[SourceFile]] = defaultdict(list)
        self._hashes: dict[Path, str | None] = {}
        self._moved: set[str] = set()
        self.work: list[Work] = []
        self.records: dict[str, VideoRecord] = {}
        self.renamed: list[tuple[Path, Path]] = []
        self.duplicates: list[tuple[Path, Path]] = []
        self.unchanged = self.failed_before = self.described = 0

    def place(self, found: SourceFile, *, retry: bool) -> None:
        """Decide on one file."""
        known = self._by_path.get(str(found.path))
        if retry:
            if known is not None and known.state == "failed":
                self._add(found, known, "retry")
            return
        if known is None:
            self._place_new(found)
        elif known.state == "failed" and _looks_alike(found, known):
            self.failed_before += 1
        elif known.state == "done" and (_looks_alike(found, known) or self._same_content(found.path, known)):
            self._place_same(found, known)
        else:
            self._add(found, known, "changed")

    def _place_new(self, found: SourceFile) -> None:
        """The path is not known: a new video, or one that was renamed, or a second copy."""
        for record in self._by_size[found.size]:
            if record.state == "done" and self._same_content(found.path, record):
                self._place_twin(found, record)
                return
        for other in self._new_by_size[found.size]:
            if found.size and self._hash(found.path) and self._hash(other.path) == self._hash(found.path):
                self.duplicates.append((found.path, other.path))
                return
        self._new_by_size[found.size].append(found)
        self._add(found, None, "new")

    def _place_twin(self, found: SourceFile, record: VideoRecord) -> None:
        """A file with the content of a ledger row: its new name, or a copy, or what it held before."""
        old = Path(record.path)
        if record.video_id in self._moved:
            self.duplicates.append((found.path, Path(self.records[record.video_id].path)))
        elif not old.exists():
            self._moved.add(record.video_id)
            self.renamed.append((old, found.path))
            self._place_same(found, record)
        elif self._same_content(old, record):
            self.duplicates.append((found.path, old))
        else:
            self._add(found, None, "new")

    def _place_same(self, found: SourceFile, known: VideoRecord) -> None:
        """The content is the same: but its path, its words, or what is asked for may not be."""
        said = self._settings.metadata_for(found.path)
        now = replace(
            known,
            path=str(found.path),
            size=found.size,
            modified_ns=found.modified_ns,
            metadata={**known.metadata, **said},
            title=str(said.get("title") or known.title),
        )
        is_described = dict(now.metadata) != dict(known.metadata)
        if now != known:
            self.records[known.video_id] = now
        reasons = self._missing(found, known)
        if reasons:
            self._add(found, now, *reasons)
        elif known.video_id not in self._moved:
            self.described += is_described
            self.unchanged += not is_described

    def _missing(self, found: SourceFile, known: VideoRecord) -> list[Reason]:
        """What has to be read of a file whose content was read before."""
        wanted, streams = self._wanted, known.streams
        media = found.kind == "media"
        reasons: list[Reason] = []
        if media and known.words_signature != words_signature(found):
            reasons.append("words changed")
        elif streams.get("subtitle") != wanted.words or (media and self._lacks_speech(known)):
            reasons.append("words added")
        if wanted.pictures and known.has_picture and streams.get("vision") != wanted.vision:
            reasons.append("pictures added")
        elif wanted.shots and known.has_picture and known.shots is None:
            reasons.append("shots added")
        return reasons

    def _lacks_speech(self, known: VideoRecord) -> bool:
        """Whether speech is to be recognised: there are no words, or those of another speech model."""
        model = self._wanted.transcribe
        other = known.words.startswith("speech:") and known.words != f"speech:{model}"
        return bool(model) and (not known.words or other)

    def _same_content(self, path: Path, record: VideoRecord) -> bool:
        return bool(record.content_hash) and self._hash(path) == record.content_hash

    def _hash(self, path: Path) -> str | None:
        """A file's content hash; None for one that cannot be read."""
        if path not in self._hashes:
            try:
                self._hashes[path] = content_hash(path)
            except OSError:
                self._hashes[path] = None
        return self._hashes[path]

    def _add(self, found: SourceFile, known: VideoRecord | None, *reasons: Reason) -> None:
        media = found.kind == "media"
        whole = not _WHOLE.isdisjoint(reasons)
        pictures = self._wanted.pictures if media and (whole or "pictures added" in reasons) else None
        settled = "" if whole or known is None else known.content_hash
        task = ReadTask(
            number=0,
            path=found.path,
            kind=found.kind,
            size=found.size,
            sidecars=found.sidecars,
            pictures=pictures,
            shots=media and self._wanted.shots and (whole or "shots added" in reasons),
            words=whole or not {"words changed", "words added"}.isdisjoint(reasons),
            content_hash=self._hashes.get(found.path) or settled,
        )
        beside = [self._by_path.get(str(sidecar)) for sidecar in found.sidecars]
        self.work.append(
            Work(
                task=task,
                reasons=reasons,
                found=found,
                metadata=self._settings.metadata_for(found.path),
                known=known,
                words_signature=words_signature(found),
                supersedes=tuple(row.video_id for row in beside if row and row.kind == "transcript"),
            )
        )


def _looks_alike(found: SourceFile, known: VideoRecord) -> bool:
    return (found.size, found.modified_ns) == (known.size, known.modified_ns)


def words_signature(found: SourceFile) -> str:
    """What tells that the subtitle files beside a video are the same as before: names, sizes, times."""
    facts = []
    for sidecar in found.sidecars:
        try:
            status = sidecar.stat()
        except OSError:
            continue
        facts.append(f"{unambiguous(sidecar.name)}:{status.st_size}:{status.st_mtime_ns}")
    return ";".join(facts)


def _first(lines: list[str], most: int) -> list[str]:
    """The first few of many lines, and how many more there are."""
    more = [f"… and {len(lines) - most} more like that"] if len(lines) > most else []
    return lines[:most] + more


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"
