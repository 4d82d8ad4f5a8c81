"""Routes of the library: values that videos share, and the new place of a moved file."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from whenabouts.corpus import Corpus
from whenabouts.index.filters import make_filter
from whenabouts.search.coverage import streams_with_clips
from whenabouts.server.errors import ServerError, problems
from whenabouts.server.schemas import (
    FacetBody,
    FacetsBody,
    LibraryParameters,
    NoQuery,
    RelocationRequest,
    VideoBody,
    VideoId,
)
from whenabouts.server.service import record_of, service_of
from whenabouts.server.video_routes import facts_of
from whenabouts.video.files import real_place
from whenabouts.video.objects import source_path

router = APIRouter(prefix="/api")
_WAIT_SECONDS = 5.0


@router.get("/facets", responses=problems(), summary="Values that videos share, with counts")
async def facets(request: Request, parameters: Annotated[LibraryParameters, Query()]) -> FacetsBody:
    """Counts videos by corpus, folder (if shown), stream, language, state and metadata with few values."""
    service = service_of(request)
    service.paths.check_conditions(parameters.where)
    chosen = make_filter((), parameters.after, parameters.before, parameters.where)

    def read(corpus: Corpus) -> FacetsBody:
        library, shown = corpus.library, service.paths.are_shown
        return FacetsBody(
            data=[FacetBody(**facet.to_json()) for facet in library.facets(chosen, folders=shown)],
            videos=len(library.rows(chosen)),
            root=library.root if shown else None,
        )

    return await service.read(service.reads, request, read)


@router.post(
    "/videos/{video_id}/relocate",
    responses=problems(404, 409, 507),
    summary="Set the new place of a moved file",
)
async def relocate(request: Request, video_id: VideoId, body: RelocationRequest, _: NoQuery) -> VideoBody:
    """The file must be in a served folder and have the indexed content. Refused if paths are hidden."""
    service = service_of(request)
    if not service.paths.are_shown:
        hidden = "this server does not show file paths; `whenabouts index` finds the moved file"
        raise ServerError(403, "paths_hidden", hidden, field="path")

    def write(corpus: Corpus) -> VideoBody:
        record_of(corpus, video_id)
        place = source_path(body.path)
        if not service.folders.hold(real_place(place)):
            problem = f"{body.path[:200]!r} is outside the folders served here; name every folder with "
            remedy = "`whenabouts serve --files`; `whenabouts index` finds files anywhere"
            raise ServerError(403, "not_served", problem + remedy, field="path")
        with corpus.store.holding(video_id).writing(wait=_WAIT_SECONDS):
            corpus.relocate(video_id, place)
        record = record_of(corpus, video_id)
        streams = streams_with_clips(corpus.store, [record])[video_id]
        return VideoBody(**facts_of(service, corpus, record, streams))

    return await service.read(service.reads, request, write)
