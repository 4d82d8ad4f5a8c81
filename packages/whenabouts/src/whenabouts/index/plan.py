"""Plans an index run: compares files on disk with the ledger, and lists the work with its estimated cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from whenabouts.index.absent import AbsentFiles, RemovedFile, safely_pruned
from whenabouts.index.estimate import Estimate, estimated
from whenabouts.index.filters import check_dates
from whenabouts.index.reading import ReadTask
from whenabouts.index.records import SHOTS_BY, SOUND_TRACK, SOUND_TRACKS, VideoRecord, unambiguous
from whenabouts.index.work import WHOLE, Work
from whenabouts.index.workers import available_cores
from whenabouts.intake.files import loads
from whenabouts.intake.opening import read_lines
from whenabouts.lines import one_line
from whenabouts.types import UsageError, number_of
from whenabouts.video.files import Findings, SourceFile, content_hash, printable
from whenabouts.video.objects import source_path
from whenabouts.video.probe import chosen_sound
from whenabouts.video.shots import BUILT_IN
from whenabouts.video.speech_models import speech_remedy

if TYPE_CHECKING:
    from whenabouts.index.stream import StreamRun

_METADATA_FILE_LIMIT = 256 * 1024 * 1024

# Most duplicates, problems and unused keys of metadata that are printed.
_SHOWN_DUPLICATES, _SHOWN_PROBLEMS, _SHOWN_KEYS = 5, 20, 3
NO_SOUND = "no sound"
"""`VideoRecord.words` of a video without sound whose speech was to be recognised."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How videos are read: the settings that do not depend on the streams.

    `shots`: find shots even if no stream reads frames; `shot_finder` names the finder. `transcribe` names a
    speech model for files without subtitles. `language` (such as "en") chooses among several subtitles, None:
    the likeliest. `sound_track` (number from 1, or language) chooses among several sound tracks, "": the
    first.

    `metadata` is for all files, `metadata_of` for single ones by stem, name, end of the path, or path, as
    `read_metadata_file` writes them: by `pathlib.Path`, in Unicode's form NFC.
    """

    shots: bool = False
    shot_finder: str = BUILT_IN
    transcribe: str | None = None
    language: str | None = None
    sound_track: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    metadata_of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_dates(self.metadata)

    def metadata_for(self, path: Path) -> dict[str, Any]:
        """The metadata given for all files, for a file's stem and for ends of its path; longer ends win.

        >>> Settings(metadata_of={"a/b.mp4": {"year": 2020}}).metadata_for(Path("/videos/a/b.mp4"))
        {'year': 2020}
        """
        metadata = dict(self.metadata)
        for key in _keys_of(path) if self.metadata_of else ():
            metadata.update(self.metadata_of.get(key, {}))
        return with_source_of_language(metadata)

    def unused(self, paths: Iterable[Path]) -> list[str]:
        """A note on the keys of `metadata_of` that fit none of these paths; empty without such keys."""
        used = {key for path in paths for key in _keys_of(path)} if self.metadata_of else set()
        keys = [one_line(key, 100) for key in self.metadata_of if key not in used]
        which = number_of(len(keys), "entry of the metadata file fits", "entries of the metadata file fit")
        return [f"{which} no file found or indexed (such as {', '.join(keys[:_SHOWN_KEYS])})"] if keys else []


def _keys_of(path: Path) -> list[str]:
    """The keys of `Settings.metadata_of` that fit a file: its stem, then ever longer ends of its path."""
    ends = (str(Path(*path.parts[start:])) for start in range(len(path.parts) - 1, -1, -1))
    return [normalize("NFC", key) for key in (path.stem, *ends)]


GIVEN_LANGUAGE = "language_from"
"""The metadata key that marks a video whose language the user gave."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of a run, in order.

    - `records`: ledger rows to update without reading a file: renamed, touched, with new metadata, or gone.
    - `obsolete`: ids of failed rows whose path has another row, which happens after a crash.
    - `taken`: all ids in the ledger, which no new video may get.
    - `problems`: (path, reason) of files that are left out.
    - `unruled`: folders that were skipped, because their `.whenaboutsignore` cannot be used.
    - `described`: number of files of which only the metadata changed.
    - `streams`: the streams to make, each after those that it reads.
    - `gone`: rows whose files are missing; `pruned`: those of them that will be removed.
    - `readmitted`: files that were removed once and are added again.
    - `searched`: the folders and files that were given.
    """

    work: tuple[Work, ...]
    records: tuple[VideoRecord, ...] = ()
    renamed: tuple[tuple[Path, Path], ...] = ()
    described: int = 0
    obsolete: tuple[str, ...] = ()
    duplicates: tuple[tuple[Path, Path], ...] = ()
    problems: tuple[tuple[Path, str], ...] = ()
    unruled: tuple[Path, ...] = ()
    unchanged: int = 0
    failed_before: int = 0
    removed_before: int = 0
    gone: tuple[VideoRecord, ...] = ()
    pruned: tuple[VideoRecord, ...] = ()
    readmitted: tuple[RemovedFile, ...] = ()
    estimate: Estimate = field(default_factory=Estimate)
    media_files: int = 0
    transcripts: int = 0
    streams: tuple[StreamRun, ...] = ()
    transcribe: str = ""
    language: str = ""
    sound_track: str = ""
    shot_finder: str = BUILT_IN
    taken: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    searched: tuple[Path, ...] = ()

    @property
    def files(self) -> int:
        return self.media_files + self.transcripts

    def to_json(self) -> dict[str, Any]:
        return {
            "files": self.files,
            "hours": round(self.estimate.hours, 4),
            "estimated_seconds": round(self.estimate.seconds, 1),
            "estimated_processor_seconds": round(self.estimate.processor_seconds, 1),
            "estimated_bytes": round(self.estimate.disk_bytes),
            "speech_hours": round(self.estimate.speech_hours, 4),
            "speech_model": self.transcribe or None,
            "unchanged": self.unchanged,
            "failed_before": self.failed_before,
            "removed_before": self.removed_before,
            "gone": [unambiguous(record.path) for record in self.gone],
            "pruned": [unambiguous(record.path) for record in self.pruned],
            "work": [
                {"path": unambiguous(w.task.path), "reason": w.reasons[0], "reasons": list(w.reasons)}
                for w in self.work
            ],
            "renamed": [{"from": unambiguous(a), "to": unambiguous(b)} for a, b in self.renamed],
            "duplicates": same_to_json(self.duplicates),
            "problems": [{"path": unambiguous(p), "why": why} for p, why in self.problems],
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        files = number_of(self.media_files, "video or sound file")
        transcripts = number_of(self.transcripts, "transcript")
        lines = [f"found {files}, {transcripts}; to do: {self._to_do()}"]
        if self.work:
            estimate = self.estimate
            lines.append(
                f"about {estimate.hours:.2f} hours of recordings, {_duration(estimate.processor_seconds)} of "
                f"processor time (at best {_duration(estimate.seconds)} on "
                f"{number_of(available_cores(), 'core')}), {_size(estimate.disk_bytes)} of disk"
            )
            if estimate.speech_hours:
                length = _duration(3600 * estimate.speech_hours)
                then = "to be recognised" if self.transcribe else f"to search what is said, {speech_remedy()}"
                lines.append(f"{length} of sound without subtitles: {then}")
        same = [f"same content: {printable(a)} is {printable(b)}; indexed once" for a, b in self.duplicates]
        out = [f"left out: {why}" for _, why in self.problems]
        lines += _first(same, _SHOWN_DUPLICATES) + _first(out, _SHOWN_PROBLEMS)
        return lines + [f"note: {note}" for note in self.notes]

    def _to_do(self) -> str:
        reasons = Counter(reason for work in self.work for reason in work.reasons)
        parts = [f"{number} {reason}" for reason, number in reasons.items()]
        for number, name in (
            (len(self.renamed), "renamed"),
            (self.described, "with new metadata"),
            (self.unchanged, "unchanged"),
            (self.failed_before, "left out because they failed before (--retry reads them again)"),
            (self.removed_before, "left out because they were removed (--again adds them)"),
            (len(self.gone) - len(self.pruned), "gone (--prune removes them)"),
            (len(self.pruned), "gone and removed"),
        ):
            if number:
                parts.append(f"{number} {name}")
        return ", ".join(parts) or "nothing"


def make_plan(
    findings: Findings,
    ledger: Iterable[VideoRecord],
    settings: Settings,
    streams: Sequence[StreamRun],
    *,
    retry: bool = False,
    removed: Sequence[RemovedFile] = (),
    again: bool = False,
    prune: bool = False,
    notes: Sequence[str] = (),
) -> Plan:
    """The plan for the files that were found, compared with the ledger.

    A file is unchanged if its size and modification time equal those of its row, or if the content hash does;
    a failed row is compared by size and time only. A path with the content of a row whose file is no longer
    there is a renamed video, also if names were exchanged. With `retry`, only files whose row is failed are
    read. Unless `again` is true, files in `removed` and subtitles without their recording are left out.
    `prune` removes rows of lost files.
    """
    records = list(ledger)
    planner = _Planner(records, settings, streams, AbsentFiles(findings, records, removed, again=again))
    planner.place_all(findings.files, retry=retry)
    gone = [] if retry else planner.mark_gone()
    pruned, prune_notes = planner.remove(gone, findings) if prune else ([], [])
    work = planner.numbered(findings)
    return Plan(
        work=tuple(work),
        records=tuple(planner.records.values()),
        renamed=tuple(planner.renamed),
        described=planner.described,
        obsolete=tuple(planner.obsolete),
        duplicates=tuple(planner.duplicates),
        problems=findings.problems,
        unruled=findings.unruled,
        unchanged=planner.unchanged,
        failed_before=planner.failed_before,
        removed_before=planner.removed_before,
        gone=tuple(gone),
        pruned=tuple(pruned),
        readmitted=tuple(planner.absent.readmitted.values()),
        estimate=estimated(work, streams, settings.transcribe or "", in_corpus=len(records)),
        media_files=sum(f.kind == "media" for f in findings.files),
        transcripts=sum(f.kind == "transcript" for f in findings.files),
        streams=tuple(streams),
        transcribe=settings.transcribe or "",
        language=settings.language or "",
        sound_track=settings.sound_track,
        shot_finder=settings.shot_finder,
        taken=frozenset(record.video_id for record in records),
        notes=(
            *notes,
            *(why for _, why in findings.notes),
            *prune_notes,
            *planner.absent.notes(findings),
            *planner.notes(),
            *settings.unused([file.path for file in findings.files] + [source_path(r.path) for r in records]),
        ),
        searched=findings.searched,
    )


class _Planner:
    """Decides for each file what the run does with it, and collects the results for a `Plan`."""

    def __init__(
        self,
        ledger: list[VideoRecord],
        settings: Settings,
        streams: Sequence[StreamRun],
        absent: AbsentFiles,
    ) -> None:
        self._settings = settings
        self._found_by_look: dict[tuple[int, int], list[SourceFile]] = defaultdict(list)
        self.absent = absent
        self._streams = streams
        self._by_path: dict[str, VideoRecord] = {}
        self.obsolete: list[str] = []
        for record in sorted(ledger, key=lambda record: record.state != "failed"):
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
        self._ignored_subtitles: list[tuple[SourceFile, Path]] = []
        self.unchanged = self.failed_before = self.removed_before = self.described = 0

    def place_all(self, files: Sequence[SourceFile], *, retry: bool) -> None:
        """Decide what to do with each file."""
        for file in files:
            self._found_by_look[file.size, file.modified_ns].append(file)
        # Of new copies, one with subtitles beside it comes first. Transcripts come when renames are known.
        for file in sorted(files, key=lambda file: (file.kind == "transcript", not file.sidecars)):
            self._place(file, retry=retry)

    def _place(self, file: SourceFile, *, retry: bool) -> None:
        record = self._by_path.get(str(file.path))
        if retry:
            if record is not None and record.state == "failed":
                self._read_whole(file, record, "retry")
        elif record is None:
            self._place_new(file)
        elif record.state == "failed" and _looks_alike(file, record):
            self.failed_before += 1
        elif record.state != "failed" and (
            _looks_alike(file, record) or self._has_content_of(file.path, record)
        ):
            self._place_same(file, record)
        elif record.video_id in self._moved_away:
            self._place_new(file)
        else:
            self._read_whole(file, record, "changed")

    @cached_property
    def _moved_away(self) -> set[str]:
        """Ids of videos whose content, with its old time, is at another path.

        If a video was at that path, it moved away in turn; names that were exchanged lead back.
        """
        owners = {
            record.video_id: [own and own.video_id for own in self._owners_of_content(record)]
            for record in self._by_path.values()
        }
        moved = {video_id for video_id, those in owners.items() if those}
        while stay := {id for id in moved if not any(own is None or own in moved for own in owners[id])}:
            moved -= stay
        return moved

    def _owners_of_content(self, record: VideoRecord) -> Iterator[VideoRecord | None]:
        """For each other path with the content of a row, and its old time: the row of that path, or None."""
        for file in self._found_by_look.get((record.size, record.modified_ns), ()):
            own = self._by_path.get(str(file.path))
            if not (own and _looks_alike(file, own)) and self._has_content_of(file.path, record):
                yield own

    def _place_new(self, file: SourceFile) -> None:
        """Place a path without a video, or whose video moved away: a new video, a renamed one, or a copy."""
        if self.absent.is_removed(file, self._hash):
            self.removed_before += 1
            return
        if self.absent.is_subtitle_left_behind(file):
            return
        for record in self._by_size[file.size]:
            if record.state != "failed" and self._has_content_of(file.path, record):
                self._place_twin(file, record)
                return
        for other in self._new_by_size[file.size]:
            if file.size and self._hash(file.path) and self._hash(other.path) == self._hash(file.path):
                self.duplicates.append((file.path, other.path))
                return
        self._new_by_size[file.size].append(file)
        self._read_whole(file, None, "new")

    def _place_twin(self, file: SourceFile, record: VideoRecord) -> None:
        """Place a new path with a row's content: a renamed video, a copy, or new if the row is outdated."""
        old = source_path(record.path)
        if record.video_id in self._moved:
            self.duplicates.append((file.path, source_path(self.records[record.video_id].path)))
        elif old.exists() and self._has_content_of(old, record):
            self.duplicates.append((file.path, old))
            if file.sidecars and not record.words:
                self._ignored_subtitles.append((file, old))
        elif old.exists() and not _looks_alike(file, record):
            self._read_whole(file, None, "new")
        else:
            self._moved.add(record.video_id)
            self.renamed.append((old, file.path))
            self.absent.found_elsewhere(old)
            self._place_same(file, record)

    def _place_same(self, file: SourceFile, record: VideoRecord) -> None:
        """Place a file with unchanged content; its path, metadata, cues or streams may have changed."""
        metadata = self._settings.metadata_for(file.path)
        moved = record.moved_to(file.path)
        now = replace(
            moved,
            size=file.size,
            modified_ns=file.modified_ns,
            state="done",
            metadata={**record.metadata, **metadata},
            title=str(metadata.get("title") or moved.title),
        )
        has_new_metadata = dict(now.metadata) != dict(record.metadata)
        if now != record:
            self.records[record.video_id] = now
        streams, reasons = self._missing(file, record)
        if reasons:
            self._add(file, now, reasons, streams)
        elif record.video_id not in self._moved:
            self.described += has_new_metadata
            self.unchanged += not has_new_metadata

    def notes(self) -> list[str]:
        """Notes on copies whose subtitles or metadata are ignored, and on subtitles left behind."""
        lost = [
            f"the subtitles of {printable(job.file.path)} are no longer beside it, so it loses their words; "
            "to keep them, move them there and index again"
            for job in self.work
            if job.record is not None and job.record.words.startswith("sidecar:")
            if job.file.kind == "media" and not job.file.sidecars
        ]
        unread = [
            f"the subtitles beside {printable(file.path)} are not read, because the same recording is "
            f"indexed from {printable(old)}: move them next to that file"
            for file, old in self._ignored_subtitles
        ]
        kinds = (lost, unread, list(self._not_stored()))
        return list(chain.from_iterable(_first(kind, _SHOWN_DUPLICATES) for kind in kinds))

    def _not_stored(self) -> Iterator[str]:
        """A note for each copy whose given metadata differ from those of the indexed file."""
        stored = {
            record.path: record.metadata for record in (*self._by_path.values(), *self.records.values())
        }
        for copy, kept in self.duplicates:
            of_kept = stored.get(str(kept), self._settings.metadata_for(kept))
            given = self._settings.metadata_for(copy).items()
            keys = [
                repr(key[:40]) for key, value in given if key != GIVEN_LANGUAGE and of_kept.get(key) != value
            ]
            if keys:
                yield (
                    f"the metadata {', '.join(keys[:5])} of {printable(copy)} are not stored, because the "
                    f"same recording is indexed from {printable(kept)}: give them for that file"
                )

    def mark_gone(self) -> list[VideoRecord]:
        """Rows whose file no longer exists and was not renamed; those in state "done" get state "gone"."""
        gone = [record for record in self.absent.gone if record.video_id not in self._moved]
        for record in gone:
            if record.state == "done":
                self.records[record.video_id] = replace(record, state="gone")
        return gone

    def remove(self, gone: list[VideoRecord], findings: Findings) -> tuple[list[VideoRecord], list[str]]:
        """The rows of lost files to remove, and notes on those that stay; the former are not updated."""
        pruned, notes = safely_pruned(gone, findings)
        for record in pruned:
            self.records.pop(record.video_id, None)
        return pruned, notes

    def numbered(self, findings: Findings) -> list[Work]:
        """The work, numbered in the order in which its files were found."""
        order = {file.path: number for number, file in enumerate(findings.files)}
        ordered = sorted(self.work, key=lambda job: order[job.file.path])
        return [replace(job, task=replace(job.task, number=n)) for n, job in enumerate(ordered)]

    def _missing(self, file: SourceFile, record: VideoRecord) -> tuple[list[StreamRun], list[str]]:
        """The streams that an unchanged file still lacks, and the reasons to work on it."""
        is_media = file.kind == "media"
        reasons: list[str] = []
        if has_new_cues := is_media and record.words_signature != self._signature(file):
            reasons.append("words changed")
        lacks_speech = is_media and self._lacks_speech(record)
        has_other_sound_track = is_media and self._has_other_sound_track(record)
        missing: list[StreamRun] = []
        for run in self._applicable(file):
            if run.reads.frames and not record.has_picture:
                continue
            is_old = record.streams.get(run.name) != run.fingerprint
            is_old |= bool(run.reads.sound) and has_other_sound_track
            reads_anew = any(other.name in run.stream.reads_clips_of for other in missing)
            if run.reads.cues and has_new_cues:
                missing.append(run)
            elif is_old or reads_anew or (run.reads.cues and lacks_speech):
                missing.append(run)
                reasons.append(f"{run.stream.title} added")
        lacks_shots = self._settings.shots and record.has_picture and self._lacks_shots(record)
        if not any(run.reads.frames for run in missing) and lacks_shots:
            reasons.append("shots added")
        return missing, reasons

    def _applicable(self, file: SourceFile) -> list[StreamRun]:
        """The streams that can be made from a file.

        A transcript allows streams made from cues, and streams made from the clips of such streams.
        """
        runs: list[StreamRun] = []
        for run in self._streams:
            sources = run.stream.reads_clips_of
            # A stream that reads sound and cues can be made from cues alone; one that reads frames cannot.
            reads_file = not (sources or run.reads.cues) or bool(run.reads.frames)
            reads_file = reads_file or bool(run.reads.sound and not run.reads.cues)
            if file.kind == "media" or not (reads_file or set(sources) - {other.name for other in runs}):
                runs.append(run)
        return runs

    def _has_other_sound_track(self, record: VideoRecord) -> bool:
        """Whether the settings choose another sound track than the indexed one."""
        tracks, indexed = record.metadata.get(SOUND_TRACKS), record.metadata.get(SOUND_TRACK, 1)
        return isinstance(tracks, list) and chosen_sound(tracks, self._settings.sound_track) + 1 != indexed

    def _lacks_speech(self, record: VideoRecord) -> bool:
        """Whether to recognise speech: a model is chosen, and words are missing or from another model."""
        model = self._settings.transcribe
        other = record.words.startswith("speech:") and record.words != f"speech:{model}"
        return bool(model) and (not record.words or other)

    def _lacks_shots(self, record: VideoRecord) -> bool:
        """Whether a video's shots are unknown, or found by another finder than the chosen one."""
        finder = record.metadata.get(SHOTS_BY, BUILT_IN)
        return record.shots is None or finder != self._settings.shot_finder

    def _signature(self, file: SourceFile) -> str:
        return words_signature(file, self._settings.language, self._settings.sound_track)

    def _has_content_of(self, path: Path, record: VideoRecord) -> bool:
        return bool(record.content_hash) and self._hash(path) == record.content_hash

    def _hash(self, path: Path) -> str | None:
        """A file's content hash; None if it cannot be read."""
        if path not in self._hashes:
            try:
                self._hashes[path] = content_hash(path)
            except OSError:
                self._hashes[path] = None
        return self._hashes[path]

    def _read_whole(self, file: SourceFile, record: VideoRecord | None, reason: str) -> None:
        self._add(file, record, [reason], self._applicable(file))

    def _add(
        self, file: SourceFile, record: VideoRecord | None, reasons: list[str], streams: list[StreamRun]
    ) -> None:
        is_media, is_whole = file.kind == "media", not WHOLE.isdisjoint(reasons)
        known_hash = "" if is_whole or record is None else record.content_hash
        frames = dict.fromkeys(run.reads.frames for run in streams if run.reads.frames)
        sound = dict.fromkeys(run.reads.sound for run in streams if run.reads.sound and is_media)
        finds_shots = is_media and (
            bool(frames) or (self._settings.shots and (is_whole or "shots added" in reasons))
        )
        finds_shots &= is_whole or record is None or self._lacks_shots(record)
        task = ReadTask(
            number=0,
            path=file.path,
            kind=file.kind,
            size=file.size,
            identity=file.identity,
            sidecars=file.sidecars,
            frames=tuple(frames),
            sound=tuple(sound),
            shots=self._settings.shot_finder if finds_shots else "",
            packets=is_whole,
            cues=is_whole or any(run.reads.cues for run in streams) or "words changed" in reasons,
            content_hash=self._hashes.get(file.path) or known_hash,
            language=self._settings.language,
            sound_track=self._settings.sound_track,
        )
        beside = [self._by_path.get(str(sidecar)) for sidecar in file.sidecars]
        self.work.append(
            Work(
                task=task,
                reasons=tuple(reasons),
                file=file,
                metadata=self._settings.metadata_for(file.path),
                streams=tuple(run.name for run in streams),
                record=record,
                words_signature=self._signature(file),
                video_id=again.video_id if (again := self.absent.readmitted.get(file.path)) else "",
                supersedes=tuple(row.video_id for row in beside if row and row.kind == "transcript"),
            )
        )


def _looks_alike(file: SourceFile, record: VideoRecord) -> bool:
    return (file.size, file.modified_ns) == (record.size, record.modified_ns)


def words_signature(file: SourceFile, language: str | None = None, sound_track: str = "") -> str:
    """Signature of a video's words: its subtitle files (name, size, time), language and sound track.

    If it changes, the words are read again.
    """
    named = {"language": language, "sound_track": sound_track}
    facts = [f"{key}:{value}" for key, value in named.items() if value and file.kind == "media"]
    for sidecar in file.sidecars:
        try:
            status = sidecar.stat()
        except OSError:
            continue
        facts.append(f"{unambiguous(sidecar.name)}:{status.st_size}:{status.st_mtime_ns}")
    return ";".join(facts)


def same_to_json(duplicates: Iterable[tuple[Path, Path]]) -> list[dict[str, str]]:
    """Pairs of a copy and its indexed file, as JSON."""
    return [{"path": unambiguous(copy), "same_as": unambiguous(kept)} for copy, kept in duplicates]


def _first(lines: list[str], most: int) -> list[str]:
    """The first `most` lines, and how many more there are."""
    more = [f"… and {len(lines) - most} more like that"] if len(lines) > most else []
    return lines[:most] + more


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def with_source_of_language(metadata: dict[str, Any]) -> dict[str, Any]:
    """The user's metadata, marked with `GIVEN_LANGUAGE` if they name the language, so that it stays."""
    return metadata | {GIVEN_LANGUAGE: "given"} if metadata.get("language") else metadata


def parse_metadata(pairs: Sequence[str]) -> dict[str, Any]:
    """`key=value` pairs as a mapping. Raises UsageError.

    >>> parse_metadata(["speaker=Ada L.", "year=2024"])
    {'speaker': 'Ada L.', 'year': '2024'}
    """
    metadata: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key.strip() and equals):
            raise UsageError(f"{pair!r} is not metadata; write KEY=VALUE")
        metadata[key.strip()] = value.strip()
    return metadata


def read_metadata_file(path: Path) -> dict[str, dict[str, Any]]:
    """The metadata of each file from JSON lines: `path` (or `video_id`: the file's stem) and any other keys.

    Raises UsageError for an unreadable file or a malformed line.
    """
    try:
        lines = read_lines(path, _METADATA_FILE_LIMIT)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: the metadata file cannot be read ({error}); it must be JSON lines in UTF-8"
        ) from None
    metadata: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            name, facts = _read_line(line, f"{path}, line {number}")
            metadata.setdefault(name, {}).update(facts)
    return metadata


def _read_line(line: str, where: str) -> tuple[str, dict[str, Any]]:
    try:
        facts = loads(line)
    except ValueError as error:
        raise UsageError(f"{where}: not JSON ({error})") from None
    name = (facts.pop("path", None) or facts.pop("video_id", None)) if isinstance(facts, dict) else None
    if not isinstance(name, str):
        raise UsageError(
            f'{where}: each line needs "path" (or "video_id") with a file name; all other keys are metadata'
        )
    check_dates(facts, f"{where}: ")
    return normalize("NFC", str(Path(name))), facts
