"""Measures and shows the progress of an index run, and holds its summary."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whenabouts.index.plan import Plan, same_to_json
from whenabouts.index.reading import Reached
from whenabouts.index.records import unambiguous
from whenabouts.index.workers import Message, Part
from whenabouts.types import number_of
from whenabouts.video.files import printable
from whenabouts.video.objects import source_path
from whenabouts.video.speech_models import speech_remedy

# No remaining time is estimated before this share is done and these seconds have passed.
_LEAST_SHARE, _LEAST_SECONDS = 0.01, 1.0
_SHOWN_PATHS = 10
_MOST_READ, _MOST_BEFORE_THE_END = 0.95, 0.99
_BEAT_SECONDS = 1.0
# Between reports progress grows linearly up to this share of the work under way, then ever slower.
_STRAIGHT = 0.75


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come; `fraction` in [0, 1]. `seconds_left` is None until it can be estimated.

    `step` names work on the whole corpus after its files are read ("" before); `fraction` is then the step's.
    Until the next report `fraction` grows by about `pace` per processor second, up to `reach`. `name` is the
    text to show; `path` is the file that the report is about, `is_done` whether the file is finished.
    """

    files_done: int
    files_total: int
    fraction: float
    bytes_per_second: float
    seconds_left: float | None
    name: str
    step: str = ""
    reach: float = 0.0
    pace: float = 0.0
    path: Path | None = None
    is_done: bool = False

    @classmethod
    def after_files(cls, step: str, fraction: float, files: int, passed: float = 0.0) -> Progress:
        """The progress of a step after all files, which has taken `passed` seconds so far."""
        is_known = fraction >= _LEAST_SHARE and passed >= _LEAST_SECONDS
        left = passed * (1 - fraction) / fraction if is_known else None
        return cls(files, files, fraction, 0.0, left, "", step)

    def after(self, seconds: float, processor_seconds: float) -> Progress:
        """The likely progress `seconds` later, while nothing is reported.

        The fraction grows at `pace`, and ever slower if the work takes longer than estimated.
        """
        room = max(0.0, self.reach - self.fraction)
        gained = processor_seconds * self.pace
        if gained > (straight := _STRAIGHT * room):
            gained = straight + (room - straight) * -math.expm1(
                -(gained - straight) / (room - straight + 1e-9)
            )
        left = None if self.seconds_left is None else max(0.0, self.seconds_left - seconds)
        return replace(self, fraction=self.fraction + gained, seconds_left=left)

    @property
    def rate_text(self) -> str:
        return f"{self.bytes_per_second / 1e6:.1f} MB/s" if self.bytes_per_second >= 5e4 else ""

    @property
    def left_text(self) -> str:
        # "0 s left" would stay for the whole of an unforeseen delay.
        if self.seconds_left is None or self.seconds_left < 0.5:
            return ""
        minutes, seconds = divmod(round(self.seconds_left), 60)
        if minutes >= 60:
            return f"{minutes // 60} h {minutes % 60:02d} min left"
        return f"{minutes} min {seconds:02d} s left" if minutes else f"{seconds} s left"


class Meter:
    """Measures progress by estimated cost, and estimates the remaining time."""

    def __init__(
        self,
        plan: Plan,
        show: Callable[[Progress], None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._work = plan.work
        self._weights = plan.estimate.files
        self._total = sum(self._weights)
        speech = plan.estimate.speech or (0.0,) * len(self._weights)
        # Each file's share of work that remains once it is read.
        self._speech = [part / max(whole, 1e-9) for part, whole in zip(speech, self._weights, strict=True)]
        self._done_files = 0
        self._done = self._done_bytes = 0.0
        # The share of each file that is read, 0 to 1.
        self._under_way: dict[int, float] = {}
        self._clock = clock
        self._started = clock()

    def take(self, message: Message) -> None:
        """Count one message."""
        file = self._work[message.number].file
        if not isinstance(message, Part):
            self._under_way.pop(message.number, None)
            self._done_files += 1
            self._done += self._weights[message.number]
            self._done_bytes += file.size
        elif isinstance(message.content, Reached):
            # A file that is read still has to be encoded.
            of_reading = message.content.fraction * (1 - self._speech[message.number])
            self._under_way[message.number] = min(of_reading, _MOST_READ)
        self._tell(file.path, is_done=not isinstance(message, Part))

    def recognise(self, number: int, duration: float, seconds: float) -> None:
        """Count speech: `seconds` of a file of length `duration` are recognised."""
        share = min(seconds / duration, 1.0) if duration else 0.0
        self._under_way[number] = min(1 - self._speech[number] * (1 - share), _MOST_READ)
        whole = f" of {duration / 3600:.2f}" if duration else ""
        self._tell(self._work[number].file.path, f"speech {seconds / 3600:.2f}{whole} h: ")

    def _tell(self, path: Path, prefix: str = "", *, is_done: bool = False) -> None:
        """Show the progress with a file's name, if anybody wants to see it."""
        if self._show is None:
            return
        under_way = self._under_way.items()
        done = self._done + sum(share * self._weights[number] for number, share in under_way)
        read = self._done_bytes + sum(share * self._work[number].file.size for number, share in under_way)
        passed = self._clock() - self._started
        share = done / self._total if self._total else 0.0
        if self._done_files < len(self._work):
            share = min(share, _MOST_BEFORE_THE_END)
        is_known = share >= _LEAST_SHARE and passed >= _LEAST_SECONDS
        reach = self._done + _MOST_READ * sum(self._weights[number] for number in self._under_way)
        progress = Progress(
            files_done=self._done_files,
            files_total=len(self._work),
            fraction=min(1.0, share),
            bytes_per_second=read / passed if passed > 0 else 0.0,
            seconds_left=max(0.0, passed * (1 - share) / share) if is_known else None,
            name=prefix + printable(Path(path.name)),
            reach=min(_MOST_BEFORE_THE_END, reach / self._total) if self._total else 0.0,
            pace=1 / self._total if self._total else 0.0,
            path=path,
            is_done=is_done,
        )
        self._show(progress)


class Heartbeat:
    """Passes reports to `show`, and between them shows the likely progress each second.

    Some work reports only at its end, such as encoding a long transcript or writing an index. The likely
    progress is counted in processor time, as in the plan, so that a busy machine slows it too. `show` may be
    called from another thread, never twice at once. Within a step the fraction never falls: if more was shown
    than is done, the fraction grows from there, more slowly.
    """

    def __init__(
        self,
        show: Callable[[Progress], None] | None,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._show, self._clock, self._processor = show, clock, processor
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, daemon=True)
        self._last: Progress | None = None
        self._reported = self._worked = self._shown_at = 0.0
        self._step, self._fraction = "", 0.0
        self._error: Exception | None = None

    def __enter__(self) -> Callable[[Progress], None] | None:
        if self._show is None:
            return None
        self._thread.start()
        return self.report

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        if self._show is not None:
            self._thread.join()

    def report(self, progress: Progress) -> None:
        """Pass a report on. Raises an error that `show` raised between two reports."""
        with self._lock:
            if self._error is not None:
                raise self._error
            self._last = self._going_on(progress)
            self._reported, self._worked = self._clock(), self._processor()
            self._tell(self._last)

    def beat(self) -> None:
        """Show the likely progress, if nothing was shown for a second."""
        with self._lock:
            now = self._clock()
            if self._last is not None and now - self._shown_at >= _BEAT_SECONDS:
                self._tell(self._last.after(now - self._reported, self._processor() - self._worked))

    def _going_on(self, progress: Progress) -> Progress:
        shown = self._fraction if progress.step == self._step else 0.0
        if progress.fraction >= shown:
            return progress
        slower = (1 - shown) / (1 - progress.fraction)
        return replace(progress, fraction=shown, pace=progress.pace * slower)

    def _tell(self, progress: Progress) -> None:
        self._step, self._fraction, self._shown_at = progress.step, progress.fraction, self._clock()
        assert self._show is not None
        self._show(progress)

    def _beat_on(self) -> None:
        while not self._stopped.wait(_BEAT_SECONDS / 2):
            try:
                self.beat()
            except Exception as error:
                self._error = error
                return


@dataclass(slots=True)
class Summary:
    """The result of a run: counts, and files, some with the reason.

    - `failed` could not be read, `damaged` only in part, `left_out` were not reached at all.
    - `again` are those of `failed` whose data are not at fault: the next run tries them again.
    - `silent` have nothing to search yet; `not_recognised` have sound, and no subtitles or transcript.
    - `gone` are missing on disk, `pruned` were missing and are removed from the corpus.
    - `duplicates` are left out as copies, each with the indexed file; `failed_before` and `removed_before`
      count files left out because they failed or were removed before.
    - `lack` says what the machine lacked for some of `failed`, which are not recorded as broken.
    - `choices` are decisions about the whole corpus that nobody asked for (`choices.choices_of`).
    - `searchable` counts the clips of the corpus after the run.
    """

    added: int = 0
    updated: int = 0
    renamed: int = 0
    described: int = 0
    unchanged: int = 0
    clips: int = 0
    seconds: float = 0.0
    hours: float = 0.0
    interrupted: bool = False
    searchable: int = 0
    failed: list[tuple[Path, str]] = field(default_factory=list)
    again: list[Path] = field(default_factory=list)
    lack: str = ""
    damaged: list[tuple[Path, str]] = field(default_factory=list)
    left_out: list[tuple[Path, str]] = field(default_factory=list)
    silent: list[Path] = field(default_factory=list)
    not_recognised: list[Path] = field(default_factory=list)
    gone: list[Path] = field(default_factory=list)
    pruned: list[Path] = field(default_factory=list)
    duplicates: tuple[tuple[Path, Path], ...] = ()
    failed_before: int = 0
    removed_before: int = 0
    notes: list[str] = field(default_factory=list)
    choices: dict[str, str] = field(default_factory=dict)

    @classmethod
    def before(cls, plan: Plan) -> Summary:
        """What is known before a plan is carried out."""
        pruned = {record.video_id for record in plan.pruned}
        return cls(
            renamed=len(plan.renamed),
            described=plan.described,
            unchanged=plan.unchanged,
            duplicates=plan.duplicates,
            failed_before=plan.failed_before,
            removed_before=plan.removed_before,
            gone=[source_path(record.path) for record in plan.gone if record.video_id not in pruned],
            pruned=[source_path(record.path) for record in plan.pruned],
            left_out=list(plan.problems),
        )

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C ends the block, not the program, and is noted."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True

    def to_json(self) -> dict[str, Any]:
        passing = set(self.again)
        return {
            "added": self.added,
            "updated": self.updated,
            "renamed": self.renamed,
            "described": self.described,
            "unchanged": self.unchanged,
            "clips": self.clips,
            "hours": round(self.hours, 4),
            "seconds": round(self.seconds, 2),
            "interrupted": self.interrupted,
            "failed": [
                {"path": unambiguous(path), "error": why, "again": path in passing}
                for path, why in self.failed
            ],
            "damaged": [{"path": unambiguous(path), "damage": why} for path, why in self.damaged],
            "left_out": [{"path": unambiguous(path), "why": why} for path, why in self.left_out],
            "nothing_to_search": [unambiguous(path) for path in self.silent],
            "speech_not_recognised": [unambiguous(path) for path in self.not_recognised],
            "gone": [unambiguous(path) for path in self.gone],
            "pruned": [unambiguous(path) for path in self.pruned],
            "duplicates": same_to_json(self.duplicates),
            "failed_before": self.failed_before,
            "removed_before": self.removed_before,
            "notes": list(self.notes),
            "choices": dict(self.choices),
        }

    def lines(self) -> list[str]:
        counts = (
            f"{self.added} added, {self.updated} updated, {self.renamed} renamed, {self.unchanged} unchanged"
        )
        if self.described:
            counts += f", {self.described} with new metadata"
        lines = [
            f"{counts}: {number_of(self.clips, 'clip')} of {self.hours:.2f} hours in {self.seconds:.1f} s"
        ]
        passing = set(self.again)
        lines += _listed(
            "failed (`whenabouts index --retry` takes only these):",
            [(path, why) for path, why in self.failed if path not in passing],
        )
        lines += _listed(
            "not read, through no fault of the file; the same command tries again:",
            [(path, why) for path, why in self.failed if path in passing],
        )
        lines += _listed("damaged, taken as far as they can be read:", self.damaged)
        lines += _listed("left out:", self.left_out)
        lines += _paths("without anything to search yet (no words, pictures not searched):", self.silent)
        if self.not_recognised:
            which = number_of(len(self.not_recognised), "recording has", "recordings have")
            lines.append(f"{which} sound and no subtitles: to search what is said, {speech_remedy()}")
        lines += _paths("gone, their files are not there any more (--prune takes them out):", self.gone)
        lines += _paths("taken out, their files were gone:", self.pruned)
        if self.interrupted:
            lines.append("stopped before the end; what is finished is kept, run the same command to go on")
        # Files of this run that are gone or damaged are listed above.
        listed = {"gone": self.gone, "damaged": self.damaged}
        lines += [line for kind, line in self.choices.items() if not listed.get(kind)]
        return lines + [f"note: {note}" for note in self.notes]


def _listed(what: str, files: list[tuple[Path, str]]) -> list[str]:
    """A heading with the number of files, and a line for each; empty without files."""
    if not files:
        return []
    return [f"{len(files)} {what}", *(f"  {named(path, why)}" for path, why in files)]


def _paths(what: str, paths: list[Path]) -> list[str]:
    """A heading with the number of files, and the first of them; empty without files."""
    if not paths:
        return []
    more = [f"  … and {len(paths) - _SHOWN_PATHS} more"] if len(paths) > _SHOWN_PATHS else []
    return [f"{len(paths)} {what}", *(f"  {printable(path)}" for path in paths[:_SHOWN_PATHS]), *more]


def named(path: Path, why: str) -> str:
    """A message with the file's name in front, unless the message has the name."""
    name = printable(path)
    return why if name in why else f"{name}: {why}"
