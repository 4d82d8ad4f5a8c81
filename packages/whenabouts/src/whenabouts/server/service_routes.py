"""Routes about the server itself: health, access, statistics, metrics, and the page."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from starlette.staticfiles import StaticFiles

from whenabouts.server.errors import problems
from whenabouts.server.metrics import Metrics
from whenabouts.server.schemas import AccessBody, HealthBody, NoQuery
from whenabouts.server.service import service_of
from whenabouts.version import __version__
from whenabouts.workplace.guests import in_order

router = APIRouter()
PAGE = FilePath(__file__).with_name("page")
_page_files = StaticFiles(directory=PAGE)


@router.get("/api/health", responses=problems(), summary="Whether the server answers")
async def health(_: NoQuery) -> HealthBody:
    """Needs no token and reveals nothing about the corpus."""
    return HealthBody(status="ok", version=__version__)


@router.get("/api/ready", responses=problems(), summary="Whether the server can answer searches")
async def ready(request: Request, _: NoQuery) -> HealthBody:
    """Needs no token. 503 if the corpus cannot be read, or none of its streams can be searched by words."""
    await service_of(request).check_ready(request)
    return await health(_)


@router.get("/api/access", responses=problems(), summary="What the token may do")
async def access(request: Request, _: NoQuery) -> AccessBody:
    """Returns the client's name and scopes. Without guests everybody has all scopes."""
    guest = request.scope["guest"]
    return AccessBody(name=guest.name, scopes=in_order(guest.scopes))


@router.get("/api/stats", responses=problems(), summary="Statistics of the corpus")
async def stats(request: Request, _: NoQuery) -> dict[str, Any]:
    """Returns `whenabouts stats --json` without hidden paths, and which models the server offers."""
    service = service_of(request)
    numbers = (await service.read(service.reads, request, lambda corpus: corpus.stats())).to_json()
    return service.paths.of_stats(numbers) | {
        "models": list(service.settings.models),
        "checker": None if service.checker is None else service.checker.name,
        **service.models.names,
        "adds": service.runner is not None,
    }


@router.get(
    "/metrics",
    responses=problems() | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    response_class=Response,
    summary="Counters in Prometheus' text format",
)
async def metrics(request: Request, _: NoQuery) -> Response:
    """Counts requests, their times, files of the cache, and running work."""
    return Response(service_of(request).measured(), headers={"Content-Type": Metrics.content_type})


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    """The page. The server ignores the query string, which the page itself reads."""
    return await static(request, "index.html")


@router.get("/static/{name:path}", include_in_schema=False)
async def static(request: Request, name: Annotated[str, Path(max_length=200)]) -> Response:
    """A file of the page; 304 if the browser has it."""
    response = await _page_files.get_response(name, request.scope)
    response.headers["Cache-Control"] = "no-cache"
    return response
