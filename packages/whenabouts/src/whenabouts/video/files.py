"""Find the files to index: recordings with their subtitles, and transcripts alone."""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Literal
from urllib.parse import quote_from_bytes

from whenabouts.intake.opening import open_regular
from whenabouts.types import UsageError
from whenabouts.video.ignored import IGNORE_FILE, Patterns, UnusableRules
from whenabouts.video.objects import SCHEME, ObjectPath, objects_below, open_source, source_path, tag_hash

# Video, then sound only.
_MEDIA = (
    "3g2 3gp asf av1 avi divx dv f4v flv gxf h264 h265 hevc 264 265 ivf m1v m2ts m2v m4v mj2 mjpeg mjpg "
    "mkv mod mov mp4 mpe mpeg mpg mts mxf nut obu ogm ogv qt rm rmvb tod ts vob webm wmv wtv y4m "
    "aac ac3 aif aiff amr ape au caf dts eac3 flac m4a m4b mka mp2 mp3 oga ogg opus spx wav wma wv"
)
MEDIA_SUFFIXES = frozenset(f".{name}" for name in _MEDIA.split())
TRANSCRIPT_SUFFIXES = frozenset((".srt", ".vtt", ".ass", ".ssa", ".sbv"))
# Also used by TypeScript; a transport stream starts with its sync byte.
_AMBIGUOUS_SUFFIXES = frozenset((".ts", ".mts"))
_TRANSPORT_SYNC = 0x47

_BLOCK_BYTES = 1 << 20
# "s3:" and the bucket; the key follows.
_BUCKET_PARTS = 2
_EARLIEST_NS, _LATEST_NS = -(1 << 63), (1 << 63) - 1
# A language (BCP 47: en, pt-BR, zh-Hans, eng), its English name, or a mark that players use.
_SIDECAR_MARK = re.compile(
    r"[a-z]{2,3}([-_][a-z0-9]{2,8}){0,3}|forced|foreign|default|sdh|captions?|auto|asr|orig(inal)?|"
    r"english|french|german|spanish|portuguese|italian|dutch|russian|chinese|japanese|korean|arabic|hindi",
    re.IGNORECASE,
)
_MOST_MARKS = 3


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to index: a recording with its sidecar subtitles, or a transcript without a recording.

    `size` is in bytes, `modified_ns` in nanoseconds since 1970; `identity` is device and inode (zeros if
    unknown).
    """

    path: Path
    kind: Literal["media", "transcript"]
    sidecars: tuple[Path, ...]
    size: int
    modified_ns: int
    identity: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Findings:
    """The files that were found, sorted by path.

    `problems` are (path, cause and remedy) of given paths that could not be read; `notes` are (path, reason)
    of harmless omissions. `searched` are the given folders and files; `ignored` counts files and folders
    excluded by patterns. `unseen` are folders that could not be looked at, so that nothing is known of their
    files; `unruled` are those of them whose `.whenaboutsignore` cannot be used.
    """

    files: tuple[SourceFile, ...]
    problems: tuple[tuple[Path, str], ...]
    notes: tuple[tuple[Path, str], ...] = ()
    searched: tuple[Path, ...] = ()
    ignored: int = 0
    unseen: tuple[Path, ...] = ()
    unruled: tuple[Path, ...] = ()


def find_files(paths: Sequence[Path], *, exclude: Sequence[str] = (), follow: bool = True) -> Findings:
    """Recordings and transcripts at and under `paths`, each file once.

    Folders are searched recursively. Hidden files and folders (a leading dot) are skipped. Links are followed
    once, or with `follow` false only if given by name. Files that match the gitignore patterns `exclude`, or
    those of a `.whenaboutsignore` in their folder, are skipped. A file given by name is taken whatever its
    suffix.

    A subtitle file belongs to the recording with the same stem in its folder, with or without a language
    (`talk.srt`, `talk.pt-BR.vtt`); others are indexed alone. Unreadable paths become problems, and folders
    whose `.whenaboutsignore` cannot be used, with all below them. An invalid pattern of `exclude` raises
    UsageError.
    """
    walk = _Walk(Patterns.of(exclude), follow)
    for path in paths:
        walk.take(source_path(path))
    return walk.findings()


def content_hash(path: Path) -> str:
    """Hexadecimal BLAKE2b-128 of all bytes of a file, read in blocks. Raises OSError.

    For an object in a store, its tag and size are hashed instead (`objects.tag_hash`).
    """
    if isinstance(place := source_path(path), ObjectPath):
        return tag_hash(place)
    digest = blake2b(digest_size=16)
    with open_regular(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


@dataclass(slots=True)
class _Candidate:
    """One path of a file, whether it is a link, and its status."""

    path: Path
    is_link: bool
    is_explicit: bool
    status: os.stat_result

    @property
    def preference(self) -> tuple[bool, bool, bytes]:
        """The smallest is kept: not a link, given by name, first by path."""
        return self.is_link, not self.is_explicit, os.fsencode(self.path)


@dataclass
class _Walk:
    """The state of one search."""

    exclude: Patterns
    follow: bool
    searched: list[Path] = field(default_factory=list)
    ignored: int = 0
    problems: dict[Path, str] = field(default_factory=dict)
    notes: dict[Path, str] = field(default_factory=dict)
    unseen: list[Path] = field(default_factory=list)
    unruled: list[Path] = field(default_factory=list)
    _media: dict[str, _Candidate] = field(default_factory=dict)
    _transcripts: dict[str, _Candidate] = field(default_factory=dict)
    _folders: dict[tuple[int, int], Path] = field(default_factory=dict)
    _patterns: dict[Path, Patterns] = field(default_factory=dict)
    _neighbours: defaultdict[Path, list[Path]] = field(default_factory=lambda: defaultdict(list))
    _objects_beside: defaultdict[Path, list[Path]] = field(default_factory=lambda: defaultdict(list))

    def take(self, given: Path) -> None:
        """Process a given path."""
        if isinstance(given, ObjectPath):
            self._take_objects(given)
            return
        place = absolute(given)
        try:
            path = _tidy(place)
            status = path.stat()
        except (OSError, ValueError) as error:
            self.problems[given] = _reason(given, error)
            self.searched.append(place)
            return
        self.searched.append(path)
        if stat.S_ISDIR(status.st_mode):
            self._walk_folder(path, status)
        elif not stat.S_ISREG(status.st_mode):
            self.problems[path] = f"{printable(path)}: neither a file nor a folder; give a file or a folder"
        elif self.exclude.beneath(path.parent).fits(path):
            self.ignored += 1
        else:
            self._note_file(_Candidate(path, path.is_symlink(), True, status))

    def _take_objects(self, given: ObjectPath) -> None:
        """Process an object of a store, or all below a prefix; hidden names and patterns as in folders."""
        self.searched.append(given)
        try:
            is_object = given.is_file()
            # A single object's neighbours are listed too, because they include its subtitles.
            top = given.parent if is_object and len(given.parts) > _BUCKET_PARTS else given
            entries = list(objects_below(top, recursive=not is_object))
        except OSError as error:
            self.problems[given] = _reason(given, error)
            return
        patterns = self.exclude.beneath(top)
        for entry in entries:
            if isinstance(entry, str):
                name = ObjectPath(f"s3:/{entry}")
                self.problems[name] = f"s3://{entry!r}: empty parts, . or .. or control characters; rename it"
                continue
            path, status = entry
            kind, is_given = _kind(path), path == given
            if is_object and not is_given:
                if kind == "media" or (kind == "transcript" and not patterns.fits(path)):
                    (self._objects_beside if kind == "transcript" else self._neighbours)[top].append(path)
            elif any(part.startswith(".") for part in path.relative_to(top).parts) and not is_given:
                continue
            elif (kind or is_given) and patterns.fits(path):
                self.ignored += 1
            elif kind or is_given:
                if kind == "transcript":
                    self._objects_beside[path.parent].append(path)
                if is_given or not _is_source_code(path):
                    kept = self._transcripts if kind == "transcript" else self._media
                    kept.setdefault(str(path), _Candidate(path, False, is_given, status))

    def findings(self) -> Findings:
        """All results, with subtitles assigned to their recordings."""
        media = sorted(self._media.values(), key=lambda recording: os.fsencode(recording.path))
        stems: defaultdict[Path, list[str]] = defaultdict(list)
        for recording in media:
            stems[recording.path.parent].append(recording.path.stem)
        beside = {folder: self._sidecars_in(folder, names) for folder, names in stems.items()}
        files, owned = [], set[str]()
        for recording in media:
            sidecars = beside[recording.path.parent].get(recording.path.stem, ())
            owned.update(real_place(sidecar) for sidecar in sidecars)
            files.append(_media_file(recording, "media", sidecars))
        alone = [transcript for real, transcript in self._transcripts.items() if real not in owned]
        files += [_media_file(transcript, "transcript", ()) for transcript in alone]
        return Findings(
            tuple(sorted(files, key=lambda file: os.fsencode(file.path))),
            tuple(sorted(self.problems.items(), key=lambda entry: os.fsencode(entry[0]))),
            tuple(sorted(self.notes.items(), key=lambda entry: os.fsencode(entry[0]))),
            tuple(self.searched),
            self.ignored,
            (*self.unseen, *self.unruled),
            tuple(self.unruled),
        )

    def _sidecars_in(self, folder: Path, stems: Sequence[str]) -> dict[str, tuple[Path, ...]]:
        """The subtitle files of a folder's recordings; a note for each ambiguous one."""
        owners = _Owners([*stems, *(other.stem for other in self._recordings_in(folder))])
        beside = owners.sidecars(self._subtitles_in(folder))
        for subtitle, alike in owners.ambiguous.items():
            self.notes[subtitle] = (
                f"{printable(subtitle)}: fits {' and '.join(printable(Path(stem)) for stem in alike)}, which "
                "differ in letter case or Unicode form alone, so it belongs to neither; give it the exact "
                "name of one"
            )
        return beside

    def _recordings_in(self, folder: Path) -> list[Path]:
        """All recordings of a folder, also those that are not indexed."""
        if isinstance(folder, ObjectPath):
            return self._neighbours[folder]
        return _files_in(folder, MEDIA_SUFFIXES, follow=True)

    def _subtitles_in(self, folder: Path) -> list[Path]:
        if isinstance(folder, ObjectPath):
            return sorted(set(self._objects_beside[folder]))
        patterns = self._patterns.get(folder, self.exclude.beneath(folder))
        subtitles = _files_in(folder, TRANSCRIPT_SUFFIXES, follow=self.follow)
        return [path for path in subtitles if not patterns.fits(path)]

    def _walk_folder(self, top: Path, status: os.stat_result) -> None:
        """Search a folder. Iterative, because folders may be nested deeper than Python's stack."""
        waiting, linked = [(top, status)], list[tuple[Path, os.stat_result]]()
        while waiting or linked:
            # Links come last, so that a folder is found by its real name first.
            folder, status = waiting.pop() if waiting else linked.pop(0)
            key = (status.st_dev, status.st_ino)
            if key in self._folders:
                self._note_loop(folder, self._folders[key])
                continue
            self._folders[key] = folder
            try:
                with os.scandir(folder) as entries:
                    names = sorted(entries, key=lambda entry: os.fsencode(entry.name))
            except OSError as error:
                self.problems[folder] = _reason(folder, error)
                self.unseen.append(folder)
                continue
            above = self._patterns.get(folder.parent) if folder != top else None
            try:
                patterns = above or self.exclude.beneath(folder)
                self._patterns[folder] = patterns.with_file_of(folder, printable(folder / IGNORE_FILE))
            except UnusableRules as error:
                self.problems[folder] = f"{error}; this folder is not looked at until then"
                self.unruled.append(folder)
                continue
            for entry in reversed(names):
                if (below := self._entry(entry)) is not None:
                    (linked if entry.is_symlink() else waiting).append((Path(entry.path), below))

    def _entry(self, entry: os.DirEntry[str]) -> os.stat_result | None:
        """Process an entry of a folder; returns the status of a folder to search."""
        path = Path(entry.path)
        if entry.name.startswith(".") or (entry.is_symlink() and not self.follow):
            return None
        try:
            status = entry.stat()
        except OSError as error:
            if entry.is_symlink() and error.errno == errno.ELOOP:
                self.notes[path] = f"{printable(path)}: a link that leads back to itself; left out"
            elif _kind(path) is not None:
                self.problems[path] = _reason(path, error)
            return None
        is_folder = stat.S_ISDIR(status.st_mode)
        is_taken = is_folder or (stat.S_ISREG(status.st_mode) and _kind(path) is not None)
        if is_taken and self._patterns[path.parent].fits(path, is_folder=is_folder):
            self.ignored += 1
        elif is_folder:
            return status
        elif is_taken:
            self._note_file(_Candidate(path, entry.is_symlink(), False, status))
        return None

    def _note_file(self, candidate: _Candidate) -> None:
        kind = _kind(candidate.path) or "media"
        kept = self._transcripts if kind == "transcript" else self._media
        if not os.access(candidate.path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
            self.problems[candidate.path] = _reason(candidate.path, PermissionError(errno.EACCES, ""))
            return
        if not candidate.is_explicit and _is_source_code(candidate.path):
            return
        if modified_ns(candidate.status) != candidate.status.st_mtime_ns:
            year = 1970 + candidate.status.st_mtime // 31_556_952
            self.notes[candidate.path] = (
                f"{printable(candidate.path)}: dated in the year {year:.0f}; years before 1677 and after "
                "2262 cannot be kept, and the nearest one counts; `touch` gives it another date"
            )
        real = os.path.realpath(candidate.path)
        if real not in kept or candidate.preference < kept[real].preference:
            kept[real] = candidate

    def _note_loop(self, folder: Path, first_seen: Path) -> None:
        """Note a folder that is reached again through a link to one of its parents."""
        above, real = os.path.realpath(folder.parent), os.path.realpath(first_seen)
        if folder.is_symlink() and os.path.commonpath([above, real]) == real:
            self.notes[folder] = (
                f"{printable(folder)}: a link back to {printable(Path(real))}, above it; not followed"
            )


def real_place(path: Path) -> str:
    """A path with links resolved; an object's address as it is."""
    return str(path) if isinstance(path, ObjectPath) else os.path.realpath(absolute(path))


def file_url(path: str) -> str:
    """A file or an object as a URL, whatever bytes its name has; that of a bare name is relative.

    >>> file_url("/films/a b#1.mp4"), file_url("a:b.mp4"), file_url("s3://films/a b.mp4")
    ('file:///films/a%20b%231.mp4', 'a%3Ab.mp4', 's3://films/a%20b.mp4')
    """
    scheme = SCHEME if path.startswith(SCHEME) else "file://" if path.startswith("/") else ""
    return scheme + quote_from_bytes(os.fsencode(path.removeprefix(SCHEME)))


def with_home(path: str | os.PathLike[str]) -> Path:
    """A path with the home folder for `~`; `~name` without such a user names a file."""
    return Path(os.path.expanduser(path))  # noqa: PTH111, because pathlib raises for an unknown user


def absolute(path: Path) -> Path:
    """The absolute path with its links and `..`. Raises UsageError if the current folder was deleted."""
    try:
        return path.absolute()
    except FileNotFoundError as error:
        problem = "the current folder was deleted; change to another, or give an absolute path"
        raise UsageError(f"{printable(path)}: {problem}") from error


def _tidy(path: Path) -> Path:
    """An absolute path without `..`, if it is still the same file; links keep their name."""
    tidied = Path(os.path.normpath(path))
    if ".." in path.parts and not (tidied.exists() and tidied.samefile(path)):
        return path.resolve()
    return tidied


def _kind(path: Path) -> Literal["media", "transcript"] | None:
    suffix = path.suffix.lower()
    if suffix in MEDIA_SUFFIXES:
        return "media"
    return "transcript" if suffix in TRANSCRIPT_SUFFIXES else None


def _is_source_code(path: Path) -> bool:
    """Whether a `.ts` is TypeScript: a transport stream has its sync byte first, or after four bytes."""
    if path.suffix.lower() not in _AMBIGUOUS_SUFFIXES:
        return False
    try:
        with open_source(path) as file:
            head = file.read(5)
    except OSError:
        return False  # reported as unreadable later
    return _TRANSPORT_SYNC not in (head[:1] + head[4:5])


def _files_in(folder: Path, suffixes: Collection[str], *, follow: bool) -> list[Path]:
    """The files of a folder with some suffixes, without hidden ones, and without links unless `follow`."""
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name
                for entry in entries
                if not entry.name.startswith(".")
                and Path(entry.name).suffix.lower() in suffixes
                # `entry.is_file()` raises for a link to itself, and for one into a forbidden folder.
                and (entry.is_file(follow_symlinks=False) or (follow and os.path.isfile(entry)))  # noqa: PTH113
            ]
    except OSError:  # a file may be readable in a folder that cannot be listed
        return []
    return [folder / name for name in sorted(names, key=os.fsencode)]


def folded_name(name: str) -> str:
    """A name with Unicode form and letter case normalised.

    >>> folded_name("Cafe\u0301.MP4") == folded_name("caf\u00e9.mp4")
    True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def sidecars_of(media: Path, subtitles: Sequence[Path]) -> tuple[Path, ...]:
    """The subtitle files in its folder that would belong to a recording if it were the only one."""
    return _Owners([media.stem]).sidecars(subtitles).get(media.stem, ())


class _Owners:
    """The recordings of a folder by their stems, and the subtitle files of each.

    A subtitle file's name is the stem of its recording, then marks such as a language; the longest matching
    stem wins. A stem in another Unicode form or letter case matches if no stem is equal and only one is
    similar.
    """

    def __init__(self, stems: Iterable[str]) -> None:
        self._stems = set(stems)
        self._alike: defaultdict[str, list[str]] = defaultdict(list)
        for stem in sorted(self._stems):
            self._alike[folded_name(stem)].append(stem)
        # Subtitle files that match several recordings, with the recordings' stems.
        self.ambiguous: dict[Path, list[str]] = {}

    def sidecars(self, subtitles: Iterable[Path]) -> dict[str, tuple[Path, ...]]:
        """Subtitle files by the stem of their recording: without marks first, exact names before others."""
        ranked: defaultdict[str, list[tuple[bool, bool, Path]]] = defaultdict(list)
        for subtitle in subtitles:
            if (owner := self._owner(subtitle)) is not None:
                stem, marks = owner
                ranked[stem].append((marks > 0, not subtitle.stem.startswith(stem), subtitle))
        return {
            stem: tuple(subtitle for *_, subtitle in sorted(files, key=lambda entry: entry[:2]))
            for stem, files in ranked.items()
        }

    def _owner(self, subtitle: Path) -> tuple[str, int] | None:
        """The stem of a subtitle file's recording, and the number of marks after it."""
        stem = subtitle.stem
        for marks in range(_MOST_MARKS + 1):
            alike = [stem] if stem in self._stems else self._alike.get(folded_name(stem), [])
            if len(alike) > 1:
                self.ambiguous[subtitle] = alike
            if alike:
                return (alike[0], marks) if len(alike) == 1 else None
            stem, dot, mark = stem.rpartition(".")
            if not dot or not _SIDECAR_MARK.fullmatch(mark):
                return None
        return None


def _media_file(
    candidate: _Candidate, kind: Literal["media", "transcript"], sidecars: tuple[Path, ...]
) -> SourceFile:
    status = candidate.status
    identity = status.st_dev, status.st_ino
    return SourceFile(candidate.path, kind, sidecars, status.st_size, modified_ns(status), identity)


def modified_ns(status: os.stat_result) -> int:
    """Modification time in nanoseconds since 1970, clipped to 64 bits (years 1677 to 2262)."""
    return min(max(status.st_mtime_ns, _EARLIEST_NS), _LATEST_NS)


def _reason(path: Path, error: Exception) -> str:
    """The cause of a path's problem, and the remedy."""
    name, number = printable(path), getattr(error, "errno", None)
    if isinstance(path, ObjectPath):
        return f"{name}: {getattr(error, 'strerror', None) or error}; check the bucket and the key"
    if number == errno.ENAMETOOLONG:
        return f"{name}: the name is too long ({len(os.fsencode(path))} bytes); shorten or rename it"
    if number in (errno.EACCES, errno.EPERM):
        return f"{name}: no permission to read it; allow it with `chmod -R u+rX` or run as its owner"
    if number in (errno.ENOENT, errno.ENOTDIR):
        if path.is_symlink():
            return f"{name}: a link to a file that is not there; mend or delete the link"
        return f"{name}: there is no such file or folder; check the path"
    if number == errno.ELOOP:
        return f"{name}: a link that leads back to itself; mend or delete the link"
    return f"{name}: cannot be read ({error}); check the path"


def printable(path: Path) -> str:
    """A path for a message: control characters escaped, the middle of a long one left out.

    >>> printable(Path("two\\nlines.mp4"))
    'two\\\\nlines.mp4'
    """
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return text if len(text) <= 200 else f"{text[:120]}…{text[-60:]}"
