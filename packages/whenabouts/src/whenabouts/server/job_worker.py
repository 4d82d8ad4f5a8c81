"""The process of one job of the queue, separate so that the job cannot harm the server's memory and searches.

It is started as `python -m whenabouts.server.job_worker`. It reads the job as a line of JSON on standard
input, and writes lines of JSON to standard output: {"progress": …}, {"plan": …}, {"change": …} of a watched
folder, and last {"end": STATE, "outcome": …}. When its input ends, also because the server died, it stops as
after Ctrl-C and keeps finished files.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.corpus import Corpus
from whenabouts.extras import lacking
from whenabouts.index.records import DiskFull
from whenabouts.indexing import plan_index, run_index
from whenabouts.server.allowed import Allowed
from whenabouts.server.offered_models import check_offered, missing
from whenabouts.streams import all_streams, frame_stream
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.files import printable

if TYPE_CHECKING:
    from whenabouts.index.lock import Holder
    from whenabouts.index.plan import Plan
    from whenabouts.index.progress import Progress, Summary

_ACTIONS = ("plan", "index", "retry", "remove", "watch")
_MOST_LISTED = 200
_MOST_LINES = 30
# Searches have priority on a busy machine.
_NICENESS = 10

Say = Callable[[Mapping[str, Any]], None]


class _Job:
    """One job: its corpus, the allowed folders, and the sink of its report lines."""

    def __init__(self, spec: Mapping[str, Any], say: Say, over: threading.Event) -> None:
        self._corpus = Corpus(str(spec["corpus"]))
        self._corpus.cache = Path(spec["cache"]) if spec["cache"] else None
        self._allowed = Allowed(Path(folder) for folder in spec["allowed"])
        self._task: Mapping[str, Any] = spec["task"]
        self._say, self._over = say, over

    def plan(self) -> dict[str, Any]:
        """Report what an index run would do."""
        plan = self._planned()
        self._say({"plan": _shown_plan(plan)})
        return {}

    def index(self) -> dict[str, Any]:
        """Index the paths of the task."""
        return self._run(self._planned)

    def retry(self) -> dict[str, Any]:
        """Reindex the failed files under the paths of the task."""

        def planned() -> Plan:
            places = self._paths()
            failed = [record.path for record in self._corpus.store.ledger().failed]
            under = [path for path in failed if self._allowed.hold(path) and _is_under(path, places)]
            if not under:
                raise UsageError("no file has failed in the folders of --allow")
            return self._checked(plan_index(self._corpus, under, retry=True, follow=False))

        return self._run(planned)

    def remove(self) -> dict[str, Any]:
        """Remove videos from the corpus."""
        names = [str(name) for name in self._task.get("videos", ())]
        with self._corpus.writing(wait=True, on_wait=self._wait):
            # A video that someone else removed meanwhile is no error.
            present = [name for name in names if self._corpus.record(name) is not None]
            removed = [video.id for video in self._corpus.remove(*present)] if present else []
        return {"removed": removed, "collected": self._corpus.collections.count_of(removed)}

    def watch(self) -> dict[str, Any]:
        """Follow folders until the input ends."""
        from whenabouts.server.watched_progress import WatchedProgress
        from whenabouts.watching import watch

        paths = self._paths()
        follower = WatchedProgress(paths, lambda folders: self._say({"progress": folders}))
        changes = watch(self._corpus, paths, stop=self._over, follow=False, follower=follower)
        for summary in changes:
            self._say({"change": _shown_summary(summary)})
        return {}

    def _run(self, planned: Callable[[], Plan]) -> dict[str, Any]:
        with self._corpus.writing(wait=True, on_wait=self._wait):
            summary = run_index(self._corpus, planned(), progress=self._show)
        if summary.interrupted:
            raise KeyboardInterrupt(_shown_summary(summary))  # with what was done until then
        return _shown_summary(summary)

    def _planned(self) -> Plan:
        models = check_offered(self._task)
        option = frame_stream(all_streams())
        options: dict[str, Any] = {option: models["pictures"]} if option and "pictures" in models else {}
        transcribe = models.get("transcribe")
        return self._checked(
            plan_index(self._corpus, self._paths(), follow=False, transcribe=transcribe, **options)
        )

    def _paths(self) -> list[str]:
        """The paths of the task. Raises UsageError for one that is not allowed or is gone."""
        paths = [str(path) for path in self._task.get("paths", ())]
        for path in paths:
            if os.path.realpath(path) != path or not self._allowed.hold(path):
                raise UsageError(
                    f"{Path(path).name} is not in a folder of --allow; `serve` and `mcp` share a "
                    "corpus's queue: give both the same --allow"
                )
            if not os.path.exists(path):  # noqa: PTH110, because pathlib raises for a lost network folder
                raise UsageError(f"{Path(path).name} is gone; connect its disk, or choose another folder")
        return paths

    def _checked(self, plan: Plan) -> Plan:
        """Check that a plan reads nothing outside: a folder may have become a link since it was chosen."""
        for work in plan.work:
            for path in (work.file.path, *work.file.sidecars):
                if not self._allowed.hold(str(path)):
                    raise UsageError(f"{path.name} is a link that leads outside the allowed folders")
        return plan

    def _wait(self, holder: Holder | None) -> None:
        self._say({"progress": {"step": f"waiting for another indexer ({holder or 'unknown'})"}})

    def _show(self, progress: Progress) -> None:
        files = {"files_done": progress.files_done, "files_total": progress.files_total}
        texts = {"rate": progress.rate_text, "left": progress.left_text, "step": progress.step}
        share = round(progress.fraction, 4)
        self._say({"progress": {**files, "fraction": share, "name": progress.name, **texts}})


def _is_under(path: str, places: list[str]) -> bool:
    return any(Path(os.path.realpath(path)).is_relative_to(place) for place in places)


def _shown_plan(plan: Plan) -> dict[str, Any]:
    facts = plan.to_json()
    named = ([printable(Path(path.name)) for path in pair] for pair in plan.duplicates)
    same = (f"{copy} has the same content as {other}" for copy, other in named)
    kept = ("files", "hours", "estimated_seconds", "estimated_bytes", "unchanged", "failed_before")
    lacks = missing(
        [run.name for run in plan.streams],
        is_heard=bool(plan.transcribe),
        has_wordless_sound=any(work.file.kind == "media" and not work.file.sidecars for work in plan.work),
    )
    return {name: facts[name] for name in kept} | {
        "new": len(plan.work),
        "removed_before": plan.removed_before,
        "renamed": len(plan.renamed),
        "described": plan.described,
        "copies": len(plan.duplicates),
        "streams": [run.stream.title for run in plan.streams],
        "problems": [why for _, why in plan.problems[:_MOST_LINES]],
        "problems_in_all": len(plan.problems),
        "notes": [*plan.notes, *same][:_MOST_LINES],
        "missing": [{"adds": each.adds, "command": each.command} for each in lacks],
    }


def _shown_summary(summary: Summary) -> dict[str, Any]:
    counts = ("added", "updated", "renamed", "unchanged", "failed_before")
    failed = [{"path": str(path), "why": why} for path, why in (*summary.failed, *summary.left_out)]
    return {name: getattr(summary, name) for name in counts} | {
        "seconds": round(summary.seconds, 2),
        "failed": failed[:_MOST_LISTED],
        "failed_in_all": len(failed),
        "damaged": len(summary.damaged),
        "pruned": len(summary.pruned),
        "notes": [*summary.notes[:_MOST_LINES], *summary.choices.values()],
    }


def _message(error: Exception) -> str:
    """An error in words: what happened, and how to fix it."""
    if isinstance(error, WhenaboutsError):
        return str(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space, then continue this job"
    if isinstance(error, MemoryError):
        return "there is not enough memory; free some, then continue this job"
    return (
        lacking(error)
        or f"an error in the program ({type(error).__name__}); the server's log has the details"
    )


def _done(spec: Mapping[str, Any], say: Say, over: threading.Event) -> dict[str, Any]:
    """Do a job and return its last line."""
    try:
        outcome = getattr(_Job(spec, say, over), _ACTIONS[_ACTIONS.index(spec["do"])])()
    except KeyboardInterrupt as stop:
        return {"end": "interrupted", "outcome": stop.args[0] if stop.args else {}}
    except Exception as error:
        if not isinstance(error, WhenaboutsError):
            traceback.print_exc()
        code = "disk_full" if isinstance(error, DiskFull) else ""
        return {"end": "failed", "outcome": {"message": _message(error), "code": code}}
    return {"end": "done", "outcome": outcome}


def main() -> int:
    """Do the job given on standard input; returns 0."""
    # A server started in the background may have left SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    # Anything else that is printed, even by libraries, must not mix with the report lines.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Not through sys.stdin: a thread still reading from it would keep Python from ending.
    with open(0, "rb", closefd=False) as given:
        spec = json.loads(given.readline())
    over, speaking = threading.Event(), threading.Lock()

    def say(line: Mapping[str, Any]) -> None:
        with speaking, contextlib.suppress(BrokenPipeError):
            out.write(json.dumps(line) + "\n")
            out.flush()

    def listen() -> None:
        while os.read(0, 1):
            pass
        over.set()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=listen, daemon=True).start()
    last = _done(spec, say, over)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say(last)
    return 0


if __name__ == "__main__":
    sys.exit(main())
