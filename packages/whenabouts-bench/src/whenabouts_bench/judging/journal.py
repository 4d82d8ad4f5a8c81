"""The journal of a task set: an append-only log of all judging events.

    journal = Journal.open(task_set)
    task = journal.next_task("ann")                                # Task or None; exam tasks first
    journal.append(Event("grade", "ann", task.id, grade=3))
    journal.undo("ann")                                            # takes back the last step, no exam grade
    journal.state().answer("ann", task.id)                         # Answer(grade, start, end, ...) or None

`append` returns after fsync, so acknowledged events survive a crash of the machine. Any number of processes
and threads may append: each holds the folder's lock while it writes, and first reads what others wrote.

A line of `journal.jsonl` has `seq` (1, 2, …), `time` (UTC, not decreasing) and `event` (grade, borders, skip,
undo, exam, guideline or import) with its values. Events written together form a batch: each of its lines has
`last`, the `seq` of the batch's last line; a single event has none. Readers see a batch once its final
newline is there, which is written last, after the rest is on the disk. If a writer is killed or the disk is
full, readers never see its batch; the next writer moves it to `journal.torn`. Older journals must still open.

Calls raise UsageError for invalid events (unknown task, grade off the scale, nothing to undo), and
FormatError, with file and line, if the journal is damaged or belongs to another task set.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import msgspec
from msgspec import Meta

from whenabouts import locking
from whenabouts.intake.files import FormatError
from whenabouts.intake.opening import open_regular
from whenabouts.intake.own_files import open_appending, own_file
from whenabouts.types import Moment, UsageError
from whenabouts_bench.formats.json_records import NotNegative, Origin, Text, parse_line
from whenabouts_bench.judging.assignment import Progress, next_task, progress
from whenabouts_bench.judging.events import Event, Kind, State, iso, until
from whenabouts_bench.judging.tasks import HIGHEST, LOWEST, Task, TaskSet

_log = logging.getLogger("whenabouts")

JOURNAL, LOCK, TORN = "journal.jsonl", "journal.lock", "journal.torn"
_PATIENCE_SECONDS, _POLL_SECONDS = 30.0, 0.005
LONGEST_NAME = 80
_Clock = Callable[[], datetime]
Result = TypeVar("Result")
_Whole = Annotated[int, Meta(ge=1, title="a whole number, 1 or more")]


class _Line(msgspec.Struct):
    seq: _Whole
    time: Text
    event: Kind
    tasks: Text
    annotator: Text = ""
    task_id: Text = ""
    grade: Annotated[int, Meta(ge=LOWEST, le=HIGHEST, title="a whole number from 0 to 4")] | None = None
    start: NotNegative | None = None
    end: NotNegative | None = None
    undone: _Whole | None = None
    text: Text = ""
    source: Text = ""
    clock: Text = ""
    id: Text = ""
    last: _Whole | None = None


_NEEDED: Mapping[Kind, tuple[str, ...]] = {
    "grade": ("grade",), "exam": ("grade",), "borders": ("start", "end"), "undo": ("undone",)
}  # fmt: skip
"""Fields without which an event cannot be applied."""


class Journal:
    """The events of a task set and the current state. Thread-safe."""

    def __init__(self, task_set: TaskSet, clock: _Clock, path: Path | None = None) -> None:
        self.task_set = task_set
        self.notes: list[str] = []
        self._path = path or own_file(task_set.folder, JOURNAL)
        self._clock = clock
        self._guard = threading.RLock()
        self._events: list[Event] = []
        self._by_id: dict[tuple[str, str], Event] = {}
        self._state = State()
        self._applied_bytes = 0

    @classmethod
    def open(cls, task_set: TaskSet, clock: _Clock = lambda: datetime.now(UTC)) -> Self:
        """The journal of a task set, empty if nobody has judged yet. `clock` returns UTC."""
        journal = cls(task_set, clock)
        torn = journal._catch_up()
        if torn:
            journal._note(
                f"{journal._path}: {_torn_lines(torn)} incomplete; the next write moves it to {TORN}"
            )
        return journal

    def events(self) -> Sequence[Event]:
        """All events so far, those of other processes included."""
        with self._guard:
            self._catch_up()
            return tuple(self._events)

    def state(self, at: int | str | None = None) -> State:
        """The state now, after event number `at`, or at a time (UTC, ISO 8601)."""
        return State.of(until(self.events(), at))

    def read(self, ask: Callable[[State], Result]) -> Result:
        """The result of `ask` on the current state; `ask` must not change or keep the state."""
        with self._guard:
            self._catch_up()
            return ask(self._state)

    def next_task(
        self, annotator: str, held: Mapping[str, int] | None = None, *, skipped: bool = False
    ) -> Task | None:
        """The annotator's next task (`assignment.next_task`), or None."""
        _check_name(annotator)
        return self.read(lambda now: next_task(self.task_set, now, annotator, held, skipped=skipped))

    def progress(self, annotator: str) -> Progress:
        _check_name(annotator)
        return self.read(lambda now: progress(self.task_set, now, annotator))

    def append(self, event: Event) -> Event:
        """Write an event; returns it with its sequence number and time."""
        return self.append_all([event])[-1]

    def undo(self, annotator: str, id: str = "") -> Event:
        """Take back the annotator's last step."""
        return self.append(Event("undo", annotator, id=id))

    def edit_guideline(self, text: str, version: str) -> bool:
        """Replace the guideline if it still has `version`; returns whether it was replaced."""
        with self._guard, self._locked():
            if self.task_set.guideline().version != version:
                return False
            self._append([])  # records a guideline that was edited by hand since the last event
            self.task_set.write_guideline(text)
            self._append([])  # records the new one
            return True

    def append_all(self, events: Sequence[Event]) -> list[Event]:
        """Write events, all or none, but no event whose id the journal has. An undo must be alone."""
        return self.append_made(lambda _: events)

    def append_made(self, make: Callable[[State], Sequence[Event]]) -> list[Event]:
        """Like `append_all`, for events that `make` computes from the state while the journal is locked."""
        with self._guard, self._locked():
            self._set_torn_aside(self._catch_up())
            events = make(self._state)
            for event in events:
                self._check(event)
            if len(events) > 1 and any(event.kind == "undo" for event in events):
                raise UsageError("an undo is written alone")
            return self._append(events) if events else []

    def _append(self, events: Sequence[Event]) -> list[Event]:
        self._set_torn_aside(self._catch_up())
        # Events without an id are not in `_by_id`, so they are always written.
        stored = [self._by_id.get((event.annotator, event.id)) for event in events]
        new = [event for event, old in zip(events, stored, strict=True) if old is None]
        if new or not events:
            guideline = self.task_set.guideline().text
            before = [Event("guideline", text=guideline)] if guideline != self._state.guideline else []
            self._write(b"".join(map(_line, self._numbered([*before, *new]))))
        written = iter(self._events[len(self._events) - len(new) :])
        return [old or next(written) for old in stored]

    def _check(self, event: Event) -> None:
        if event.kind in ("guideline", "import"):
            return
        _check_name(event.annotator)
        if event.kind == "undo":
            return
        task = self.task_set.task(event.task_id)
        if (task.id in self.task_set.exam_ids) != (event.kind == "exam"):
            needed = "exam" if task.id in self.task_set.exam_ids else "grade, borders or skip"
            raise UsageError(f"task {task.id}: takes {needed}, not {event.kind}")
        if event.kind in ("grade", "exam"):
            grade = event.grade
            if isinstance(grade, bool) or not isinstance(grade, int) or not LOWEST <= grade <= HIGHEST:
                raise UsageError(
                    f"task {task.id}: grade {grade!r} is not on the scale; give {LOWEST} to {HIGHEST}"
                )
        if event.kind == "borders" or event.start is not None or event.end is not None:
            _check_borders(event, task)

    def _numbered(self, events: Sequence[Event]) -> list[Event]:
        """The events with what the journal sets filled in. Raises UsageError if there is nothing to undo."""
        now = iso(self._clock())
        event_time = max(now, self._state.time)
        clock = "" if event_time == now else now
        if clock:
            self._note(
                f"the clock says {now}, before the last event; new events get that event's time, {event_time}"
            )
        last, tasks = len(self._events), self.task_set.fingerprint
        undone = [self._state.to_undo(e.annotator) if e.kind == "undo" else None for e in events]
        end = last + len(events) if len(events) > 1 else None
        return [
            replace(
                e, seq=last + n, time=event_time, clock=clock, undone=undone[n - 1], tasks=tasks, last=end
            )
            for n, e in enumerate(events, 1)
        ]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The folder's lock. Raises UsageError if it is not free in time."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        folder = self.task_set.folder
        while True:
            try:
                lock = locking.hold(folder, LOCK)
            except OSError as error:
                raise UsageError(
                    f"{folder} cannot be written: {error.strerror}; check its permissions"
                ) from error
            if lock is not None:
                break
            if time.monotonic() > deadline:
                raise UsageError(f"{folder}: another process has been writing for {_PATIENCE_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            lock.release()

    def _catch_up(self) -> bytes:
        """Apply new batches of the file; returns what follows, which is torn or being written."""
        try:
            with open_regular(self._path) as stream:
                size = os.fstat(stream.fileno()).st_size
                if size < self._applied_bytes:
                    raise FormatError(self._path, "was shortened since it was last read; restore it")
                stream.seek(self._applied_bytes)
                data = stream.read(size - self._applied_bytes)
        except FileNotFoundError:
            if self._applied_bytes:
                raise FormatError(self._path, "was deleted since it was last read; restore it") from None
            return b""
        except OSError as error:
            raise FormatError(self._path, f"cannot be read: {error.strerror or error}") from None
        batch, applied, position = list[Event](), 0, 0
        while newline := data.find(b"\n", position) + 1:
            event = self._parse(len(self._events) + len(batch) + 1, data[position : newline - 1])
            self._check_batch(event, batch)
            batch.append(event)
            position = newline
            if event.last in (None, event.seq):
                self._take(batch, position - applied)
                batch, applied = [], position
        return data[applied:]

    def _check_batch(self, event: Event, batch: Sequence[Event]) -> None:
        """Raise FormatError for an event that does not belong to the unfinished batch before it."""
        origin = Origin(self._path, event.seq, "last")
        if event.last is not None and event.last < event.seq:
            raise origin.error("is smaller than its own seq:", event.last, f"{event.seq} or more")
        if batch and event.last != batch[0].last:
            raise origin.error(
                "belongs to another batch:", event.last, f"{batch[0].last}, as in the line before"
            )

    def _take(self, batch: Sequence[Event], size: int) -> None:
        """Apply a whole batch of `size` bytes."""
        for event in batch:
            self._apply(event)
            self._events.append(event)
            if event.id:
                self._by_id[event.annotator, event.id] = event
        self._applied_bytes += size

    def _parse(self, number: int, raw: bytes) -> Event:
        origin = Origin(self._path, number)
        line = origin.convert(parse_line(self._path, number, raw), _Line)
        if line.tasks != self.task_set.fingerprint:
            accepted = f"{self.task_set.fingerprint}, that of this folder's tasks"
            raise origin.at("tasks").error("is of another task set:", line.tasks, accepted)
        if line.seq != number:
            raise origin.at("seq").error(
                "is out of sequence:", line.seq, f"{number}: lines were lost or added"
            )
        needed = _NEEDED.get(line.event, ())
        if line.start is not None or line.end is not None:
            needed = (*needed, "start", "end")
        for name in needed:
            if getattr(line, name) is None:
                raise origin.at(name).error("is missing", accepted=f"every {line.event} event has one")
        fields = {name: getattr(line, name) for name in line.__struct_fields__ if name != "event"}
        return Event(kind=line.event, **fields)

    def _apply(self, event: Event) -> None:
        try:
            self._state.apply(event)
        except UsageError as error:
            raise FormatError(self._path, str(error), line=event.seq) from None

    def _set_torn_aside(self, torn: bytes) -> None:
        """Move torn last lines, which were never acknowledged, out of the journal."""
        if not torn:
            return
        target = self.task_set.folder / TORN
        try:
            descriptor = open_appending(own_file(self.task_set.folder, TORN))
            try:
                write_all(descriptor, torn + b"\n")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            target = self._path
            os.truncate(target, self._applied_bytes)
        except OSError as error:
            raise FormatError(target, f"cannot be written: {error.strerror or error}") from None
        self._note(f"{self._path}: {_torn_lines(torn)} incomplete; moved to {TORN} ({len(torn)} bytes)")

    def _write(self, data: bytes) -> None:
        """Append to the file and fsync. On failure readers see nothing, unless only the last fsync failed."""
        try:
            is_new = not self._path.exists()
            descriptor = open_appending(self._path)
            try:
                if is_new:
                    _sync_folder(self._path.parent)
                self._commit(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as error:
            problem = f"cannot be written: {error.strerror or error}; nothing was written"
            raise FormatError(self._path, problem) from None
        self._catch_up()

    def _commit(self, descriptor: int, data: bytes) -> None:
        """Write all but the last newline, then the newline, which shows the batch to readers.

        What readers may have seen is never taken back: if only the last fsync fails, the batch stays.
        """
        try:
            write_all(descriptor, data[:-1])
            os.fsync(descriptor)
            write_all(descriptor, data[-1:])
        except OSError:
            os.ftruncate(descriptor, self._applied_bytes)
            raise
        try:
            os.fsync(descriptor)
        except OSError as error:
            problem = f"was written, but may not be on the disk: {error.strerror or error}; check the disk"
            raise FormatError(self._path, problem) from None

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
            _log.warning("%s", note)


def read_journal(path: Path, task_set: TaskSet) -> Sequence[Event]:
    """The events of another journal of this task set. Raises FormatError (see above)."""
    return Journal(task_set, lambda: datetime.now(UTC), path).events()


def _torn_lines(torn: bytes) -> str:
    lines = torn.removesuffix(b"\n").count(b"\n") + 1
    return "the last line is" if lines == 1 else f"the last {lines} lines are"


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; a single `os.write` may write a part. Raises OSError."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line(event: Event) -> bytes:
    """An event as a line, without empty fields."""
    fields: dict[str, Any] = {"seq": event.seq, "time": event.time, "event": event.kind}
    about = asdict(event)
    fields |= {name: value for name, value in about.items() if name != "kind" and value not in (None, "")}
    return msgspec.json.encode(fields) + b"\n"


def is_name(annotator: str) -> bool:
    """Whether an annotator may have this name."""
    is_short = 0 < len(annotator) <= LONGEST_NAME
    return is_short and annotator.isprintable() and annotator == annotator.strip()


def _check_name(annotator: str) -> None:
    if not is_name(annotator):
        raise UsageError(
            f"annotator {annotator[: LONGEST_NAME + 20]!r}: give a name of 1 to {LONGEST_NAME} printable "
            "characters, without a space at either end"
        )


def _check_borders(event: Event, task: Task) -> None:
    if event.start is None or event.end is None:
        raise UsageError(f"task {task.id}: borders need start and end")
    # `judgements --out` rounds to milliseconds; `Moment` refuses borders that become empty by rounding.
    moment = Moment(task.moment.video_id, round(event.start, 3), round(event.end, 3))
    if task.duration is not None and moment.end > max(task.duration, task.moment.end):
        raise UsageError(f"task {task.id}: {moment.end:g} s is after the video's end, {task.duration:g} s")
