"""Serve the recordings of a task set over HTTP, whole or as MP4 clips.

Requests and downloads name the task, never the file, whose name may reveal a caption or title.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from whenabouts.server.cache import Cache, Make
from whenabouts.server.decoding import Decoders
from whenabouts.server.errors import ServerError, safe_errors
from whenabouts.server.files import OpenFile, content_type, open_regular, respond
from whenabouts.server.service import RecentValues, left
from whenabouts.server.settings import Settings
from whenabouts.server.work import BoundedExecutor, ConnectionLimit
from whenabouts.types import UsageError
from whenabouts.video.cut import CUT_VERSION
from whenabouts.video.probe import MediaError, Probe
from whenabouts.workplace.cached import cached_name
from whenabouts_bench.judging.tasks import Task, TaskSet

CONTEXT_SECONDS = 10.0
"""Visible context on each side of a moment, within which the page lets its borders be dragged."""
MOST_CLIP_SECONDS = 600.0
_USUAL_RATE = 25.0
_KEPT_PROBES = 1000


@dataclass(frozen=True, slots=True)
class Recording:
    """A task's recording, as a page needs it to show the moment.

    `state` is "there", "missing" or "unreadable"; [`start`, `end`) is the visible range in seconds; `rate` is
    in frames per second.
    """

    state: Literal["there", "missing", "unreadable"]
    start: float
    end: float
    rate: float = _USUAL_RATE


class Videos:
    """The recordings of a task set; clips are cut in other processes and cached."""

    def __init__(self, tasks: TaskSet, settings: Settings) -> None:
        limits = settings.limits
        self._tasks = tasks
        self._decoders = Decoders(limits.thumbnails + limits.clips)
        self._cache = Cache(settings.cache, settings.cache_bytes)
        self._reads = BoundedExecutor("videos", limits.reads, limits.reads_waiting, limits.wait_seconds)
        self._clips = BoundedExecutor("clips", limits.clips, limits.clips_waiting, limits.wait_seconds)
        self._downloads = ConnectionLimit("files", limits.files)
        self._probes: RecentValues[Probe | None] = RecentValues(_KEPT_PROBES)

    def close(self) -> None:
        for executor in (self._reads, self._clips):
            executor.close()
        self._decoders.close()

    def look(self, task: Task) -> Recording:
        """Whether a task can be shown, and the visible range. Raises ServerError 429."""
        start = max(0.0, task.moment.start - CONTEXT_SECONDS)
        end = task.moment.end + CONTEXT_SECONDS
        try:
            opened, probed = self._open(task)
        except ServerError as error:
            if error.status not in (409, 410):
                raise  # too many requests say nothing about the recording
            state: Literal["missing", "unreadable"] = "missing" if error.status == 410 else "unreadable"
            return Recording(state, start, max(task.moment.end, min(end, task.duration or end)))
        opened.close()
        rate = (probed.picture.rate if probed.picture else None) or _USUAL_RATE
        end = max(task.moment.end, min(end, task.duration or probed.duration or end))
        return Recording("there", start, end, rate)

    async def file(self, request: Request, task: Task) -> Response:
        """The recording unchanged, whole or one range. Raises ServerError 409, 410, 429."""
        self._downloads.acquire()
        try:
            opened, _ = await self._reads.run(partial(self._open, task), partial(left, request))
        except BaseException:
            self._downloads.release()
            raise
        path = self._path(task)
        name = f"{task.id}{path.suffix}"
        return respond(
            request, opened, media_type=content_type(path), name=name, done=self._downloads.release
        )

    async def clip(self, request: Request, task: Task) -> Response:
        """The visible range as MP4, cached. Raises ServerError 400, 409, 410, 429, 500, 507."""
        key, make = await self._reads.run(partial(self._plan, task), partial(left, request))
        cut, _ = await self._cache.get(key, make, self._clips.run)
        name = f"{task.id}.mp4"
        return respond(request, cut, media_type="video/mp4", name=name, tag=key[:32])

    def _plan(self, task: Task) -> tuple[str, Make]:
        """(cache key of a task's clip, function that makes it)."""
        opened, _ = self._open(task)
        opened.close()  # its status stays
        recording, path, status = self.look(task), self._path(task), opened.status
        if recording.end - recording.start > MOST_CLIP_SECONDS:
            raise ServerError(
                400,
                "clip_too_long",
                f"with its context the moment lasts {recording.end - recording.start:g} s; "
                f"at most {MOST_CLIP_SECONDS:g} s are cut at once",
            )
        cut = CUT_VERSION, f"{recording.start:.3f}", f"{recording.end:.3f}"
        facts = "judged", str(path), str(status.st_size), str(status.st_mtime_ns), *cut
        key = cached_name("", *facts) + ".mp4"
        return key, partial(self._cut, path, recording)

    def _cut(self, path: Path, recording: Recording, out: Path) -> None:
        with safe_errors(path, out):
            self._decoders.cut(path, recording.start, recording.end, out)

    def _open(self, task: Task) -> tuple[OpenFile, Probe]:
        """The opened recording of a task and its probe; files that cannot be probed are never sent.

        Raises ServerError: 410 if the file is missing, 409 if it is unreadable.
        """
        try:
            path = self._path(task)
            opened = open_regular(path)
        except (UsageError, OSError, ValueError):
            raise ServerError(410, "video_gone", "the recording of this moment is missing") from None
        status = opened.status
        key = str(path), str(status.st_size), str(status.st_mtime_ns)
        try:
            probed = self._probes.get_or_make(key, partial(self._probe, path))
            if probed is None:
                raise ServerError(409, "unreadable_video", "the recording of this moment cannot be read")
        except BaseException:
            opened.close()
            raise
        return opened, probed

    def _probe(self, path: Path) -> Probe | None:
        try:
            return self._decoders.probe(path)
        except (MediaError, OSError):
            return None

    def _path(self, task: Task) -> Path:
        return self._tasks.video(task.moment.video_id)
