"""The server of `whenabouts judge`: shows each annotator one moment after the other and records the grades.

Browsers receive the query, the moment and the annotator's answers: nothing about other annotators, captions,
or the runs that a candidate came from.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query, Request, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

import whenabouts
from whenabouts.server.app import AnsweringHead
from whenabouts.server.errors import ServerError, handle_errors, printable
from whenabouts.server.paths import Paths
from whenabouts.server.proxied import Proxied
from whenabouts.server.run import Server, link, listen
from whenabouts.server.security import Guard, Scopes
from whenabouts.server.service_routes import PAGE as PRODUCT_PAGE
from whenabouts.server.settings import Settings
from whenabouts.workplace.guests import JUDGE
from whenabouts_bench.judging.server_people import People
from whenabouts_bench.judging.server_schemas import (
    AnnotatorBody,
    AnswerBody,
    Answered,
    ByAnnotator,
    GuidelineBody,
    GuidelineShown,
    Invited,
    Me,
    Overview,
    Presented,
    SkipBody,
)
from whenabouts_bench.judging.server_service import Service
from whenabouts_bench.judging.tasks import TaskSet

PAGE = Path(__file__).with_name("page")
# The page shares these with the page of `serve`.
SHARED = frozenset(
    {
        *("favicon.svg", "page.css", "server.js", "timeline.js", "words.js"),
        *("language.js", "sentences.js", "words.de.js"),
    }
)
# The scope of all addresses; routes that only the lead may use call `_check_leads`.
SCOPES: Scopes = {"": {"GET": JUDGE, "POST": JUDGE}}
router = APIRouter()


def serve(tasks: TaskSet, people: People, settings: Settings, say: Callable[[str], None]) -> None:
    """Serve annotators until SIGINT or SIGTERM; `say` prints each link once the server listens.

    Raises UsageError for an unavailable address or an invalid name, FormatError for a damaged journal.
    """
    with listen(settings) as bound:
        application = Application(tasks, people, settings)

        def greet() -> None:
            leads = people.lead or "for you, the lead: everybody's progress, and the guideline"
            for token, name in {settings.token: leads, **people.tokens}.items():
                say(f"{name}: {link(settings, bound, token)}")

        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        Server(application, settings, greet).run(sockets=[bound])


class Application:
    """The ASGI application: routes behind a guard that knows each annotator's token."""

    def __init__(self, tasks: TaskSet, people: People, settings: Settings) -> None:
        self.service = Service(tasks, people, settings)
        # Browsers share cookies between ports, so each task set has its own cookie.
        cookie = f"whenabouts_judge_{tasks.fingerprint}"
        api = _routes(self.service)
        guard = Guard(
            AnsweringHead(api), settings, people=people.tokens, theirs=(JUDGE,), scopes=SCOPES, cookie=cookie
        )
        api.state.admit = guard.admit
        self._guarded = Proxied(guard, settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)


def _routes(service: Service) -> FastAPI:
    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    api = FastAPI(openapi_url=None, lifespan=life, redirect_slashes=False, routes=router.routes)
    api.state.service = service
    handle_errors(api, Paths(are_shown=False, places=[str(service.tasks.folder)]))
    return api


def service_of(request: Request) -> Service:
    """The service of an app."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def _check_leads(request: Request) -> None:
    if request.scope["guest"].name:
        raise ServerError(403, "not_leading", "only the person who started the server may do that")


def _annotator(request: Request, believed: str) -> str:
    """The annotator's name. ServerError 409 if the page was opened as somebody else, 403 for a pure lead."""
    name = service_of(request).people.judging(request.scope["guest"].name)
    if not name:
        raise ServerError(403, "not_judging", "this link leads and does not judge; open an annotator's link")
    if name != believed:
        raise ServerError(
            409,
            "another_annotator",
            f"this browser judges as {name} since another link was opened in it; open your own link again",
            field="annotator",
        )
    return name


@router.get("/api/health")
async def health() -> dict[str, str]:
    """Liveness; needs no token."""
    return {"status": "ok", "version": whenabouts.__version__}


@router.get("/api/me")
async def me(request: Request) -> Me:
    """Who the page's user is."""
    service, user = service_of(request), request.scope["guest"].name
    annotator, name = service.people.judging(user) or None, printable(service.tasks.name)
    return Me(annotator=annotator, leads=not user, name=name, fingerprint=service.tasks.fingerprint)


@router.get("/api/guideline")
async def guideline(request: Request) -> GuidelineShown:
    """The guideline of the task set, with its version."""
    service = service_of(request)
    return await service.run(request, service.guideline)


@router.post("/api/guideline")
async def edit_guideline(request: Request, body: GuidelineBody) -> GuidelineShown:
    """Replace the guideline."""
    _check_leads(request)
    service = service_of(request)
    return await service.run(request, partial(service.edit, body))


@router.get("/api/annotators")
async def annotators(request: Request) -> Overview:
    """The progress of all annotators, their agreement, and disputed tasks; for the lead."""
    _check_leads(request)
    service = service_of(request)
    return await service.run(request, service.overview)


@router.post("/api/annotators")
async def invite(request: Request, body: AnnotatorBody) -> Invited:
    """Add an annotator; respond with the token of their link."""
    _check_leads(request)
    service = service_of(request)
    invited = await service.run(request, partial(service.invite, body))
    request.app.state.admit(invited.token, invited.annotator)
    return invited


@router.get("/api/task")
async def task(
    request: Request, annotator: Annotated[str, Query(max_length=80)], skipped: bool = False
) -> Presented:
    """The annotator's next task."""
    service, name = service_of(request), _annotator(request, annotator)
    return await service.run(request, partial(service.next, name, skipped=skipped))


@router.post("/api/answers")
async def answer(request: Request, body: AnswerBody) -> Answered:
    """Record a grade or an exam answer; an id that comes twice counts once."""
    service, name = service_of(request), _annotator(request, body.annotator)
    return await service.run(request, partial(service.answer, name, body))


@router.post("/api/skips")
async def skip(request: Request, body: SkipBody) -> Presented:
    """Put a task off."""
    service, name = service_of(request), _annotator(request, body.annotator)
    return await service.run(request, partial(service.skip, name, body))


@router.post("/api/undo")
async def undo(request: Request, body: ByAnnotator) -> Presented:
    """Take back the last answer."""
    service, name = service_of(request), _annotator(request, body.annotator)
    return await service.run(request, partial(service.undo, name, body))


@router.get("/api/tasks/{task_id:path}/video", response_class=Response)
@router.head("/api/tasks/{task_id:path}/video")
async def video(request: Request, task_id: str) -> Response:
    """The recording of a task."""
    service = service_of(request)
    return await service.videos.file(request, service.task(task_id))


@router.get("/api/tasks/{task_id:path}/clip", response_class=Response)
@router.head("/api/tasks/{task_id:path}/clip")
async def clip(request: Request, task_id: str) -> Response:
    """The moment of a task with its context, as MP4."""
    service = service_of(request)
    return await service.videos.clip(request, service.task(task_id))


_own_files, _shared_files = StaticFiles(directory=PAGE), StaticFiles(directory=PRODUCT_PAGE)


@router.get("/")
async def page(request: Request) -> Response:
    """The HTML page on which annotators judge."""
    return await static(request, "index.html")


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """A file of the page, or one shared with the page of `serve`."""
    files = _shared_files if name in SHARED else _own_files
    response = await files.get_response(name, request.scope)
    response.headers["Cache-Control"] = "no-cache"
    return response
