"""The route that exports moments as a list for an editor or a player."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from whenabouts import export
from whenabouts.corpus import Corpus
from whenabouts.export.moments import FileMoment, moment_of_record, moments_of_result
from whenabouts.export.options import DEFAULT_TITLE, Options
from whenabouts.export.source import Source, Sources
from whenabouts.server.errors import ServerError, problems
from whenabouts.server.schemas import MOST_MOMENTS, ExportParameters, SearchRequest
from whenabouts.server.search_routes import moment_of
from whenabouts.server.service import Service, record_of, service_of
from whenabouts.types import WhenaboutsError

router = APIRouter(prefix="/api")
# The number of moments exported for a query if neither `k` nor `all` is given.
_BEST = 5
DOWNLOAD: dict[int | str, dict[str, Any]] = {
    200: {"description": "The list, in the format asked for", "content": {"*/*": {}}}
}


@router.get(
    "/export",
    responses=problems(404, 409, 410) | DOWNLOAD,
    response_class=Response,
    summary="Moments as a list for editors and players",
)
async def export_list(request: Request, parameters: Annotated[ExportParameters, Query()]) -> Response:
    """Respond with the list that `whenabouts export` writes: the matches of a query, or the given moments."""
    service = service_of(request)
    if (parameters.query is None) == (parameters.moments is None):
        raise ServerError(400, "invalid", "give either a query or moments", field="query")
    check_format(parameters.format)
    moments, data = await service.read(service.searches, request, partial(_list, service, parameters))
    format = export.format_of(parameters.format)
    name = f"whenabouts-{len(moments)}-moment{'s' if len(moments) != 1 else ''}{format.SUFFIXES[0]}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(data, headers={**headers, "Content-Type": format.MEDIA_TYPE})


def check_format(name: str) -> None:
    """Raise ServerError 400 for an unknown format."""
    if name not in export.format_names():
        names = ", ".join(export.format_names())
        raise ServerError(
            400, "unknown_format", f"{name!r} is not a format; choose one of {names}", field="format"
        )


def _list(
    service: Service, parameters: ExportParameters, corpus: Corpus
) -> tuple[Sequence[FileMoment], bytes]:
    named = parameters.moments
    moments = (
        _named_moments(service, corpus, named) if named else _matching_moments(service, corpus, parameters)
    )
    if not moments:
        raise ServerError(
            404, "no_match", "no moment matched, so there is nothing to export; all_moments=true exports all"
        )
    shown, sources = listed_as_shown(service, corpus, moments)
    options = Options(title=parameters.query or DEFAULT_TITLE, sources=sources)
    data, _ = export.render(shown, parameters.format, options)
    return moments, data


class _NoRecording(ServerError, WhenaboutsError):
    """Why a video's file may not be read. Formats that can do without it go on."""


def listed_as_shown(
    service: Service, corpus: Corpus, moments: Sequence[FileMoment]
) -> tuple[list[FileMoment], Sources]:
    """(the moments with file names as clients may see them, the files that the export may read).

    Reading a file that may not be read raises a ServerError with the reason.
    """
    records = {moment.video_id: record_of(corpus, moment.video_id) for moment in moments}
    names = {video_id: service.paths.of_file(record) for video_id, record in records.items()}
    places: dict[str, str] = {}
    refused: dict[str, ServerError] = {}
    for video_id, record in records.items():
        try:
            service.folders.open(record).close()
            places[names[video_id]] = record.path
        except ServerError as error:
            refused[names[video_id]] = error

    def read(path: str) -> Source:
        if (error := refused.get(path)) is not None:
            raise _NoRecording(error.status, error.code, error.message, headers=error.headers)
        return service.decoders.source(path)

    shown = [replace(moment, path=names[moment.video_id]) for moment in moments]
    return shown, Sources(places, read)


def _matching_moments(service: Service, corpus: Corpus, parameters: ExportParameters) -> Sequence[FileMoment]:
    given = parameters.model_dump(include=set(SearchRequest.model_fields))
    if parameters.k is None and not parameters.all:
        given["k"] = _BEST
    search = SearchRequest(**given)
    return moments_of_result(service.search(corpus, search), all_moments=parameters.all_moments)


def _named_moments(service: Service, corpus: Corpus, names: str) -> Sequence[FileMoment]:
    named = [moment_of(name.strip(), "moments") for name in names.split(",")]
    if len(named) > MOST_MOMENTS:
        problem = f"{len(named)} moments, but at most {MOST_MOMENTS} are allowed"
        raise ServerError(400, "too_many_moments", problem, field="moments")
    moments = []
    for rank, moment in enumerate(named, 1):
        record = record_of(corpus, moment.video_id)
        if record.kind == "media":
            service.folders.open(record).close()
        moments.append(moment_of_record(record, moment.start, moment.end, rank))
    return moments
