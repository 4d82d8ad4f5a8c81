"""Tools that let an agent add videos: list allowed folders, plan an index run, start it, report its progress.

The page uses the same queue (`server/jobs_runner.py`): a job runs in its own process, and if the server ends
meanwhile, the next one resumes it. No answer contains the location of an allowed folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from whenabouts.corpus import Corpus
from whenabouts.lines import one_line
from whenabouts.server.jobs_runner import MOST_PLACES, Runner
from whenabouts.server.paths import Paths
from whenabouts.types import UsageError
from whenabouts.workplace.jobs import Job

LONGEST_WAIT = 50
"""Most seconds of one call; many clients give up after 60."""
_LONGEST_TEXT = 300
_MOST_LISTED = 20
_MOST_ENTRIES = 200
_POLL_SECONDS = 0.2
# Each waiting call takes one of some forty threads, which all other tools share.
_MOST_WAITING = 8
_BUSY = ("planning", "waiting", "running")


class AddingTools:
    """The tools that add videos. Raises UsageError like `Runner`."""

    def __init__(self, corpus: Corpus, folders: Iterable[Path]) -> None:
        self.runner = Runner(corpus, folders)
        allowed = self.runner.allowed.roots.values()
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)
        self._paths = Paths(are_shown=False, places=corpus.places, folders=allowed)

    def list_folder(self, place: str = "") -> dict[str, Any]:
        """List what may be added: folders, recordings and transcripts.

        Args:
            place: a folder as named by an earlier answer; empty: the folders that the user allowed
        """
        listing = self.runner.allowed.listed(place)
        shown = listing.entries[:_MOST_ENTRIES]
        entries = [{"place": each.place, "kind": each.kind, "bytes": each.bytes} for each in shown]
        return {"entries": entries, "left_out": listing.left_out + len(listing.entries) - len(shown)}

    def add_videos(self, places: list[str], transcribe: str = "", pictures: str = "") -> dict[str, Any]:
        """Plan to add folders and files. Nothing is added yet: show the plan, then start it with `job`.

        Args:
            places: folders and files as named by `list_folder`
            transcribe: a speech model on this machine, for videos without subtitles
            pictures: a model on this machine for searching pictures
        """
        if not 1 <= len(places) <= MOST_PLACES:
            raise UsageError(f"{len(places)} places; give 1 to {MOST_PLACES}, as named by `list_folder`")
        planned = self.runner.plan(places, {"transcribe": transcribe, "pictures": pictures})
        self.runner.wake()
        return self._later(planned.id, LONGEST_WAIT)

    def job(
        self, job: str = "", do: Literal["start", "pause", "continue", "stop"] | None = None, wait: int = 20
    ) -> dict[str, Any]:
        """Ask for the progress of a job of `add_videos`, or start, pause, continue or stop it.

        Args:
            job: its id; empty: the newest job
            do: what to do with it
            wait: seconds to wait for its end, 0 to 50; ask again while it is waiting or running
        """
        if not job:
            jobs = self.runner.listed()
            if not jobs:
                raise UsageError("there is no job yet; `add_videos` plans one")
            job = jobs[0].id
        if do is not None:
            self.runner.jobs.ask(job, do)
            self.runner.wake()
        return self._later(job, min(max(wait, 0), LONGEST_WAIT))

    def _later(self, job_id: str, seconds: int) -> dict[str, Any]:
        """Wait until a job is planned or has ended, but at most some seconds; return its facts.

        If `_MOST_WAITING` calls wait already, returns its present facts at once.
        """
        until = time.monotonic() + seconds
        job = self.runner.get(job_id)
        if self._waiting.acquire(blocking=False):
            try:
                while job.state in _BUSY and time.monotonic() < until:
                    time.sleep(_POLL_SECONDS)
                    job = self.runner.get(job_id)
            finally:
                self._waiting.release()
        return self._shown(job)

    def _shown(self, job: Job) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "job": job.id,
            "state": job.state,
            "places": self.runner.places(job),
            "plan": job.plan,
            "progress": job.progress if job.state == "running" else {},
            "outcome": job.outcome,
        }
        trouble = {"trouble": self.runner.trouble} if self.runner.trouble else {}
        shown: dict[str, Any] = self._bounded(facts | trouble)
        return shown

    def _bounded(self, facts: Any) -> Any:
        """Facts with short lists and texts, without folders of this machine."""
        if isinstance(facts, str):
            return one_line(self._paths.without_folders(facts), _LONGEST_TEXT)
        if isinstance(facts, list):
            return [self._bounded(each) for each in facts[:_MOST_LISTED]]
        if isinstance(facts, Mapping):
            return {name: self._bounded(fact) for name, fact in facts.items()}
        return facts
