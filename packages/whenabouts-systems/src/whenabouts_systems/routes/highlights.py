"""The route for the highlights of a video."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from whenabouts.corpus import Corpus
from whenabouts.server.errors import problems
from whenabouts.server.schemas import HighlightsBody, HighlightsParameters
from whenabouts.server.service import record_of, service_of

router = APIRouter(prefix="/api")


@router.get(
    "/videos/{video_id}/highlights",
    responses=problems(404, 409),
    response_model=HighlightsBody,
    summary="What is most worth seeing in a video",
)
async def highlights(
    request: Request,
    video_id: Annotated[str, Path(max_length=300)],
    parameters: Annotated[HighlightsParameters, Query()],
) -> dict[str, Any]:
    """The saliency of each clip by a trained system, and the best moments."""
    service = service_of(request)
    place = service.model(parameters.model)

    def read(corpus: Corpus) -> dict[str, Any]:
        from whenabouts_systems.highlights import highlights_of  # loads PyTorch

        record_of(corpus, video_id)
        best = highlights_of(corpus, video_id, place, parameters.query or "", parameters.k)
        notes = [service.paths.without_folders(note) for note in best.notes]
        return {**best.to_json(), "notes": notes}

    return await service.read(service.searches, request, read)
