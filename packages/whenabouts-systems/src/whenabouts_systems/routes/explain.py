"""The route that explains a trained system: word weights, borders, and the rank of a moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from whenabouts.corpus import Corpus
from whenabouts.server.errors import printable, problems
from whenabouts.server.paths import Paths
from whenabouts.server.schemas import (
    CurveBody,
    ExplainBody,
    ExplainParameters,
    MomentBody,
    TokenWeightsBody,
)
from whenabouts.server.search_routes import moment_of
from whenabouts.server.service import record_of, service_of
from whenabouts.types import Moment
from whenabouts_systems.explain import Borders, Explained
from whenabouts_systems.explain.answer import explain as explain_on

router = APIRouter(prefix="/api")
_MOST_LOST_TO = 5


@router.get(
    "/explain", responses=problems(404, 409), summary="What a trained system made of a query and a moment"
)
async def explain(request: Request, parameters: Annotated[ExplainParameters, Query()]) -> ExplainBody:
    """The weights of the words, how probable start and end are along the video, and what came first."""
    service = service_of(request)
    moment, place = moment_of(parameters.moment, "moment"), service.model(parameters.model)

    def read(corpus: Corpus) -> ExplainBody:
        record_of(corpus, moment.video_id)
        explanation = explain_on(corpus, parameters.query, place, moment=moment, k=parameters.k)
        return _body(explanation.query, parameters.model, moment, explanation.systems[0], service.paths)

    return await service.read(service.searches, request, read)


def _body(query: str, model: str, moment: Moment, explained: Explained, paths: Paths) -> ExplainBody:
    rank, borders, weights = explained.rank_of(moment), explained.borders, explained.token_weights
    along = {} if borders is None else borders.to_json()
    ahead = [result.moment for result in explained.moments if rank is None or result.rank < rank]
    return ExplainBody(
        query=printable(query),
        model=model,
        video_id=moment.video_id,
        in_list=rank is not None,
        rank=rank,
        token_weights=None if weights is None else TokenWeightsBody.model_validate(weights.to_json()),
        sentences=[] if borders is None else _sentences(borders, moment),
        curves={name: _curve(along, along[f"{name}_probability"]) for name in ("start", "end") if along},
        shares={stream: _curve(along, share) for stream, share in along.get("stream_shares", {}).items()},
        lost_to=[
            MomentBody(video_id=other.video_id, start=round(other.start, 3), end=round(other.end, 3), text="")
            for other in ahead[:_MOST_LOST_TO]
        ],
        notes=[printable(paths.without_folders(note)) for note in explained.notes],
    )


def _sentences(borders: Borders, moment: Moment) -> list[str]:
    """The borders in sentences, and the weights of streams if the system gives them."""
    sentences = [f"It {line}." for line in borders.lines(moment)]
    share = borders.share_line(moment)
    return [*sentences, f"What counts there: {share}."] if share else sentences


def _curve(along: Mapping[str, Any], values: list[float]) -> CurveBody:
    """A value for each clip, in the format of a match curve, which the page draws."""
    return CurveBody(
        start=along["clips"]["start"], end=along["clips"]["end"], score=values, chance_percentile=[]
    )
