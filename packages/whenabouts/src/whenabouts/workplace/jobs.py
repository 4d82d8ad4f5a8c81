"""The queue of a corpus: files to index, videos to remove, and folders to watch, in its workplace file.

A job passes through these states:

    planning -> planned -> waiting -> running -> done | failed | interrupted | paused | stopped

A user can let a paused, interrupted or failed job continue: it waits again, or is planned again if planning
it failed. A running job only stores the user's `wish` ("pause", "stop", "continue"), and the queue's runner
carries it out.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from whenabouts.index.records import StoreError
from whenabouts.types import UsageError
from whenabouts.workplace.database import FILE, JOBS_VERSION, Database

Kind = Literal["index", "retry", "remove"]
State = Literal[
    "planning", "planned", "waiting", "running", "paused", "stopped", "interrupted", "failed", "done"
]
Wish = Literal["start", "pause", "continue", "stop"]
Value = TypeVar("Value", str, dict[str, Any])
MOST_OPEN = 100
MOST_KEPT = 50
"""Most ended jobs in the list; older ones are deleted when a new job comes."""
MOST_WATCHED = 100
MOST_TRIES = 3
"""Most starts of a job until a user asks for it again; more could crash the machine again and again."""
_MOST_BYTES = 500_000
_ENDED = "('done', 'failed', 'stopped', 'interrupted')"
# (state, wish) -> the job's new state; None: store the wish for the runner.
_ALLOWED: Mapping[tuple[str, str], str | None] = {
    ("planned", "start"): "waiting",
    ("waiting", "pause"): "paused",
    ("running", "pause"): None,
    ("running", "stop"): None,
    ("running", "continue"): None,
    **{(state, "continue"): "waiting" for state in ("paused", "interrupted", "failed")},
    **{
        (state, "stop"): "stopped"
        for state in ("planning", "planned", "waiting", "paused", "interrupted", "failed")
    },
}
_COUNTS = ("added", "updated", "renamed", "damaged", "pruned", "seconds")
_AFTER_WISH = {"pause": "paused", "stop": "stopped", "continue": "waiting"}


class NoSuchJob(UsageError):
    """No job has that id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id[:50]!r}; it may have been forgotten")


class NotPossible(UsageError):
    """A job cannot be started, paused, continued, stopped or forgotten in its state."""


@dataclass(frozen=True, slots=True)
class Job:
    """A row of the queue.

    - `task`: {"paths": […], "transcribe": …, "pictures": …} to index, {"paths": […]} to retry failed
      files under them, {"videos": […]} to remove.
    - `plan`: what the job would do, once planned. `progress`: how far it is.
    - `outcome`: the result; its `message` says why the job failed.
    - `made`: seconds since 1970. `tries`: starts since a user last asked for it.
    """

    id: str
    kind: str
    state: str
    wish: str
    made: float
    tries: int
    task: Mapping[str, Any]
    plan: Mapping[str, Any] = field(default_factory=dict)
    progress: Mapping[str, Any] = field(default_factory=dict)
    outcome: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watched:
    """A watched folder. `last` is the result of the last change in it.

    The entry `progress` of `last` describes the files that are being read now.
    """

    path: str
    since: float
    last: Mapping[str, Any]


class Jobs:
    """The queue of a corpus. All methods raise StoreError if its file cannot be used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # For clients -------------------------------------------------------------------------------------

    def listed(self) -> list[Job]:
        """All jobs, oldest first."""
        return self._jobs("ORDER BY rowid")

    def get(self, job_id: str) -> Job:
        """A job. Raises NoSuchJob."""
        jobs = self._jobs("WHERE id = ?", job_id)
        if not jobs:
            raise NoSuchJob(job_id)
        return jobs[0]

    def plan(self, task: Mapping[str, Any]) -> Job:
        """Create a job that indexes: it is planned, then waits until a user starts it."""
        return self._new("index", "planning", task)

    def queue(self, kind: Kind, task: Mapping[str, Any]) -> Job:
        """Append a job to the queue, without a plan."""
        return self._new(kind, "waiting", task)

    def ask(self, job_id: str, wish: Wish) -> Job:
        """Start, pause, continue or stop a job. Raises NoSuchJob, and NotPossible in its state."""
        with self._database.changing() as connection:
            present = _state(connection, job_id)
            if (present, wish) not in _ALLOWED:
                raise NotPossible(f"this job is {present}, so it cannot be {_PARTICIPLES[wish]}")
            state = _ALLOWED[present, wish]
            if state is None:
                connection.execute("UPDATE jobs SET wish = ? WHERE id = ?", (wish, job_id))
            else:
                connection.execute(
                    "UPDATE jobs SET state = CASE WHEN ? = 'continue' AND kind = 'index' AND plan = '{}' AND "
                    "tries = 0 THEN 'planning' ELSE ? END, wish = '', tries = 0, "
                    "outcome = json_remove(outcome, '$.message', '$.code') WHERE id = ?",
                    (wish, state, job_id),
                )
        return self.get(job_id)

    def forget(self, job_id: str) -> None:
        """Delete a job that is neither waiting nor running. Raises NoSuchJob and NotPossible."""
        with self._database.changing() as connection:
            state = _state(connection, job_id)
            if state in ("running", "waiting"):
                raise NotPossible(f"this job is {state}; stop it first")
            connection.execute("DELETE FROM jobs WHERE id = ?", (job_id,))

    def watched(self) -> list[Watched]:
        """The watched folders, by path."""
        with self._database.reading(JOBS_VERSION) as connection:
            if connection is None:
                return []
            rows = connection.execute("SELECT * FROM watched").fetchall()
        folders = [Watched(_read(row["path"], str), row["since"], _read(row["last"], dict)) for row in rows]
        return sorted(folders, key=lambda each: each.path)

    def watch(self, path: str) -> None:
        """Watch a folder from now on."""
        with self._database.changing() as connection:
            if connection.execute("SELECT COUNT(*) FROM watched").fetchone()[0] >= MOST_WATCHED:
                raise UsageError(f"{MOST_WATCHED} folders are watched; stop watching one first")
            connection.execute(
                "INSERT OR IGNORE INTO watched VALUES (?, ?, '{}')", (json.dumps(path), time.time())
            )

    def unwatch(self, path: str) -> None:
        """Stop watching a folder."""
        with self._database.changing() as connection:
            connection.execute("DELETE FROM watched WHERE path = ?", (json.dumps(path),))

    # For the runner ----------------------------------------------------------------------------------

    def recover(self) -> None:
        """Requeue jobs whose runner died, or apply their wish; interrupt them after `MOST_TRIES` starts."""
        with self._database.reading(JOBS_VERSION) as connection:
            if connection is None:
                return
        with self._database.changing() as connection:
            message = "the server ended several times while this job ran; continue it, or stop it"
            for wish, state in _AFTER_WISH.items():
                connection.execute(
                    "UPDATE jobs SET state = ?, wish = '' WHERE state = 'running' AND wish = ?", (state, wish)
                )
            connection.execute(
                "UPDATE jobs SET state = 'interrupted', outcome = ? WHERE state = 'running' AND tries >= ?",
                (json.dumps({"message": message}), MOST_TRIES),
            )
            connection.execute("UPDATE jobs SET state = 'waiting' WHERE state = 'running'")

    def take(self) -> Job | None:
        """Take the next waiting job and mark it running; None if there is none."""
        waiting = self._jobs("WHERE state = 'waiting' ORDER BY rowid LIMIT 1")
        if not waiting:
            return None
        with self._database.changing() as connection:
            changed_rows = connection.execute(
                "UPDATE jobs SET state = 'running', wish = '', tries = tries + 1, progress = '{}' "
                "WHERE id = ? AND state = 'waiting'",
                (waiting[0].id,),
            ).rowcount
        return self.get(waiting[0].id) if changed_rows else None

    def next_plan(self) -> Job | None:
        """The oldest job to plan."""
        return next(iter(self._jobs("WHERE state = 'planning' ORDER BY rowid LIMIT 1")), None)

    def note(self, job_id: str, progress: Mapping[str, Any]) -> None:
        """Store a job's progress."""
        with self._database.changing() as connection:
            connection.execute("UPDATE jobs SET progress = ? WHERE id = ?", (_text(progress), job_id))

    def planned(self, job_id: str, plan: Mapping[str, Any]) -> None:
        """Store a job's plan, unless it was stopped meanwhile."""
        with self._database.changing() as connection:
            connection.execute(
                "UPDATE jobs SET state = 'planned', plan = ? WHERE id = ? AND state = 'planning'",
                (_text(plan), job_id),
            )

    def end(self, job_id: str, state: str, outcome: Mapping[str, Any]) -> None:
        """End a job or let it wait; an interrupted one as its wish says. Adds up its parts' counts."""
        with self._database.changing() as connection:
            row = connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
            if row is None or row["state"] not in ("running", "planning"):
                return
            if state in ("interrupted", "waiting"):
                state = _AFTER_WISH.get(row["wish"], state)
            connection.execute(
                "UPDATE jobs SET state = ?, wish = '', outcome = ? WHERE id = ?",
                (state, _text(_joined(_read(row["outcome"], dict), outcome)), job_id),
            )

    def note_watched(self, paths: list[str], last: Mapping[str, Any]) -> None:
        """Store the result of the last change in some folders."""
        with self._database.changing() as connection:
            for path in paths:
                connection.execute(
                    "UPDATE watched SET last = ? WHERE path = ?", (_text(last), json.dumps(path))
                )

    def note_reading(self, progress: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Store the progress of folders; None: nothing is being read there."""
        with self._database.changing() as connection:
            for path, facts in progress.items():
                connection.execute(
                    "UPDATE watched SET last = json_remove(last, '$.progress') WHERE path = ?"
                    if facts is None
                    else "UPDATE watched SET last = json_set(last, '$.progress', json(?2)) WHERE path = ?1",
                    (json.dumps(path), *([] if facts is None else [_text(facts)])),
                )

    # Inside ------------------------------------------------------------------------------------------

    def _new(self, kind: Kind, state: str, task: Mapping[str, Any]) -> Job:
        text = json.dumps(dict(task))
        if len(text) > _MOST_BYTES:
            raise UsageError(
                f"the job is too large ({len(text)} bytes); choose fewer files at once, or their folder"
            )
        job_id = uuid.uuid4().hex[:12]
        with self._database.changing() as connection:
            count = connection.execute(f"SELECT COUNT(*) FROM jobs WHERE state NOT IN {_ENDED}").fetchone()[0]
            if count >= MOST_OPEN:
                raise UsageError(f"{MOST_OPEN} jobs are waiting already; stop one first")
            connection.execute(
                f"DELETE FROM jobs WHERE state IN {_ENDED} AND rowid NOT IN (SELECT rowid FROM jobs "
                f"WHERE state IN {_ENDED} ORDER BY rowid DESC LIMIT {MOST_KEPT})"
            )
            connection.execute(
                "INSERT INTO jobs VALUES (?, ?, ?, '', ?, 0, ?, '{}', '{}', '{}')",
                (job_id, kind, state, time.time(), text),
            )
        return self.get(job_id)

    def _jobs(self, condition: str, *values: str) -> list[Job]:
        with self._database.reading(JOBS_VERSION) as connection:
            if connection is None:
                return []
            rows = connection.execute(f"SELECT * FROM jobs {condition}", values).fetchall()
        return [_job(row) for row in rows]


_PARTICIPLES = {"start": "started", "pause": "paused", "continue": "continued", "stop": "stopped"}


def _state(connection: sqlite3.Connection, job_id: str) -> str:
    """The state of a job. Raises NoSuchJob."""
    row = connection.execute("SELECT state FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None:
        raise NoSuchJob(job_id)
    return str(row["state"])


def _job(row: sqlite3.Row) -> Job:
    if row["kind"] not in get_args(Kind) or row["state"] not in get_args(State):
        raise _strange()
    facts: dict[str, Any] = {name: _read(row[name], dict) for name in ("task", "plan", "progress", "outcome")}
    plain: dict[str, Any] = {name: row[name] for name in ("id", "kind", "state", "wish", "made", "tries")}
    return Job(**plain, **facts)


def _joined(earlier: Mapping[str, Any], outcome: Mapping[str, Any]) -> dict[str, Any]:
    """An outcome with the counts of a job's earlier parts; a file that they took in is not unchanged."""
    counts = {name: earlier[name] for name in _COUNTS if isinstance(earlier.get(name), int | float)}
    sums = {name: count + outcome.get(name, 0) for name, count in counts.items()}
    if "unchanged" in outcome:
        sums["unchanged"] = max(0, outcome["unchanged"] - counts.get("added", 0) - counts.get("updated", 0))
    return {**outcome, **sums}


def _text(facts: Mapping[str, Any]) -> str:
    text = json.dumps(dict(facts))
    return text if len(text) <= _MOST_BYTES else json.dumps({"message": "too long to store"})


def _read(text: str, kind: type[Value]) -> Value:
    """A JSON value of a kind from a file that someone else may have written. Raises StoreError."""
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(text), kind):
            return value
    raise _strange()


def _strange() -> StoreError:
    return StoreError(f"the queue in {FILE} of this corpus is invalid; move that file away")
