"""The route that exports moments as a list for an editor or a player."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response

from whenabouts import export
from whenabouts.corpus import Corpus
from whenabouts.export.moments import FileMoment, moment_of_record, moments_of_result
from whenabouts.export.options import DEFAULT_TITLE, Options
from whenabouts.export.source import Source, Sources
from whenabouts.lines import one_line
from whenabouts.server.errors import ServerError, problems
from whenabouts.server.schemas import MOST_MOMENTS, ExportParameters, ListOptions, SearchRequest
from whenabouts.server.search_routes import moment_of
from whenabouts.server.service import Service, record_of, service_of
from whenabouts.types import UsageError, WhenaboutsError

router = APIRouter(prefix="/api")
# The number of moments exported for a query if neither `k` nor `all` is given.
_BEST = 5
NOTES_HEADER = "X-Whenabouts-Notes"
# Proxies bound the length of headers.
_MOST_NOTES, _LONGEST_NOTE, _MOST_NAMES = 5, 200, 20
_HIDDEN = "file paths are not shown here, so the list has names instead; link the files in your editor"
DOWNLOAD: dict[int | str, dict[str, Any]] = {
    200: {"description": f"The list; {NOTES_HEADER} has notes, as JSON", "content": {"*/*": {}}}
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
    return await service.read(service.searches, request, partial(_list, service, parameters))


def check_format(name: str) -> None:
    """Raise ServerError 400 for an unknown format."""
    try:
        export.format_of(name)
    except UsageError as error:
        raise ServerError(400, "unknown_format", str(error), field="format") from None


def _list(service: Service, parameters: ExportParameters, corpus: Corpus) -> Response:
    find = _named_moments if parameters.moments else _matching_moments
    moments = find(service, corpus, parameters)
    if not moments:
        raise ServerError(
            404, "no_match", "no moment matched, so there is nothing to export; all_moments=true exports all"
        )
    name = f"whenabouts-{len(moments)}-moment{'s' if len(moments) != 1 else ''}"
    title = parameters.query or DEFAULT_TITLE
    return sent_list(service, corpus, moments, parameters, name=name, title=title)


class _NoRecording(ServerError, WhenaboutsError):
    """Why a video's file may not be read. Formats that can do without it go on."""


def sent_list(
    service: Service,
    corpus: Corpus,
    moments: Sequence[FileMoment],
    parameters: ListOptions,
    *,
    name: str,
    title: str,
    notes: Sequence[str] = (),
) -> Response:
    """The list of moments for download, with file names as clients may see them, and notes in a header.

    Raises ServerError with the reason, and all names, if the format needs files that may not be read.
    """
    records = {moment.video_id: record_of(corpus, moment.video_id) for moment in moments}
    names = {video_id: service.paths.of_file(record) for video_id, record in records.items()}
    listed = {names[video_id]: record for video_id, record in records.items()}
    refused: dict[str, str] = {}

    def read(name: str) -> Source:
        try:
            service.folders.open(listed[name]).close()
        except ServerError as error:
            refused[name] = listed[name].file_name
            raise _NoRecording(error.status, error.code, error.message, headers=error.headers) from None
        source = service.decoders.source(listed[name].path)
        return replace(source, start_timecode="") if parameters.from_zero else source

    kept: dict[str, Any] = {} if parameters.notes else {"note": "", "tags": ()}
    shown = [replace(moment, path=names[moment.video_id], **kept) for moment in moments]
    try:
        options = Options(title=title, sources=Sources(read))
        data, format_notes = export.render(shown, parameters.format, options)
    except _NoRecording as error:
        if len(refused) > 1:
            files = ", ".join([*refused.values()][:_MOST_NAMES])
            error.message += f"; {len(refused)} files cannot be taken: {files}"
        raise
    hidden = [] if service.paths.are_shown else [_HIDDEN]
    shown_notes = [service.paths.without_folders(note) for note in (*notes, *format_notes, *hidden)]
    if len(shown_notes) > _MOST_NOTES:
        shown_notes[_MOST_NOTES:] = [f"{len(shown_notes) - _MOST_NOTES} more notes are left out"]
    format = export.format_of(parameters.format)
    headers = {
        "Content-Disposition": f"attachment; filename*=utf-8''{quote(name + format.SUFFIXES[0], safe='')}",
        "Content-Type": format.MEDIA_TYPE,
        "Cache-Control": "no-store",
        NOTES_HEADER: json.dumps([one_line(note, _LONGEST_NOTE) for note in shown_notes]),
    }
    return Response(data, headers=headers)


def _matching_moments(service: Service, corpus: Corpus, parameters: ExportParameters) -> Sequence[FileMoment]:
    given = parameters.model_dump(include=set(SearchRequest.model_fields))
    if parameters.k is None and not parameters.all:
        given["k"] = _BEST
    search = SearchRequest(**given)
    return moments_of_result(service.search(corpus, search), all_moments=parameters.all_moments)


def _named_moments(service: Service, corpus: Corpus, parameters: ExportParameters) -> Sequence[FileMoment]:
    named = [moment_of(name.strip(), "moments") for name in (parameters.moments or "").split(",")]
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
