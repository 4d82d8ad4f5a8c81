"""Runs the job queue of a corpus, in one of the servers that serve it.

The queue is stored in the corpus (`workplace.jobs`), so it outlives the server. The server process that holds
the lock `jobs/queue.lock` runs it: one job at a time, and beside it the planning of another job and the
watching of folders, each in its own process. If the server dies, the system releases the lock, and the next
holder puts the unfinished job back into the queue.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whenabouts import locking
from whenabouts.corpus import Corpus
from whenabouts.index.lance import folder_of, is_remote
from whenabouts.index.lock import verb_here
from whenabouts.index.records import StoreError
from whenabouts.server.allowed import Allowed
from whenabouts.server.offered_models import check_offered
from whenabouts.types import UsageError
from whenabouts.workplace.database import Database
from whenabouts.workplace.jobs import Job, Jobs, NoSuchJob

MOST_PLACES = 100
"""The most folders and files of one job."""
_POLL_SECONDS, _IDLE_SECONDS = 0.25, 1.0
_LONGEST_LINE = 4 << 20
# Seconds before a failed watcher is restarted.
_WATCH_AGAIN_SECONDS = 30.0
# Seconds a worker may take to finish its write when the server ends, before it is killed.
_END_SECONDS = 5.0
_log = logging.getLogger(__name__)
_KILLED = (
    "the process of this job was killed, perhaps because memory ran out; continue the job (finished files "
    "are kept), or stop it"
)


class Worker:
    """A worker process (`job_worker`), its reports so far, and the progress last written to the queue."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        # -P: do not import modules from the current folder, which may be someone else's.
        command = [sys.executable, "-P", "-m", "whenabouts.server.job_worker", verb_here()]
        # A new session, so that Ctrl-C at the server's terminal does not reach it.
        self._process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.progress: Mapping[str, Any] = {}
        self.noted: Mapping[str, Any] | None = None
        self.plan: Mapping[str, Any] | None = None
        self.changes: list[Mapping[str, Any]] = []
        self.is_stopping = False
        self._end: Mapping[str, Any] | None = None
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has died already, which its end reports
            self._process.stdin.write(json.dumps(spec).encode() + b"\n")

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    @property
    def end(self) -> tuple[str, Mapping[str, Any]]:
        """State and outcome, after the process ended; "interrupted" if it did not report an end."""
        if self._end is not None:
            return str(self._end["end"]), self._end["outcome"]
        return "interrupted", {} if self.is_stopping else {"message": _KILLED}

    def stop(self) -> None:
        """Ask the process to finish its current write and end."""
        self.is_stopping = True
        self._close_input()

    def close(self, seconds: float) -> None:
        """Wait until the process ends; kill it after `seconds`."""
        self._thread.join(seconds)
        self._process.kill()
        self._thread.join(_END_SECONDS)

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with io.BufferedReader(self._process.stdout) as lines:  # type: ignore[type-var]
            while line := lines.readline(_LONGEST_LINE):
                report: Mapping[str, Any] = json.loads(line)
                self.progress = report.get("progress", self.progress)
                self.plan = report.get("plan", self.plan)
                self.changes += [report["change"]] if "change" in report else []
                self._end = report if "end" in report else self._end
        self._process.wait()
        self._close_input()


class Runner:
    """The thread that runs the queue of a corpus; `folders` and `cache` are those of `serve`.

    Raises UsageError for a missing folder, for a corpus on an object store, and for several corpora.
    """

    def __init__(self, corpus: Corpus, folders: Iterable[Path], cache: Path | None = None) -> None:
        place = corpus.places[0]
        if len(corpus.places) > 1 or is_remote(place):
            raise UsageError(
                f"--allow: a page adds to a single corpus in a folder, and {corpus.location} is not "
                "one; leave out --allow, or name one folder with --corpus"
            )
        self.jobs = Jobs(Database(place))
        self.allowed = Allowed(folders)
        self.trouble = ""
        """Why the queue cannot be written at the moment, such as a full disk; "" if it can."""
        self._place, self._cache = folder_of(place), cache
        self._work: tuple[Job, Worker] | None = None
        self._plan: tuple[Job, Worker] | None = None
        self._watch: tuple[list[str], Worker] | None = None
        self._watch_after = 0.0
        self._over, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._lead, name="whenabouts-jobs", daemon=True)

    def start(self) -> None:
        """Run the queue from now on, as soon as no other server does."""
        self._thread.start()

    def wake(self) -> None:
        """Check the queue now."""
        self._wake.set()

    def close(self) -> None:
        """End the worker processes. The next server that holds the lock resumes an unfinished job."""
        self._over.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(2 * _END_SECONDS)

    def listed(self) -> list[Job]:
        """All jobs, newest first, with current states even while the queue cannot be written."""
        jobs = self.jobs.listed()
        job, worker = self._work or (None, None)
        if job and worker and worker.is_over and self.trouble:
            state, outcome = worker.end
            now = replace(job, state=state, outcome=outcome)
            jobs = [now if each.id == now.id else each for each in jobs]
        return jobs[::-1]

    def get(self, job_id: str) -> Job:
        """A job as in `listed`. Raises NoSuchJob."""
        for job in self.listed():
            if job.id == job_id:
                return job
        raise NoSuchJob(job_id)

    def places(self, job: Job) -> list[str]:
        """The folders and files of a job, by their names for clients; those not allowed are not named."""
        paths = job.task.get("paths")
        places = (self.allowed.place(str(path)) for path in paths) if isinstance(paths, list) else ()
        return [place or "a folder outside --allow" for place in places]

    def plan(self, places: Iterable[str], models: Mapping[str, str]) -> Job:
        """Create an index job. Raises ServerError like `Allowed.path`, UsageError like `check_offered`."""
        paths = list(dict.fromkeys(map(self.allowed.path, places)))
        return self.jobs.plan({"paths": paths, **check_offered(models)})

    # The thread --------------------------------------------------------------------------------------

    def _lead(self) -> None:
        while not self._over.is_set():
            lock = self._locked()
            if lock is None:
                self._over.wait(_IDLE_SECONDS)
                continue
            try:
                self._run()
            finally:
                lock.release()

    def _locked(self) -> locking.HeldFolder | None:
        """The lock of the queue; None if another server has it or the folder cannot be used."""
        folder = self._place / "jobs"
        try:
            folder.mkdir(exist_ok=True)
            return locking.hold(folder, "queue.lock")
        except OSError as error:
            self.trouble = f"{folder} cannot be used ({error.strerror}); check the disk and its permissions"
            return None

    def _run(self) -> None:
        """Run the queue until the server ends."""
        is_recovered = False
        while not self._over.is_set():
            try:
                if not is_recovered:
                    self.jobs.recover()
                    is_recovered = True
                self._step()
                self.trouble = ""
            except (StoreError, OSError) as error:
                if str(error) != self.trouble:
                    _log.warning("%s", error)
                self.trouble = str(error)
            except Exception:
                # One bug must not end the queue for good.
                _log.exception("the queue of jobs failed")
            is_busy = self._work or self._plan
            self._wake.wait(_POLL_SECONDS if is_busy else _IDLE_SECONDS)
            self._wake.clear()
        workers = [worker for _, worker in filter(None, (self._work, self._plan, self._watch))]
        for worker in workers:
            worker.stop()
        over = time.monotonic() + _END_SECONDS
        for worker in workers:
            worker.close(max(0.0, over - time.monotonic()))
        if self._work is not None:
            job, running = self._work
            state, outcome = running.end
            with contextlib.suppress(StoreError):
                self.jobs.end(job.id, "waiting" if state == "interrupted" else state, outcome)

    def _step(self) -> None:
        if self._work is None and (job := self.jobs.take()) is not None:
            self._work = job, self._worker(job.kind, job.task)
        if self._plan is None and (job := self.jobs.next_plan()) is not None:
            self._plan = job, self._worker("plan", job.task)
        if self._work is not None and self._is_ended(*self._work):
            self._work = None
            self._wake.set()
        if self._plan is not None and self._is_planned(*self._plan):
            self._plan = None
            self._wake.set()
        self._follow()

    def _worker(self, do: str, task: Mapping[str, Any]) -> Worker:
        places = {"corpus": str(self._place), "cache": str(self._cache or "")}
        allowed = list(self.allowed.roots.values())
        return Worker({"do": do, **places, "allowed": allowed, "task": dict(task)})

    def _is_ended(self, job: Job, worker: Worker) -> bool:
        """Record a job's progress and act on requests; returns whether it is over and recorded."""
        if worker.is_over:
            self.jobs.end(job.id, *worker.end)
            return True
        if not worker.is_stopping and self._now(job).wish in ("pause", "stop"):
            worker.stop()
        if worker.progress is not worker.noted:
            worker.noted = worker.progress
            # If the disk is full the worker goes on, or reports it itself.
            with contextlib.suppress(StoreError):
                self.jobs.note(job.id, worker.noted)
        return False

    def _is_planned(self, job: Job, worker: Worker) -> bool:
        if not worker.is_over:
            if not worker.is_stopping and self._now(job).state != "planning":
                worker.stop()
            return False
        if worker.plan is not None:
            self.jobs.planned(job.id, worker.plan)
        else:
            self.jobs.end(job.id, *worker.end)
        return True

    def _now(self, job: Job) -> Job:
        try:
            return self.jobs.get(job.id)
        except UsageError:  # a user deleted it
            return replace(job, state="stopped", wish="stop")

    def _follow(self) -> None:
        """Keep a worker following the watched folders that exist."""
        if self._watch is not None:
            paths, worker = self._watch
            while worker.changes:
                self._note(paths, worker.changes[0])
                worker.changes.pop(0)
                worker.noted = None
            if worker.progress is not worker.noted:
                worker.noted = worker.progress
                with contextlib.suppress(StoreError):
                    self.jobs.note_reading({path: worker.noted.get(path) for path in paths})
            if worker.is_over:
                state, outcome = worker.end
                if not worker.is_stopping:
                    self._note(paths, outcome or {"message": f"watching ended ({state})"})
                    self._watch_after = time.monotonic() + _WATCH_AGAIN_SECONDS
                self._watch = None
        # Not pathlib, which raises for a folder on a network share that does not answer.
        there = (each.path for each in self.jobs.watched() if os.path.isdir(each.path))  # noqa: PTH112
        folders = [path for path in there if self.allowed.hold(path)]
        if self._watch is not None:
            paths, worker = self._watch
            if paths != folders and not worker.is_stopping:
                worker.stop()
        elif folders and time.monotonic() >= self._watch_after:
            self._watch = folders, self._worker("watch", {"paths": folders})

    def _note(self, paths: Sequence[str], last: Mapping[str, Any]) -> None:
        self.jobs.note_watched(list(paths), {**last, "at": time.time()})
