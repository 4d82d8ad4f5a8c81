"""Routes that add and remove videos: list allowed folders, queue jobs, watch folders.

A server without `serve --allow` answers 404 to all of them and names that option.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from whenabouts.corpus import Corpus
from whenabouts.extras import lacking
from whenabouts.index.lance import folder_of
from whenabouts.server.allowed import Allowed
from whenabouts.server.errors import ServerError, printable, problems
from whenabouts.server.jobs_runner import MOST_PLACES, Runner
from whenabouts.server.offered_models import name_of, offered
from whenabouts.server.schemas import NoQuery, Strict
from whenabouts.server.service import Service, record_of, service_of
from whenabouts.workplace.jobs import Job, Kind, NoSuchJob, NotPossible, State, Watched, Wish

router = APIRouter(prefix="/api")
_LONGEST_PLACE = 500
_MOST_VIDEOS = 100
_MOST_FAILED = 500
_MOST_WATCHED = 20
Answer = TypeVar("Answer")
JobId = Annotated[str, Path(max_length=40)]
_Place = Annotated[str, Field(min_length=1, max_length=_LONGEST_PLACE)]
_ModelName = Annotated[str, Field(max_length=200)]


class FolderParameters(Strict):
    """Which folder to list; empty for the list of allowed folders."""

    place: str = Field(default="", max_length=_LONGEST_PLACE, description="the `place` of an entry")


class EntryBody(BaseModel):
    """An entry of a folder. `kind` is "folder", "file", or "outside": a link that leads out of the folder."""

    name: str
    place: str
    kind: str
    bytes: int


class FolderBody(BaseModel):
    """Subfolders, then recordings and transcripts. `left_out` counts entries that are not listed."""

    place: str
    data: list[EntryBody]
    left_out: int
    watched: bool


class ModelBody(BaseModel):
    """A model on the server that a job may use."""

    name: str
    purpose: str


class OfferBody(BaseModel):
    """The models that a job may use, and the free bytes on the corpus's disk."""

    transcribe: list[ModelBody]
    pictures: list[ModelBody]
    free_bytes: int


class NewJob(Strict):
    """Folders and files to index. `transcribe` and `pictures` name models from `/api/jobs/offer`."""

    places: list[_Place] = Field(min_length=1, max_length=MOST_PLACES)
    transcribe: _ModelName = ""
    pictures: _ModelName = ""


class Removal(Strict):
    """Ids of videos to remove from the corpus. Their files stay."""

    videos: list[Annotated[str, Field(min_length=1, max_length=300)]] = Field(
        min_length=1, max_length=_MOST_VIDEOS
    )


class WishBody(Strict):
    """What to do with a job."""

    do: Wish


class WatchBody(Strict):
    """A folder, and whether to watch it from now on."""

    place: _Place
    watched: bool


class FailedBody(BaseModel):
    """A file that could not be indexed, with reason and remedy. `again`: whether this server may retry it."""

    name: str
    why: str
    again: bool


class JobBody(BaseModel):
    """A job. `places` are what it indexes; `message` says why it failed or was interrupted.

    `made` is in seconds since 1970. `plan`, `progress` and `outcome` are empty until they exist.
    """

    id: str
    kind: Kind
    state: State
    wish: str
    made: float
    places: list[str]
    videos: list[str]
    message: str
    plan: dict[str, Any]
    progress: dict[str, Any]
    outcome: dict[str, Any]
    failed: list[FailedBody]


class WatchedBody(BaseModel):
    """A watched folder. `there`: whether the folder exists now; `last`: the result of its last change.

    `progress` counts the files that are being copied, wait, are being read and are done; it is empty
    while nothing is under way. `failed` lists files of the folder that could not be read, `failed_in_all`
    counts them.
    """

    place: str
    since: float
    there: bool
    last: dict[str, Any]
    progress: dict[str, Any]
    failed: list[FailedBody]
    failed_in_all: int


class QueueBody(BaseModel):
    """Jobs, newest first, and watched folders. `trouble`: why the queue cannot be stored now, or ""."""

    data: list[JobBody]
    watched: list[WatchedBody]
    trouble: str


class FailuresBody(BaseModel):
    """Files of the corpus that could not be read at the last attempt."""

    data: list[FailedBody]
    total: int


async def _done(request: Request, work: Callable[[Corpus, Runner], Answer]) -> Answer:
    """The result of `work`, run in a thread. A request that changes something then wakes the queue.

    Raises ServerError, 404 for a server without `--allow`.
    """
    service = service_of(request)
    runner = service.runner
    if runner is None:
        problem = (
            "this server does not add videos; start it with `whenabouts serve --allow FOLDER` to allow that"
        )
        raise ServerError(404, "not_allowed", problem)

    def job(corpus: Corpus) -> Answer:
        try:
            return work(corpus, runner)
        except NoSuchJob as error:
            raise ServerError(404, "no_such_job", str(error)) from None
        except NotPossible as error:
            raise ServerError(409, "not_possible", str(error), field="do") from None

    answer = await service.read(service.reads, request, job)
    if request.method != "GET":
        runner.wake()
    return answer


async def _job_after(request: Request, work: Callable[[Corpus, Runner], Job]) -> JobBody:
    """The job that `work` returns, as the page shows it."""
    service = service_of(request)
    return await _done(request, lambda corpus, runner: _job(service, runner, work(corpus, runner)))


async def _queue_after(request: Request, work: Callable[[Runner], object] = lambda _: None) -> QueueBody:
    """The queue after `work`."""
    service = service_of(request)

    def write(corpus: Corpus, runner: Runner) -> QueueBody:
        work(runner)
        return _queue(service, corpus, runner)

    return await _done(request, write)


@router.get("/folders", responses=problems(404), summary="List folders that may be added")
async def folders(request: Request, parameters: Annotated[FolderParameters, Query()]) -> FolderBody:
    """Lists the folders of `serve --allow`, or the subfolders, recordings and transcripts of one."""

    def read(_: Corpus, runner: Runner) -> FolderBody:
        listing = runner.allowed.listed(parameters.place)
        path = runner.allowed.path(parameters.place) if parameters.place else ""
        entries = [EntryBody(**asdict(each)) for each in listing.entries]
        watched = any(each.path == path for each in runner.jobs.watched())
        return FolderBody(place=parameters.place, data=entries, left_out=listing.left_out, watched=watched)

    return await _done(request, read)


@router.get("/jobs", responses=problems(404), summary="The queue")
async def queue(request: Request, _: NoQuery) -> QueueBody:
    """Lists all jobs and the watched folders."""
    return await _queue_after(request)


@router.get("/jobs/offer", responses=problems(404), summary="What a job may use")
async def offer(request: Request, _: NoQuery) -> OfferBody:
    """Lists models on the server's machine, for a new job. No request downloads a model."""

    def read(corpus: Corpus, _: Runner) -> OfferBody:
        models = {
            kind: [ModelBody(name=name_of(each), purpose=each.model.purpose) for each in listed]
            for kind, listed in offered().items()
        }
        return OfferBody(**models, free_bytes=shutil.disk_usage(folder_of(corpus.places[0])).free)

    return await _done(request, read)


@router.post("/jobs", responses=problems(404, 507), summary="Plan to index folders and files")
async def plan(request: Request, body: NewJob, _: NoQuery) -> JobBody:
    """Creates a job and plans it. Once it is `planned`, `start` puts it into the queue."""
    models = {"transcribe": body.transcribe, "pictures": body.pictures}
    return await _job_after(request, lambda _, runner: runner.plan(body.places, models))


@router.post("/jobs/retry", responses=problems(404, 507), summary="Retry failed files")
async def retry(request: Request, _: NoQuery) -> JobBody:
    """Queues a job that reads all failed files in allowed folders again."""
    return await _job_after(
        request, lambda _, runner: runner.jobs.queue("retry", {"paths": [*runner.allowed.roots.values()]})
    )


@router.post("/jobs/remove", responses=problems(404, 507), summary="Remove videos from the corpus")
async def remove(request: Request, body: Removal, _: NoQuery) -> JobBody:
    """Queues a job that removes videos. Their files stay, and are indexed again only with `--again`."""

    def write(corpus: Corpus, runner: Runner) -> Job:
        ids = [record_of(corpus, video).video_id for video in dict.fromkeys(body.videos)]
        return runner.jobs.queue("remove", {"videos": ids})

    return await _job_after(request, write)


@router.get("/jobs/failed", responses=problems(404), summary="Files that could not be indexed")
async def failed(request: Request, _: NoQuery) -> FailuresBody:
    """Lists the files that failed when they were last read, with reason and remedy."""
    service = service_of(request)

    def read(corpus: Corpus, runner: Runner) -> FailuresBody:
        records = corpus.store.ledger().failed
        shown = [_failed(service, runner.allowed, each.path, each.error) for each in records[:_MOST_FAILED]]
        return FailuresBody(data=shown, total=len(records))

    return await _done(request, read)


@router.get("/jobs/{job}", responses=problems(404), summary="A job")
async def job_by_id(request: Request, job: JobId, _: NoQuery) -> JobBody:
    """Returns a job with its plan, progress and result."""
    return await _job_after(request, lambda _, runner: runner.get(job))


@router.post("/jobs/{job}", responses=problems(404, 409, 507), summary="Start, pause, continue or stop a job")
async def ask(request: Request, job: JobId, body: WishBody, _: NoQuery) -> JobBody:
    """A paused or stopped job keeps finished files, and begins unfinished ones anew if it continues."""
    return await _job_after(request, lambda _, runner: runner.jobs.ask(job, body.do))


@router.delete("/jobs/{job}", responses=problems(404, 409, 507), summary="Remove a job from the list")
async def forget(request: Request, job: JobId, _: NoQuery) -> QueueBody:
    """Removes a job that neither waits nor runs. The videos that it indexed stay."""
    return await _queue_after(request, lambda runner: runner.jobs.forget(job))


@router.post("/watched", responses=problems(404, 507), summary="Watch a folder, or stop watching it")
async def watch(request: Request, body: WatchBody, _: NoQuery) -> QueueBody:
    """Starts or stops indexing files that appear, change, move or go, like `whenabouts watch`."""

    def write(runner: Runner) -> None:
        if not body.watched:
            gone = [
                each.path for each in runner.jobs.watched() if runner.allowed.place(each.path) == body.place
            ]
            runner.jobs.unwatch(gone[0] if gone else runner.allowed.path(body.place))
            return
        path = runner.allowed.path(body.place)
        if not FilePath(path).is_dir():
            raise ServerError(400, "no_folder", f"{body.place} is a file; watch its folder", field="place")
        try:
            import watchfiles  # noqa: F401
        except ModuleNotFoundError as error:
            raise ServerError(503, "not_installed", lacking(error) or str(error)) from None
        runner.jobs.watch(path)

    return await _queue_after(request, write)


def _queue(service: Service, corpus: Corpus, runner: Runner) -> QueueBody:
    watched = (_watched(service, corpus, runner, each) for each in runner.jobs.watched())
    return QueueBody(
        data=[_job(service, runner, job) for job in runner.listed()],
        watched=[body for body in watched if body is not None],
        trouble=service.paths.without_folders(runner.trouble),
    )


def _watched(service: Service, corpus: Corpus, runner: Runner, watched: Watched) -> WatchedBody | None:
    """A watched folder for clients; None if it is outside this server's allowed folders."""
    place = runner.allowed.place(watched.path)
    if place is None or not runner.allowed.hold(watched.path):
        return None
    hidden = ("failed", "progress")
    is_there = os.path.isdir(watched.path)  # noqa: PTH112, because pathlib raises for a lost network folder
    # The process that followed the folder may have died before it cleared its progress.
    progress = watched.last.get("progress") if is_there else None
    failed = corpus.store.ledger().failed
    failures = [record for record in failed if FilePath(record.path).is_relative_to(watched.path)]
    return WatchedBody(
        place=place,
        since=watched.since,
        there=is_there,
        last=_shown(service, {name: fact for name, fact in watched.last.items() if name not in hidden}),
        progress=_shown(service, progress) if isinstance(progress, dict) else {},
        failed=[_failed(service, runner.allowed, each.path, each.error) for each in failures[:_MOST_WATCHED]],
        failed_in_all=len(failures),
    )


def _job(service: Service, runner: Runner, job: Job) -> JobBody:
    failures = [each for each in _list(job.outcome.get("failed")) if isinstance(each, dict)]
    return JobBody(
        **{name: getattr(job, name) for name in ("id", "kind", "state", "wish", "made")},
        places=runner.places(job),
        videos=[printable(str(video)) for video in _list(job.task.get("videos"))],
        message=_shown(service, str(job.outcome.get("message", ""))),
        plan=_shown(service, job.plan),
        progress=_shown(service, job.progress),
        outcome=_shown(service, {name: fact for name, fact in job.outcome.items() if name != "failed"}),
        failed=[
            _failed(service, runner.allowed, str(each.get("path", "")), str(each.get("why", "")))
            for each in failures
        ],
    )


def _failed(service: Service, allowed: Allowed, path: str, why: str) -> FailedBody:
    return FailedBody(
        name=printable(FilePath(path).name), why=_shown(service, why), again=bool(path) and allowed.hold(path)
    )


def _shown(service: Service, facts: Any) -> Any:
    """Facts with folder names removed from their texts."""
    if isinstance(facts, str):
        return printable(service.paths.without_folders(facts))
    if isinstance(facts, list):
        return [_shown(service, each) for each in facts]
    if isinstance(facts, dict) or hasattr(facts, "items"):
        return {printable(str(name)): _shown(service, fact) for name, fact in facts.items()}
    return facts


def _list(value: Any) -> list[Any]:
    """A value from a task file as a list; someone else may have written that file."""
    return value if isinstance(value, list) else []
